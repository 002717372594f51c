"""Measures speed, as ratios inside one run.

  python launchers/benchmark.py                                   # PointGoal1's environment
  python launchers/benchmark.py --task=SafetyCarGoal1-v0 --json=speed.json
  python launchers/benchmark.py --scaling                         # worker processes, too
"""

import functools
import json

from absl import app
from absl import flags
from rich import console as rich_console
from rich import table as rich_table

from lambda_kit.benchmarks import environment_speed
from lambda_kit.benchmarks import parallel_speed
from lambda_kit.environments import factory
from lambda_kit.environments.safety_gym import environment

_TASK = flags.DEFINE_multi_string('task', ['SafetyPointGoal1-v0'], 'A Safety-Gymnasium task; may be repeated.')
_ROUNDS = flags.DEFINE_integer('rounds', 3, 'Episodes that each contender runs, in turns.', lower_bound=1)
_AGENT_STEPS = flags.DEFINE_integer('agent_steps', 500, 'Agent steps of an episode.', lower_bound=1)
_SCALING = flags.DEFINE_bool('scaling', False, 'Also measure steps per second of 1, 2 and 4 worker processes.')
_JSON = flags.DEFINE_string('json', None, 'File to write the figures to.')


def _print_environment(result: dict) -> None:
  table = rich_table.Table(title=f'{result["task"]}: time of a step in ms, resets included (median of '
                           f'{result["rounds"]} rounds)', title_justify='left')
  for heading in ('what', 'safety-gymnasium', 'lambda_kit', 'times faster', 'floor', 'times the floor'):
    table.add_column(heading, justify='left' if heading == 'what' else 'right')
  labels = {'images': 'agent step, 64x64 image, action repeat 2', 'vectors': 'environment step, vector',
            'resets': 'reset, vector'}
  for name, label in labels.items():
    row = result[name]
    floor = (f'{row["floor_ms"]:.2f}', f'{row["times_floor"]:.2f}') if 'floor_ms' in row else ('', '')
    table.add_row(label, f'{row["theirs_ms"]:.2f}', f'{row["ours_ms"]:.2f}', f'{row["times_faster"]:.1f}', *floor)
  rich_console.Console(width=120).print(table)


def _measure_scaling(task: str) -> dict:
  result = {}
  for observations in (('image',), ('vector',)):
    simulator = functools.partial(environment.SafetyGymnasium, task=task, observations=observations)
    result[observations[0]] = parallel_speed.measure_scaling(
        functools.partial(factory.make_environment, simulator=simulator, action_repeat=2))
  return result


def _print_scaling(result: dict) -> None:
  table = rich_table.Table(title='Agent steps per second, action repeat 2, resets included', title_justify='left')
  table.add_column('observation')
  for heading in result['image']:
    table.add_column(heading, justify='right')
  for name, rates in result.items():
    table.add_row(name, *(f'{rate:.0f}' for rate in rates.values()))
  rich_console.Console(width=120).print(table)


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
  results = []
  for task in _TASK.value:
    results.append(environment_speed.measure(task, _ROUNDS.value, _AGENT_STEPS.value))
    _print_environment(results[-1])
    if _SCALING.value:
      results[-1]['scaling'] = _measure_scaling(task)
      _print_scaling(results[-1]['scaling'])
  if _JSON.value:
    with open(_JSON.value, 'w', encoding='utf-8') as file:
      json.dump({'environments': results}, file, indent=2)


if __name__ == '__main__':
  app.run(main)
