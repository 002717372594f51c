"""From a simulator to the environment that agents see."""

import gin
from lambda_kit import core
from lambda_kit.environments import wrappers


@gin.register
def make_environment(seed: int, simulator: core.EnvironmentFactory, action_repeat: int = 2) -> core.Environment:
  """Wraps a simulator: actions repeated and rescaled to [-1, 1], numbers in single precision and finite.

  Args:
    seed: Determines, with its number, each episode.
    simulator: `@SafetyGymnasium`, `@GymnasiumTask` or `@GridCmdp`.
    action_repeat: Simulator steps for which each action is held. Rewards and costs are summed over them.
  """
  environment = simulator(seed=seed)
  # Innermost, so that a simulator which can repeat actions by itself does.
  environment = wrappers.ActionRepeat(environment, action_repeat)
  environment = wrappers.RescaleActions(environment)
  return wrappers.SinglePrecision(environment)
