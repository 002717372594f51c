"""A workdir is one run's: files of others are refused by name, and are never overwritten, cut or deleted."""

import json
import os
import pathlib
import shutil

import pytest

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit import errors
from lambda_kit import files
from lambda_kit.analysis import curves
from lambda_kit.analysis import run_record
from lambda_kit.config import configuration
from lambda_kit.environments import grid_cmdp
from lambda_kit.environments import trial
from lambda_kit.training import checkpointing
from lambda_kit.training import evaluation
from lambda_kit.training import experiment as experiment_lib
from lambda_kit.training import train as train_lib
from lambda_kit.training import workdir as workdir_lib
from lambda_kit.training.checkpoints import errors as checkpoint_errors
from lambda_kit.training.checkpoints import lock
from lambda_kit.training.checkpoints import store as store_lib

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])
_BINDINGS = (
  'ENVIRONMENT_STEPS = 200',
  'GridCmdp.episode_length = 20',
  'experiment.evaluate_every = 100',
  'experiment.evaluation_episodes = 1',
  'experiment.with_video = False',
)


@pytest.fixture(autouse=True)
def _no_figure(monkeypatch):
  """Drawing takes most of the time of such a run."""

  def draw(workdir, path, *unused):
    path.write_bytes(b'')
    return path

  monkeypatch.setattr(curves, 'learning_curve', draw)
  monkeypatch.setattr(train_lib.loggers_lib.TensorBoardLogger, 'write_image', lambda *unused: None)


def _train(folder, *bindings, seed=0, allow_config_change=False):
  gin.clear_config()
  bindings = (*_BINDINGS, f'experiment.seed = {seed}', *bindings)
  configuration.parse(['gin/tasks/grid.gin', 'gin/agents/random.gin'], bindings, [_ROOT])
  with experiment_lib.build() as experiment:
    return train_lib.train(experiment, folder, allow_config_change)


def _contents(folder):
  """All files, without what says who uses the folder."""
  paths = (path for path in folder.rglob('*') if path.is_file() and path.name not in ('.lock', '.lease'))
  return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def _rows(folder, kind='episode'):
  ignored = ('time', 'steps_per_second', 'seal')
  rows = map(json.loads, (folder / f'{kind}.jsonl').read_text().splitlines())
  return [{name: value for name, value in row.items() if name not in ignored} for row in rows]


def _stop_after(monkeypatch, episodes):
  """Kills a run, which can save nothing more, in one of its episodes."""
  advance, count = train_lib.experiment_lib.environment_loop.EnvironmentLoop.advance, 0

  def counting(self):
    nonlocal count
    count += 1
    if count > episodes:
      raise _Killed
    advance(self)

  monkeypatch.setattr(train_lib.experiment_lib.environment_loop.EnvironmentLoop, 'advance', counting)
  monkeypatch.setattr(checkpointing.Checkpointer, 'finish', lambda self: None)


class _Killed(BaseException):
  pass


@pytest.fixture(scope='module', name='runs')
def _runs(tmp_path_factory):
  """Two finished runs that differ in nothing but the seed."""
  folder = tmp_path_factory.mktemp('runs')
  with pytest.MonkeyPatch.context() as patch:
    _no_figure.__wrapped__(patch)
    for seed in (0, 1):
      _train(folder / str(seed), seed=seed)
  return folder


@pytest.fixture(name='workdir')
def _workdir(runs, tmp_path):
  return shutil.copytree(runs / '0', tmp_path / 'run')


def _copy(source, name, workdir):
  """Puts a file or folder of another run in the place of this run's."""
  if (workdir / name).is_dir():
    shutil.rmtree(workdir / name)
    shutil.copytree(source / name, workdir / name)
  else:
    shutil.copy(source / name, workdir / name)


def _refused(workdir, kind, message, *bindings, **options):
  before = _contents(workdir)
  with pytest.raises(kind, match=message) as info:
    _train(workdir, *bindings, **options)
  assert isinstance(info.value, errors.UserError)
  assert _contents(workdir) == before


