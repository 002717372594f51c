"""Files of stopped runs are damaged, each kind of file in each way."""

from collections.abc import Callable, Iterator
import functools
import itertools
import os
import pathlib
import random
import shutil

from tests.faults import injection
from tests.faults import outcomes

# What hurts a file: its path, a generator, and the same file of another run with the same configuration, if it has one.
Damage = Callable[[pathlib.Path, random.Random, pathlib.Path], None]


def _truncate(path: pathlib.Path, rng: random.Random, other: pathlib.Path) -> None:
  del other
  injection.truncate(path, rng)


def _empty(path: pathlib.Path, rng: random.Random, other: pathlib.Path) -> None:
  del rng, other
  path.write_bytes(b'')


def _flip_bit(path: pathlib.Path, rng: random.Random, other: pathlib.Path) -> None:
  del other
  injection.flip_bit(path, rng)


def _flip_bytes(path: pathlib.Path, rng: random.Random, other: pathlib.Path) -> None:
  """A sector of rubbish, as failing disks leave it."""
  del other
  content = bytearray(path.read_bytes())
  begin = rng.randrange(len(content))
  end = min(len(content), begin + 64)
  content[begin:end] = rng.randbytes(end - begin)
  path.write_bytes(content)


def _delete(path: pathlib.Path, rng: random.Random, other: pathlib.Path) -> None:
  del rng, other
  path.unlink()


def _swap(path: pathlib.Path, rng: random.Random, other: pathlib.Path) -> None:
  """The file of another run, as a careless copy leaves it."""
  del rng
  shutil.copyfile(other, path)


def _link(path: pathlib.Path, rng: random.Random, other: pathlib.Path) -> None:
  """A link to another run's file, which must not be written to."""
  del rng
  path.unlink()
  path.symlink_to(other)


def _append(path: pathlib.Path, rng: random.Random, other: pathlib.Path) -> None:
  del other
  with open(path, 'ab') as file:
    file.write(rng.choice([b'{"environment_steps": 12', b'\xff\x00rubbish', b'\x00\x00\n[1, 2]\n{"a":\n', b'\n\n']))


DAMAGES: dict[str, Damage] = {
  'truncated': _truncate,
  'emptied': _empty,
  'a bit flipped': _flip_bit,
  '64 bytes overwritten': _flip_bytes,
  'deleted': _delete,
  "another run's": _swap,
  "a link to another run's": _link,
  'rubbish appended': _append,
}
AT_RANDOM = ('truncated', 'a bit flipped', '64 bytes overwritten', 'rubbish appended')  # Worth more than one try.


def kinds(workdir: pathlib.Path) -> dict[str, list[pathlib.Path]]:
  """The files of a workdir, relative to it, by kind; those that are needed first come first."""
  newest, *older = injection.checkpoints(workdir)
  relative = lambda paths: [path.relative_to(workdir) for path in paths]
  return {
    'newest checkpoint': relative(sorted(newest.iterdir())),
    'older checkpoint': relative(sorted(older[0].iterdir())) if older else [],
    'copy of a log': relative(sorted((workdir / 'checkpoints').glob('*.rows'))),
    'log': relative(sorted(workdir.glob('*.jsonl'))),
    'episode': relative(sorted((workdir / 'replay').glob('episode-*.npz'))[-6:]),
    'run.json': relative(workdir.glob('run.json')),
    'config.gin': relative(workdir.glob('config.gin')),
    'operative_config.gin': relative(workdir.glob('operative_config.gin')),
  }


def cases(
  run: outcomes.Run, stopped: pathlib.Path, other: pathlib.Path, tries: int, seed: int
) -> Iterator[outcomes.Case]:
  """All damages to all files of a stopped run.

  Args:
    run: What is hurt.
    stopped: A workdir of it, to be copied.
    other: A workdir of the same configuration and another seed.
    tries: How often damages at random places are tried.
    seed: Of the places.
  """
  numbers = itertools.count()
  for kind, files in kinds(stopped).items():
    for file in files:
      for name, damage in DAMAGES.items():
        if name in ("another run's", "a link to another run's") and not (other / file).exists():
          continue
        for _ in range(tries if name in AT_RANDOM else 1):
          number = next(numbers)
          inject = functools.partial(_inject, run, stopped, other, file, damage, number, seed)
          yield f'{kind}: {name}', f'{run.folder.name}-{file}-{number}', inject


def _inject(
  run: outcomes.Run,
  stopped: pathlib.Path,
  other: pathlib.Path,
  file: pathlib.Path,
  damage: Damage,
  number: int,
  seed: int,
) -> outcomes.Found:
  workdir = run.copy(stopped, f'damaged-{number}')
  others = (other / file).read_bytes() if (other / file).exists() else b''
  damage(workdir / file, random.Random(f'{seed}-{number}'), other / file)
  found = run.judge(workdir, file.name, *([file.parent.name] if file.parent.name.startswith('step_') else []))
  if others and (other / file).read_bytes() != others:
    return outcomes.Found(outcomes.Outcome.SILENT, f'{other / file}, which was linked to, has changed.')
  return found


def every_checkpoint(run: outcomes.Run, stopped: pathlib.Path, seed: int) -> Iterator[outcomes.Case]:
  """All checkpoints are damaged, or all but one, or gone while the logs are there."""

  def inject(name: str, spared: int, gone: bool) -> outcomes.Found:
    workdir = run.copy(stopped, name)
    for path in injection.checkpoints(workdir)[: -spared or None]:
      if gone:
        shutil.rmtree(path)
      else:
        injection.flip_bit(path / 'learner.safetensors', random.Random(seed))
    if gone:
      os.rename(workdir / 'checkpoints', run.folder / f'{name}.elsewhere')
    return run.judge(workdir, 'learner.safetensors', 'checkpoints', 'No checkpoint')

  for name, spared, gone in (
    ('all checkpoints damaged', 0, False),
    ('all checkpoints but one damaged', 1, False),
    ('all checkpoints gone', 0, True),
  ):
    yield name, f'{run.folder.name}-{name}', functools.partial(inject, name.replace(' ', '-'), spared, gone)
