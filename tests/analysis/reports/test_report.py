"""Tests of the whole report: its files, its page in a real browser, and many runs."""

import dataclasses
import html.parser
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from benchmarks import synthetic_runs
from lambda_kit.analysis import run_record
from lambda_kit.analysis.metrics import records
from lambda_kit.analysis.reports import archive
from lambda_kit.analysis.reports import problems as problems_lib
from lambda_kit.analysis.reports import report

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_CHROMIUM = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)
# Does what a reader does, and writes down what is then on the page.
_VISIT = """
<script>
addEventListener('error', event => document.body.append('ERROR ' + event.message));
const count = selector => document.querySelectorAll(selector).length;
const click = name => document.querySelector(`[data-toggle="${name}"]`).click();
const median = () => document.querySelector('[data-metric=episode_return] .median').getAttribute('d');
const seen = {medians: count('.median'), limits: count('.limit'), seeds: count('.seed')};
click('PPO'); seen.mediansWithoutPpo = count('.median');
const before = median(); click('2'); seen.medianMoves = before !== median();
click('2'); seen.medianReturns = before === median();
click('single-seeds'); seen.singleSeeds = count('.seed');
click('published'); seen.published = count('.published');
const chart = document.querySelector('.chart svg'), box = chart.getBoundingClientRect();
chart.dispatchEvent(new PointerEvent('pointermove', {clientX: box.right - 15, clientY: box.top + 50}));
seen.tooltip = document.getElementById('tooltip').textContent;
const run = document.querySelector('.run'); run.open = true; run.dispatchEvent(new Event('toggle'));
seen.run = run.textContent; seen.diff = run.querySelector('.diff').textContent;
seen.problems = document.getElementById('problems').textContent;
seen.bold = count('#tables strong'); seen.images = [...document.images].every(image => image.src.startsWith('data:'));
seen.videos = count('#videos video'); seen.injected = count('b.injected');
seen.wide = document.documentElement.scrollWidth > innerWidth;
document.title = JSON.stringify(seen);
</script>
"""


@pytest.fixture(scope='module')
def written(tmp_path_factory):
  """A report about LAMBDA and PPO on one task, with a run that is unfinished and one with a warning."""
  folder = tmp_path_factory.mktemp('report')
  for seed in range(3):
    synthetic_runs.write_run(
      folder / 'runs' / f'lambda-{seed}',
      seed=seed,
      bindings='Swag.decay = 0.5\n',
      stop_after=None if seed else 3,
      diagnoses=['<b class=injected>KL</b> </script>'] if seed else (),
    )
    synthetic_runs.write_run(
      folder / 'runs' / f'ppo-{seed}', algorithm='PPO', seed=seed, episode_return=20.0, cost_return=40.0
    )
  (folder / 'runs' / 'lambda-1' / 'video.mp4').write_bytes(b'no real video')
  with open(folder / 'runs' / 'ppo-1' / 'episode.jsonl', 'a', encoding='utf-8') as file:
    file.write('{"torn')
  return folder / 'out', report.write_report(folder / 'runs', folder / 'out', _ROOT)


class _Links(html.parser.HTMLParser):
  """Collects what a page would load, and where its links lead."""

  def __init__(self):
    super().__init__()
    self.sources, self.links, self.tags = [], [], []

  def handle_starttag(self, tag, attrs):
    attributes = dict(attrs)
    self.tags.append(tag)
    self.sources += [attributes['src']] if 'src' in attributes else []
    self.links += [attributes['href']] if 'href' in attributes else []


