"""Lists the gin files: experiments, and layers to put on them, each with what its header says.

  lambda-kit list
  lambda-kit run --gin_file=gin/tiny_grid.gin --gin_file=gin/variants/greedy.gin     # An experiment and a layer.

Files of gin/ in the current folder are listed, too, and take the place of those of the same name that come with
lambda_kit.
"""

import pathlib
import signal

from absl import app

from lambda_kit import resources


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `lambda-kit list | head` ends without a stack trace.
  # Later ones win: those of the current folder.
  found = {str(path.relative_to(root)): path for root in (resources.root(), pathlib.Path())
           for path in sorted((root / 'gin').rglob('*.gin'))}
  folders = sorted({str(pathlib.Path(name).parent) for name in found})
  for folder in folders:
    print(f'{"" if folder == folders[0] else chr(10)}{folder}/')
    inside = [name for name in sorted(found) if str(pathlib.Path(name).parent) == folder]
    width = max(map(len, inside))
    for name in inside:
      print(f'  {name:{width}}  {_summary(found[name])}')


def _summary(path: pathlib.Path) -> str:
  """The first sentence of a file's header."""
  header = []
  for line in path.read_text('utf-8').splitlines():
    if not line.startswith('#') or not line.strip('# '):
      break
    header.append(line.strip('# '))
  return ' '.join(header).partition('. ')[0].rstrip('.')
