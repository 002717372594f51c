"""The error of sweeps that a user can mend."""


class SweepError(RuntimeError):
  """A sweep can't begin, or can't go on. The message tells the cause and the remedy."""