class TestFiles:
  def test_everything_is_there(self, written):
    out, collected = written
    names = {str(path.relative_to(out)) for path in out.rglob('*') if path.is_file()}
    assert {
      'index.html',
      'scores.json',
      'evaluations.json',
      'problems.json',
      'manifest.json',
      'tables/runs.md',
    } <= names
    assert {
      f'tables/sg6_{kind}.{form}' for kind in ('normalized', 'unnormalized') for form in ('md', 'csv', 'tex', 'html')
    } <= names
    figures = (
      'learning_curves_1',
      'sg6_trade_off',
      'sg6_sample_efficiency',
      'sg6_aggregates',
      'sg6_profiles',
      'predicted_cost',
      'multipliers',
      'disagreement',
    )
    assert {f'figures/{name}.{form}' for name in figures for form in ('png', 'svg')} <= names
    assert {problem.kind for problem in collected.problems} == {
      problems_lib.UNFINISHED,
      problems_lib.MISSING_SEED,
      problems_lib.CORRUPT_LINE,
    }
    assert len(json.loads((out / 'problems.json').read_text())) == len(collected.problems)

  def test_scores_can_be_loaded(self, written):
    scores = records.load_scores(written[0] / 'scores.json')
    assert [(score.algorithm, score.seed) for score in scores] == [
      ('PPO', 0),
      ('PPO', 1),
      ('PPO', 2),
      ('LAMBDA', 1),
      ('LAMBDA', 2),
    ]

  def test_every_run_has_its_evaluations(self, written):
    evaluations = json.loads((written[0] / 'evaluations.json').read_text())
    assert [(run['algorithm'], run['seed'], run['counts']) for run in evaluations] == [
      ('PPO', 0, True),
      ('PPO', 1, True),
      ('PPO', 2, True),
      ('LAMBDA', 0, False),
      ('LAMBDA', 1, True),
      ('LAMBDA', 2, True),
    ]
    unfinished, ppo = evaluations[3], evaluations[2]
    assert unfinished['environment_steps'] == [250_000, 500_000, 750_000]
    assert ppo['episode_return'] == [5.5, 11.0, 16.5, 22.0] and ppo['cost_return'] == [85.0, 70.0, 55.0, 40.0]

  def test_an_archive_keeps_what_is_small(self, written, tmp_path):
    out, collected = written
    seed_0 = collected.groups[-1].runs[0].folder
    (seed_0 / 'prediction.png').write_bytes(b'a picture')
    (seed_0 / 'video.mp4').write_bytes(b'a video')
    (seed_0 / 'evaluation').mkdir()
    for step in ('000', '100'):
      for suffix in ('json', 'png'):
        (seed_0 / 'evaluation' / f'step_{step}-calibration.{suffix}').write_text(step)
    names = archive.write_archive(collected, out, tmp_path)
    name = {'PPO': 'pointgoal1_ppo', 'LAMBDA': 'pointgoal1_lambda'}[collected.groups[-1].algorithm]
    for added in (seed_0 / 'prediction.png', seed_0 / 'video.mp4'):
      added.unlink()
    shutil.rmtree(seed_0 / 'evaluation')
    assert (
      {str(path.relative_to(tmp_path)) for path in tmp_path.rglob('*') if path.is_file()}
      == set(names)
      == {
        'scores.json',
        'evaluations.json',
        'runs.md',
        'paired.md',
        'learning_curves_1.png',
        'config/pointgoal1_ppo.gin',
        'config/pointgoal1_lambda.gin',
        f'{name}.mp4',
        f'{name}_prediction.png',
        f'calibration/{name}_seed0.json',
        f'{name}_calibration.png',
      }
    )
    assert (tmp_path / 'calibration' / f'{name}_seed0.json').read_text() == '100'  # The newest.
    assert (tmp_path / 'scores.json').read_bytes() == (out / 'scores.json').read_bytes()
    assert 'Swag.decay = 0.5' in (tmp_path / 'config' / 'pointgoal1_lambda.gin').read_text()

  def test_every_run_has_its_line(self, written):
    lines = (written[0] / 'tables' / 'runs.md').read_text().splitlines()
    assert len([line for line in lines if line.startswith('| PointGoal1 ')]) == 6 + 2
    # The mean of 11, 16.5 and 22, and of 70, 55 and 40; (1,400 - 1,001) seconds.
    assert lines[4] == '| PointGoal1 | PPO | 2 | 1,000,000 | 22.00 | 40.0 | 16.50 | 55.0 | 0.0300 | 7 | 3.3.7 | yes |'
    assert lines[5] == '| PointGoal1 | LAMBDA | 0 | 750,000 | 7.50 | 35.0 | 5.00 | 50.0 | 0.0300 | — | 3.3.7 | no |'

  def test_algorithms_have_their_means_beside_what_was_published(self, written):
    lines = (written[0] / 'tables' / 'runs.md').read_text().splitlines()
    # PPO: 15, 15.75 and 16.5, whose deviation is 0.75 sqrt(2 / 3). LAMBDA: 8.25 and 9; seed 0 doesn't count.
    assert '| PointGoal1 | PPO | 3 | 15.75 ± 0.61 | 55.0 ± 0.0 | 0.0300 ± 0.0000 | 17.48 | 76.4 | 0.0714 |' in lines
    assert any(line.startswith('| PointGoal1 | LAMBDA | 2 | 8.62 ± 0.38 | 35.0 ± 0.0 |') for line in lines)

  def test_the_optimum_has_a_row_in_its_task(self, tmp_path):
    for task, algorithm in itertools.product(('PointGoal1', 'Room'), ('LAMBDA', 'PPO')):
      folder = synthetic_runs.write_run(tmp_path / 'runs' / task / algorithm, task=task, algorithm=algorithm)
      if task == 'Room':
        optimum = run_record.Optimum(12.5, (2.0, 3.0))
        run_record.write(folder, dataclasses.replace(run_record.read(folder), optimum=optimum))
    report.write_report(tmp_path / 'runs', tmp_path / 'out')
    lines = (tmp_path / 'out' / 'tables' / 'runs.md').read_text().splitlines()
    means = [line.split(' | ')[1] for line in lines if line.startswith('| Room ')][2:]
    assert means == ['PPO', 'LAMBDA', 'optimum']
    assert [line for line in lines if 'optimum |' in line] == ['| Room | optimum | — | 12.50 | 5.0 | — | — | — | — |']

  def test_numbers_that_are_not_finite_are_no_numbers(self, tmp_path):
    folder = synthetic_runs.write_run(tmp_path / 'runs' / 'a', evaluations=2)
    path = folder / 'evaluation.jsonl'
    path.write_text(path.read_text().replace('"episode_return": 5.0', '"episode_return": NaN'))
    report.write_report(tmp_path / 'runs', tmp_path / 'out')
    assert json.loads((tmp_path / 'out' / 'evaluations.json').read_text())[0]['episode_return'] == [None, 10.0]
    assert '| 10.00 | 20.0 | — | — | 0.0300 |' in (tmp_path / 'out' / 'tables' / 'runs.md').read_text()

  def test_the_page_needs_nothing_else(self, written):
    out, _ = written
    text = (out / 'index.html').read_text()
    links = _Links()
    links.feed(text)
    assert links.sources and all(source.startswith('data:') for source in links.sources)
    assert 'link' not in links.tags and 'iframe' not in links.tags and 'b' not in links.tags
    assert all(link.startswith('#') or (out / link).is_file() for link in links.links)
    assert not re.findall(r'url\(|@import|{{', re.sub(r'(?s)<script id="data".*?</script>', '', text))
    assert text.count('</script>') == 2  # The data can't end their element.

  def test_stale_files_go_and_others_stay(self, tmp_path):
    folder = synthetic_runs.write_run(tmp_path / 'runs' / 'a', 'Other', steps=4000, learner_rows=0)
    out = tmp_path / 'out'
    report.write_report(tmp_path / 'runs', out)
    (out / 'tables' / 'mine.md').write_bytes(b'')
    assert (out / 'tables' / 'other_tasks_unnormalized.md').exists()
    (folder / 'evaluation.jsonl').unlink()
    (folder / 'run.json').unlink()
    report.write_report(tmp_path / 'runs', out)
    assert not (out / 'tables' / 'other_tasks_unnormalized.md').exists() and (out / 'tables' / 'mine.md').exists()


