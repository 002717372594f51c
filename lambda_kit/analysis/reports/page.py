"""The report as one self-contained HTML page: it needs no network, no server and no other files."""

import base64
from collections.abc import Iterable, Sequence
import dataclasses
import html
import importlib.resources
import json
import pathlib
import re
from typing import Any

import numpy as np

from lambda_kit.analysis import drawing
from lambda_kit.analysis.metrics import protocols
from lambda_kit.analysis.reports import calibration_table
from lambda_kit.analysis.reports import collection as collection_lib
from lambda_kit.analysis.reports import media
from lambda_kit.analysis.reports import paired_table
from lambda_kit.analysis.reports import reference
from lambda_kit.analysis.reports import run_table
from lambda_kit.analysis.reports import runs as runs_lib
from lambda_kit.analysis.reports import score_tables
from lambda_kit.config import gin_text

_POINTS = 100  # In a curve: as many as a phone's screen can show.
_DIGITS = 5
_MIME = {'.mp4': 'video/mp4', '.gif': 'image/gif'}
_BASELINES = {'PPO': 'ppo', 'PPO-Lagrangian': 'ppo_lagrangian', 'TRPO-Lagrangian': 'trpo_lagrangian', 'CPO': 'cpo'}
_EVALUATED = ('episode_return', 'cost_return', 'cost_regret')


@dataclasses.dataclass(frozen=True)
class Figure:
  """A figure of the page."""

  name: str  # Stem of its files.
  caption: str
  png: bytes


def render(
  collected: collection_lib.Collection,
  tables: Sequence[score_tables.Table],
  figures: Sequence[Figure],
  strips: Sequence[Figure],
  colors: drawing.Colors,
  overview: str,
  gin_root: pathlib.Path | None,
  refresh_seconds: int = 0,
  video_bytes: int = 48_000_000,
) -> str:
  """Renders the page.

  Args:
    collected: The runs.
    tables: Tables of scores.
    figures: Figures of the report.
    strips: Pictures of predictions.
    colors: By algorithm.
    overview: The line below the title.
    gin_root: The folder that holds `gin/`, with the paper's configurations; None to show no differences from them.
    refresh_seconds: Interval at which the page reloads itself; 0 for never.
    video_bytes: Budget for embedded videos. The median run of each group comes first.
  """
  runs = list(run_table.all_runs(collected))
  content = dict(
    overview=overview,
    algorithms=[dict(name=name, color=color) for name, color in colors.items()],
    tasks=[_task(task, collected) for task in collected.tasks],
    runs=[_run(run, label, refused) for run, label, refused in runs],
    configs=_configs([run for run, _, _ in runs], gin_root),
    videos=_videos(collected, video_bytes),
    problems=[dataclasses.asdict(problem) for problem in collected.problems],
  )
  # A '</script>' in the data must not end the script element.
  data = json.dumps(content, separators=(',', ':'), allow_nan=False).replace('<', '\\u003c')
  script = _asset('charts.js') + _asset('page.js')
  parts = dict(
    css=_asset('page.css'),
    script=script,
    refresh=str(refresh_seconds),
    data=data,
    tables=''.join(map(_table, tables)) or '<p>No run has a score yet.</p>',
    paired=_plain('paired', paired_table.to_html(collected), 'No two algorithms have seeds in common on a task.'),
    calibration=_plain('calibration', calibration_table.to_html(collected), 'No run has forecasts of costs yet.'),
    figures=''.join(map(_figure, figures)) or '<p>There is nothing to draw yet.</p>',
    predictions=''.join(map(_figure, strips))
    or '<p>No run has a prediction yet: models predict an episode at the end of a run.</p>',
  )
  return re.sub(r'{{(\w+)}}', lambda match: parts[match.group(1)], _asset('page.html'))


def _asset(name: str) -> str:
  return (importlib.resources.files('lambda_kit.analysis.reports') / 'data' / name).read_text('utf-8')


def _table(table: score_tables.Table) -> str:
  links = ', '.join(f'<a href="tables/{html.escape(table.name)}.{form}">{form}</a>' for form in ('md', 'csv', 'tex'))
  return f'<div class="scroll">{score_tables.to_html(table)}</div><p class="faint">As {links}</p>\n'


def _plain(name: str, table: str, otherwise: str) -> str:
  if not table:
    return f'<p>{otherwise}</p>'
  return f'<div class="scroll">{table}</div><p class="faint">As <a href="tables/{name}.md">md</a></p>\n'


def _figure(figure: Figure) -> str:
  source = base64.b64encode(figure.png).decode()
  name, caption = html.escape(figure.name), html.escape(figure.caption)
  return (
    f'<figure><div class="scroll"><img src="data:image/png;base64,{source}" alt="{caption}" loading="lazy"></div>'
    f'<figcaption>{caption} <a href="figures/{name}.svg">svg</a>, <a href="figures/{name}.png">png</a>'
    '</figcaption></figure>\n'
  )


