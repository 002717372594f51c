"""Runs as tasks of a Ray cluster. All nodes must see the sweep's folder under the same path."""

from collections.abc import Sequence
import contextlib
import os

from absl import logging
import ray

from lambda_kit.sweeps import grid
from lambda_kit.sweeps import interfaces
from lambda_kit.sweeps import processes
from lambda_kit.sweeps import ray_cluster
from lambda_kit.sweeps import workdirs

_CANCEL_SECONDS = 60.0


class RayExecutor(interfaces.Executor):
  """Gives each run to a node with enough resources. If the node dies, the run can be tried again on another one.

  Args:
    needs: Resources of one run.
    address: 'host:port', 'ray://host:port', or 'auto' for the cluster of this machine or of RAY_ADDRESS.
  """

  def __init__(self, needs: interfaces.Needs, address: str = 'auto'):
    ray_cluster.connect(
      os.environ.get('RAY_ADDRESS', address) if address == 'auto' else address,
      'name it by --ray_address=host:port, or choose --executor=local.',
    )
    _warn_of_small_nodes(needs)
    # No retries by Ray: the sweep retries, and counts all failures.
    self._task = ray.remote(processes.run_to_end).options(
      num_cpus=needs.cores, num_gpus=needs.gpus, memory=needs.memory_bytes or None, max_retries=0
    )
    self._jobs: list[_RayJob] = []

  def submit(self, runs: Sequence[grid.Run]) -> Sequence[interfaces.Job]:
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
    except ray.exceptions.RayTaskError as error:  # Raised not by the run, but by the code that starts it.
      return interfaces.Ended(1, f'the node could not start the run: {str(error).strip().splitlines()[-1]}')
    except ray.exceptions.RayError as error:
      return interfaces.Ended(None, f'its node or worker was lost ({type(error).__name__})')

  def cancel(self) -> None:
    if not self._has_ended():
      ray.cancel(self.result)

  def _has_ended(self) -> bool:
    return bool(ray.wait([self.result], timeout=0)[0])


def _warn_of_small_nodes(needs: interfaces.Needs) -> None:
  """Warns if no node is large enough. Ray itself would wait silently for one to join."""
  wanted = {'CPU': needs.cores, 'GPU': needs.gpus, 'memory': needs.memory_bytes}
  if not any(
    all(node['Resources'].get(name, 0) >= amount for name, amount in wanted.items())
    for node in ray.nodes()
    if node['Alive']
  ):
    logging.warning(
      'No node of the Ray cluster has the %d cores, %g GB of memory and %d GPUs that a run needs. '
      'Runs wait for one to join. Lower --run_cores, --run_memory or --run_gpus to ask for less.',
      needs.cores,
      needs.memory,
      needs.gpus,
    )
