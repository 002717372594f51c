"""Where the files are that come with lambda_kit, and where it keeps what can be made again."""

import os
import pathlib

_PACKAGE = pathlib.Path(__file__).resolve().parent


def root() -> pathlib.Path:
  """The folder that holds gin/: lambda_kit/data where the package was installed, the repository in a clone."""
  # In this order: beside an installed package lies another folder named gin, the library.
  installed = _PACKAGE / 'data'
  return installed if (installed / 'gin').is_dir() else _PACKAGE.parent


def is_clone() -> bool:
  """Whether this is a clone of the repository, for remedies that only help there."""
  return (root() / 'pyproject.toml').is_file()


def cache_folder() -> pathlib.Path:
  """The user's folder for what can be made again, such as compiled programs. It may not exist yet."""
  base = os.environ.get('XDG_CACHE_HOME') or os.path.join(os.path.expanduser('~'), '.cache')
  return pathlib.Path(base) / 'lambda_kit'
