"""From a simulator to the environment that agents see."""

import gin
from lambda_kit import core
from lambda_kit import ranges
from lambda_kit.environments import wrappers


@gin.register
@ranges.checked
def make_environment(
  seed: int, simulator: core.EnvironmentFactory, action_repeat: ranges.Count = 2
) -> core.Environment:
  """Wraps a simulator: repeats actions, rescales them to [-1, 1], and makes numbers float32 and finite.

  Args:
    seed: With an episode's number, it determines the episode.
    simulator: `@SafetyGymnasium`, `@GymnasiumTask` or `@GridCmdp`.
    action_repeat: Simulator steps for which each action is held. Rewards and costs are summed over them.
  """
  # ActionRepeat is innermost, next to the simulator, which may be able to repeat actions itself.
  repeated = wrappers.ActionRepeat(simulator(seed=seed), action_repeat)
  return wrappers.SinglePrecision(wrappers.RescaleActions(repeated))
