"""Videos of episodes: MP4 that plays in browsers, with return and cost drawn on the frames."""

from collections.abc import Iterable, Iterator, Sequence
import io
import itertools
import os
import pathlib
import tempfile
from typing import BinaryIO, NamedTuple
import warnings

from absl import logging
import imageio_ffmpeg
import numpy as np
from PIL import Image
from PIL import ImageDraw
from PIL import ImageFont

from lambda_kit import files
from lambda_kit.analysis import streams
from lambda_kit.analysis import tables

_FONT_SIZE = 14
_COLORS = {False: (255, 255, 255), True: (255, 70, 70)}
# Viewers slow down animations with shorter frames.
_SHORTEST_GIF_FRAME_MS = 20
_PREVIEW_FRAMES = 100
_PREVIEW_HEIGHT = 128  # Pixels, at most.


class Line(NamedTuple):
  """A line of a caption."""

  text: str
  alert: bool = False  # Drawn in red.


def write_video(frames: Iterable[np.ndarray], path: str | os.PathLike, fps: float) -> pathlib.Path:
  """Writes H.264 in MP4, or an animated GIF if ffmpeg doesn't work.

  Frames are encoded as they come, so an iterator over a long episode needs no memory. The file appears once it is
  complete; if anything fails, nothing is left behind.

  Args:
    frames: Pictures uint8 [height, width, 3], all of one size. Odd sizes are padded by a pixel, as H.264 requires.
    path: Name of the file, ending in '.mp4'.
    fps: Frames per second.

  Returns:
    The path written: `path`, or the same with '.gif'.
  """
  path = pathlib.Path(path)
  if path.suffix != '.mp4':
    raise ValueError(f'The name of a video ends in ".mp4", got {str(path)!r}.')
  frames = _checked(frames)
  write = _write_mp4
  if (problem := _ffmpeg_problem()) is not None:
    path, write = path.with_suffix('.gif'), _write_gif
    logging.warning(
      'ffmpeg can not encode H.264 here, so %s is written instead of an MP4: larger, and in 256 '
      'colours. Reinstalling imageio-ffmpeg brings an ffmpeg of its own. The reason: %s',
      path,
      problem,
    )
  with files.replacing(path) as partial:
    write(frames, partial, fps)
  return path


