"""Tests of videos: files are decoded again."""

import io
import os
import resource
import subprocess

from absl import logging
import imageio.v2 as imageio
import imageio_ffmpeg
import numpy as np
from PIL import Image
import pytest

from lambda_kit.analysis import video

_COLORS = np.array([[200, 30, 30], [30, 200, 30], [30, 30, 200]], np.uint8)


def _frames(height: int, width: int, count: int):
  """Plain frames in turns red, green and blue."""
  for i in range(count):
    yield np.broadcast_to(_COLORS[i % 3], (height, width, 3))


def _stream_info(path) -> str:
  return subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), '-i', str(path)], capture_output=True, text=True).stderr


class TestWriteVideo:
  # Encoders need even sizes; 63 x 65 is odd in both.
  @pytest.mark.parametrize('size, written_size', [((64, 64), (64, 64)), ((63, 65), (64, 66)), ((48, 80), (48, 80))])
  def test_frames_come_back(self, tmp_path, size, written_size):
    path = video.write_video(_frames(*size, count=9), tmp_path / 'new' / 'episode.mp4', fps=30)
    assert path == tmp_path / 'new' / 'episode.mp4'
    decoded = np.stack(imageio.mimread(path))
    assert decoded.shape == (9, *written_size, 3)
    expected = np.stack(list(_frames(*size, count=9)))
    # Colours to within what video coding loses, up to the border.
    difference = np.abs(decoded[:, : size[0], : size[1]].astype(int) - expected)
    assert difference.max() < 16
    assert imageio.get_reader(path).get_meta_data()['fps'] == 30

  def test_plays_in_browsers_and_is_small(self, tmp_path):
    path = video.write_video(_frames(64, 64, count=300), tmp_path / 'episode.mp4', fps=30)
    info = _stream_info(path)
    assert 'h264' in info and 'yuv420p' in info
    content = path.read_bytes()
    assert content.index(b'moov') < content.index(b'mdat')  # The index is in front of the data.
    assert len(content) < 300 * 64 * 64 * 3 / 50

  def test_replaces_a_file_and_leaves_nothing_else(self, tmp_path):
    (tmp_path / 'episode.mp4').write_text('old')
    video.write_video(_frames(16, 16, count=2), tmp_path / 'episode.mp4', fps=30)
    assert os.listdir(tmp_path) == ['episode.mp4']
    assert len(imageio.mimread(tmp_path / 'episode.mp4')) == 2

  def test_a_failure_on_the_way_keeps_the_old_file(self, tmp_path):
    def failing():
      yield from _frames(16, 16, count=5)
      raise RuntimeError('The simulator crashed.')

    (tmp_path / 'episode.mp4').write_text('old')
    with pytest.raises(RuntimeError, match='simulator'):
      video.write_video(failing(), tmp_path / 'episode.mp4', fps=30)
    assert os.listdir(tmp_path) == ['episode.mp4']
    assert (tmp_path / 'episode.mp4').read_text() == 'old'

  def test_a_video_that_does_not_fit_on_disk_is_an_error(self, tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (200, 64, 64, 3), np.uint8)
    old_limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, old_limits[1]))  # Bytes in a file; ffmpeg inherits it.
    try:
      with pytest.raises(OSError, match='(?i)ffmpeg'):
        video.write_video(noise, tmp_path / 'episode.mp4', fps=30)
    finally:
      resource.setrlimit(resource.RLIMIT_FSIZE, old_limits)
    assert not os.listdir(tmp_path)

  @pytest.mark.parametrize(
    'frames, message',
    [
      ([], 'at least one frame'),
      ([np.zeros((8, 8, 3), np.float32)], 'frame 0 is float32'),
      ([np.zeros((8, 8), np.uint8)], 'frame 0 is uint8 \\(8, 8\\)'),
      ([np.zeros((8, 8, 3), np.uint8), np.zeros((8, 10, 3), np.uint8)], 'frame 1 is uint8 \\(8, 10, 3\\)'),
    ],
  )
  def test_refuses_what_is_no_video(self, tmp_path, frames, message):
    with pytest.raises(ValueError, match=message):
      video.write_video(frames, tmp_path / 'episode.mp4', fps=30)
    assert not os.listdir(tmp_path)

  def test_refuses_other_endings(self, tmp_path):
    with pytest.raises(ValueError, match='.mp4'):
      video.write_video(_frames(8, 8, 1), tmp_path / 'episode.avi', fps=30)

  @pytest.mark.parametrize('kind', ['missing', 'fails'])
  def test_falls_back_to_gif_without_ffmpeg(self, tmp_path, monkeypatch, kind):
    if kind == 'missing':

      def get_ffmpeg_exe():
        raise RuntimeError('No ffmpeg exe could be found.')
    else:

      def get_ffmpeg_exe():
        return '/bin/false'

    monkeypatch.setattr(imageio_ffmpeg._io, 'get_ffmpeg_exe', get_ffmpeg_exe)
    warnings = []
    monkeypatch.setattr(logging, 'warning', lambda message, *args: warnings.append(message % args))
    path = video.write_video(_frames(15, 17, count=6), tmp_path / 'episode.mp4', fps=25)
    assert path == tmp_path / 'episode.gif' and os.listdir(tmp_path) == ['episode.gif']
    assert len(warnings) == 1 and str(path) in warnings[0] and 'imageio-ffmpeg' in warnings[0]
    with Image.open(path) as image:
      assert (image.size, image.n_frames, image.info['duration']) == ((17, 15), 6, 40)
      for i in range(6):
        image.seek(i)
        assert np.abs(np.asarray(image.convert('RGB')).astype(int) - _COLORS[i % 3]).max() < 16


