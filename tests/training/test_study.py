"""Studies, with runs that are logs and nothing else."""

import json

import pytest

from lambda_kit.analysis.reports import studies
from lambda_kit.environments import grid_cmdp
from lambda_kit.training import study

# Stands in for `lambda-kit run`: the return is the seed, the cost depends on the variant.
_FAKE = """#!/usr/bin/env python
import json, pathlib, sys
arguments = dict(argument[2:].split('=', 1) for argument in sys.argv[1:] if 'gin' not in argument)
workdir, seed = pathlib.Path(arguments['workdir']), int(arguments['seed'])
variants = [argument for argument in sys.argv if '--gin_file=gin/parts' in argument]
if seed == 13:
  sys.exit('no luck')
if workdir.exists():
  sys.exit(0)
workdir.mkdir()
rows = [dict(environment_steps=100 * k, episode_return=seed + k, cost_return=[float(len(variants)) * k],
             cost_regret=[0.1], time=60.0 * k) for k in range(1, 5)]
(workdir / 'config.gin').write_text(f'# {workdir.name}')
for kind in ('episode', 'evaluation'):
  (workdir / f'{kind}.jsonl').write_text(''.join(json.dumps(row) + chr(10) for row in rows))
"""

# Stands in for `lambda-kit evaluate`: one episode that counted for the choice, then the fresh ones. Only seed 5 is safe.
_FAKE_EVALUATE = """
import json, pathlib, sys
arguments = dict(argument[2:].split('=', 1) for argument in sys.argv[1:])
workdir, fresh = pathlib.Path(arguments['workdir']), int(arguments['episodes'])
if arguments['which'] == 'best' and 'seed5' not in workdir.name:
  sys.exit('none is safe')
(workdir / 'evaluation').mkdir(exist_ok=True)
row = dict(environment_steps=300 if arguments['which'] == 'best' else 400, episode_returns=[99.0] + [8.5] * fresh,
           cost_returns=[[99.0]] + [[1.5]] * fresh)
(workdir / 'evaluation' / 'evaluation.jsonl').write_text(json.dumps(row) + chr(10))
"""


@pytest.fixture
def program(tmp_path):
  """A folder with a module for each command, and what starts them, as `python -m lambda_kit` would."""
  (tmp_path / 'run.py').write_text(_FAKE)
  (tmp_path / 'evaluate.py').write_text(_FAKE_EVALUATE)
  (tmp_path / 'start.py').write_text(
    'import runpy, sys\nname = sys.argv.pop(1)\nrunpy.run_path(f"{sys.path[0]}/{name}.py")\n'
  )
  return [str(tmp_path / 'start.py')]


def test_every_variant_runs_with_every_seed(program, tmp_path):
  seen = []
  outcomes = study.run_study(
    'gin/x.gin',
    ['lambda', 'unsafe'],
    [0, 5],
    tmp_path / 'study',
    jobs=2,
    last_evaluations=2,
    fresh_episodes=3,
    on_outcome=seen.append,
    program=program,
  )
  assert [(outcome.variant, outcome.seed) for outcome in outcomes] == [
    ('lambda', 0),
    ('lambda', 5),
    ('unsafe', 0),
    ('unsafe', 5),
  ]
  assert len(seen) == 4
  last = outcomes[-1]
  assert (last.episode_return, last.cost_return) == (5 + 3.5, 3.5)  # Of the last two evaluations.
  assert (last.environment_steps, last.minutes, last.cost_regret) == (400, 3.0, 0.1)
  # The best safe checkpoint where there is one, else the newest, on episodes that had no part in the choice.
  assert [outcome.delivered_step for outcome in outcomes] == [400, 300, 400, 300]
  assert (last.delivered_return, last.delivered_cost) == (8.5, 1.5)
  done = study.Study('x', study.Reference(random_return=0.5, optimal_return=10.5, cost_limit=2.0), outcomes)
  assert json.loads(json.dumps(done.to_json()))['outcomes'][-1]['evaluations'][0]['episode_return'] == 6
  lines = [line.split() for line in studies.study_table(done).splitlines()]
  assert ['unsafe', '5', '8.50', '80%', '1.5', 'ok', '300', '8.50', '3.5', '0.1000', '400', '3.0'] in lines
  assert ['lambda', '0', '8.50', '80%', '1.5', 'ok', '400', '3.50', '0.0', '0.1000', '400', '3.0'] in lines
  # Means over the seeds 0 and 5 and their deviations; unsafe costs 3.5 with both, of 2.
  rows = [[cell.strip() for cell in line.split('|')[1:-1]] for line in studies.summary([done]).splitlines()]
  assert [
    'x',
    'unsafe',
    '2',
    '6.00 ± 2.50',
    '3.5 ± 0.0',
    '0 of 2',
    '8.50 ± 0.00',
    '80%',
    '1.5 ± 0.0',
    '0.1000 ± 0.0000',
    '3.0',
  ] in rows
  figure = studies.study_figure([done, done])
  returns, costs, _ = figure.axes[:3]
  assert [line.get_xdata().tolist() for line in returns.lines[:2]] == [[3.5, 8.5], [6.0]]  # LAMBDA's seeds, their mean.
  assert [label.get_text() for label in returns.get_yticklabels()] == ['lambda', 'unsafe']
  assert costs.lines[-1].get_xdata() == [2.0, 2.0] and len(figure.axes) == 6


