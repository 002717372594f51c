"""Joins a Ray cluster, and finds out in seconds if there is none, which takes Ray itself minutes."""

import socket
import subprocess
import sys
from typing import Any
from urllib import parse

import ray

from lambda_kit import errors

_KNOCK_SECONDS = 10.0
_PROBE_SECONDS = 60.0
_PROBE = 'import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")'


class ClusterMissing(errors.UserError):
  """There is no Ray cluster. The message has the remedy."""


def connect(address: str, remedy: str, **options: Any) -> None:
  """Joins a cluster.

  Args:
    address: 'host:port', 'ray://host:port' or 'auto'.
    remedy: What else to do if there is none.
    **options: Of `ray.init`.

  Raises:
    ClusterMissing: There is none.
  """
  try:
    if address != 'auto':
      _knock(address)
    _try_in_another_process(address)
    ray.init(address=address, log_to_driver=False, logging_level='ERROR', configure_logging=False, **options)
  except (OSError, RuntimeError, ValueError) as error:  # ConnectionError is an OSError.
    cause = (getattr(error, 'strerror', None) or str(error)).strip().splitlines()[0].rstrip('.')
    raise ClusterMissing(
      f'There is no Ray cluster at {address}: {cause}. Start one with `ray start --head`, {remedy}'
    ) from error


def _knock(address: str) -> None:
  """Raises an error within seconds if nothing listens there."""
  url = parse.urlsplit(address if '://' in address else f'//{address}')
  if not url.hostname or not url.port:
    raise ValueError('that is not host:port')
  socket.create_connection((url.hostname, url.port), timeout=_KNOCK_SECONDS).close()


def _try_in_another_process(address: str) -> None:
  """Tries in a process that can be given up: Ray waits forever for a cluster that hangs, or ends the process."""
  try:
    done = subprocess.run(
      [sys.executable, '-c', _PROBE, address], capture_output=True, text=True, check=False, timeout=_PROBE_SECONDS
    )
  except subprocess.TimeoutExpired:
    raise RuntimeError(f'it does not answer within {_PROBE_SECONDS:g} s') from None
  if done.returncode != 0:
    raise RuntimeError((done.stderr.strip() or 'it does not answer').splitlines()[-1])