class TestPreview:
  @pytest.mark.parametrize('count, kept', [(90, 90), (250, 64)])  # Of 250 frames every fourth one, and the last.
  def test_small_and_as_long_as_the_video(self, count, kept):
    preview = video.Preview()
    frames = list(_frames(256, 200, count))
    passed = list(preview.passing(frames))
    assert all(ours is theirs for ours, theirs in zip(passed, frames, strict=True))
    with Image.open(io.BytesIO(preview.gif(fps=25))) as image:
      assert image.size == (100, 128)
      durations = []
      for i in range(image.n_frames):
        image.seek(i)
        durations.append(image.info['duration'])
      assert image.n_frames == kept and sum(durations) == pytest.approx(1000 * count / 25, rel=0.05)
      assert np.abs(np.asarray(image.convert('RGB')).astype(int) - _COLORS[(count - 1) % 3]).max() < 16


class TestCaption:
  def test_enlarges_by_whole_pixels_and_draws_in_the_corner(self):
    frame = np.random.default_rng(0).integers(100, 150, (64, 64, 3), np.uint8)
    captioned = video.caption(frame, ['return 1.00'])
    assert captioned.shape == (256, 256, 3) and captioned.dtype == np.uint8
    np.testing.assert_array_equal(captioned[32::4, ::4], frame[8:])  # Below the text: the picture, enlarged 4 times.
    assert captioned[:24].max() == 255 and captioned[:24].min() == 0  # White with a black outline.

  def test_keeps_large_frames_and_the_argument(self):
    frame = np.full((300, 400, 3), 128, np.uint8)
    captioned = video.caption(frame, ['text'])
    assert captioned.shape == (300, 400, 3)
    assert (frame == 128).all() and (captioned != 128).any()

  def test_costs_over_the_limit_are_red(self):
    frame = np.zeros((64, 64, 3), np.uint8)

    def redness(lines):
      pixels = video.caption(frame, lines).astype(int)
      return (pixels[..., 0] - pixels[..., 1]).max()

    under = video.episode_lines(1.5, np.array([25.0]), 25.0)
    over = video.episode_lines(1.5, np.array([26.0]), 25.0)
    assert under == [video.Line('return 1.50', False), video.Line('cost return 25 / 25', False)]
    assert over == [video.Line('return 1.50', False), video.Line('cost return 26 / 25', True)]
    assert redness(under) == 0 and redness(over) > 150

  def test_each_constraint_has_a_line(self):
    lines = video.episode_lines(0.0, [3.0, 7.0], [5.0, 6.0], ('hazards', 'vases'))
    assert lines[1:] == [('cost return, hazards 3 / 5', False), ('cost return, vases 7 / 6', True)]