def _visit(page: pathlib.Path, *flags: str) -> dict:
  """Opens a copy of a page in Chromium, does what `_VISIT` says, and returns what it saw. The console stays empty."""
  copy = page.with_name('visited.html')
  copy.write_text(page.read_text().replace('</body>', _VISIT + '</body>'))
  done = subprocess.run(
    [
      _CHROMIUM,
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      '--disable-dev-shm-usage',
      '--no-first-run',
      '--dump-dom',
      '--enable-logging=stderr',
      f'--user-data-dir={page.parent / "profile"}',
      *flags,
      copy.as_uri(),
    ],
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )
  copy.unlink()
  assert done.returncode == 0, done.stderr
  assert 'CONSOLE' not in done.stderr, [line for line in done.stderr.splitlines() if 'CONSOLE' in line]
  assert 'ERROR ' not in re.sub(r'(?s)<script.*?</script>', '', done.stdout)
  return json.loads(html.unescape(re.search(r'<title>(.*?)</title>', done.stdout).group(1)))


@pytest.mark.skipif(_CHROMIUM is None, reason='There is no Chromium: apt-get install chromium')
@pytest.mark.parametrize(
  'flags',
  [('--window-size=1300,900',), ('--window-size=500,900', '--blink-settings=preferredColorScheme=0')],
  ids=['desk', 'narrow and dark'],
)
def test_the_page_in_a_browser(written, flags):
  seen = _visit(written[0] / 'index.html', *flags)
  assert seen['medians'] == 6 and seen['mediansWithoutPpo'] == 3  # Two algorithms, three metrics.
  assert seen['limits'] == 1 and seen['seeds'] == 0 and seen['singleSeeds'] == 9 and seen['published'] == 12
  assert seen['medianMoves'] and seen['medianReturns']
  assert 'return at 1M steps' in seen['tooltip'] and 'LAMBDA: 11.5' in seen['tooltip']  # Seeds 1 and 2: 11 and 12.
  # Against the paper's file with PPO's layer, whose agent has another name.
  assert '+ experiment.agent = @PPO()' in seen['diff'] and '- experiment.agent = @OnPolicyAgent' in seen['diff']
  # The first episode ends at 1001 s, the evaluation at 1400 s.
  assert 'cost 40, regret 0.03, over the limit' in seen['run'] and 'Wall time 6.65 minutes.' in seen['run']
  assert 'unfinished run' in seen['problems'] and 'corrupt line' in seen['problems']
  assert '<b class=injected>KL</b>' in seen['problems'] and seen['injected'] == 0  # Text, not markup.
  assert seen['bold'] and seen['images'] and seen['videos'] == 1 and not seen['wide']


