"""Memory of runs by hand, from configurations that the launcher would read."""

import pathlib

import pytest

from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit.config import configuration
from lambda_kit.sweeps import memory

_ROOT = str(pathlib.Path(__file__).resolve().parents[2])


def _text(*files, bindings=()):
  configuration.parse(files, bindings, [_ROOT])
  return configuration.resolved_config()


@pytest.mark.parametrize(
  'files, bindings, expected',
  [
    # 500,000 moments and one more for each of 1,000 episodes, of 12,288 bytes each: 6.16 GB.
    (['gin/sg6_pointgoal1.gin'], (), 4 + 7),
    (['gin/sg6_doggogoal1.gin'], (), 4 + 13),
    (['gin/sg6_doggogoal1.gin'], ('EpisodeBuffer.max_bytes = 2_000_000_000',), 4 + 2),
    (['gin/sg6_pointgoal1.gin'], ('SafetyGymnasium.image_size = 32',), 4 + 2),
    (['gin/sg6_pointgoal1.gin', 'gin/parts/observe_vector.gin'], (), 4),
    (['gin/sg6_pointgoal1.gin', 'gin/agents/ppo.gin', 'gin/parts/observe_vector.gin'], (), 4),
    (['gin/tasks/grid.gin'], (), 4),
  ],
)
def test_pictures_in_the_replay_are_what_takes_memory(files, bindings, expected):
  assert memory.needed_gigabytes([_text(*files, bindings=bindings)]) == expected


def test_the_largest_run_counts():
  texts = [_text('gin/sg6_pointgoal1.gin'), _text('gin/sg6_doggogoal1.gin'), _text('gin/tasks/grid.gin')]
  assert memory.needed_gigabytes(texts) == 4 + 13
  assert memory.needed_gigabytes([]) == 4