def test_a_run_has_one_id_everywhere(workdir, runs):
  record = run_record.read(workdir)
  assert len(record.run_id) == 16 and record.begun
  assert record.run_id != run_record.read(runs / '1').run_id
  for kind in ('episode', 'evaluation'):
    for line in (workdir / f'{kind}.jsonl').read_text().splitlines():
      assert json.loads(line)['seal'].startswith(f'{record.run_id}-')
  manifests = list((workdir / 'checkpoints').glob('step_*/manifest.json'))
  assert len(manifests) == 3 and all(json.loads(path.read_text())['run_id'] == record.run_id for path in manifests)
  _train(workdir)  # Nothing is left to do.
  assert run_record.read(workdir).run_id == record.run_id


@pytest.mark.parametrize(
  'name, kind, message',
  [
    ('config.gin', workdir_lib.ConfigChangedError, 'run/config.gin is damaged, changed, or of another run'),
    ('run.json', workdir_lib.ConfigChangedError, 'line 1, is of run [0-9a-f]{16}, and this is run [0-9a-f]{16}'),
    ('episode.jsonl', workdir_lib.ConfigChangedError, 'run/episode.jsonl, line 1, is of run [0-9a-f]{16}, and this is'),
    ('evaluation.jsonl', workdir_lib.ConfigChangedError, 'run/evaluation.jsonl, line 1, is of run'),
    ('checkpoints', checkpoint_errors.MismatchError, 'checkpoints/step_000000000200 was written by run'),
  ],
)
def test_a_file_of_another_run_is_refused_by_name(runs, workdir, name, kind, message):
  _copy(runs / '1', name, workdir)
  _refused(workdir, kind, message)


def test_a_log_of_nobody_knows_whom_is_refused_by_name(workdir):
  (workdir / 'episode.jsonl').write_text('no row\n{"environment_steps": 20}\n')
  _refused(workdir, workdir_lib.ConfigChangedError, 'run/episode.jsonl, line 2, is of no run, and this is run')


def _flip(path):
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)


@pytest.mark.parametrize(
  'name, damage, message',
  [
    ('config.gin', os.unlink, 'run/config.gin is missing. Put it back .* --allow_config_change'),
    ('config.gin', _flip, 'run/config.gin is damaged, changed'),
    (
      'run.json',
      os.unlink,
      'run/config.gin is there, but there is no run.json, .* another --workdir, or give --restart',
    ),
    ('run.json', _flip, 'run.json is damaged .*Put run.json back'),
  ],
)
def test_a_missing_or_damaged_file_is_refused_by_name(workdir, name, damage, message):
  damage(workdir / name)
  _refused(workdir, workdir_lib.ConfigChangedError, message)


