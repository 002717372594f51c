"""safety-gymnasium's tasks as `core.Environment`: 64x64 images, vectors, or both, with costs in the reward."""

from collections.abc import Sequence

from dm_env import specs
import numpy as np

import gin
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit.environments import episodic
from lambda_kit.environments import opengl
from lambda_kit.environments.safety_gym import camera as camera_lib
from lambda_kit.environments.safety_gym import simulation as simulation_lib
from lambda_kit.environments.safety_gym import world

# The original Safety-Gym's first-person cameras: position in the robot's frame, and vertical field of view in degrees.
ORIGINAL_CAMERAS = {
  'Point': ((0.0, 0.0, 0.15), 90.0),
  'Car': ((0.0, 0.1, 0.2), 45.0),
  'Doggo': ((0.125, 0.0, 0.2), 100.0),
}
_SOURCES = ('image', 'vector')


@gin.register
@ranges.checked
class SafetyGymnasium(episodic.EpisodicEnvironment):
  """A navigation task of safety-gymnasium.

  Args:
    seed: With an episode's number, it determines layout and noise.
    task: The id of a registered navigation task, e.g. 'SafetyPointGoal1-v0'.
    observations: 'image' (uint8 [size, size, 3]), 'vector' (sensors and lidars), or both. Only these are computed.
    constraints: ('sum',) is one constraint on the total cost, as in the paper. Names of cost terms ('hazards',
      'vases', 'buttons', 'gremlins', 'pillars') are a constraint each.
    lidar_powers: Exponents p. For each, the vector also holds all lidar readings to the power of p. A reading falls
      linearly from 1 at an object to 0 at 3 m, so it hardly changes where costs begin, 0.2 m from a hazard's centre;
      high powers change more. They add no information, but make it easier to learn from.
    image_size: Height and width of images.
    original_camera: Whether to place the camera as the original Safety-Gym does, instead of safety-gymnasium.
    multisampling: Samples for each pixel. By default safety-gymnasium's; 0 is cheaper and coarser.
    reflections: Whether the floor reflects, as in safety-gymnasium; False is cheaper.
    box_alpha: Opacity of the box in the push tasks; 0.5 turns PointPush1 into ObservablePointPush1.
    episode_length: Simulator steps of an episode. By default the task's own (1,000).
    frameskip_probability: See `Simulation`.
  """

  def __init__(
    self,
    seed: int,
    task: str,
    observations: Sequence[str] = ('image',),
    constraints: Sequence[str] = ('sum',),
    lidar_powers: Sequence[ranges.Positive] = (),
    image_size: ranges.Count = 64,
    original_camera: bool = False,
    multisampling: ranges.Whole | None = None,
    reflections: bool = True,
    box_alpha: ranges.Share = 1.0,
    episode_length: ranges.Count | None = None,
    frameskip_probability: ranges.PositiveShare = 1.0,
  ):
    observations = tuple(observations)
    if not observations or any(name not in _SOURCES for name in observations):
      raise errors.SetupError(f'SafetyGymnasium.observations must be among {_SOURCES}, got {observations}.')
    if not constraints:
      raise errors.SetupError("SafetyGymnasium.constraints is empty; ('sum',) constrains the total cost.")
    super().__init__(seed, task, tuple(constraints))
    self._simulation = simulation_lib.Simulation(
      task, episode_length=episode_length, frameskip_probability=frameskip_probability
    )
    self._task = self._simulation.task
    self._observations = observations
    self._lidar_powers = np.asarray(lidar_powers, float)
    if self._lidar_powers.size and self._simulation.num_lidar_readings is None:
      raise errors.SetupError(
        f'SafetyGymnasium.lidar_powers: {task} has an observation of its own, and which of its entries are '
        'lidar readings is unknown. Leave lidar_powers empty: ().'
      )
    self._image_size = image_size
    self._multisampling, self._reflections = multisampling, reflections
    self._picture: world.PictureModel | None = None
    self._cameras: dict[tuple[int, int], camera_lib.Camera] = {}
    self._camera_pose = self._find_camera_pose() if original_camera else None
    self._box_alpha = box_alpha
    self._check_constraints()

  def begin(self, seed: int) -> dict[str, np.ndarray]:
    self._simulation.reset(seed)
    self._adjust_world()
    return self._observe()

  def advance(self, action: np.ndarray, count: int) -> episodic.Outcome:
    reward, cost = 0.0, np.zeros(len(self.constraint_names))
    for step_count in range(1, count + 1):  # noqa: B007 (returned below)
      result = self._simulation.advance(action)
      self._simulation.refresh()
      reward += result.reward
      cost += self._constraint_costs(result.costs)
      if result.terminated or result.truncated:
        break
    return episodic.Outcome(self._observe(), reward, cost, result.terminated, result.truncated, step_count)

  def observation_spec(self) -> dict[str, specs.Array]:
    shapes = {
      'image': specs.BoundedArray((self._image_size, self._image_size, 3), np.uint8, 0, 255, name='image'),
      'vector': specs.Array((self._vector_size(),), np.float64, name='vector'),
    }
    return {name: shapes[name] for name in self._observations}

  def action_spec(self) -> specs.BoundedArray:
    space = self._task.action_space
    return specs.BoundedArray(space.shape, np.float64, space.low, space.high, name='action')

  @property
  def episode_length(self) -> int:
    return int(self._task.num_steps)

  def render(self, height: int = 256, width: int = 256) -> np.ndarray:
    return self._camera(height, width).render(self._task.data)

  def close(self) -> None:
    for camera in self._cameras.values():
      camera.close()
    self._cameras.clear()

  def _observe(self) -> dict[str, np.ndarray]:
    observation = {}
    if 'image' in self._observations:
      observation['image'] = self._camera(self._image_size, self._image_size).render(self._task.data)
    if 'vector' in self._observations:
      observation['vector'] = self._vector()
    return observation

  def _vector(self) -> np.ndarray:
    vector = self._simulation.vector()
    if not self._lidar_powers.size:
      return vector
    readings = vector[vector.size - (self._simulation.num_lidar_readings or 0) :]
    return np.concatenate([vector, np.power(readings[None], self._lidar_powers[:, None]).ravel()])

  def _vector_size(self) -> int:
    return self._simulation.vector_size + self._lidar_powers.size * (self._simulation.num_lidar_readings or 0)

  def _camera(self, height: int, width: int) -> camera_lib.Camera:
    if self._picture is None:
      self._picture = world.PictureModel(self._simulation.xml)
      self._picture.follow(self._task.model)
    if (height, width) not in self._cameras:
      self._cameras[height, width] = camera_lib.Camera(
        self._picture.model, 'vision', height, width, self._multisampling, self._reflections
      )
    return self._cameras[height, width]

  def _constraint_costs(self, costs: dict[str, float]) -> np.ndarray:
    """Cost of each constraint, [C]: the sum of its terms, or whether it is positive if costs are indicators."""
    values = np.array([sum(v for k, v in costs.items() if _belongs(k, name)) for name in self.constraint_names])
    return (values > 0).astype(np.float64) if self._task.cost_conf.constrain_indicator else values

  def _check_constraints(self) -> None:
    # A timer hides the buttons' costs in the first steps of an episode, so their names are added.
    terms = set(self._simulation.costs()) | {f'cost_{o.name}' for o in self._task._obstacles if o.is_constrained}
    for name in self.constraint_names:
      if not any(_belongs(term, name) for term in terms):
        known = sorted({term.removeprefix('cost_').split('_')[0] for term in terms})
        raise errors.SetupError(
          f'SafetyGymnasium.constraints: {self._simulation.task_id} has no cost {name!r}; it has {known}.'
        )

  def _find_camera_pose(self) -> tuple[Sequence[float], float]:
    robot = self._task.agent_name
    if robot not in ORIGINAL_CAMERAS:
      raise errors.SetupError(
        f'The original Safety-Gym has no robot {robot!r}; set SafetyGymnasium.original_camera = False.'
      )
    return ORIGINAL_CAMERAS[robot]

  def _adjust_world(self) -> None:
    """Applies our own settings to the new layout."""
    model = self._task.model
    if self._camera_pose is not None:
      camera = model.camera('vision').id
      model.cam_pos[camera], model.cam_fovy[camera] = self._camera_pose
    if self._box_alpha != 1.0:
      body = model.body('push_box')
      first = body.geomadr[0]
      model.geom_rgba[first : first + body.geomnum[0], 3] = self._box_alpha
    opengl.import_mujoco().mj_camlight(model, self._task.data)  # Updates the camera's pose in the data.
    if self._picture is not None:
      self._picture.follow(model)


def _belongs(term: str, constraint: str) -> bool:
  return term == f'cost_{constraint}' or term.startswith(f'cost_{constraint}_')
