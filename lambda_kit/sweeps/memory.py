"""How much memory runs take, told from their configurations: most of it is the replay."""

from collections.abc import Iterable

from lambda_kit.config import gin_text

BASE = 4.0  # Gigabytes of a run whose observations are small: programs, their compilation, networks.
_MAX_BYTES = 16 * 2**30  # The default of `EpisodeBuffer.max_bytes`.
_EPISODE = 1_000  # Environment steps.


def needed_gigabytes(texts: Iterable[str]) -> float:
  """Of the largest of some runs, rounded up.

  Args:
    texts: Their configurations, as `configuration.resolved_config` writes them.
  """
  replays = [_replay_bytes(gin_text.read_bindings(text)) for text in texts]
  return BASE + -(-max(replays, default=0) // 10**9)


def _replay_bytes(bindings: gin_text.Bindings) -> int:
  """Of the pictures, where there are any."""
  get = lambda name, default: gin_text.get(bindings, name, default)
  if 'LambdaAgent' not in str(get('experiment.agent', '')):
    return 0  # On-policy agents keep nothing.
  if 'SafetyGymnasium' not in str(get('make_environment.simulator', '')):
    return 0
  if 'image' not in get('SafetyGymnasium.observations', ('image',)):
    return 0
  steps, repeat = get('experiment.environment_steps', 0), get('make_environment.action_repeat', 1)
  moments = -(-steps // repeat) + -(-steps // _EPISODE)
  pictures = 3 * get('SafetyGymnasium.image_size', 64) ** 2 * moments
  return min(pictures, get('EpisodeBuffer.max_bytes', _MAX_BYTES))
