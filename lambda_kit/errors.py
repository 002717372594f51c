"""Errors that commands print without a stack trace."""


class UserError(Exception):
  """An error that a user can correct. The message names the cause and the remedy."""


class SetupError(UserError, ValueError):
  """Parts don't fit together, or don't fit the environment."""