def test_the_learning_proof(program, tmp_path):
  lambda_, unsafe = study.run_study('gin/x.gin', ['lambda', 'unsafe'], [5], tmp_path / 'study', program=program)
  # Both deliver a return of 8.5 at a cost of 1.5; the last evaluations of unsafe cost 3.
  reference = lambda optimum, limit: study.Reference(random_return=0.0, optimal_return=optimum, cost_limit=limit)
  assert study.is_proof(lambda_, reference(10.0, 2.0))
  assert not study.is_proof(lambda_, reference(10.1, 2.0)) and not study.is_proof(lambda_, reference(10.0, 1.0))
  assert study.is_proof(unsafe, reference(10.0, 2.0)) and not study.is_proof(unsafe, reference(10.0, 3.0))


def test_configurations_of_first_seeds_are_kept(program, tmp_path):
  folder, out = tmp_path / 'x', tmp_path / 'config'
  outcomes = study.run_study('gin/x.gin', ['lambda', 'unsafe'], [5, 6], folder, fresh_episodes=3, program=program)
  study.copy_configs(study.Study('x', study.Reference(0.0, 1.0, 2.0), outcomes), folder, out)
  assert {path.name: path.read_text() for path in out.iterdir()} == {
    'x-lambda.gin': '# lambda-seed5',
    'x-unsafe.gin': '# unsafe-seed5',
  }


def test_what_was_measured_is_not_measured_again(program, tmp_path):
  go = lambda fresh: study.run_study(
    'gin/x.gin', ['lambda'], [5], tmp_path / 'study', fresh_episodes=fresh, program=program
  )
  first = go(3)
  (tmp_path / 'evaluate.py').write_text("import sys; sys.exit('called again')")
  assert go(3) == first
  with pytest.raises(study.StudyError, match='(?s)lambda with seed 5 could not be evaluated.*called again'):
    go(10)  # More episodes than were measured.


def test_a_run_that_fails_is_named(program, tmp_path):
  with pytest.raises(study.StudyError, match='(?s)lambda with seed 13 ended with code 1.*lambda-seed13.out.*no luck'):
    study.run_study('gin/x.gin', ['lambda'], [13], tmp_path / 'study', program=program)


def test_the_reference_is_exact():
  # One move from start to goal without slips: each step earns 1 and shaping, whatever the limit.
  environment = grid_cmdp.GridCmdp(0, layout=('SG',), slip=0.0, episode_length=10)
  reference = study.grid_reference(environment, 5.0)
  assert reference.optimal_return == pytest.approx(11.0)
  assert reference.share(reference.random_return) == 0 and reference.share(11.0) == pytest.approx(1)
