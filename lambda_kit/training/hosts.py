"""One run on the devices of several hosts, each of which has a process of it.

All processes run the same program with the same seed: each has the whole replay, and acts in environments of its own,
whose episodes are the same. Only updates are shared: a host computes those parts of a batch that its devices have. So
hosts need the same software and hardware, to the bit of an episode.
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
  """Hosts can't be brought together. The message says how they are named."""


def join(description: str) -> None:
  """Waits for the other processes. To be called before anything else of JAX.

  Args:
    description: 'auto' on clusters that JAX knows, such as SLURM's; else 'address:port,processes,number', where the
      address is that of process number 0.
  """
  if description == 'auto':
    jax.distributed.initialize()
    return
  try:
    address, count, number = description.split(',')
    count, number = int(count), int(number)
    if ':' not in address or not 0 <= number < count:
      raise ValueError
  except ValueError:
    raise HostsError(
      f'--hosts={description} is neither auto nor address:port,processes,number, such as '
      '10.0.0.1:1234,2,0 for the first of two processes, which runs on 10.0.0.1.'
    ) from None
  jax.distributed.initialize(address, count, number)


@contextlib.contextmanager
def workdir_of_process(workdir: pathlib.Path) -> Iterator[pathlib.Path]:
  """Where this process writes: the first one to the workdir, others to a copy that is deleted at the end.

  A copy, since a run that goes on has to go on from the same checkpoint everywhere. All hosts have to see the workdir.
  """
  if jax.process_count() == 1:
    yield workdir
    return
  with tempfile.TemporaryDirectory(prefix='lambda_kit_host_') as folder:
    own = workdir
    if jax.process_index() > 0:
      own = pathlib.Path(folder) / workdir.name
      if workdir.is_dir():
        shutil.copytree(workdir, own)
      own.mkdir(exist_ok=True)
    multihost_utils.sync_global_devices('workdirs')  # The first one begins to write when all have copied.
    yield own
