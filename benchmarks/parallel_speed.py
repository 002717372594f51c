"""How the number of worker processes changes the rate of steps."""

from collections.abc import Callable, Sequence
import time
from typing import Any

import numpy as np

from lambda_kit import core
from lambda_kit.environments.processes import parallel


def measure_scaling(
  environment_factory: core.EnvironmentFactory, worker_counts: Sequence[int] = (1, 2, 4), seconds: float = 10.0
) -> dict[str, float]:
  """Agent steps per second with random actions, resets included: in this process, and for each number of workers.

  Building the environments and their first resets are left out. A batched step of k environments counts as k steps.
  """
  environment = environment_factory(seed=0)
  environment.reset()
  results = {'in process': _steps_per_second(environment.step, (), environment.action_spec(), seconds)}
  environment.close()
  for count in worker_counts:
    with parallel.ParallelEnvironments(environment_factory, count, seed=0) as environments:
      environments.reset()

      def step(actions):
        environments.step(actions)
        environments.reset_done()

      results[f'{count} workers'] = _steps_per_second(step, (count,), environments.action_spec(), seconds)
  return results


def _steps_per_second(
  step: Callable[[np.ndarray], Any], batch_shape: tuple[int, ...], spec: Any, seconds: float
) -> float:
  rng = np.random.default_rng(0)
  steps, begin = 0, time.perf_counter()
  while (elapsed := time.perf_counter() - begin) < seconds:
    step(rng.uniform(spec.minimum, spec.maximum, (*batch_shape, *spec.shape)).astype(spec.dtype))
    steps += 1
  return steps * int(np.prod(batch_shape)) / elapsed
