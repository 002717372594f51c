"""Plays the six tasks by a script, and records returns and costs: of MuJoCo 2.3.3 once, of others to compare.

  python -m tests.environments.record_episodes --out=tests/environments/data/episodes_2.3.3.json

in an environment with that MuJoCo; record_states.py says how to make one. `--compare` prints docs/physics.md's table.
Over 1,000 steps rounding errors alone lead to other episodes, so that single episodes can't be compared, but means can.
"""

import argparse
import json
import math
import pathlib
import time
from typing import Any

import numpy as np

from lambda_kit.environments import opengl
from lambda_kit.environments.safety_gym import environment as environment_lib
from lambda_kit.environments.safety_gym import physics
from tests.environments import safety_gym_reference
from tests.environments import scripted_driver

# Of the same physics, these two differed by 1.7 and 1.1 standard errors in their cost over 100 episodes: by chance, as
# 300 more showed.
EPISODES = {'SafetyPointGoal1-v0': 400, 'SafetyDoggoGoal1-v0': 400}
FOLDER = pathlib.Path(__file__).parent / 'data'
_TARGET_STEPS = 100  # Then it heads for the next kind of object.


def play(task: str, numbers: range, seed: int = 0) -> dict[str, Any]:
  """Plays the episodes of these numbers; returns each one's return and cost, in all and by its terms, and the speed."""
  terms = environment_lib.simulation_lib.Simulation(task).costs()
  names = ['sum', *sorted(name.removeprefix('cost_') for name in terms if name != 'cost_sum')]
  environment = environment_lib.SafetyGymnasium(seed, task, observations=('vector',), constraints=names)
  built = environment._task
  kinds = sum(obstacle.is_lidar_observed for obstacle in built._obstacles)
  size = environment.action_spec().shape[0]
  returns, costs, steps, start = [], [], 0, time.process_time()
  for number in numbers:
    environment.next_episode = number
    rng = np.random.default_rng(number)
    timestep, rewards, step = environment.reset(), np.zeros(1 + len(names)), 0
    while not timestep.last():
      action = scripted_driver.drive(
        built.agent_name, timestep.observation['vector'], kinds, step // _TARGET_STEPS % kinds, step, rng, size
      )
      timestep = environment.step(action)
      rewards += (timestep.reward.reward, *timestep.reward.cost)
      step += 1
    steps += step
    returns.append(round(float(rewards[0]), 4))
    costs.append(rewards[1:])
  return dict(
    returns=returns,
    costs={name: np.array(costs)[:, i].tolist() for i, name in enumerate(names)},
    steps_per_second=round(steps / (time.process_time() - start)),
  )


def mean_and_error(values: list[float]) -> tuple[float, float]:
  """The mean and its standard error."""
  return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
  """A Markdown table: what two recordings returned and cost, and how many standard errors they are apart."""
  lines = [
    f'| task | of an episode | {theirs["mujoco"]} | {ours["mujoco"]} | difference | in standard errors |',
    '| --- | --- | --- | --- | --- | --- |',
  ]
  for task in ours['tasks']:
    one, other = ours['tasks'][task], theirs['tasks'][task]
    rows = [('return', one['returns'], other['returns'])]
    rows += [
      ('cost' if name == 'sum' else f'cost, {name}', values, other['costs'][name])
      for name, values in one['costs'].items()
      if name == 'sum' or len(one['costs']) > 2
    ]
    for name, values, others in rows:
      (mean, error), (other_mean, other_error) = mean_and_error(values), mean_and_error(others)
      both = math.hypot(error, other_error)
      apart = (mean - other_mean) / both if both else 0.0
      lines.append(
        f'| {task} | {name} | {other_mean:.2f} ± {other_error:.2f} | {mean:.2f} ± {error:.2f} | '
        f'{mean - other_mean:+.2f} | {apart:+.2f} |'
      )
  return '\n'.join(lines)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--out', type=pathlib.Path, help='Play, and write this file.')
  parser.add_argument('--episodes', type=int, help='Default: 100, of some tasks 400.')
  parser.add_argument('--tasks', nargs='*', default=safety_gym_reference.SG6)
  parser.add_argument('--unrestored', action='store_true', help="Leave the installed MuJoCo's physics as it is.")
  parser.add_argument('--compare', nargs=2, type=pathlib.Path, help='Print a table of two recordings instead.')
  flags = parser.parse_args()
  if flags.compare:
    print(compare(*(json.loads(path.read_text()) for path in reversed(flags.compare))))
    return
  result = dict(mujoco=opengl.import_mujoco().__version__, tasks={})
  if flags.unrestored:
    physics.restore_physics = lambda model: model
    result['mujoco'] += ', not restored'
  for task in flags.tasks:
    result['tasks'][task] = played = play(task, range(flags.episodes or EPISODES.get(task, 100)))
    speed = played.pop('steps_per_second')
    flags.out.write_text(json.dumps(result) + '\n')
    print(
      task,
      *('{:.2f} +- {:.2f}'.format(*mean_and_error(values)) for values in (played['returns'], played['costs']['sum'])),
      f'{speed} steps/s',
      flush=True,
    )


if __name__ == '__main__':
  main()
