"""A run's claim on its workdir: what is not of this run is refused, and the run is recorded before its first step.

The record, `run.json`, has the run's id, its seed, and the checksum of `config.gin`. Checkpoints, episodes and rows of
logs carry the id. Nothing is written before all of that agrees.
"""

import dataclasses
import hashlib
import io
import itertools
import os
import pathlib
from typing import NamedTuple

from absl import logging

from lambda_kit import errors
from lambda_kit import files
from lambda_kit import reading
from lambda_kit.analysis import identity as identity_lib
from lambda_kit.analysis import rows as rows_lib
from lambda_kit.analysis import run_record
from lambda_kit.analysis import versions as versions_lib
from lambda_kit.config import configuration
from lambda_kit.config import gin_text
from lambda_kit.logs import loggers as loggers_lib
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training.checkpoints import lock

CONFIG = 'config.gin'

_LOGS = tuple(f'{kind}.jsonl' for kind in loggers_lib.KINDS)
_VIDEOS = ('video.mp4', 'video.gif')
_FIGURES = ('evaluations.txt', 'learning_curve.png', *(f'prediction.{form}' for form in ('png', 'svg', 'json')))
# All that runs and their evaluations write, beside copies of earlier configurations.
_WRITTEN = (
  *(run_record.NAME, CONFIG, 'operative_config.gin', 'checkpoints', 'replay', 'tensorboard', 'evaluation'),
  *(*_LOGS, *_FIGURES, *_VIDEOS),
)
_LOCKS = ('.lock', '.lease')


class ConfigChangedError(errors.UserError):
  """A run would resume as another one: with another configuration, seed or physics, or with files of another run."""


class Claim(NamedTuple):
  """The right to run in a workdir."""

  record: run_record.RunRecord
  lease: lock.Lease
  writes_config: bool  # Whether the run is new, or has another configuration than before.


def claim(experiment: experiment_lib.Experiment, folder: pathlib.Path, allow_change: bool) -> Claim:
  """Refuses a workdir that holds another run than the one that would start or resume there, and takes the lease on it.

  Args:
    experiment: What is about to run.
    folder: The workdir, locked.
    allow_change: Whether a run may be resumed with another configuration.
  """
  for name in _WRITTEN:
    files.refuse_others(folder / name)
  text = configuration.resolved_config()
  record, before = _describe(experiment, text), _record_so_far(folder)
  writes_config = True
  if before is not None:
    _refuse_other_logs(folder, before.run_id)
    if before.begun:
      writes_config = _is_changed(folder, record, before, text, allow_change)
    record = record.going_on(before)
    if not writes_config:
      record = dataclasses.replace(record, config_sha256=before.config_sha256)
  return Claim(record, lock.Lease(folder, record.run_id), writes_config)


def write_start(folder: pathlib.Path, claimed: Claim) -> None:
  """Writes the record and the configuration of a run: before it begins, or once it is restored."""
  run_record.write(folder, claimed.record)  # Before the configuration: where there is one, there is a record.
  if claimed.writes_config:
    if claimed.record.begun:
      _keep_earlier(folder)
    configuration.save_config(folder / CONFIG)


def read_record(folder: pathlib.Path) -> run_record.RunRecord:
  """Reads a workdir's record, or raises a `ConfigChangedError` with a remedy."""
  try:
    return run_record.read(folder)
  except run_record.RecordError as error:
    raise ConfigChangedError(
      f'The run in {folder} can not be resumed: {error}. Put {run_record.NAME} back from a backup, or start a new run '
      f'in another --workdir, or {_restart(folder)}.'
    ) from error


def check_config(folder: pathlib.Path, record: run_record.RunRecord) -> None:
  """Refuses a configuration that is not the one that a run's record was written with."""
  if not _has_own_config(folder, record):
    found = 'damaged, changed, or of another run' if (folder / CONFIG).exists() else 'missing'
    raise ConfigChangedError(
      f'{folder / CONFIG} is {found}. Put it back from a backup, or give the files and flags to resume with and '
      '--allow_config_change.'
    )


def move_aside(folder: pathlib.Path) -> pathlib.Path | None:
  """Renames a workdir with all that it holds, for a new run. Returns its new path; None if it is empty."""
  folder = folder.resolve()
  if not folder.is_dir() or set(os.listdir(folder)) <= set(_LOCKS):
    return None
  with lock.WorkdirLock(folder):
    paths = (folder.with_name(f'{folder.name}.before-{number}') for number in itertools.count(1))
    aside = next(path for path in paths if not os.path.lexists(path))
    os.rename(folder, aside)
    folder.mkdir()
    files.sync_folder(folder.parent)
  return aside


def _describe(experiment: experiment_lib.Experiment, text: str) -> run_record.RunRecord:
  """The record of a new run with the configuration `text`."""
  settings = experiment.settings
  identity = identity_lib.identify(
    experiment.agent,
    experiment.spec,
    settings.seed,
    settings.environment_steps,
    settings.evaluate_every,
    experiment.evaluator.num_episodes,
    gin_text.read_bindings(text),
  )
  known = experiment.environment.optimum(experiment.spec.cost_limits)
  return run_record.RunRecord(
    identity,
    versions_lib.current(experiment.environment.mujoco_version),
    optimum=None if known is None else run_record.Optimum(known[0], tuple(map(float, known[1]))),
    run_id=run_record.new_id(),
    config_sha256=_sha256(text.encode()),
    begun=False,
  )


