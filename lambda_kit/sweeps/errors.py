"""The error of sweeps that a user can fix."""

from lambda_kit import errors


class SweepError(errors.UserError):
  """A sweep can't start, or can't continue."""
