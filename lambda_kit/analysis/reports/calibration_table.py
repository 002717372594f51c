"""How well models knew costs, run by run: by certificates of new episodes, and by the last scores of training."""

from collections.abc import Iterator

from lambda_kit.analysis import certificate as certificate_lib
from lambda_kit.analysis.reports import collection as collection_lib
from lambda_kit.analysis.reports import plain_table
from lambda_kit.analysis.reports import run_logs
from lambda_kit.analysis.reports import run_table

_HEAD = (
  'task',
  'algorithm',
  'seed',
  'cost',
  'measured at step',
  'episodes',
  'forecast / observed',
  'before correction',
  'bound / observed',
  'covered by the bound',
  'promised',
  'below the 90% quantile',
  'return of an episode',
  'cost of an episode',
  'limit',
  'posterior scale',
  'budget share',
)
CAPTION = (
  'Costs of the next H agent steps, in episodes that models have not learned from: forecast, bounded, and observed. '
  'With a number of episodes: a certificate, from the newest evaluate --calibrate, with 90% intervals. '
  'Otherwise: the last scores of training, averages over about 20 episodes, of models given the recorded actions. '
  'Forecasts and bounds are those that the agent uses, corrected if it corrects them; before correction they are what '
  'models expect. Promised is the share that exact models would cover; return and cost of an episode are those of the '
  'policy as it is evaluated.'
)


def to_markdown(collected: collection_lib.Collection) -> str:
  """Returns a line for each cost of each certificate and each run; nothing if there are none."""
  lines = list(_lines(collected))
  if not lines:
    return ''
  return f'{plain_table.to_markdown(_HEAD, lines)}\n\n{CAPTION}\n'


def to_html(collected: collection_lib.Collection) -> str:
  """The same as HTML."""
  lines = list(_lines(collected))
  if not lines:
    return ''
  return plain_table.to_html(CAPTION, _HEAD, lines)


def _lines(collected: collection_lib.Collection) -> Iterator[tuple[str, ...]]:
  for run, label, _ in run_table.all_runs(collected):
    name = (run.identity.task, label, str(run.identity.seed))
    if run.certificate is not None:
      yield from (
        (*name, *_certified(run.certificate, cost, found)) for cost, found in run.certificate.constraints.items()
      )
    if run.held_out is not None:
      yield from ((*name, *_held_out(run.held_out, i)) for i in range(len(run.held_out.figures)))


def _certified(
  certificate: certificate_lib.Certificate, cost: str, found: certificate_lib.Constraint
) -> tuple[str, ...]:
  return (
    cost,
    f'{certificate.environment_steps:,}',
    str(certificate.episodes),
    str(found.forecast_over_observed),
    str(found.raw_forecast_over_observed),
    str(found.bound_over_observed),
    str(found.bound_covered),
    f'{found.bound_promised:.3g}',
    str(found.covered_at_90),
    str(certificate.episode_return),
    str(found.cost_return),
    f'{found.limit:g}',
    plain_table.MISSING,
    plain_table.MISSING,
  )


def _held_out(held_out: run_logs.HeldOut, constraint: int) -> tuple[str, ...]:
  figures = held_out.figures[constraint]
  shown = lambda name: f'{figures[name]:.3g}' if name in figures else plain_table.MISSING
  raw = plain_table.MISSING
  if figures.get('correction') and 'forecast_over_observed' in figures:
    raw = f'{figures["forecast_over_observed"] / figures["correction"]:.3g}'
  return (
    str(constraint),
    f'{held_out.environment_steps:,}',
    'in training',
    shown('forecast_over_observed'),
    raw,
    shown('bound_over_observed'),
    shown('bound_covered'),
    *[plain_table.MISSING] * 5,
    shown('posterior_scale'),
    shown('budget_share'),
  )
