"""A camera in a MuJoCo world: the pixels of safety-gymnasium's own renderer, in less time.

Objects that the camera can't see, neither directly nor mirrored in the floor, are left out of the scene. What is left
is drawn with the same calls and settings, so the pictures are identical to the bit.
"""

from typing import Any

import numpy as np

from lambda_kit.environments import opengl


class Camera:
  """Renders one named camera of a model.

  Args:
    model: An `MjModel` with textures, which stays the same object when layouts change.
    name: A camera of the model.
    multisampling: Samples for each pixel; None takes the model's own (4). 0 is cheaper and no longer identical.
    reflections: Whether the floor mirrors. False is cheaper and no longer identical.
  """

  def __init__(self, model: Any, name: str, height: int, width: int, multisampling: int | None = None,
               reflections: bool = True):
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
    # Sites have no bounding radius of their own; the corner of a box of their sizes is beyond all their shapes.
    self._site_radius = np.linalg.norm(model.site_size, axis=1)

  def render(self, data: Any) -> np.ndarray:
    """Returns what the camera sees, uint8 [height, width, 3]."""
    mujoco, model = self._mujoco, self._model
    opengl.draw_into(self._context)
    hidden_geoms = self._out_of_sight(data, data.geom_xpos, model.geom_rbound) & (model.geom_rbound > 0)
    hidden_sites = self._out_of_sight(data, data.site_xpos, self._site_radius)
    geom_alpha, site_alpha = model.geom_rgba[:, 3].copy(), model.site_rgba[:, 3].copy()
    model.geom_rgba[hidden_geoms, 3] = 0  # MuJoCo leaves fully transparent objects out of a scene.
    model.site_rgba[hidden_sites, 3] = 0
    mujoco.mjv_updateScene(model, data, self._options, self._perturbation, self._viewpoint,
                           mujoco.mjtCatBit.mjCAT_ALL.value, self._scene)
    model.geom_rgba[:, 3], model.site_rgba[:, 3] = geom_alpha, site_alpha
    mujoco.mjr_render(self._rectangle, self._scene, self._context)
    mujoco.mjr_readPixels(self._pixels, None, self._rectangle, self._context)
    return self._pixels[::-1].copy()  # OpenGL's first row is the lowest.

  def _out_of_sight(self, data: Any, positions: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """For bounding spheres [n]: True where the sphere and its mirror image below the floor miss the view."""
    rotation = data.cam_xmat[self._id].reshape(3, 3)
    eye = data.cam_xpos[self._id]
    half_height = np.deg2rad(self._model.cam_fovy[self._id]) / 2
    half_width = np.arctan(np.tan(half_height) * self._rectangle.width / self._rectangle.height)
    # Inward normals of the four sides of the view, which opens along -z of the camera.
    normals = np.array([
        [np.cos(half_width), 0, -np.sin(half_width)], [-np.cos(half_width), 0, -np.sin(half_width)],
        [0, np.cos(half_height), -np.sin(half_height)], [0, -np.cos(half_height), -np.sin(half_height)],
    ]) @ rotation.T
    margin = -(radii + 1e-3)[:, None]
    seen = ((positions - eye) @ normals.T >= margin).all(axis=1)
    mirrored = ((positions * (1, 1, -1) - eye) @ normals.T >= margin).all(axis=1)
    return ~(seen | mirrored)

  def close(self) -> None:
    if self._context is not None:
      opengl.make_current()
      self._context.free()
      self._context = None
