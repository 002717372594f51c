"""For the doctor: a contact sheet of the tasks of SG6, and the time that a picture takes."""

import json
import pathlib
import time
from typing import Any

import numpy as np
from PIL import Image
from PIL import ImageDraw
from PIL import ImageFont

from lambda_kit.environments.safety_gym import environment as environment_lib

# The environment's options for each view.
SG6_VIEWS: dict[str, dict[str, Any]] = {
  'PointGoal1': dict(task='SafetyPointGoal1-v0'),
  'PointGoal2': dict(task='SafetyPointGoal2-v0'),
  'CarGoal1': dict(task='SafetyCarGoal1-v0'),
  'PointPush1': dict(task='SafetyPointPush1-v0'),
  'PointButton1': dict(task='SafetyPointButton1-v0'),
  'DoggoGoal1': dict(task='SafetyDoggoGoal1-v0'),
  'ObservablePointPush1': dict(task='SafetyPointPush1-v0', box_alpha=0.5),
}


def print_render_time(count: int = 100) -> None:
  """Prints the mean seconds for a picture while turning at the start of PointGoal1. Runs in its own process."""
  environment = environment_lib.SafetyGymnasium(seed=0, task='SafetyPointGoal1-v0')
  environment.reset()
  elapsed = 0.0
  for _ in range(count):
    environment.step_many(np.array([0.0, 1.0]), 3)
    started = time.perf_counter()
    environment.render(64, 64)
    elapsed += time.perf_counter() - started
  print(json.dumps(elapsed / count))


def draw_contact_sheet(path: pathlib.Path, scale: int = 4, columns: int = 3, layouts: int = 12) -> str:
  """Draws starts of episodes for each view of SG6: the most colourful ones of `layouts`."""
  side, label = 64 * scale, 22
  sheet = Image.new('RGB', (columns * side * 2 + 8, -(-len(SG6_VIEWS) // 2) * (side + label)), (255, 255, 255))
  draw = ImageDraw.Draw(sheet)
  for i, (name, options) in enumerate(SG6_VIEWS.items()):
    environment = environment_lib.SafetyGymnasium(seed=0, original_camera=True, **options)
    images = [environment.reset().observation['image'] for _ in range(layouts)]
    environment.close()
    images.sort(key=_colorfulness, reverse=True)
    left, top = (i % 2) * (columns * side + 8), (i // 2) * (side + label)
    draw.text((left + 4, top + 3), name, fill=(0, 0, 0), font=ImageFont.load_default(14))
    for column, image in enumerate(images[:columns]):
      resized = Image.fromarray(image).resize((side, side), Image.Resampling.NEAREST)
      sheet.paste(resized, (left + column * side, top + label))
  path.parent.mkdir(parents=True, exist_ok=True)
  sheet.save(path)
  return f'drawn into {path}'


def _colorfulness(image: np.ndarray) -> float:
  """The mean range of colour channels: floor and sky are nearly grey, objects are not."""
  return float(np.ptp(image.astype(int), axis=-1).mean())
