"""The physics and pictures of MuJoCo 2.3.3, as recorded, against those of the MuJoCo that is installed."""

import json
import math
import sys
import types
from typing import Any
from unittest import mock

import numpy as np
import pytest

from lambda_kit.environments import gymnasium_task
from lambda_kit.environments import opengl
from lambda_kit.environments.safety_gym import environment as environment_lib
from lambda_kit.environments.safety_gym import loading
from lambda_kit.environments.safety_gym import physics
from lambda_kit.environments.safety_gym import world
from tests.environments import physics_fixture
from tests.environments import record_episodes
from tests.environments import safety_gym_reference

SG6 = safety_gym_reference.SG6
_MUJOCO = opengl.import_mujoco().__version__
_TOLERANCE = 1e-10  # Of velocities, in m/s and rad/s.

measured = pytest.mark.skipif(
  not _MUJOCO.startswith(f'{physics.MEASURED}.'),
  reason=f'MuJoCo {_MUJOCO} is known to differ from 2.3.3; {physics.MEASURED} is compared.',
)


@measured
@pytest.mark.parametrize(
  'task_id',
  [*SG6, 'SafetyCarPush1-v0', 'SafetyPointCircle1-v0', 'SafetyAntVelocity-v1', 'SafetyHalfCheetahVelocity-v1'],
)
def test_one_step_leads_to_the_recorded_velocities(task_id):
  assert physics_fixture.velocity_differences(physics_fixture.read(task_id)).max() < _TOLERANCE


@measured
@pytest.mark.parametrize(
  'task_id,share,largest',
  [
    ('SafetyCarButton1-v0', 0.82, 7e-3),  # Spheres on cylinders: wheels on buttons.
    ('SafetyAntGoal1-v0', 0.95, 7e-3),  # Capsules on boxes: legs on vases.
    ('SafetyRacecarGoal1-v0', 0.0, 5e-3),
    ('SafetyHumanoidVelocity-v1', 0.66, 2e-5),
  ],
)
def test_where_velocities_differ_is_known(task_id, share, largest):
  """The share of states, most of them chosen for their contacts, that agree. docs/physics.md tells of them."""
  differences = physics_fixture.velocity_differences(physics_fixture.read(task_id))
  assert np.mean(differences < _TOLERANCE) == pytest.approx(share, abs=0.01)
  assert differences.max() < largest


@measured
@pytest.mark.parametrize(
  'task_id,left_out,least',
  [
    ('SafetyPointButton1-v0', '_soften_welds', 0.1),
    ('SafetyCarButton1-v0', '_soften_welds', 0.1),
    ('SafetyCarGoal1-v0', '_disable_new_colliders', 1e-3),
    ('SafetyCarPush1-v0', '_disable_new_colliders', 1e-3),
  ],
)
def test_no_part_of_the_restoration_can_be_left_out(task_id, left_out, least):
  recording = physics_fixture.read(task_id)
  with mock.patch.object(physics, left_out, lambda model: None):
    assert physics_fixture.velocity_differences(recording).max() > least


@pytest.mark.parametrize('flag', physics._FLAGS)
def test_neither_collider_can_be_left_on(flag):
  """Wheels of cylinders on the floor and on boxes: also in versions that differ in other things."""
  if not hasattr(opengl.import_mujoco().mjtDisableBit, flag):
    pytest.skip(f'MuJoCo {_MUJOCO} has no {flag}.')
  recording = physics_fixture.read('SafetyCarPush1-v0')
  restored = np.mean(physics_fixture.velocity_differences(recording) > _TOLERANCE)
  with mock.patch.object(physics, '_FLAGS', [name for name in physics._FLAGS if name != flag]):
    assert np.mean(physics_fixture.velocity_differences(recording) > _TOLERANCE) > restored + 0.2


# Each robot once; the other tasks have other objects of the same kinds.
@measured
@pytest.mark.parametrize(
  'task_id',
  [
    pytest.param(task_id, marks=[] if task_id.endswith('Goal1-v0') else pytest.mark.slow)
    for task_id in (*SG6, 'SafetyCarPush1-v0')
  ],
)
def test_pictures_are_the_recorded_ones(task_id):
  """To the bit where the same software draws. Others differ: softpipe, with its jagged edges, by up to 3.7 of 255."""
  recording = physics_fixture.read(task_id)
  frames = physics_fixture.drawn_frames(recording)
  if physics_fixture.renderer() == physics_fixture.recorded_renderer():
    np.testing.assert_array_equal(frames, recording.frames)
  else:
    assert np.abs(frames.astype(int) - recording.frames).mean(axis=(1, 2, 3)).max() < 4


def _weld(torque_scale: float) -> str:
  return f"""<mujoco><worldbody>
      <body name="hand" mocap="true"/>
      <body name="box"><freejoint/><geom type="box" size="1 1 1" mass="3"/></body>
    </worldbody><equality>
      <connect body1="box" anchor="0 0 0"/>
      <weld body1="hand" body2="box" torquescale="{torque_scale}"/>
    </equality></mujoco>"""


def test_torques_of_welds_are_scaled_by_the_inertias():
  """A cube of 3 kg with sides of 2 m: translations have 1/3 of inverse weight, rotations 1 / (3 * 2^2 / 6) = 1/2."""
  mujoco = opengl.import_mujoco()
  if _MUJOCO.startswith('2.'):
    pytest.skip('Before 3.0.0 there is nothing to restore.')
  model = mujoco.MjModel.from_xml_string(_weld(2.0))
  before = model.eq_data.copy()
  assert physics.restore_physics(model) is model
  assert model.eq_data[1, 10] == pytest.approx(2.0 * math.sqrt((1 / 2) / (1 / 3)))
  before[1, 10] = model.eq_data[1, 10]
  np.testing.assert_array_equal(model.eq_data, before)  # Nothing else, and no other constraint.


