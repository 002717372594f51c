"""Where lambda_kit's own files and its cache are."""

import os
import pathlib

_PACKAGE = pathlib.Path(__file__).resolve().parent


def root() -> pathlib.Path:
  """The folder that holds gin/: lambda_kit/data in an installed package, the repository in a clone."""
  # In this order, since the library gin is another folder of that name beside an installed package.
  installed = _PACKAGE / 'data'
  return installed if (installed / 'gin').is_dir() else _PACKAGE.parent


def is_clone() -> bool:
  """Whether this is a clone of the repository, where other remedies exist."""
  return (root() / 'pyproject.toml').is_file()


def cache_folder() -> pathlib.Path:
  """The user's folder for what can be recreated, such as compiled programs. It may not exist."""
  base = os.environ.get('XDG_CACHE_HOME') or os.path.join(os.path.expanduser('~'), '.cache')
  return pathlib.Path(base) / 'lambda_kit'
