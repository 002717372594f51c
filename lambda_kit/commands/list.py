"""Lists the grid of gin files: each folder is an axis, and an experiment combines files of all axes.

  lambda-kit list
  lambda-kit run --task=grid --parts=greedy,posterior_ensemble     # In any order.

Gin files in the current folder's gin/ are listed, too; they replace lambda_kit's own of the same name.
"""

import signal

from absl import app

from lambda_kit import resources
from lambda_kit.config import axes

_TITLES = {
  axes.Axis.TASK: 'tasks: one, with --task (a task has a default size and agent)',
  axes.Axis.SIZE: 'sizes: one, with --size',
  axes.Axis.AGENT: 'agents: one, with --agent',
  axes.Axis.PART: 'parts: any that fit together, with --parts',
  axes.Axis.RUN: 'ways to run: any, also with --parts',
}


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `lambda-kit list | head` ends without a stack trace.
  print(table())


def table() -> str:
  """The grid, one line for each file."""
  files = axes.Library([resources.root()]).files()
  width = max(len(axes.short_name(file)) for file in files)
  blocks = []
  for axis, title in _TITLES.items():
    lines = [f'  {axes.short_name(file):{width}}  {file.summary}' for file in files if file.axis is axis]
    blocks.append('\n'.join([title, *lines]))
  return '\n\n'.join(blocks)
