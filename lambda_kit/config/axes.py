"""The grid of gin files: each folder is an axis, and a run combines files of all axes.

    gin/sg6_*.gin, gin/tasks/   one task              gin/parts/   any parts of the agent that fit together
    gin/sizes/                  one size              gin/run/     how it runs: precision, processes
    gin/agents/                 one agent             elsewhere    your own files, in the order given

Files are read in this order, in whatever order they are named. A file that includes a file of another axis sets that
axis's default, which a file named explicitly replaces: this is how a task has a default size and agent.

A line `# Fits: gin/sg6_*.gin gin/agents/lambda.gin` restricts which files of those axes a file can be combined with.
"""

from collections.abc import Iterable, Sequence
import dataclasses
import difflib
import enum
import fnmatch
import os
import pathlib
import re

from lambda_kit import errors
from lambda_kit import reading

GIN = 'gin'
SG6 = 'sg6'
SAVED = '# The whole configuration of a run, as lambda_kit resolved it.'  # First line of a config.gin.
_MAX_BYTES = 1 << 18  # Of a gin file. A config.gin has about five thousand.
_INCLUDE = re.compile(r"""^include\s+['"](.+?)['"]""", re.MULTILINE)
_FITS = re.compile(r'^# Fits: (.+)$', re.MULTILINE)


class ConfigurationError(errors.UserError, ValueError):
  """The configuration is wrong. The message says where, and how to correct it."""


class Axis(enum.Enum):
  """In the order in which files are read. The value is the folder in gin/."""

  TASK = 'tasks'
  SIZE = 'sizes'
  AGENT = 'agents'
  PART = 'parts'
  RUN = 'run'
  OWN = ''

  @property
  def is_single(self) -> bool:
    return self in (Axis.TASK, Axis.SIZE, Axis.AGENT)

  @property
  def noun(self) -> str:
    return {Axis.PART: 'part', Axis.RUN: 'way to run', Axis.OWN: 'file'}.get(self, self.name.lower())


_ORDER = {axis: number for number, axis in enumerate(Axis)}


@dataclasses.dataclass(frozen=True)
class File:
  """A gin file on an axis."""

  name: str  # As it was named, or as other files include it.
  path: pathlib.Path
  axis: Axis
  text: str = dataclasses.field(repr=False, compare=False)

  @property
  def is_saved(self) -> bool:
    """Whether this is the config.gin of a run: a task, a size and an agent in one."""
    return self.text.startswith(SAVED)

  @property
  def summary(self) -> str:
    """The first sentence of the header."""
    header = []
    for line in self.text.splitlines():
      if not line.startswith('#') or not line.strip('# '):
        break
      header.append(line.strip('# '))
    return ' '.join(header).partition('. ')[0].rstrip('.')

  def fits(self, other: 'File') -> bool:
    """Whether this file's header allows the other file. It allows all of the user's own."""
    patterns = [word for words in _FITS.findall(self.text) for word in words.split()]
    relevant = [pattern for pattern in patterns if axis_of(pattern) is other.axis]
    return (
      not relevant
      or axis_of(other.name) is not other.axis
      or any(fnmatch.fnmatch(other.name, pattern) for pattern in relevant)
    )


def axis_of(name: str) -> Axis:
  """The axis that a path's folder stands for."""
  parts = pathlib.PurePath(name).parts
  if len(parts) > 1 and parts[-2] == GIN and parts[-1].startswith(f'{SG6}_'):
    return Axis.TASK
  if len(parts) > 2 and parts[-3] == GIN and parts[-2] in {axis.value for axis in Axis if axis.value}:
    return Axis(parts[-2])
  return Axis.OWN


def nearest(name: str, candidates: Iterable[str]) -> str | None:
  """The candidate that `name` is most likely a misspelling of; None if none is close."""
  by_lower_case = {candidate.lower(): candidate for candidate in sorted(set(candidates) - {name})}
  matches = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.6)
  return by_lower_case[matches[0]] if matches else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
  """' Did you mean X?' with the nearest candidate; '' if none is close."""
  match = nearest(name, candidates)
  return f' Did you mean {match}?' if match else ''


