"""Lists the grid of gin files: a folder is an axis, and an experiment takes files of each.

  lambda-kit list
  lambda-kit run --task=grid --parts=greedy,posterior_ensemble     # In any order.

Files of gin/ in the current folder are listed, too, and take the place of those of the same name that come with
lambda_kit.
"""

import signal

from absl import app

from lambda_kit import resources
from lambda_kit.config import axes

_TITLES = {
  axes.Axis.TASK: 'tasks: one, by --task (a task names its default size and agent)',
  axes.Axis.SIZE: 'sizes: one, by --size',
  axes.Axis.AGENT: 'agents: one, by --agent',
  axes.Axis.PART: 'parts: any that fit together, by --parts',
  axes.Axis.RUN: 'how it runs: any, by --parts, too',
}


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `lambda-kit list | head` ends without a stack trace.
  print(table())


def table() -> str:
  """The grid, with a line for each file."""
  files = axes.Library([resources.root()]).files()
  width = max(len(axes.short_name(file)) for file in files)
  blocks = []
  for axis, title in _TITLES.items():
    lines = [f'  {axes.short_name(file):{width}}  {file.summary}' for file in files if file.axis is axis]
    blocks.append('\n'.join([title, *lines]))
  return '\n\n'.join(blocks)
