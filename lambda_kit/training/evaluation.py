"""Evaluation as in the paper: whole episodes without learning, with their data discarded."""

from collections.abc import Iterator, Sequence
import itertools
from typing import Any

from absl import logging
import dm_env
import numpy as np

from lambda_kit import core
from lambda_kit import types
from lambda_kit.analysis import video
from lambda_kit.analysis.metrics import scores
from lambda_kit.environments import trial
from lambda_kit.environments.processes import isolated

_ATTEMPTS = 3
_PICTURE_SIZE = 256


class Evaluator:
  """Measures an actor on episodes of its own environment.

  Evaluation i always plays episodes i E to (i + 1) E - 1, and their noise follows from their numbers. So its outcome
  does not depend on what happened before, and is the same in a resumed run or from a checkpoint alone. For the same
  reason an episode can be played again if the environment's process died or hung, up to `_ATTEMPTS` times in all.
  """

  def __init__(self, environment: core.Environment, actor: core.Actor, spec: core.EnvironmentSpec, num_episodes: int):
    self._environment = environment
    self._actor = actor
    self._spec = spec
    self._num_episodes = num_episodes

  @property
  def num_episodes(self) -> int:
    """E."""
    return self._num_episodes

  def run(self, number: int, more_episodes: int = 0) -> list[types.EpisodeSummary]:
    """Runs evaluation `number` and then `more_episodes`. Returns a summary of each episode."""
    self._actor.update()
    first = number * self._num_episodes
    return [self._run_episode(first + i) for i in range(self._num_episodes + more_episodes)]

  def record(self, number: int, size: int = _PICTURE_SIZE, episode: int = 0) -> Iterator[np.ndarray]:
    """Plays an episode of evaluation `number`, the first by default. Yields frames with return and cost so far."""
    self._actor.update()  # An earlier process may have run the evaluation itself.
    self._environment.next_episode = number * self._num_episodes + episode
    episode_return, cost_return = 0.0, np.zeros(self._spec.num_constraints)
    for _, timestep in self._play_steps():
      if not timestep.first():
        episode_return += float(timestep.reward.reward)
        cost_return += timestep.reward.cost
      yield video.caption(
        trial.draw(self._environment, size),
        video.episode_lines(episode_return, cost_return, self._spec.cost_limits, self._spec.constraint_names),
      )

  def warn_if_not_drawn(self) -> None:
    """Says before the run that `record` will fail."""
    if (problem := trial.find_drawing_problem(self._environment, _PICTURE_SIZE)) is not None:
      logging.warning('There will be no video: %s Mend `render`, or bind experiment.with_video = False.', problem)

  def watch(self, number: int, num_steps: int | None = None) -> types.Recording:
    """Plays the first episode of evaluation `number`, or its first `num_steps` agent steps."""
    self._actor.update()
    self._environment.next_episode = number * self._num_episodes
    steps = list(itertools.islice(self._play_steps(), None if num_steps is None else num_steps + 1))
    observations = [timestep.observation for _, timestep in steps]
    return types.Recording(
      {name: np.stack([observation[name] for observation in observations]) for name in observations[0]},
      np.array([action for action, _ in steps[1:]], np.float32),
      np.array([timestep.reward.reward for _, timestep in steps[1:]], np.float32),
      np.array([timestep.reward.cost for _, timestep in steps[1:]], np.float32),
    )

  def _run_episode(self, number: int) -> types.EpisodeSummary:
    for _ in range(_ATTEMPTS - 1):
      try:
        return self._play(number)
      except isolated.EnvironmentFailure as error:
        logging.warning('Episode %d of an evaluation is played again: %s', number, error)
    return self._play(number)

  def _play(self, number: int) -> types.EpisodeSummary:
    self._environment.next_episode = number
    rewards, costs, environment_steps = [], [], 0
    for _, timestep in self._play_steps():
      if not timestep.first():
        rewards.append(timestep.reward.reward)
        costs.append(timestep.reward.cost)
        environment_steps += self._environment.last_step_count
    return scores.summarize_episode(rewards, costs, environment_steps)

  def _play_steps(self) -> Iterator[tuple[np.ndarray | None, dm_env.TimeStep]]:
    """Plays an episode. Yields None with the first time step, then each action with the time step that it led to."""
    self._actor.reseed(self._environment.next_episode)
    timestep = self._environment.reset()
    self._actor.observe_first(timestep)
    yield None, timestep
    while not timestep.last():
      action = self._actor.select_action(timestep.observation)
      timestep = self._environment.step(action)
      self._actor.observe(action, timestep)
      yield action, timestep


def evaluation_row(
  episodes: Sequence[types.EpisodeSummary], environment_steps: int, cost_regret: np.ndarray
) -> dict[str, Any]:
  """Returns the row of an evaluation: means over episodes, and the episodes themselves."""
  return dict(
    environment_steps=environment_steps,
    episode_return=scores.average_return(episodes),
    cost_return=scores.average_cost_return(episodes).tolist(),
    cost_regret=cost_regret.tolist(),
    episode_returns=[episode.episode_return for episode in episodes],
    cost_returns=[episode.cost_return.tolist() for episode in episodes],
  )


def score(row: dict[str, Any], spec: core.EnvironmentSpec) -> dict[str, Any]:
  """Returns the score of a checkpoint from its evaluation's row; see `checkpoints/scores.py`."""
  return dict(episode_return=row['episode_return'], cost_return=row['cost_return'], cost_limit=list(spec.cost_limits))
