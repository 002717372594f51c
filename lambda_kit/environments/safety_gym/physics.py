"""Restores the physics of MuJoCo 2.3.3, for which safety-gymnasium's tasks were written, on later versions.

docs/physics.md says what has changed since, and how close this comes.
"""

import sys
from typing import Any

from absl import logging
import numpy as np

from lambda_kit.environments import opengl

ORIGINAL = '2.3.3'
MEASURED = '3.3'  # The versions of MuJoCo that were measured to agree with 2.3.3, once restored.
_TORQUE_SCALE = 10  # Its index in a weld's `eq_data`.
# Flags that disable later versions' new colliders. A version without a flag has no such collider, or leaves it off.
_FLAGS = ('mjDSBL_NATIVECCD', 'mjDSBL_MULTICCD')


def restore_physics(model: Any) -> Any:
  """Undoes in a newly compiled `MjModel` what MuJoCo changed after 2.3.3, as far as possible, and returns the model.

  Must not be called twice on a model: it would scale torques twice.
  """
  _disable_new_colliders(model)
  _soften_welds(model)
  return model


def _disable_new_colliders(model: Any) -> None:
  """Since 3.3.0 (nativeccd) and 3.8.0 (multiccd), cylinders and boxes have other contact points."""
  bits = opengl.import_mujoco().mjtDisableBit
  for name in _FLAGS:
    if hasattr(bits, name):
      model.opt.disableflags |= int(getattr(bits, name))


def _soften_welds(model: Any) -> None:
  """Undoes a change of 3.0.0, which regularises a weld's rotations like its translations.

  It made gremlins, which are welded to the mocap bodies that move them, stiffer. Torques of a weld are scaled by the
  square root of the ratio of the bodies' rotational and translational inverse inertias, because the regularisation is
  divided by the square of the scale.
  """
  mujoco = opengl.import_mujoco()
  if _number(mujoco.__version__) < (3, 0):
    return
  for weld in np.flatnonzero(model.eq_type == mujoco.mjtEq.mjEQ_WELD):
    bodies = [model.eq_obj1id[weld], model.eq_obj2id[weld]]
    translation, rotation = model.body_invweight0[bodies].sum(axis=0)
    model.eq_data[weld, _TORQUE_SCALE] *= np.sqrt(rotation / translation)


def warn_if_different(mujoco_version: str) -> None:
  """Warns of a MuJoCo that was not compared with 2.3.3, or is known to differ in physics or pictures."""
  if mujoco_version == ORIGINAL or mujoco_version.startswith(f'{MEASURED}.'):
    return
  if _number(mujoco_version) > _number(MEASURED):
    reason = (
      'box-box contacts differ since 3.4, the solver stops earlier since 3.11, and pictures of 3.17 and '
      '4.0 differ by 0.1 to 0.2 of 255'
    )
  else:
    reason = 'its physics was not compared with that of 2.3.3, for which the tasks were written'
  if sys.version_info >= (3, 14):
    remedy = 'Python 3.14 has wheels of MuJoCo 3.8 and later only: for comparable scores use Python 3.11 to 3.13.'
  else:
    remedy = f"For comparable scores: pip install 'mujoco=={MEASURED}.*'."
  logging.warning('The tasks run on MuJoCo %s rather than %s: %s. %s', mujoco_version, MEASURED, reason, remedy)


def _number(text: str) -> tuple[int, ...]:
  return tuple(int(part) for part in text.split('.')[:2])
