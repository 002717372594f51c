"""Errors that commands show as one line, without a stack trace."""


class UserError(Exception):
  """Something that a user can mend. The message names the cause and the remedy."""


class SetupError(UserError, ValueError):
  """Parts, or facts about the environment, do not fit together."""