def test_every_flipped_bit_of_the_record_is_found(workdir):
  path = workdir / 'run.json'
  content = path.read_bytes()
  for position in range(0, len(content) * 8, 43):
    flipped = bytearray(content)
    flipped[position // 8] ^= 1 << position % 8
    path.write_bytes(flipped)
    with pytest.raises(run_record.RecordError):
      run_record.read(workdir)


@pytest.mark.parametrize('allow_config_change', [False, True])
@pytest.mark.parametrize('without_config', [False, True])
def test_a_run_keeps_its_seed(workdir, allow_config_change, without_config):
  if without_config:
    (workdir / 'config.gin').unlink()
  message = 'holds a run with seed 0, and this is seed 9. .* --seed=0'
  _refused(
    workdir, workdir_lib.ConfigChangedError, message, 'experiment.seed = 9', allow_config_change=allow_config_change
  )


def test_a_lost_configuration_can_be_given_again(workdir):
  (workdir / 'config.gin').unlink()
  (workdir / 'config.0.gin').write_text('mine')
  _train(workdir, allow_config_change=True)
  _flip(workdir / 'config.gin')
  flipped = (workdir / 'config.gin').read_bytes()
  _train(workdir, allow_config_change=True)
  assert (workdir / 'config.0.gin').read_text() == 'mine' and (workdir / 'config.1.gin').read_bytes() == flipped
  _train(workdir)


@pytest.mark.parametrize('also', [(), ('episode.jsonl', 'evaluation.jsonl')])
def test_lost_checkpoints_do_not_start_a_run_again(workdir, also):
  shutil.rmtree(workdir / 'checkpoints')
  for name in also:
    (workdir / name).unlink()
  _refused(
    workdir, checkpoint_errors.CheckpointError, 'run/checkpoints. Put them back, or give --restart, .*run.before-1'
  )


def test_what_the_run_did_not_write_stays(tmp_path, monkeypatch):
  workdir = tmp_path / 'run'
  workdir.mkdir()
  (workdir / 'notes.jsonl').write_text('{"environment_steps": 10**9}\nno row')
  (workdir / 'data').symlink_to(tmp_path)
  with monkeypatch.context() as patch:
    _stop_after(patch, 3)
    with pytest.raises(_Killed):
      _train(workdir)
  _train(workdir)
  assert (workdir / 'notes.jsonl').read_text() == '{"environment_steps": 10**9}\nno row'
  assert (workdir / 'data').is_symlink()


@pytest.mark.parametrize(
  'name', ['episode.jsonl', 'replay/episode-000000.npz', 'video.mp4', 'operative_config.gin', 'evaluation/mine']
)
def test_a_new_run_overwrites_nothing(tmp_path, name):
  (tmp_path / name).parent.mkdir(exist_ok=True)
  (tmp_path / name).write_text('mine')
  _refused(tmp_path, workdir_lib.ConfigChangedError, f'{name.split("/")[0]} is there, but there is no run.json')


@pytest.mark.parametrize('name', ['episode.jsonl', 'checkpoints', 'replay', 'tensorboard', 'config.gin', 'video.mp4'])
@pytest.mark.parametrize('begun', [False, True])
def test_links_are_not_followed(workdir, tmp_path, name, begun):
  target = tmp_path / 'target'
  target.mkdir()
  (target / 'mine').write_text('mine')
  folder = workdir if begun else tmp_path / 'new'
  folder.mkdir(exist_ok=True)
  if (folder / name).is_dir():
    shutil.rmtree(folder / name)
  (folder / name).unlink(missing_ok=True)
  (folder / name).symlink_to(target)
  _refused(folder, files.NotPlainError, f'{name} is a symbolic link to {target}')
  assert os.listdir(target) == ['mine']


def test_a_link_to_the_workdir_itself_is_followed(tmp_path):
  (tmp_path / 'disk').mkdir()
  (tmp_path / 'run').symlink_to(tmp_path / 'disk')
  _train(tmp_path / 'run')
  assert run_record.is_finished(tmp_path / 'disk')


@pytest.mark.parametrize('moment', [(configuration, 'save_config'), (checkpointing.Checkpointer, 'begin')])
def test_a_run_that_died_before_it_had_begun_starts(runs, tmp_path, monkeypatch, moment):
  def die(*unused):
    raise _Killed

  with monkeypatch.context() as patch:
    patch.setattr(*moment, die)
    with pytest.raises(_Killed):
      _train(tmp_path)
  record = run_record.read(tmp_path)
  assert not record.begun
  _train(tmp_path)
  assert _rows(tmp_path) == _rows(runs / '0') and run_record.read(tmp_path).run_id == record.run_id


@pytest.mark.parametrize('episodes', [0, 3])
def test_a_killed_run_resumes_from_its_first_checkpoint(runs, tmp_path, monkeypatch, capsys, episodes):
  with monkeypatch.context() as patch:
    _stop_after(patch, episodes)
    with pytest.raises(_Killed):
      _train(tmp_path)
  _train(tmp_path)
  assert 'Resuming from step 0 of 200' in capsys.readouterr().out
  for kind in ('episode', 'evaluation'):
    assert _rows(tmp_path, kind) == _rows(runs / '0', kind)


def test_all_that_identifies_a_run_is_on_the_disk_before_its_first_step(tmp_path, monkeypatch):
  """In this order: a file's content, its name, and the names of folders."""
  events, fsync, replace, reset = [], os.fsync, os.replace, grid_cmdp.GridCmdp.reset
  workdir = tmp_path / 'runs' / 'new'

  def record(descriptor):
    events.append(os.readlink(f'/proc/self/fd/{descriptor}').removeprefix(f'{tmp_path}/'))
    fsync(descriptor)

  def rename(source, target):
    replace(source, target)
    events.append(f'-> {pathlib.Path(target).relative_to(tmp_path)}')

  def step(environment):
    events.append('reset')
    return reset(environment)

  monkeypatch.setattr(os, 'fsync', record)
  monkeypatch.setattr(os, 'replace', rename)
  monkeypatch.setattr(grid_cmdp.GridCmdp, 'reset', step)
  monkeypatch.setattr(trial, 'check', lambda *_: None)  # Which takes a step of its own.
  _train(workdir)
  before = events[: events.index('reset')]
  for folder in ('runs', ''):  # Names of `new` and of `runs`.
    assert (folder or str(tmp_path)) in before
  for name in ('run.json', 'config.gin', 'checkpoints/step_000000000000'):
    renamed = before.index(f'-> runs/new/{name}')
    assert any('partial' in event for event in before[:renamed])
    assert str(pathlib.Path('runs/new', name).parent) in before[renamed:]


class TestALostLease:
  def test_stops_a_run_at_its_next_write(self, tmp_path, monkeypatch):
    taken = {}
    run = evaluation.Evaluator.run

    def take(self, **options):
      if not taken:
        lock.Lease(tmp_path, 'other')
        taken.update(_contents(tmp_path))
      return run(self, **options)

    monkeypatch.setattr(evaluation.Evaluator, 'run', take)
    with pytest.raises(lock.LostLeaseError, match=f'{tmp_path} was taken over by process {os.getpid()}.*stops'):
      _train(tmp_path)
    assert taken and _contents(tmp_path) == taken

  def test_stops_an_interrupted_run_from_saving(self, tmp_path, monkeypatch):
    taken = {}

    def take(self, **unused):
      lock.Lease(tmp_path, 'other')
      taken.update(_contents(tmp_path))
      raise KeyboardInterrupt

    monkeypatch.setattr(evaluation.Evaluator, 'run', take)
    with pytest.raises(lock.LostLeaseError):
      _train(tmp_path)
    assert taken and _contents(tmp_path) == taken

  def test_is_not_taken_by_a_run_that_is_refused(self, workdir):
    lease = lock.Lease(workdir, None)
    _refused(workdir, workdir_lib.ConfigChangedError, 'seed', seed=9)
    lease.check()


class TestMovingAside:
  def test_keeps_everything_and_makes_room(self, workdir):
    (workdir / 'notes.txt').write_text('mine')
    before = _contents(workdir)
    for number in (1, 2):
      aside = workdir_lib.move_aside(workdir)
      assert aside == workdir.with_name(f'run.before-{number}') and _contents(aside) == before
      assert not os.listdir(workdir) and workdir_lib.move_aside(workdir) is None
      _train(workdir, seed=9)
      before = _contents(workdir)
    assert run_record.read(workdir).run_id != run_record.read(workdir.with_name('run.before-2')).run_id

  def test_follows_a_link_to_the_workdir(self, workdir, tmp_path):
    (tmp_path / 'link').symlink_to(workdir)
    assert workdir_lib.move_aside(tmp_path / 'link') == workdir.with_name('run.before-1')
    assert (tmp_path / 'link').is_symlink() and workdir.is_dir()

  def test_is_refused_while_a_run_uses_it(self, workdir):
    with lock.WorkdirLock(workdir):
      with pytest.raises(lock.WorkdirLockedError):
        workdir_lib.move_aside(workdir)
    assert run_record.is_finished(workdir)

  def test_of_nothing_does_nothing(self, tmp_path):
    assert workdir_lib.move_aside(tmp_path / 'none') is None and workdir_lib.move_aside(tmp_path) is None


def test_runs_that_are_older_than_ids_go_on(workdir):
  """Their records, checkpoints and rows have none, and neither has what they write from now on."""
  record = json.loads((workdir / 'run.json').read_text())
  for name in ('run_id', 'config_sha256', 'begun', 'sha256'):
    del record[name]
  (workdir / 'run.json').write_text(json.dumps(record))
  for name in ('episode.jsonl', 'evaluation.jsonl'):
    rows = [json.loads(line) for line in (workdir / name).read_text().splitlines()]
    lines = [json.dumps({key: value for key, value in row.items() if key != 'seal'}) + '\n' for row in rows]
    (workdir / name).write_text(''.join(lines))
  checkpoint = store_lib.CheckpointStore(workdir / 'checkpoints').newest()
  state = {name: value for name, value in checkpoint.state.items() if name != 'logs'}
  shutil.rmtree(workdir / 'checkpoints')
  store_lib.CheckpointStore(workdir / 'checkpoints').save(200, {'learner': ()}, state, checkpoint.score)
  _train(workdir, 'ENVIRONMENT_STEPS = 300', allow_config_change=True)
  assert len(_rows(workdir)) == 15 and 'seal' not in (workdir / 'episode.jsonl').read_text()
  assert run_record.read(workdir).run_id is None