class Library:
  """The gin files in the current folder and the search paths. Of files with the same name, the first counts."""

  def __init__(self, search_paths: Sequence[str | os.PathLike[str]]):
    self._roots = [pathlib.Path(path) for path in ('', *search_paths)]
    self._opened: dict[str, File] = {}

  def files(self) -> list[File]:
    """All files of the grid, axis by axis."""
    names = sorted({path.relative_to(root).as_posix() for root in self._roots for path in (root / GIN).rglob('*.gin')})
    found = [self.open(name) for name in names if axis_of(name) is not Axis.OWN]
    return sorted(found, key=lambda file: _ORDER[file.axis])

  def open(self, name: str, included_from: str = '', axis: Axis | None = None) -> File:
    """Finds a file; its axis is that of its folder, unless said otherwise."""
    if name not in self._opened:
      self._opened[name] = self._find(name, included_from)
    file = self._opened[name]
    return dataclasses.replace(file, axis=axis) if axis else file

  def find(self, name: str, axes: Sequence[Axis]) -> str:
    """The file with a short name: gin/sg6_pointgoal1.gin for 'pointgoal1'. A path is returned as it is."""
    if name.endswith('.gin'):
      return name
    known = {short_name(file): file.name for file in self.files() if file.axis in axes}
    key = name.lower().removeprefix(f'{SG6}_')
    if key in known:
      return known[key]
    what = ' or '.join(dict.fromkeys(axis.noun for axis in axes))
    raise ConfigurationError(
      f'There is no {what} {name!r}.{did_you_mean(name, known)} Known are '
      f'{", ".join(sorted(known))}, and any gin file by its path.'
    )

  def arrange(self, names: Sequence[str], task: str | None = None) -> list[File]:
    """The files to read, in order, each once: those named, and defaults that they include.

    Args:
      names: Names of gin files, in any order.
      task: Name of a file to use as the task, whatever its folder.
    """
    named = [self.open(name) for name in names]
    if task is not None:
      named.insert(0, self.open(task, axis=Axis.TASK))
    included = [file for each in named for file in self._included(each)]
    named += [file for file in included if not file.axis.is_single]
    chosen = {file.path: file for file in named}
    _check_single(chosen.values())
    # Later ones replace earlier ones, since what a file includes first is the base for the rest.
    defaults = {file.axis: file for file in included if file.axis.is_single}
    taken = {file.axis for file in chosen.values()}
    chosen |= {file.path: file for axis, file in defaults.items() if axis not in taken}
    files = sorted(chosen.values(), key=_rank)
    _check_complete(files)
    _check_fits(files)
    return files

  def _find(self, name: str, included_from: str) -> File:
    for root in self._roots:
      if (root / name).is_file():
        try:
          text = reading.read_bytes(root / name, _MAX_BYTES, follow_links=True).decode('utf-8')
        except UnicodeDecodeError as error:
          raise ConfigurationError(f'{root / name} is not a gin file: it is not UTF-8 ({error}).') from None
        return File(_short(name), (root / name).resolve(), Axis.TASK if text.startswith(SAVED) else axis_of(name), text)
    where = f'{included_from}: ' if included_from else ''
    roots = ', '.join(dict.fromkeys(str(root.resolve()) for root in self._roots))
    looked_in = '' if os.path.isabs(name) else f' in {roots}'
    raise ConfigurationError(f'{where}there is no file {name}{looked_in}.{self._suggest(name)}')

  def _included(self, file: File, seen: tuple[pathlib.Path, ...] = ()) -> list[File]:
    """Files of other axes that a file includes, directly or through others."""
    found = []
    for match in _INCLUDE.finditer(file.text):
      other = self.open(match[1], f'{file.name}:{file.text.count(chr(10), 0, match.start()) + 1}')
      if is_other_axis(file.axis, other.name):
        found.append(other)
      else:
        other = dataclasses.replace(other, axis=file.axis)
      if other.path not in (*seen, file.path):  # `layers` reports files that include themselves.
        found += self._included(other, (*seen, file.path))
    return found

  def _suggest(self, name: str) -> str:
    """The gin file with the nearest name, in the requested folder, in gin/ or at the top."""
    near: dict[str, list[str]] = {}
    for root in self._roots:
      for path in [*(root / name).parent.glob('*.gin'), *(root / GIN).rglob('*.gin'), *root.glob('*.gin')]:
        near.setdefault(path.name, []).append(str(path if os.path.isabs(name) else path.relative_to(root)))
    matches = difflib.get_close_matches(os.path.basename(name), near, n=1, cutoff=0.6)
    if not matches:
      return ''
    # Of several files of this name, the one with the nearest path.
    return f' Did you mean {difflib.get_close_matches(name, near[matches[0]], n=1, cutoff=0)[0]}?'


def _short(name: str) -> str:
  """Shortens a path to 'gin/parts/greedy.gin'; a path on no axis stays as it is."""
  parts = pathlib.PurePath(name).parts
  depth = {Axis.OWN: len(parts)}.get(axis_of(name), 2 if len(parts) > 1 and parts[-2] == GIN else 3)
  return name if depth == len(parts) else '/'.join(parts[-depth:])


def short_name(file: File) -> str:
  return pathlib.PurePath(file.name).stem.removeprefix(f'{SG6}_')


def is_other_axis(axis: Axis, included: str) -> bool:
  """Whether an include in a file on `axis` sets another axis's default, rather than being read in place."""
  return axis_of(included) not in (axis, Axis.OWN)


def _rank(file: File) -> tuple[int, str]:
  # The user's own files stay in the order given, since sorting is stable.
  return _ORDER[file.axis], '' if file.axis is Axis.OWN else file.name


def _check_single(files: Iterable[File]) -> None:
  by_axis: dict[Axis, File] = {}
  for file in sorted(files, key=_rank):
    if file.axis.is_single and file.axis in by_axis:
      raise ConfigurationError(f'{by_axis[file.axis].name} and {file.name} are both {file.axis.noun}s: choose one.')
    by_axis[file.axis] = file


def _check_complete(files: Sequence[File]) -> None:
  """Requires a task, unless all files are the user's own. A saved configuration includes its size and agent."""
  task = next((file for file in files if file.axis is Axis.TASK), None)
  for file in files:
    if task is None and file.axis is not Axis.OWN:
      raise ConfigurationError(
        f'{file.name} needs a task, and none was named: give --task=pointgoal1 or another of '
        '--list, or a gin file of your own.'
      )
    if task is not None and task.is_saved and file.axis in (Axis.SIZE, Axis.AGENT):
      raise ConfigurationError(
        f"{file.name} can't meet {task.name}, the whole configuration of a run: name the task "
        'and the files that it was made from.'
      )


def _check_fits(files: Sequence[File]) -> None:
  for file in files:
    for other in files:
      if file is not other and not file.fits(other):
        raise ConfigurationError(
          f'{file.name} does not fit {other.name}: it is for {" and ".join(_FITS.findall(file.text))}.'
        )