def _task(task: str, collected: collection_lib.Collection) -> dict[str, Any]:
  groups = collected.of_task(task)
  protocol = groups[0].protocol
  is_paper = task in protocols.SG6_TASKS and protocol == protocols.paper_protocol(task)
  limits = '/'.join(f'{limit:g}' for limit in protocol.cost_limit)
  return dict(
    name=task,
    limit=protocol.cost_limit[0] if len(protocol.cost_limit) == 1 else None,
    protocol=f'{protocol.environment_steps:,} steps, {protocol.evaluation_episodes} evaluation episodes, limit '
    f'{limits}{" (the paper)" if protocol == protocols.paper_protocol(task) else ""}',
    published=[
      dict(algorithm=name, values=_numbers(row.metrics.values))
      for name, row in (reference.after_long_training(task) if is_paper else {}).items()
    ],
    groups=[dict(algorithm=group.algorithm, seeds=[_seed(run) for run in group.runs]) for group in groups],
  )


def _seed(run: runs_lib.Run) -> dict[str, Any]:
  curves = {name: run.curves[name] for name in _EVALUATED}
  steps = curves['episode_return'].steps
  finite = np.flatnonzero(np.all([np.isfinite(curve.values) for curve in curves.values()], axis=0))
  if len(finite) > _POINTS:
    finite = finite[np.linspace(0, len(finite) - 1, _POINTS).round().astype(int)]
  return dict(
    seed=run.identity.seed,
    scored=run.score is not None,
    steps=[int(step) for step in steps[finite]],
    **{name: _numbers(curve.values[finite]) for name, curve in curves.items()},
  )


def _run(run: runs_lib.Run, label: str, refused: bool) -> dict[str, Any]:
  score = None
  if run.score is not None:
    score = dict(
      episode_return=run.score.episode_return,
      cost_return=run.score.cost_return,
      cost_regret=run.score.cost_regret,
      wall_seconds=run.score.wall_seconds,
      environment_steps=run.score.environment_steps,
      safe=run.score.safe,
    )
  return dict(
    workdir=run.workdir,
    task=run.identity.task,
    algorithm=label,
    seed=run.identity.seed,
    refused=refused,
    last_step=run.last_step,
    score=score,
    config_hash=run.identity.config_hash,
    mujoco=run.mujoco,
    has_video=run.video is not None,
    diagnoses=[dict(step=item.environment_steps, name=item.name, message=item.message) for item in run.diagnoses],
  )


def _configs(runs: Sequence[runs_lib.Run], gin_root: pathlib.Path | None) -> dict[str, dict[str, Any]]:
  """Returns configurations by hash: their text, and how they differ from the paper's for the task."""
  configs: dict[str, dict[str, Any]] = {}
  for run in runs:
    if run.identity.config_hash not in configs:
      files = _paper_files(run.identity.task, run.identity.algorithm)
      configs[run.identity.config_hash] = dict(
        text='\n'.join(run.identity.configuration),
        against=' and '.join(files),
        diff=_difference(files, gin_root, run.identity.configuration),
      )
  return configs


def _paper_files(task: str, algorithm: str) -> list[str]:
  """Returns the gin files of the paper's experiment on a task, or of the paper's agent for other tasks."""
  if task == protocols.OBSERVABLE_PUSH:
    files = ['gin/sg6_observable_pointpush1.gin']
  else:
    files = (
      [f'gin/sg6_{task.lower()}.gin']
      if task in protocols.SG6_TASKS
      else ['gin/base/experiment.gin', 'gin/sizes/paper.gin', 'gin/agents/lambda.gin']
    )
  return files + ([f'gin/agents/{_BASELINES[algorithm]}.gin'] if algorithm in _BASELINES else [])


def _difference(files: Sequence[str], gin_root: pathlib.Path | None, lines: Sequence[str]) -> list[str] | None:
  """Returns how lines of gin differ from those of files, without parts that are not in use: their replacements show."""
  if gin_root is None:
    return None
  try:
    paper = gin_text.material_lines(gin_text.read_layers(files, gin_root))
  except gin_text.GinTextError:  # The package may be installed without the repository's files.
    return None
  part = lambda line: line.partition(' = ')[0].rpartition('.')[0]
  parts = set(map(part, lines))
  return gin_text.differing_lines([line for line in paper if part(line) in parts], lines)


def _videos(collected: collection_lib.Collection, budget: int) -> dict[str, str]:
  """Returns videos by workdir as data URIs."""
  uri = lambda medium: f'data:{_MIME[medium.path.suffix]};base64,{base64.b64encode(medium.content).decode()}'
  return {medium.run.workdir: uri(medium) for medium in media.choose(collected, lambda run: run.video, budget)}


def _numbers(values: Iterable[float]) -> list[float]:
  return [float(f'{value:.{_DIGITS}g}') for value in values]