class TestLauncher:
  def test_a_folder_that_is_not_there(self, tmp_path):
    done = subprocess.run(
      [sys.executable, str(_ROOT / 'launchers' / 'report.py'), f'--runs={tmp_path / "none"}'],
      cwd=_ROOT,
      capture_output=True,
      text=True,
      timeout=60,
      check=False,
    )
    assert done.returncode == 1 and 'there is no folder' in done.stderr and 'Traceback' not in done.stderr

  def test_tells_problems_and_writes_again_when_a_run_goes_on(self, tmp_path):
    folder = synthetic_runs.write_run(tmp_path / 'runs' / 'a', 'X', steps=4000, stop_after=3, learner_rows=0)
    command = [
      sys.executable,
      str(_ROOT / 'launchers' / 'report.py'),
      f'--runs={tmp_path / "runs"}',
      f'--out={tmp_path / "out"}',
      '--watch',
      '--interval=1',
    ]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
      try:
        lines = iter(process.stdout.readline, '')
        told = list(itertools.takewhile(lambda line: 'was written' not in line, lines))
        assert any('unfinished run: a: no evaluation at step 4,000' in line for line in told)
        assert '<body data-refresh="1">' in (tmp_path / 'out' / 'index.html').read_text()
        with open(folder / 'evaluation.jsonl', 'a', encoding='utf-8') as file:
          file.write(
            json.dumps(
              dict(environment_steps=4000, episode_return=7.0, cost_return=[1.0], cost_regret=[0.1], time=2000.0)
            )
            + '\n'
          )
        assert any('was written' in line for line in lines)
      finally:
        process.kill()
    (score,) = records.load_scores(tmp_path / 'out' / 'scores.json')
    assert score.episode_return == 7.0


def test_many_runs(tmp_path):
  """So many that several processes read them. `launchers/benchmark.py --parts=report` does it with a thousand."""
  for i in range(110):
    synthetic_runs.write_run(
      tmp_path / 'runs' / str(i), 'X', ('PPO', 'CPO')[i % 2], seed=i // 2, steps=4000, learner_rows=0
    )
  collected = report.write_report(tmp_path / 'runs', tmp_path / 'out')
  assert len(collected.scores()) == 110 and not collected.problems
  assert [group.algorithm for group in collected.of_task('X')] == ['CPO', 'PPO']