def _record_so_far(folder: pathlib.Path) -> run_record.RunRecord | None:
  """The record of the run in a workdir. None if there is no run, nor anything that one could overwrite."""
  if (folder / run_record.NAME).exists():
    return read_record(folder)
  found = [name for name in _WRITTEN if (folder / name).exists() and not _is_empty_folder(folder / name)]
  if not found:
    return None
  raise ConfigChangedError(
    f'{folder / found[0]} is there, but there is no {run_record.NAME}, so nobody knows what ran. Put {run_record.NAME} '
    f'back from a backup, or start a new run in another --workdir, or {_restart(folder)}.'
  )


def _is_empty_folder(path: pathlib.Path) -> bool:
  return path.is_dir() and not any(path.iterdir())


def _refuse_other_logs(folder: pathlib.Path, run_id: str | None) -> None:
  """Refuses logs with a row of another run, or whose rows were all written by nobody knows whom."""
  for path in [folder / name for name in _LOGS]:
    is_own, unsealed = False, 0
    with open(path, 'rb') if path.exists() else io.BytesIO() as file:
      for number, line in enumerate(file, start=1):
        found = rows_lib.run_of(line)
        if found not in (None, run_id):
          raise _strange_log(f'{path}, line {number}, is of run {found}', run_id)
        is_own = is_own or found == run_id
        if not is_own and not unsealed and rows_lib.parse(line) is not None:
          unsealed = number
    if unsealed and not is_own:
      raise _strange_log(f'{path}, line {unsealed}, is of no run', run_id)


def _strange_log(found: str, run_id: str | None) -> ConfigChangedError:
  return ConfigChangedError(
    f'{found}, and this is run {run_id}, says {run_record.NAME}. Move the one that is not of the run out of the '
    "workdir, and put back the run's own if there is one."
  )


def _is_changed(
  folder: pathlib.Path, record: run_record.RunRecord, before: run_record.RunRecord, text: str, allow_change: bool
) -> bool:
  """Refuses a run that would resume as another one. Returns whether its configuration changes, which may be allowed."""
  seed, own = record.identity.seed, before.identity.seed
  if seed != own:
    raise ConfigChangedError(
      f'{folder} holds a run with seed {own}, and this is seed {seed}. A run keeps its seed: give --seed={own} to '
      'resume it, or another --workdir to start a new run.'
    )
  if not allow_change:
    check_config(folder, before)
  path = folder / CONFIG
  saved = path.read_text('utf-8', errors='replace') if path.exists() else ''
  lines = configuration.differing_lines(saved, text)
  if lines and not allow_change:
    raise ConfigChangedError(
      f'{folder} holds a run with another configuration:\n'
      + '\n'.join(f'  {line}' for line in lines)
      + '\nGive its own files and flags to resume it, another --workdir to start a new run, or '
      '--allow_config_change to resume it with the changes.'
    )
  _compare_versions(folder, before.versions, record.versions, allow_change)
  return bool(lines) or not _has_own_config(folder, before)


def _has_own_config(folder: pathlib.Path, record: run_record.RunRecord) -> bool:
  """Whether the configuration is there, and as it was when the record was written. Old records don't know."""
  try:
    content = reading.read_bytes(folder / CONFIG, reading.MAX_BYTES, follow_links=True)
  except FileNotFoundError:
    return False
  return record.config_sha256 in (None, _sha256(content))


def _compare_versions(
  folder: pathlib.Path, before: versions_lib.Versions, versions: versions_lib.Versions, allow_change: bool
) -> None:
  """Refuses a run that would resume under another physics."""
  if not versions_lib.same_physics(before, versions) and not allow_change:
    mujoco = before['mujoco']
    raise ConfigChangedError(
      f'{folder} holds a run under MuJoCo {mujoco}, and this is MuJoCo {versions["mujoco"]}, whose physics differs: '
      f'install mujoco=={mujoco} to resume it, give another --workdir to start a new run, or '
      '--allow_config_change to resume it under another physics.'
    )
  if changes := versions_lib.differences(before, versions):
    logging.warning(
      'The run resumes with %s: its results may differ from those of an uninterrupted run.', ', '.join(changes)
    )


def _keep_earlier(folder: pathlib.Path) -> None:
  """Copies a configuration that is about to be replaced to the first free name."""
  path = folder / CONFIG
  if path.exists():
    copies = (folder / f'config.{number}.gin' for number in itertools.count())
    earlier = next(copy for copy in copies if not os.path.lexists(copy))
    files.write_atomically(earlier, path.read_bytes())
    logging.warning('The run resumes with a changed configuration; the previous one is in %s.', earlier)


def _restart(folder: pathlib.Path) -> str:
  return f'give --restart, which moves all that is there to {folder}.before-1 and starts anew'


def _sha256(content: bytes) -> str:
  return hashlib.sha256(content).hexdigest()
