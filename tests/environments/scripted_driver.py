"""A driver by rules, for tests and recordings of the physics."""

import numpy as np

_BINS = 16  # Of a lidar, over the full circle.
_TROT_STEPS = 12  # Simulator steps of one stride.


def drive(
  robot: str, vector: np.ndarray, kinds: int, target: int, step: int, rng: np.random.Generator, size: int
) -> np.ndarray:
  """Drives towards the nearest object of one kind, by its lidar, so that goals are reached and costs are paid.

  Args:
    robot: 'Point', 'Car' and 'Doggo' are steered; others act at random.
    vector: The observation, which ends with the lidars.
    kinds: How many lidars there are, one for each kind of object.
    target: Which of them to head for.
    step: Of the episode; Doggo trots to it.
    rng: Of the noise, drawn in equal amounts whatever is seen.
    size: Numbers of an action.
  """
  noise = rng.normal(size=size)
  ring = vector[len(vector) - _BINS * kinds :].reshape(kinds, _BINS)[target]
  angle = _wrap((np.argmax(ring) + 0.5) * 2 * np.pi / _BINS)
  if robot == 'Point':
    action = np.array([1.0 if abs(angle) < 1 else 0.0, np.clip(2 * angle, -1, 1)])
  elif robot == 'Car':  # Its front is along y, and negative torques drive it forward.
    turn = np.clip(_wrap(angle - np.pi / 2), -1, 1)
    action = np.array([turn - 1, -turn - 1])
  elif robot == 'Doggo':
    action = _trot(_wrap(angle - np.pi), step)
  else:
    action = 2 * noise
  return np.clip(action + 0.2 * noise, -1, 1)


def _trot(angle: float, step: int) -> np.ndarray:
  """Diagonal legs swing against each other, which moves Doggo along -x; weaker in one diagonal, it turns."""
  left, right = (1.0, 0.2) if angle < -0.5 else (0.2, 1.0) if angle > 0.5 else (1.0, 1.0)
  swing = np.sin(2 * np.pi * step / _TROT_STEPS - 0.5 + np.pi * np.array([0, 1, 0, 1]))
  swing *= np.array([left, right, left, right])
  return np.concatenate([np.zeros(4), -0.55 * swing, 0.6 * swing])


def _wrap(angle: float) -> float:
  return (angle + np.pi) % (2 * np.pi) - np.pi
