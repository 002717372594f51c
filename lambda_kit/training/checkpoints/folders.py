"""Folders of checkpoints: renamed, replaced and deleted so that no half of one is ever taken for a whole."""

import os
import pathlib
import shutil

from absl import logging


def set_aside(path: pathlib.Path, reason: str) -> None:
  """Renames a checkpoint that can't be used, with a warning."""
  target, number = path.with_name(f'{path.name}.damaged'), 0
  while target.exists():
    number += 1
    target = path.with_name(f'{path.name}.damaged.{number}')
  try:
    os.replace(path, target)
    logging.warning('A checkpoint is damaged and skipped: %s. Its folder is now %s.', reason, target.name)
  except OSError as problem:
    logging.warning('A checkpoint is damaged and skipped: %s. Its folder could not be renamed: %s', reason, problem)


def remove(path: pathlib.Path) -> None:
  """Deletes a folder, or warns that it could not."""
  shutil.rmtree(path, ignore_errors=True)
  if path.exists():
    logging.warning('%s is no longer needed, but could not be deleted.', path)


def restore_or_remove(replaced: pathlib.Path, target: pathlib.Path) -> None:
  """Finishes a replacement: restores the old checkpoint if the new one didn't get in place, else removes it."""
  if replaced.exists() and not target.exists():
    os.replace(replaced, target)
  else:
    remove(replaced)
