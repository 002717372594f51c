"""The physics of MuJoCo 2.3.3, for which safety-gymnasium's tasks were written, on later MuJoCo.

docs/physics.md tells what changed since, and how close this comes.
"""

import importlib.metadata
import sys
from typing import Any

from absl import logging
import numpy as np

from lambda_kit.environments import opengl

ORIGINAL = '2.3.3'
MEASURED = '3.3'  # The versions of MuJoCo that agree with it, once restored.
_TORQUE_SCALE = 10  # Its place in the data of a weld.
# Colliders that later versions use by default. A version without such a flag lacks the collider, or leaves it off.
_FLAGS = ('mjDSBL_NATIVECCD', 'mjDSBL_MULTICCD')


def restore_physics(model: Any) -> Any:
  """Sets back in a freshly compiled `MjModel` what MuJoCo changed after 2.3.3, where it can be, and returns it.

  Not to be called twice on a model: torques would be scaled twice.
  """
  _disable_new_colliders(model)
  _soften_welds(model)
  return model


def _disable_new_colliders(model: Any) -> None:
  """Since 3.3.0 (nativeccd) and 3.8.0 (multiccd) cylinders meet boxes at other points."""
  bits = opengl.import_mujoco().mjtDisableBit
  for name in _FLAGS:
    if hasattr(bits, name):
      model.opt.disableflags |= int(getattr(bits, name))


def _soften_welds(model: Any) -> None:
  """Undoes a change of 3.0.0, which regularises a weld's rotations as if they were translations.

  That made gremlins, which are welded to what moves them, stiffer. Torques of a weld are scaled by the ratio of the
  two inverse inertias of its bodies, under a root since the regularisation is divided by the scale's square.
  """
  mujoco = opengl.import_mujoco()
  if _number(mujoco.__version__) < (3, 0):
    return
  for weld in np.flatnonzero(model.eq_type == mujoco.mjtEq.mjEQ_WELD):
    bodies = [model.eq_obj1id[weld], model.eq_obj2id[weld]]
    translation, rotation = model.body_invweight0[bodies].sum(axis=0)
    model.eq_data[weld, _TORQUE_SCALE] *= np.sqrt(rotation / translation)


def version() -> str | None:
  """Which MuJoCo simulates tasks here, in this process and in workers; None if none is installed. It isn't imported."""
  try:
    return importlib.metadata.version('mujoco')
  except importlib.metadata.PackageNotFoundError:
    return None


def warn_if_different(mujoco_version: str) -> None:
  """Warns of a MuJoCo whose physics and pictures were not compared with those of 2.3.3, or are known to differ."""
  if mujoco_version == ORIGINAL or mujoco_version.startswith(f'{MEASURED}.'):
    return
  if _number(mujoco_version) > _number(MEASURED):
    reason = (
      'boxes meet boxes differently since 3.4, the solver stops earlier since 3.11, and pictures of 3.17 and '
      '4.0 differ by 0.1 to 0.2 of 255'
    )
  else:
    reason = 'its physics was not compared with that of 2.3.3, for which the tasks were written'
  if sys.version_info >= (3, 14):
    remedy = (
      'For Python 3.14 there are wheels of MuJoCo 3.8 and later only: use Python 3.11 to 3.13 for scores to compare.'
    )
  else:
    remedy = f"For scores to compare: pip install 'mujoco=={MEASURED}.*'."
  logging.warning('The tasks run on MuJoCo %s rather than %s: %s. %s', mujoco_version, MEASURED, reason, remedy)


def _number(text: str) -> tuple[int, ...]:
  return tuple(int(part) for part in text.split('.')[:2])
