"""Specs of environments that don't exist, for tests of what reads them."""

import dataclasses

from dm_env import specs
import numpy as np

from lambda_kit import core
from lambda_kit.environments import spec as spec_lib


def make(**facts) -> core.EnvironmentSpec:
  """Two numbers observed, two actions, one cost with limit 25, 1,000 simulator steps, no repeat; or other `facts`."""
  defaults = dict(
    task_name='Task',
    observations={'vector': specs.Array((2,), np.float32)},
    actions=specs.BoundedArray((2,), np.float32, -1.0, 1.0),
    cost_limits=(25.0,),
    action_repeat=1,
    episode_length=1000,
  )
  facts = {**defaults, **facts}
  facts.setdefault('constraint_names', tuple(f'cost_{i}' for i in range(len(facts['cost_limits']))))
  return core.EnvironmentSpec(**facts)


def of(environment: core.Environment, cost_limit=25.0, **changes) -> core.EnvironmentSpec:
  """The spec of an environment, with a limit that suits it or not."""
  return dataclasses.replace(spec_lib.make_spec(environment, cost_limit), **changes)
