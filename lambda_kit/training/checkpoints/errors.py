"""What can be wrong with a checkpoint or an exported policy. Messages name the file and the remedy, if there is one."""


class CheckpointError(ValueError):
  """A checkpoint, an exported policy, or a file of one, that can't be used."""


class DamagedError(CheckpointError):
  """Not what was written: cut off, changed, or gone."""


class MismatchError(CheckpointError):
  """What was written, but of a run with other arrays."""
