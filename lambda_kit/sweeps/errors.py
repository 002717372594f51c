"""The error of sweeps that a user can mend."""

from lambda_kit import errors


class SweepError(errors.UserError):
  """A sweep can't begin, or can't go on. The message tells the cause and the remedy."""
