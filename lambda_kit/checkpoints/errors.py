"""What can be wrong with a checkpoint. Messages name the file and, where a user can mend it, the remedy."""


class CheckpointError(ValueError):
  """A checkpoint, or a file of one, that can't be used."""


class DamagedError(CheckpointError):
  """Not what was written: cut off, changed, or gone."""


class MismatchError(CheckpointError):
  """What was written, but of a run with other arrays."""
