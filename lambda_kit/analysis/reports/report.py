"""The whole report: from a folder of runs to scores, tables, figures and the page."""

from collections.abc import Callable, Iterator
import dataclasses
import datetime
import functools
import json
import os
import pathlib

from matplotlib import figure as mpl_figure
from matplotlib import rc_context

from lambda_kit import files
from lambda_kit import reading
from lambda_kit.analysis import drawing
from lambda_kit.analysis.metrics import records
from lambda_kit.analysis.reports import calibration_table
from lambda_kit.analysis.reports import collection as collection_lib
from lambda_kit.analysis.reports import comparison_figures
from lambda_kit.analysis.reports import learner_figures
from lambda_kit.analysis.reports import media
from lambda_kit.analysis.reports import page
from lambda_kit.analysis.reports import paired_table
from lambda_kit.analysis.reports import problems as problems_lib
from lambda_kit.analysis.reports import run_table
from lambda_kit.analysis.reports import runs as runs_lib
from lambda_kit.analysis.reports import score_tables
from lambda_kit.analysis.reports import statistics_figures
from lambda_kit.analysis.reports import summary as summary_lib
from lambda_kit.analysis.reports import svg

_FORMATS = {
  'md': score_tables.to_markdown,
  'csv': score_tables.to_csv,
  'tex': score_tables.to_latex,
  'html': score_tables.to_html,
}
_TASKS_IN_A_FIGURE = 6
_STRIP_BYTES = 16_000_000  # Budget for pictures of predictions on the page.
_SVG_BYTES = 16_000_000  # Of one of them.

Draw = Callable[[], mpl_figure.Figure | None]


def write_report(
  runs_folder: str | os.PathLike, out: str | os.PathLike, gin_root: pathlib.Path | None = None, refresh_seconds: int = 0
) -> collection_lib.Collection:
  """Reads all runs below a folder and writes the report about them.

    out/index.html        the page
    out/scores.json       scores of single seeds; see `metrics.records` for the schema
    out/evaluations.json  all evaluations of all runs
    out/problems.json     what was wrong with the runs
    out/tables/runs.md    a line for each run
    out/tables/calibration.md  how well models knew costs, if they said
    out/tables/paired.md  differences between algorithms, paired by seed
    out/tables/*.{md,csv,tex,html}, out/figures/*.{png,svg}

  Args:
    runs_folder: Folder with workdirs at any depth.
    out: Folder of the report. Files of an earlier report there are replaced, or removed if this one doesn't write them.
    gin_root: The folder that holds `gin/`.
    refresh_seconds: Interval at which the page reloads itself; 0 for never.

  Returns:
    The runs that were read, with all problems.
  """
  out = pathlib.Path(out)
  collected = collection_lib.collect(*runs_lib.read_runs(runs_folder))
  summaries = summary_lib.summarize(collected)
  colors = drawing.algorithm_colors(collected.algorithms)
  written: list[str] = []

  def write(name: str, text: str) -> None:
    files.write_atomically(out / name, text.encode())
    written.append(name)

  tables = [
    table
    for summary in summaries
    for normalized in (False, True)
    if (table := score_tables.make_table(summary, normalized)).lines
  ]
  for table in tables:
    for form, to_text in _FORMATS.items():
      write(f'tables/{table.name}.{form}', to_text(table))
  figures: list[page.Figure] = []
  problems = list(collected.problems)
  with rc_context({'text.parse_math': False}):  # Names of tasks are text.
    for name, caption, draw in _figures(collected, summaries, colors):
      try:
        if (figure := draw()) is not None:
          figures.append(page.Figure(name, caption, drawing.save(figure, out / 'figures', name)))
      except OSError:
        raise
      except Exception as error:  # Such as: too many tasks for a picture. The numbers are worth a report.
        message = reading.one_line(f'it could not be drawn: {type(error).__name__}: {error}')
        problems.append(problems_lib.Problem(problems_lib.NOT_DRAWN, name, message))
  strips: list[page.Figure] = []
  predictions = {
    run.prediction.picture: run.prediction for run, _, _ in run_table.all_runs(collected) if run.prediction is not None
  }
  picture_of = lambda run: None if run.prediction is None else run.prediction.picture
  for medium in media.choose(collected, picture_of, _STRIP_BYTES):
    name = f'prediction_{1 + len(strips)}'
    try:
      strips.append(_copy_strip(medium, predictions[medium.path].describe(), out / 'figures', name))
    except (ValueError, FileNotFoundError) as error:
      where = f'{medium.run.workdir}/prediction.svg'
      problems.append(problems_lib.Problem(problems_lib.UNREADABLE, where, reading.one_line(f'{error}; left out')))
  written += [f'figures/{figure.name}.{form}' for figure in (*figures, *strips) for form in ('png', 'svg')]
  collected = dataclasses.replace(collected, problems=tuple(problems))
  write('scores.json', records.dump_scores(collected.scores()))
  write('evaluations.json', run_table.to_json(collected))
  write('tables/runs.md', run_table.to_markdown(collected))
  if calibrations := calibration_table.to_markdown(collected):
    write('tables/calibration.md', calibrations)
  if differences := paired_table.to_markdown(collected):
    write('tables/paired.md', differences)
  write('problems.json', json.dumps([vars(problem) for problem in collected.problems], indent=1) + '\n')
  write(
    'index.html',
    page.render(collected, tables, figures, strips, colors, overview(collected), gin_root, refresh_seconds),
  )
  _remove_stale(out, written)
  return collected