def test_both_colliders_are_disabled_where_there_are_flags(monkeypatch):
  model = types.SimpleNamespace(opt=types.SimpleNamespace(disableflags=1), eq_type=np.zeros(0, int))
  bits = types.SimpleNamespace(mjDSBL_NATIVECCD=4, mjDSBL_MULTICCD=8)
  fake = types.SimpleNamespace(mjtDisableBit=bits, __version__='4.0.0', mjtEq=types.SimpleNamespace(mjEQ_WELD=1))
  monkeypatch.setattr(opengl, 'import_mujoco', lambda: fake)
  assert physics.restore_physics(model).opt.disableflags == 1 | 4 | 8
  del bits.mjDSBL_MULTICCD, bits.mjDSBL_NATIVECCD
  model.opt.disableflags = 1
  assert physics.restore_physics(model).opt.disableflags == 1


@measured
def test_all_worlds_are_restored():
  """Those that are stepped, that are drawn, and of safety-gymnasium's own environment; also after a reset."""
  task_id = 'SafetyPointButton1-v0'
  ours = environment_lib.SafetyGymnasium(seed=0, task=task_id, observations=('vector',))
  xml = ours._simulation.xml
  theirs = gymnasium_task.GymnasiumTask(0, task_id)
  theirs.reset()
  again = environment_lib.SafetyGymnasium(seed=0, task=task_id, observations=('vector',))
  again.reset()
  plain = opengl.import_mujoco().MjModel.from_xml_string(xml)
  expected = physics.restore_physics(opengl.import_mujoco().MjModel.from_xml_string(xml))
  assert not np.array_equal(plain.eq_data, expected.eq_data) and plain.opt.disableflags != expected.opt.disableflags
  for model in (
    ours._task.model,
    again._task.model,
    world.PictureModel(xml).model,
    theirs._gymnasium.unwrapped.task.model,
  ):
    np.testing.assert_allclose(model.eq_data[:, 10], expected.eq_data[:, 10], rtol=1e-12)
    assert model.opt.disableflags == expected.opt.disableflags


def test_velocity_tasks_have_nothing_to_restore():
  from lambda_kit.environments.safety_gym import making

  mujoco = opengl.import_mujoco()
  known = {mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_CAPSULE}
  tasks = [task for task in loading.tasks() if 'Velocity' in task]
  assert len(tasks) == 12
  for task in tasks:
    model = making.make(task).unwrapped.model
    assert model.neq == 0 and set(model.geom_type) <= {int(kind) for kind in known}, task


@pytest.mark.parametrize(
  'version,fragments',
  [
    ('3.3.7', None),
    ('3.3.0', None),
    ('2.3.3', None),
    ('3.4.0', ['MuJoCo 3.4.0', 'box-box', '0.1 to 0.2', "'mujoco==3.3.*'"]),
    ('3.30.1', ['box-box']),
    ('4.0.0', ['box-box']),
    ('3.1.6', ['not compared']),
  ],
)
def test_other_versions_are_warned_of(version, fragments):
  with mock.patch.object(physics.logging, 'warning') as warning:
    physics.warn_if_different(version)
  if fragments is None:
    warning.assert_not_called()
  else:
    text = warning.call_args.args[0] % warning.call_args.args[1:]
    assert all(fragment in text for fragment in fragments), text


def test_of_python_3_14_it_is_said_which_versions_it_has(monkeypatch):
  monkeypatch.setattr(sys, 'version_info', (3, 14, 0))
  with mock.patch.object(physics.logging, 'warning') as warning:
    physics.warn_if_different('3.8.0')
  assert 'wheels of MuJoCo 3.8 and later only' in warning.call_args.args[-1]


@pytest.mark.parametrize('task_id', SG6)
def test_recorded_episodes_agree(task_id):
  """Means over 100 or 400 episodes of MuJoCo 2.3.3 and of 3.3.7, as committed, within their difference's error."""
  theirs, ours = (_recorded_episodes(name)[task_id] for name in ('2.3.3', '3.3.7'))
  for one, other in ((ours['returns'], theirs['returns']), (ours['costs']['sum'], theirs['costs']['sum'])):
    assert len(one) == len(other) == record_episodes.EPISODES.get(task_id, 100)
    assert abs(_standard_errors_apart(one, other)) < 1


def test_recorded_episodes_show_welds_that_are_not_restored():
  theirs, ours = (_recorded_episodes(name)['SafetyPointButton1-v0']['costs'] for name in ('2.3.3', '3.3.7_unrestored'))
  assert _standard_errors_apart(ours['gremlins'], theirs['gremlins']) < -4


@measured
@pytest.mark.slow
@pytest.mark.parametrize('task_id', ['SafetyPointGoal1-v0', 'SafetyPointButton1-v0'])
def test_a_scripted_driver_scores_as_recorded(task_id):
  """20 episodes of the recorded 100 come out with like returns and costs."""
  recorded = _recorded_episodes('2.3.3')[task_id]
  played = record_episodes.play(task_id, range(20))
  assert abs(_standard_errors_apart(played['returns'], recorded['returns'])) < 2.5
  for name, costs in played['costs'].items():
    assert abs(_standard_errors_apart(costs, recorded['costs'][name])) < 2.5, name


def _recorded_episodes(name: str) -> dict[str, Any]:
  return json.loads((record_episodes.FOLDER / f'episodes_{name}.json').read_text())['tasks']


def _standard_errors_apart(one: list[float], other: list[float]) -> float:
  (mean, error), (other_mean, other_error) = (record_episodes.mean_and_error(values) for values in (one, other))
  return (mean - other_mean) / math.hypot(error, other_error)
