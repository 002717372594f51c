"""Errors that commands print without a stack trace."""

from collections.abc import Iterator
import contextlib

HINT = ' (--traceback shows where.)'


class UserError(Exception):
  """An error that a user can correct. The message names the cause and the remedy."""


class SetupError(UserError, ValueError):
  """Parts don't fit together, or don't fit the environment."""


@contextlib.contextmanager
def explained(what: str, hint: str = HINT) -> Iterator[None]:
  """Turns any error into a one-sentence `SetupError`, with the error as its cause; a `UserError` is one already.

  Args:
    what: The beginning of the sentence, such as 'The first update would fail'.
    hint: Its end.
  """
  try:
    yield
  except UserError:
    raise
  except Exception as error:
    reason = ': '.join([type(error).__name__, *str(error).splitlines()[:1]])
    raise SetupError(f'{what} with {reason}{hint}') from error
