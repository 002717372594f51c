"""A camera in a MuJoCo world: the same pixels as safety-gymnasium's own renderer, faster.

Objects that are neither in view nor reflected in the floor are left out of the scene. The rest is drawn with the same
calls and settings, so pictures are identical to the bit.
"""

import math
from typing import Any

import numpy as np

from lambda_kit.environments import opengl


class Camera:
  """Renders one named camera of a model.

  Args:
    model: An `MjModel` with textures. New layouts are copied into it.
    name: A camera of the model.
    multisampling: Samples for each pixel. By default the model's own (4); 0 is cheaper, but not identical.
    reflections: Whether the floor reflects. False is cheaper, but not identical.
  """

  def __init__(
    self, model: Any, name: str, height: int, width: int, multisampling: int | None = None, reflections: bool = True
  ):
    if height < 1 or width < 1:
      raise ValueError(f'Pictures need at least one pixel, got {height}x{width}.')
    mujoco = opengl.import_mujoco()
    opengl.make_current()
    self._mujoco = mujoco
    self._model = model
    self._id = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, name)
    if self._id < 0:
      known = [model.camera(i).name for i in range(model.ncam)]
      raise ValueError(f'The task has no camera {name!r}; it has {known}.')
    model.vis.global_.offwidth, model.vis.global_.offheight = width, height
    if multisampling is not None:
      model.vis.quality.offsamples = multisampling
    self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150)
    self._scene = mujoco.MjvScene(model, maxgeom=1000)
    self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = int(reflections)
    self._options = mujoco.MjvOption()
    self._options.geomgroup[:] = 1
    self._perturbation = mujoco.MjvPerturb()
    self._viewpoint = mujoco.MjvCamera()
    self._viewpoint.type = mujoco.mjtCamera.mjCAMERA_FIXED
    self._viewpoint.fixedcamid = self._id
    self._rectangle = mujoco.MjrRect(0, 0, width, height)
    self._pixels = np.zeros((height, width, 3), np.uint8)
    # Geoms come first, then sites. Sites have no bounding radius; the half-diagonal of a box of their size is an upper
    # bound for all their shapes. The floor is unbounded, and always in view.
    radii = np.concatenate([model.geom_rbound, np.linalg.norm(model.site_size, axis=1)])
    radii[: model.ngeom][model.geom_rbound == 0] = np.inf
    self._margins = -(radii + 1e-3)[:, None]

  def render(self, data: Any) -> np.ndarray:
    """Returns what the camera sees, uint8 [height, width, 3]."""
    mujoco, model = self._mujoco, self._model
    opengl.draw_into(self._context)
    hidden = self._out_of_sight(data)
    geom_alpha, site_alpha = model.geom_rgba[:, 3].copy(), model.site_rgba[:, 3].copy()
    model.geom_rgba[hidden[: model.ngeom], 3] = 0  # MuJoCo omits fully transparent objects from a scene.
    model.site_rgba[hidden[model.ngeom :], 3] = 0
    mujoco.mjv_updateScene(
      model, data, self._options, self._perturbation, self._viewpoint, mujoco.mjtCatBit.mjCAT_ALL.value, self._scene
    )
    model.geom_rgba[:, 3], model.site_rgba[:, 3] = geom_alpha, site_alpha
    mujoco.mjr_render(self._rectangle, self._scene, self._context)
    mujoco.mjr_readPixels(self._pixels, None, self._rectangle, self._context)
    return self._pixels[::-1].copy()  # OpenGL's first row is the bottom one.

  def _out_of_sight(self, data: Any) -> np.ndarray:
    """For all geoms and sites, whether the bounding sphere and its reflection in the floor are both out of view."""
    half_height = math.radians(self._model.cam_fovy[self._id]) / 2
    half_width = math.atan(math.tan(half_height) * self._rectangle.width / self._rectangle.height)
    x, right, y, up = math.cos(half_width), math.sin(half_width), math.cos(half_height), math.sin(half_height)
    # Inward normals of the view frustum's four sides; the camera looks along its -z axis.
    normals = data.cam_xmat[self._id].reshape(3, 3) @ np.array(
      [[x, -x, 0, 0], [0, 0, y, -y], [-right, -right, -up, -up]]
    )
    positions = np.concatenate([data.geom_xpos, data.site_xpos])
    depths = (positions - data.cam_xpos[self._id]) @ normals  # [n, 4]
    mirrored = depths - 2 * positions[:, 2:] * normals[2]
    return ~((depths >= self._margins).all(axis=1) | (mirrored >= self._margins).all(axis=1))

  def close(self) -> None:
    if self._context is not None:
      opengl.make_current()
      self._context.free()
      self._context = None