def overview(collected: collection_lib.Collection) -> str:
  """Summarises the report in a line."""
  runs = sum(len(group.runs) for group in collected.groups) + len(collected.refused)
  scored = sum(len(group.scored) for group in collected.groups)
  now = datetime.datetime.now(datetime.UTC).strftime('%Y-%m-%d %H:%M:%S UTC')
  return (
    f'Runs: {runs}, of which {scored} have a score that counts. Tasks: {len(collected.tasks)}. Algorithms: '
    f'{len(collected.algorithms)}. Problems: {len(collected.problems)}. Written {now}.'
  )


def _figures(
  collected: collection_lib.Collection, summaries: list[summary_lib.Summary], colors: drawing.Colors
) -> Iterator[tuple[str, str, Draw]]:
  """Yields name and caption of every figure, and a function that draws it if there is something to draw."""
  of = functools.partial
  for i in range(0, len(collected.tasks), _TASKS_IN_A_FIGURE):
    tasks = collected.tasks[i : i + _TASKS_IN_A_FIGURE]
    yield (
      f'learning_curves_{1 + i // _TASKS_IN_A_FIGURE}',
      'Learning curves: medians and 5-95 percentiles over seeds; the limit is red.',
      of(comparison_figures.learning_curves, collected, tasks, colors),
    )
  for summary in summaries:
    yield from _summary_figures(collected, summary, colors)
  yield (
    'predicted_cost',
    'Costs of an agent step: imagined by the model, and observed in training.',
    of(learner_figures.predicted_cost, collected, colors),
  )
  yield (
    'held_out',
    'Calibration in training: costs of the next H steps in new episodes, forecast and bounded, relative to those '
    'observed; averages over about 20 episodes and over constraints. Corrections and shares of the budget follow.',
    of(learner_figures.held_out, collected, colors),
  )
  yield (
    'multipliers',
    'Multipliers, and the penalty in the loss of the policy.',
    of(learner_figures.multipliers, collected, colors),
  )
  yield 'disagreement', 'Disagreement of posterior samples.', of(learner_figures.disagreement, collected, colors)
  yield (
    'prediction_error',
    'Errors of open-loop predictions, and of the persistence baseline: the last observation, repeated.',
    of(learner_figures.prediction_error, collected, colors),
  )


def _summary_figures(
  collected: collection_lib.Collection, summary: summary_lib.Summary, colors: drawing.Colors
) -> Iterator[tuple[str, str, Draw]]:
  prefix = summary.name.lower().replace(' ', '_')
  scores = summary_lib.normalized_scores(collected, summary)
  yield (
    f'{prefix}_trade_off',
    f'{summary.name}: normalised metrics, averaged over tasks and scaled to [0, 1].',
    functools.partial(comparison_figures.trade_off, summary, colors),
  )
  yield (
    f'{prefix}_sample_efficiency',
    f'{summary.name}: steps to match the return of LAMBDA; whether costs were '
    'within the limit by then. Hatched bars are bounds.',
    lambda: comparison_figures.sample_efficiency(comparison_figures.sample_efficiencies(collected, summary), colors),
  )
  yield (
    f'{prefix}_aggregates',
    f'{summary.name}: normalised returns over all seeds and tasks, with 95% intervals.',
    functools.partial(statistics_figures.aggregates, scores, colors),
  )
  yield (
    f'{prefix}_profiles',
    f'{summary.name}: performance profiles with 95% intervals.',
    functools.partial(statistics_figures.profiles, scores, colors),
  )


def _copy_strip(medium: media.Medium, description: str, folder: pathlib.Path, name: str) -> page.Figure:
  """Copies the picture of a run's prediction, in both formats, to the report's figures.

  Raises a ValueError if the SVG is none that can be shown.
  """
  run = medium.run
  vector = svg.clean(reading.read_bytes(medium.path.with_suffix('.svg'), _SVG_BYTES))
  files.write_atomically(folder / f'{name}.png', medium.content)
  files.write_atomically(folder / f'{name}.svg', vector)
  caption = f'{run.identity.task}, {medium.algorithm}, seed {run.identity.seed}. {description}.'
  return page.Figure(name, caption, medium.content)


def _remove_stale(out: pathlib.Path, written: list[str]) -> None:
  """Removes files of an earlier report that this one didn't write, and records those that it wrote."""
  manifest = out / 'manifest.json'
  try:
    earlier = reading.read_json(manifest)
  except (OSError, ValueError):
    earlier = []
  for name in set(map(str, earlier if isinstance(earlier, list) else ())) - set(written):
    path = out / name
    if path.resolve().is_relative_to(out.resolve()):
      path.unlink(missing_ok=True)
  files.write_atomically(manifest, (json.dumps(sorted(written), indent=1) + '\n').encode())
