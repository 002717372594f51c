"""One run on the devices of several hosts, with one process on each host.

All processes run the same program with the same seed. Each has the whole replay, and acts in its own environments,
which produce the same episodes. Only updates are shared: a host computes the slices of a batch that are on its devices.
So hosts need identical software and hardware: their episodes must agree to the bit.
"""

from collections.abc import Iterator
import contextlib
import pathlib
import shutil
import tempfile

import jax
from jax.experimental import multihost_utils

from lambda_kit import errors


class HostsError(errors.UserError):
  """The flag that names the hosts can't be read."""


def join(description: str) -> None:
  """Waits for the other processes. Call it before anything else of JAX.

  Args:
    description: 'auto' on clusters that JAX knows, such as SLURM's; otherwise 'address:port,processes,number', with the
      address of process number 0, which listens there and nowhere else.
  """
  if description == 'auto':
    jax.distributed.initialize()
    return
  try:
    address, *numbers = description.split(',')
    count, number = map(int, numbers)
    if ':' not in address or not 0 <= number < count:
      raise ValueError
  except ValueError:
    raise HostsError(
      f'--hosts={description} is neither auto nor address:port,processes,number, such as '
      '10.0.0.1:1234,2,0 for the first of two processes, which runs on 10.0.0.1.'
    ) from None
  # By default, JAX would listen on all addresses of the machine, and lets in whoever connects.
  jax.distributed.initialize(address, count, number, coordinator_bind_address=address)


@contextlib.contextmanager
def workdir_of_process(workdir: pathlib.Path, copies: bool = True) -> Iterator[pathlib.Path]:
  """Yields the folder that this process writes to: the workdir for the first one, for others a temporary copy of it.

  They need a copy because all processes must resume from the same checkpoint. All hosts need access to the workdir.

  Args:
    workdir: The run's.
    copies: Whether others have a copy; if not, because the run starts anew, theirs is empty.
  """
  if jax.process_count() == 1:
    yield workdir
    return
  with tempfile.TemporaryDirectory(prefix='lambda_kit_host_') as folder:
    own = workdir
    if jax.process_index() > 0:
      own = pathlib.Path(folder) / workdir.name
      if copies and workdir.is_dir():
        shutil.copytree(workdir, own)
      own.mkdir(exist_ok=True)
    multihost_utils.sync_global_devices('workdirs')  # The first process must not write before all have copied.
    yield own
