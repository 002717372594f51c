"""Evaluation as in the paper: whole episodes without learning, with their data discarded."""

from collections.abc import Callable, Iterator, Sequence
import itertools
import math
from typing import Any, TypeVar

from absl import logging
import dm_env
import numpy as np

from lambda_kit import core
from lambda_kit import errors
from lambda_kit import types
from lambda_kit.analysis import video
from lambda_kit.analysis.metrics import scores
from lambda_kit.environments import trial

_ATTEMPTS = 3
_PICTURE_SIZE = 256

_Result = TypeVar('_Result')


class EpisodeFailure(errors.UserError):
  """The environment failed in an episode of an evaluation."""


class Evaluator:
  """Measures an actor on episodes of its own environment.

  Evaluation i always plays episodes i E to (i + 1) E - 1, and their noise follows from their numbers. So its outcome
  does not depend on what happened before, and is the same in a resumed run or from a checkpoint alone. For the same
  reason an episode can be played again if the environment failed, up to `_ATTEMPTS` times in all. If it fails each
  time, the evaluation goes on without this episode.
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

  def run(
    self, number: int, more_episodes: int = 0, failures_left: float = math.inf
  ) -> list[types.EpisodeSummary | None]:
    """Runs evaluation `number` and then `more_episodes`.

    Args:
      number: Number of the evaluation.
      more_episodes: Episodes beyond the E of the evaluation.
      failures_left: Number of episodes that may fail.

    Returns:
      A summary of each episode, None for those that failed.

    Raises:
      EpisodeFailure: More episodes failed.
    """
    self._actor.update()
    first = number * self._num_episodes
    episodes: list[types.EpisodeSummary | None] = []
    for i in range(self._num_episodes + more_episodes):
      episodes.append(self._run_episode(first + i, is_last_failure=episodes.count(None) >= failures_left))
    if episodes.count(None) == len(episodes):
      logging.warning(
        'All %d episodes of the evaluation failed, so it has no score. See the warnings before this one for causes.',
        len(episodes),
      )
    return episodes

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

  def _run_episode(self, number: int, is_last_failure: bool) -> types.EpisodeSummary | None:
    for attempt in range(1, _ATTEMPTS + 1):
      try:
        return self._play(number)
      except EpisodeFailure as failure:
        self._actor.give_up()
        if attempt < _ATTEMPTS:
          logging.warning('Episode %d of the evaluations is played again: %s', number, failure)
        elif is_last_failure:
          raise EpisodeFailure(
            f'Episode {number} of the evaluations failed, after as many others as experiment.max_failed_episodes '
            f'allows. Mend the environment, or raise that number: {failure}'
          ) from failure
        else:
          logging.warning('Episode %d of the evaluations is given up: %s', number, failure)
    return None

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
    timestep = _simulated(self._environment.reset)
    self._actor.observe_first(timestep)
    yield None, timestep
    while not timestep.last():
      action = self._actor.select_action(timestep.observation)
      timestep = _simulated(self._environment.step, action)
      self._actor.observe(action, timestep)
      yield action, timestep


def _simulated(call: Callable[..., _Result], *arguments: Any) -> _Result:
  """Calls a method of the environment."""
  try:
    return call(*arguments)
  except Exception as error:
    raise EpisodeFailure(f'the environment failed with {type(error).__name__}: {error}') from error


def evaluation_row(
  episodes: Sequence[types.EpisodeSummary | None], environment_steps: int, cost_regret: np.ndarray
) -> dict[str, Any]:
  """Returns the row of an evaluation: means over the episodes that did not fail (None without any), and these."""
  played = [episode for episode in episodes if episode is not None]
  return dict(
    environment_steps=environment_steps,
    episode_return=scores.average_return(played) if played else None,
    cost_return=scores.average_cost_return(played).tolist() if played else [None] * len(cost_regret),
    cost_regret=cost_regret.tolist(),
    failed_episodes=len(episodes) - len(played),
    episode_returns=[episode.episode_return for episode in played],
    cost_returns=[episode.cost_return.tolist() for episode in played],
  )


def score(row: dict[str, Any], spec: core.EnvironmentSpec) -> dict[str, Any] | None:
  """Returns the score of a checkpoint from its evaluation's row; see `checkpoints/scores.py`."""
  if row['episode_return'] is None:
    return None
  return dict(episode_return=row['episode_return'], cost_return=row['cost_return'], cost_limit=list(spec.cost_limits))
