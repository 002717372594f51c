"""Executors by name. Optional engines are imported only when they are used."""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib
from typing import Any

from lambda_kit.sweeps import errors
from lambda_kit.sweeps import interfaces
from lambda_kit.sweeps import local_executor

NAMES = ('local', 'slurm', 'ray')


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of all executors; each uses those that concern it."""

  needs: interfaces.Needs = interfaces.Needs()  # Of one run.
  # Local: the budget of all runs together. By default all cores and all free memory.
  cores: int | None = None
  memory: float | None = None  # Gigabytes.
  gpus: Sequence[str] = ()
  slurm: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # Options of sbatch.
  ray_address: str = 'auto'


def make_executor(name: str, folder: pathlib.Path, options: Options) -> interfaces.Executor:
  """Makes an executor.

  Args:
    name: One of `NAMES`.
    folder: The sweep's folder.
    options: Options of the executor.

  Raises:
    SweepError: Its engine is not installed, its cluster can't be reached, or the options don't fit.
  """
  try:
    if name == 'slurm':
      from lambda_kit.sweeps import slurm_executor

      return slurm_executor.SlurmExecutor(folder / 'slurm', options.needs, options.slurm)
    if name == 'ray':
      from lambda_kit.sweeps import ray_executor

      return ray_executor.RayExecutor(options.needs, options.ray_address)
  except ModuleNotFoundError as error:
    if error.name not in ('submitit', 'ray'):
      raise
    raise errors.SweepError(
      f'--executor={name} needs {error.name}, which is not installed. Install it with '
      f"pip install -e '.[{name}]', or choose --executor=local."
    ) from error
  return _make_local(options)


def _make_local(options: Options) -> local_executor.LocalExecutor:
  cores = local_executor.available_cores()
  if options.cores is not None:
    if options.cores > len(cores):
      raise errors.SweepError(f'--cores={options.cores}, but this process may use only {len(cores)}.')
    cores = cores[: options.cores]
  memory = local_executor.available_memory() if options.memory is None else options.memory
  return local_executor.LocalExecutor(options.needs, cores, memory, options.gpus)
