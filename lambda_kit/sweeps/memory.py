"""Memory of runs, estimated from their configurations: most of it is the replay."""

from collections.abc import Iterable

from lambda_kit.config import gin_text

BASE = 4.0  # Gigabytes of a run with small observations: programs, their compilation, networks.
_MAX_BYTES = 16 * 2**30  # The default of `EpisodeBuffer.max_bytes`.
_EPISODE = 1_000  # Environment steps.


def needed_gigabytes(texts: Iterable[str]) -> float:
  """Returns the memory of the largest of several runs, rounded up.

  Args:
    texts: Configurations as written by `configuration.resolved_config`.
  """
  replays = [_replay_bytes(gin_text.read_bindings(text)) for text in texts]
  return BASE + -(-max(replays, default=0) // 10**9)


def _replay_bytes(bindings: gin_text.Bindings) -> int:
  """Returns the size of the pictures in a replay, if any."""
  get = lambda name, default: gin_text.get(bindings, name, default)
  if 'LambdaAgent' not in str(get('experiment.agent', '')):
    return 0  # On-policy agents have no replay.
  if 'SafetyGymnasium' not in str(get('make_environment.simulator', '')):
    return 0
  if 'image' not in get('SafetyGymnasium.observations', ('image',)):
    return 0
  steps, repeat = get('experiment.environment_steps', 0), get('make_environment.action_repeat', 1)
  observations = -(-steps // repeat) + -(-steps // _EPISODE)
  pictures = 3 * get('SafetyGymnasium.image_size', 64) ** 2 * observations
  return min(pictures, get('EpisodeBuffer.max_bytes', _MAX_BYTES))
