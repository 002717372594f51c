"""Workdirs as runs leave them, made up: scores are simple functions of the seed. For tests and `report_speed`."""

import json
import pathlib
import re

from lambda_kit.analysis import identity as identity_lib
from lambda_kit.analysis import run_record
from lambda_kit.analysis.metrics import protocols
from lambda_kit.config import gin_text

_CONFIG = """experiment.agent = @{agent}()  # gin/agents/lambda.gin:8
experiment.cost_limit = {limit}  # gin/base/experiment.gin:12
experiment.environment_steps = {steps}  # gin/base/experiment.gin:11
experiment.evaluate_every = {every}  # gin/base/experiment.gin:13
experiment.evaluation_episodes = {episodes}  # gin/base/experiment.gin:14
experiment.seed = {seed}  # --gin_bindings
SafetyGymnasium.task = 'Safety{task}-v0'  # gin/tasks/safety_gymnasium.gin:12
"""
_VERSIONS = {'mujoco': '3.3.7'}
# What a learner logs beside what reports show: the names and digits are LAMBDA's own.
_OTHER_METRICS = dict.fromkeys(
  (
    'cost_critic_gradient_norm',
    'cost_critic_loss',
    'cost_expected',
    'cost_log_prob',
    'cost_mean',
    'cost_value/0',
    'critic_gradient_norm',
    'critic_loss',
    'entropy',
    'gradient_norm',
    'imagined_reward',
    'kl',
    'learning_rate',
    'loss',
    'num_snapshots',
    'objective',
    'policy_gradient_norm',
    'policy_loss',
    'posterior_entropy',
    'prior_entropy',
    'reward_log_prob',
    'reward_mse',
    'skipped_updates',
    'terminal_log_prob',
    'vector_log_prob',
    'vector_mse',
  ),
  0.4907914698123932,
)
# Forecasts are 2/3 of observed costs after a correction by 4/3.
_HELD_OUT = {
  'held_out_raw_forecast/0': 0.3,
  'held_out_forecast/0': 0.4,
  'held_out_cost/0': 0.6,
  'held_out_bound/0': 0.54,
  'held_out_covered/0': 0.8,
  'budget_share/0': 0.7,
  'posterior_scale': 11.0,
}


def write_run(
  folder: pathlib.Path,
  task='PointGoal1',
  algorithm='LAMBDA',
  seed=0,
  steps=1_000_000,
  evaluations=4,
  episode_return=10.0,
  cost_return=20.0,
  cost_regret=0.03,
  limit=25.0,
  episodes=10,
  bindings='',
  learner_rows=20,
  stop_after=None,
  diagnoses=(),
  held_out=False,
  versions=_VERSIONS,
  earlier=(),
) -> pathlib.Path:
  """Writes a run whose evaluations rise linearly to `episode_return` + seed, and fall to `cost_return`.

  Args:
    folder: The workdir.
    task: Of the paper.
    algorithm: Its name in reports.
    seed: Is added to the return.
    steps: Of the whole run.
    evaluations: How many.
    episode_return: At the end, with seed 0.
    cost_return: At the end.
    cost_regret: Throughout.
    limit: d.
    episodes: E.
    bindings: Further lines of config.gin.
    learner_rows: How many.
    stop_after: Evaluations after which the run stopped.
    diagnoses: Messages of warnings.
    held_out: Whether the learner scored new episodes.
    versions: Those that the run recorded.
    earlier: Versions that it had before.
  """
  folder.mkdir(parents=True)
  every = steps // evaluations
  agent = re.sub(r'\W', '', algorithm)
  config = (
    _CONFIG.format(task=task, agent=agent, seed=seed, steps=steps, limit=limit, every=every, episodes=episodes)
    + bindings
  )
  (folder / 'config.gin').write_text(config)
  read = gin_text.read_bindings(config)
  paper = protocols.paper_protocol(task)
  at = min(steps, paper.environment_steps) if paper is not None else steps
  config_hash = gin_text.config_hash(read)
  record = run_record.RunRecord(
    identity_lib.Identity(
      task,
      algorithm,
      {},
      seed,
      protocols.Protocol(task, at, episodes, (limit,)),
      config_hash,
      tuple(gin_text.material_lines(read)),
      steps,
      every,
    ),
    versions,
    tuple(run_record.Earlier(config_hash, before) for before in earlier),
    seconds=500.0,
  )
  run_record.write(folder, record if stop_after is not None else record.finish(steps))
  rows = []
  for i in range(1, evaluations + 1)[:stop_after]:
    share = i / evaluations
    rows.append(
      dict(
        environment_steps=i * every,
        episode_return=share * (episode_return + seed),
        cost_return=[cost_return + 60.0 * (1.0 - share)],
        cost_regret=[cost_regret],
        episode_returns=[share * (episode_return + seed)] * episodes,
        time=1000.0 + 100.0 * i,
      )
    )
  _write(folder / 'evaluation.jsonl', rows)
  last = rows[-1]['environment_steps'] if rows else every // 2
  _write(
    folder / 'episode.jsonl',
    [
      dict(
        environment_steps=last * i // learner_rows,
        episode=i,
        episode_return=1.0,
        cost_return=[30.0],
        cost_regret=[cost_regret],
        length=500,
        time=1000.0 + i,
      )
      for i in range(1, learner_rows + 1)
    ],
  )
  _write(
    folder / 'learner.jsonl',
    [
      {
        'environment_steps': last * i // learner_rows,
        'imagined_cost/0': 0.1,
        'multiplier/0': 0.01 * i,
        'penalty': 0.5,
        'posterior_spread': 0.3,
        'value_spread': 0.2,
        'cost_value_spread/0': 0.1,
        **_OTHER_METRICS,
        **(_HELD_OUT if held_out else {}),
        'time': 1000.0 + i,
      }
      for i in range(1, learner_rows + 1)
    ],
  )
  if diagnoses:
    _write(
      folder / 'diagnosis.jsonl',
      [dict(environment_steps=last, name='exploding_kl', message=message) for message in diagnoses],
    )
  return folder


def _write(path: pathlib.Path, rows) -> None:
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
