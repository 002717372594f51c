"""Exported policies act as the agent's actor does, and say what is wrong with files and observations."""

import functools
import shutil
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lambda_kit
from lambda_kit.planners import mpc
from lambda_kit.training import exported
from lambda_kit.training.checkpoints import errors
from tests.fakes import specs
from tests.fakes import tiny

_SEED = 5
_OBSERVATIONS = [{'vector': row} for row in np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)]
_PLANNER = functools.partial(mpc.CemPlanner, horizon=3, population=8, elites=3, iterations=2)


def _export(parts, folder):
  actor_core = parts.builder.make_actor_core(evaluation=True)
  return exported.save(
    folder,
    actor_core,
    parts.learner.get_variables(actor_core.variable_names),
    jax.random.PRNGKey(_SEED),
    exported.Description.of(parts.spec, {'score': None}),
  )


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return _export(tiny.Parts(), tmp_path_factory.mktemp('export') / 'policy')


@pytest.mark.parametrize(
  'options',
  [
    {},
    dict(planner_factory=_PLANNER),
    pytest.param(dict(precision='params=float32,compute=bfloat16,output=float32'), marks=pytest.mark.slow),
  ],
)
def test_actions_are_those_of_the_actor_to_the_bit(options, tmp_path):
  parts = tiny.Parts(**options)
  parts.learner.step(3)
  actor = parts.make_actor(_SEED, evaluation=True)
  policy = lambda_kit.load_policy(_export(parts, tmp_path / 'policy'))
  seen = []
  for episode in (3, 4, 3):
    actor.reseed(episode)
    actor.observe_first(parts.environment.reset())
    policy.reset(seed=episode)
    expected = np.array([actor.select_action(observation) for observation in _OBSERVATIONS])
    seen.append(np.array([policy(observation) for observation in _OBSERVATIONS]))
    assert seen[-1].dtype == expected.dtype and seen[-1].tobytes() == expected.tobytes()
  assert seen[0].tobytes() == seen[2].tobytes() != seen[1].tobytes()


def test_the_description_tells_what_the_policy_is_for(folder):
  description = lambda_kit.load_policy(folder).description
  spec = specs.of(tiny.make_environment())
  assert description == exported.Description.of(spec, {'score': None})
  assert description.action == ((2,), 'float32') and description.task == spec.task_name
  assert description.action_repeat == 1


@pytest.mark.parametrize(
  'observation,message',
  [
    ({}, 'have .*vector.*got'),
    ({'vector': np.zeros(3, np.float32)}, r'float32 \[2\], got float32 \[3\]'),
    ({'vector': np.zeros(2, complex)}, 'got complex128'),
  ],
)
def test_observations_that_do_not_fit_are_refused(folder, observation, message):
  with pytest.raises(ValueError, match=message):
    lambda_kit.load_policy(folder)(observation)


class _Core:
  """Acts as is asked by the observation: [1, x] is an action, [0, 0] none that is finite, [-1, x] takes seconds."""

  variable_names = ()

  @staticmethod
  def init(key, count):
    del key
    return jnp.zeros((count,))

  @staticmethod
  def step(variables, carry, observation, is_first):
    del variables, is_first
    vector = observation['vector']
    slow = jax.lax.fori_loop(0, jnp.where(vector[0, 0] < 0, 60_000_000, 1), lambda i, x: jnp.sin(x), vector)
    return jnp.where(vector[0, 0] == 0, jnp.nan, vector + 0 * slow + carry[:, None]), carry + 1


@pytest.fixture(scope='module')
def fragile(tmp_path_factory):
  folder, spec = tmp_path_factory.mktemp('fragile') / 'policy', specs.of(tiny.make_environment())
  return exported.save(folder, _Core, [], jax.random.PRNGKey(0), exported.Description.of(spec, {}))


def _see(*values):
  return {'vector': np.array(values, np.float32)}


@pytest.mark.parametrize('time_limit', [None, 30.0])
def test_actions_that_are_not_finite_are_an_error_and_leave_no_trace(fragile, time_limit):
  policy = lambda_kit.load_policy(fragile, time_limit=time_limit)
  assert policy(_see(1, 5)).tolist() == [1, 5]
  with pytest.raises(exported.PolicyError, match=r'not finite, \[nan nan\]'):
    policy(_see(0, 0))
  assert policy(_see(1, 5)).tolist() == [2, 6]  # The carry is that of the second action.


def test_an_action_that_takes_too_long_is_an_error(fragile):
  policy = lambda_kit.load_policy(fragile, time_limit=0.3)  # Compiling takes longer, and doesn't count.
  assert policy(_see(1, 5)).tolist() == [1, 5]
  started = time.monotonic()
  with pytest.raises(exported.PolicyError, match='more than its time limit of 0.3 s'):
    policy(_see(-1, 5))
  with pytest.raises(exported.PolicyError, match='still computing'):
    policy(_see(1, 5))
  assert time.monotonic() - started < 2.0
  policy._last.result()  # Otherwise it would disturb other tests.
  assert policy(_see(1, 5)).tolist() == [2, 6]


def test_time_limits_are_positive(folder):
  with pytest.raises(ValueError, match='time limit is positive'):
    lambda_kit.load_policy(folder, time_limit=0.0)


def test_seeds_out_of_range_are_refused(folder):
  with pytest.raises(ValueError, match='seed'):
    lambda_kit.load_policy(folder).reset(seed=-1)


def test_every_kind_of_damage_is_found(folder, tmp_path):
  names = {path.name for path in folder.iterdir()}
  assert names == {'policy.json', 'policy.safetensors', 'policy.stablehlo'}
  for name in sorted(names):
    content = (folder / name).read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for damaged in (None, b'', content[:-1], bytes(flipped)):
      copy = shutil.copytree(folder, tmp_path / 'copy', dirs_exist_ok=True)
      (copy / name).unlink()
      if damaged is not None:
        (copy / name).write_bytes(damaged)
      with pytest.raises(errors.DamagedError, match=name):
        lambda_kit.load_policy(copy)
  with pytest.raises(errors.DamagedError, match='policy.json is missing'):
    lambda_kit.load_policy(tmp_path / 'nowhere')


def test_another_version_names_the_remedy(folder, monkeypatch):
  monkeypatch.setattr(exported, '_VERSION', 3)
  with pytest.raises(errors.CheckpointError, match='reads version 3. Export it again'):
    lambda_kit.load_policy(folder)


def test_an_export_is_replaced_and_anything_else_is_not(folder, tmp_path):
  parts = tiny.Parts()
  (tmp_path / 'notes.txt').write_text('mine')
  with pytest.raises(FileExistsError, match='not an exported policy'):
    _export(parts, tmp_path)
  copy = shutil.copytree(folder, tmp_path / 'copy')
  (copy / 'policy.stablehlo').write_bytes(b'')
  _export(parts, copy)
  lambda_kit.load_policy(copy)
  assert sorted(path.name for path in tmp_path.iterdir()) == ['copy', 'notes.txt']
