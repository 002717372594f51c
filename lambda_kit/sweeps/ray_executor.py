"""Runs as tasks of a Ray cluster. The sweep's folder must be visible to all nodes under the same path."""

from collections.abc import Sequence
import contextlib
import os

from absl import logging
import ray

from lambda_kit.sweeps import grid
from lambda_kit.sweeps import interfaces
from lambda_kit.sweeps import processes
from lambda_kit.sweeps import workdirs
from lambda_kit.training import ray_cluster

_CANCEL_SECONDS = 60.0


class RayExecutor(interfaces.Executor):
  """Gives each run to the node that has room for it. A run whose node dies is lost there, and can be tried elsewhere.

  Args:
    needs: Of one run.
    address: 'host:port', 'ray://host:port', or 'auto' for the cluster of this machine or of RAY_ADDRESS.
  """

  def __init__(self, needs: interfaces.Needs, address: str = 'auto'):
    ray_cluster.connect(
      os.environ.get('RAY_ADDRESS', address) if address == 'auto' else address,
      'name it by --ray_address=host:port, or choose --executor=local.',
    )
    _warn_of_small_nodes(needs)
    # No retries here: they are the sweep's, which counts all failures.
    self._task = ray.remote(processes.run_to_end).options(
      num_cpus=needs.cores, num_gpus=needs.gpus, memory=needs.memory_bytes or None, max_retries=0
    )
    self._jobs: list[_RayJob] = []

  def submit(self, runs: Sequence[grid.Run]) -> list[interfaces.Job]:
    jobs = [_RayJob(run, workdirs.output_size(run), self._task.remote(run)) for run in runs]
    self._jobs += jobs
    return jobs

  def close(self) -> None:
    for job in self._jobs:
      job.cancel()
    with contextlib.suppress(ray.exceptions.RayError, ConnectionError):
      results = [job.result for job in self._jobs]
      ray.wait(results, num_returns=len(results), timeout=_CANCEL_SECONDS)
    ray.shutdown()


class _RayJob(interfaces.Job):
  def __init__(self, run: grid.Run, output_before: int, result: ray.ObjectRef):
    self._run = run
    self._output_before = output_before
    self.result = result

  def poll(self) -> interfaces.State | interfaces.Ended:
    if not self._has_ended():
      has_begun = workdirs.output_size(self._run) > self._output_before
      return interfaces.State.RUNNING if has_begun else interfaces.State.QUEUED
    try:
      return interfaces.Ended(ray.get(self.result))
    except ray.exceptions.RayTaskError as error:  # Not by the run: by what was to start it.
      return interfaces.Ended(1, f'the node could not start the run: {str(error).strip().splitlines()[-1]}')
    except ray.exceptions.RayError as error:
      return interfaces.Ended(None, f'its node or worker was lost ({type(error).__name__})')

  def cancel(self) -> None:
    if not self._has_ended():
      ray.cancel(self.result)

  def _has_ended(self) -> bool:
    return bool(ray.wait([self.result], timeout=0)[0])


def _warn_of_small_nodes(needs: interfaces.Needs) -> None:
  """Ray would wait in silence for a node that is large enough: it may be on its way."""
  wanted = {'CPU': needs.cores, 'GPU': needs.gpus, 'memory': needs.memory_bytes}
  if not any(
    all(node['Resources'].get(name, 0) >= amount for name, amount in wanted.items())
    for node in ray.nodes()
    if node['Alive']
  ):
    logging.warning(
      'No node of the Ray cluster has the %d cores, %g GB of memory and %d GPUs that a run is to have. '
      'Runs wait for one to join; --run_cores, --run_memory and --run_gpus ask for less.',
      needs.cores,
      needs.memory,
      needs.gpus,
    )
