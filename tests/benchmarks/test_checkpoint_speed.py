"""What a checkpoint writes does not depend on how much the replay holds."""

from benchmarks import checkpoint_speed


def test_bytes_do_not_grow_with_the_replay():
  few, many = checkpoint_speed.measure(num_episodes=(10, 40), episode_length=20, num_parameters=1000, rounds=3)
  assert (few['episodes'], many['episodes']) == (10, 40)
  assert many['replay_bytes'] == 4 * few['replay_bytes']
  assert many['episode_bytes'] == few['episode_bytes'] > 0
  # Counters may have more digits, and are little beside the learner's 4,000 bytes.
  assert few['written_bytes'] - few['episode_bytes'] > 4000 and abs(many['written_bytes'] - few['written_bytes']) < 20
