"""What a camera leaves out, on points whose place in the view is known."""

import types

import numpy as np

from lambda_kit.environments.safety_gym import camera as camera_lib


def test_only_what_is_neither_seen_nor_mirrored_is_left_out():
  """A camera at height 1 looks along x and 45 degrees down, with 90 degrees of view: from the horizon to the ground."""
  camera = camera_lib.Camera.__new__(camera_lib.Camera)
  camera._id = 0
  camera._model = types.SimpleNamespace(cam_fovy=np.array([90.0]))
  camera._rectangle = types.SimpleNamespace(width=64, height=64)
  half = np.sqrt(0.5)
  axes = np.array([[0, -1, 0], [half, 0, half], [-half, 0, half]]).T  # Right, up and back, as columns.
  positions = np.array(
    [
      [1.0, 0.0, 0.5],  # In front, a little below the horizon: seen.
      [1.0, 0.0, 2.0],  # 45 degrees above the horizon; its mirror image, at height -2, is 72 degrees below: mirrored.
      [-1.0, 0.0, 0.5],  # Behind.
      [1.0, 5.0, 0.5],  # Far to the left.
      [-0.3, 0.0, 0.5],  # Behind, but as large as its distance to the view.
    ]
  )
  camera._margins = -np.array([0.01, 0.01, 0.01, 0.01, 0.4])[:, None]
  data = types.SimpleNamespace(
    cam_xmat=axes.reshape(1, 9), cam_xpos=np.array([[0.0, 0.0, 1.0]]), geom_xpos=positions, site_xpos=np.zeros((0, 3))
  )
  assert camera._out_of_sight(data).tolist() == [False, False, True, True, False]