def caption(frame: np.ndarray, lines: Sequence[str | Line], min_height: int = 256) -> np.ndarray:
  """Draws lines of small text in the upper left corner.

  Args:
    frame: uint8 [height, width, 3]. Small frames are first enlarged by a whole factor, so that pixels stay sharp.
    lines: Text, or `Line`s, which can be red.
    min_height: Smaller frames are enlarged to at least this height in pixels.

  Returns:
    A new frame, uint8.
  """
  scale = max(1, -(-min_height // frame.shape[0]))
  image = Image.fromarray(np.repeat(np.repeat(frame, scale, axis=0), scale, axis=1))
  draw = ImageDraw.Draw(image)
  font = ImageFont.load_default(_FONT_SIZE)
  for i, line in enumerate(lines):
    line = Line(line) if isinstance(line, str) else line
    # The outline keeps the text readable on any picture and hides less of it than a box.
    draw.text(
      (6, 4 + i * (_FONT_SIZE + 4)),
      line.text,
      font=font,
      fill=_COLORS[line.alert],
      stroke_width=1,
      stroke_fill=(0, 0, 0),
    )
  return np.asarray(image)


class Preview:
  """A small animation of a video, with a bounded number of frames."""

  def __init__(self):
    self._kept = streams.Thinned(capacity=_PREVIEW_FRAMES)
    self._count = 0

  def passing(self, frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Passes on frames uint8 [height, width, 3], and keeps some of them."""
    for frame in frames:
      shrink = -(-frame.shape[0] // _PREVIEW_HEIGHT)
      self._kept.append(Image.fromarray(frame).reduce(shrink))
      self._count += 1
      yield frame

  def gif(self, fps: float) -> bytes:
    """Returns the animation. It lasts as long as the video does at `fps` frames per second."""
    images, output = self._kept.items(), io.BytesIO()
    _save_gif(images, output, len(images) * fps / self._count)
    return output.getvalue()


def episode_lines(
  episode_return: float,
  cost_return: np.ndarray,
  cost_limit: float | Sequence[float],
  constraint_names: Sequence[str] = (),
) -> list[Line]:
  """Returns the caption of an episode: its return and cost returns [C] so far, in red once over their limits."""
  costs = tables.as_floats(cost_return)
  lines = [Line(f'return {float(episode_return):.2f}')]
  for label, cost, limit in zip(
    tables.cost_labels(constraint_names, len(costs)), costs, tables.cost_limits(cost_limit, len(costs))
  ):
    lines.append(Line(f'{label} {cost:.0f} / {limit:g}', alert=not tables.within(cost, limit)))
  return lines


def _checked(frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
  """Passes on frames, and refuses those that an encoder would misinterpret."""
  frames = iter(frames)
  first = next(frames, None)
  if first is None:
    raise ValueError('A video needs at least one frame.')

  def check_all():
    for i, frame in enumerate(itertools.chain([first], frames)):
      if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or frame.shape != first.shape:
        raise ValueError(
          'Frames are uint8 [height, width, 3] and all of one size; '
          f'frame {i} is {frame.dtype} {frame.shape}, the first {first.dtype} {first.shape}.'
        )
      yield frame

  return check_all()


def _write_mp4(frames: Iterator[np.ndarray], path: pathlib.Path, fps: float) -> None:
  first = next(frames)
  height, width = first.shape[:2]
  padding = ((0, height % 2), (0, width % 2), (0, 0))  # yuv420p shares colours between 2 x 2 pixels.
  # faststart puts the index first, so that browsers play while they load.
  writer = imageio_ffmpeg.write_frames(
    str(path),
    (width + width % 2, height + height % 2),
    fps=fps,
    codec='libx264',
    pix_fmt_out='yuv420p',
    quality=None,
    macro_block_size=1,
    ffmpeg_log_level='error',
    output_params=['-crf', '23', '-movflags', '+faststart'],
  )
  with warnings.catch_warnings():
    # JAX warns of forked processes, which must not use it. This one becomes ffmpeg at once.
    warnings.filterwarnings('ignore', r'os\.fork\(\) was called', RuntimeWarning)
    writer.send(None)
  count = 0
  try:
    for count, frame in enumerate(itertools.chain([first], frames), start=1):  # noqa: B007 (compared below)
      writer.send(np.ascontiguousarray(np.pad(frame, padding, mode='edge')))
  finally:
    writer.close()
  # imageio-ffmpeg hides ffmpeg's exit code. Missing frames reveal a full disk.
  if (written := _count_frames(path)) != count:
    raise OSError(f'ffmpeg wrote {written} of {count} frames to {path}; is the disk full?')


def _count_frames(path: pathlib.Path) -> int:
  try:
    return imageio_ffmpeg.count_frames_and_secs(str(path))[0]
  except RuntimeError:  # Not a video at all.
    return 0


def _write_gif(frames: Iterator[np.ndarray], path: pathlib.Path, fps: float) -> None:
  _save_gif(map(Image.fromarray, frames), path, fps)


def _save_gif(images: Iterable[Image.Image], file: pathlib.Path | BinaryIO, fps: float) -> None:
  images = iter(images)
  next(images).save(
    file,
    format='GIF',
    save_all=True,
    append_images=images,
    loop=0,
    duration=max(_SHORTEST_GIF_FRAME_MS, round(1000 / fps)),
  )


def _ffmpeg_problem() -> str | None:
  """Tries to encode a frame. Returns why it failed: ffmpeg may be missing, built for another machine, or lack H.264."""
  with tempfile.TemporaryDirectory() as directory:
    try:
      _write_mp4(iter(np.zeros((1, 16, 16, 3), np.uint8)), pathlib.Path(directory) / 'probe.mp4', fps=10)
    except (OSError, RuntimeError) as error:  # RuntimeError: imageio-ffmpeg found none.
      return str(error)
  return None
