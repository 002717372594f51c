"""Tables of scores in the paper's layout: a line for each task, a column for each algorithm, three metrics per cell."""

from collections.abc import Mapping, Sequence
import csv
import dataclasses
import html
import io
import math

from lambda_kit.analysis.reports import summary as summary_lib

_DIGITS = 3
_MISSING = '—'
_FORMULA = ('=', '+', '-', '@', '\t', '\r')  # What one begins with.
_MATH = {
  False: (r'\hat{J}(\pi)', r'\hat{J}_c(\pi)', r'\rho_c(\pi)'),
  True: (r'\bar{J}(\pi)', r'\bar{J}_c(\pi)', r'\bar{\rho}_c(\pi)'),
}
_LATEX_ESCAPES = str.maketrans(
  {character: f'\\{character}' for character in '&%$#_{}'}
  | {'\\': r'\textbackslash{}', '~': r'\textasciitilde{}', '^': r'\textasciicircum{}', '—': '---'}
)


@dataclasses.dataclass(frozen=True)
class Number:
  """A number in a table."""

  value: float
  best: bool

  def __str__(self) -> str:
    return _MISSING if math.isnan(self.value) else f'{_rounded(self.value):.{_DIGITS}f}'


@dataclasses.dataclass(frozen=True)
class Line:
  """A line of a table: three numbers for each algorithm, None where there are none."""

  name: str
  cells: tuple[tuple[Number, ...] | None, ...]
  is_average: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
  """A table of scores."""

  name: str  # Stem of its files.
  caption: str
  normalized: bool
  algorithms: tuple[str, ...]
  lines: tuple[Line, ...]


def make_table(summary: summary_lib.Summary, normalized: bool) -> Table:
  """Makes the paper's table of scores, unnormalised or normalised, with the best number of each line and metric."""
  values, averages = summary.values(normalized), summary.averages(normalized)
  lines = [
    _line(task, {name: values[task, name] for name in summary.algorithms if (task, name) in values}, summary.algorithms)
    for task in summary.tasks
    if not normalized or task in summary.ppo
  ]
  if len(lines) > 1 and averages:
    lines.append(dataclasses.replace(_line(f'{summary.name} (average)', averages, summary.algorithms), is_average=True))
  kind = 'normalized' if normalized else 'unnormalized'
  unit = (
    'Return, cost return above the limit, and cost regret, in units of those of unconstrained PPO after as many steps.'
    if normalized
    else 'Return, cost return and cost regret.'
  )
  caption = f'{summary.name}, {kind}. {unit} Medians over seeds, or as published; bold is best.'
  name = f'{summary.name.lower().replace(" ", "_")}_{kind}'
  return Table(name, caption, normalized, summary.algorithms, tuple(lines))


def to_markdown(table: Table) -> str:
  cell = lambda numbers: _MISSING if numbers is None else ', '.join(f'**{n}**' if n.best else str(n) for n in numbers)
  rows = [
    ['', *table.algorithms],
    ['---'] * (1 + len(table.algorithms)),
    *([line.name, *map(cell, line.cells)] for line in table.lines),
  ]
  body = '\n'.join('| ' + ' | '.join(text.replace('|', r'\|') for text in row) + ' |' for row in rows)
  return f'{body}\n\n{table.caption}\n'


def to_latex(table: Table) -> str:
  """Returns a LaTeX table, which needs the package booktabs."""
  escape = lambda text: text.translate(_LATEX_ESCAPES)
  bold = lambda text: rf'\textbf{{{text}}}'
  cell = lambda numbers: (
    '---' if numbers is None else ', '.join(bold(escape(str(n))) if n.best else escape(str(n)) for n in numbers)
  )
  lines = []
  for line in table.lines:
    if line.is_average:
      lines.append(r'    \midrule')
    lines.append('    ' + ' & '.join([escape(line.name), *map(cell, line.cells)]) + r' \\')
  head = ' & '.join(['', *(rf'\textbf{{{escape(name)}}}' for name in table.algorithms)])
  symbols = ', '.join(_MATH[table.normalized])
  return '\n'.join(
    [
      r'\begin{table}',
      rf'  \caption{{{escape(table.caption)} Cells show $({symbols})$.}}',
      rf'  \label{{tab:{table.name.replace("_", "-")}}}',
      r'  \centering',
      rf'  \begin{{tabular}}{{{"l" * (1 + len(table.algorithms))}}}',
      r'    \toprule',
      rf'    {head} \\',
      r'    \midrule',
      *lines,
      r'    \bottomrule',
      r'  \end{tabular}',
      r'\end{table}',
      '',
    ]
  )


def to_csv(table: Table) -> str:
  """Returns a record for each task and algorithm; 'best' names the metrics in which it is the best.

  Names that a spreadsheet would compute are quoted.
  """
  output = io.StringIO()
  writer = csv.writer(output, lineterminator='\n')
  names = [name.replace(' ', '_') for name in summary_lib.METRICS]
  writer.writerow(['task', 'algorithm', *names, 'best'])
  for line in table.lines:
    for algorithm, numbers in zip(table.algorithms, line.cells):
      if numbers is not None:
        best = ' '.join(name for name, number in zip(names, numbers) if number.best)
        writer.writerow(
          [
            _as_text(line.name),
            _as_text(algorithm),
            *('' if math.isnan(n.value) else repr(n.value) for n in numbers),
            best,
          ]
        )
  return output.getvalue()


def _as_text(name: str) -> str:
  """A name that spreadsheets don't take for a formula, which could open files and addresses."""
  return f"'{name}" if name.startswith(_FORMULA) and not _is_number(name) else name


def _is_number(text: str) -> bool:
  try:
    float(text)
  except ValueError:
    return False
  return True


def to_html(table: Table) -> str:
  """Returns a table element; the caption names the metrics."""
  number = lambda n: f'<strong>{n}</strong>' if n.best else f'<span>{n}</span>'
  cell = lambda numbers: f'<td>{_MISSING if numbers is None else " ".join(map(number, numbers))}</td>'
  head = ''.join(f'<th scope="col">{html.escape(name)}</th>' for name in table.algorithms)
  lines = ''.join(
    f'<tr{" class=average" if line.is_average else ""}><th scope="row">{html.escape(line.name)}</th>'
    f'{"".join(map(cell, line.cells))}</tr>\n'
    for line in table.lines
  )
  return (
    f'<table class="scores"><caption>{html.escape(table.caption)}</caption>\n'
    f'<thead><tr><td></td>{head}</tr></thead>\n<tbody>\n{lines}</tbody></table>\n'
  )


def _line(name: str, values: Mapping[str, summary_lib.Triple], algorithms: Sequence[str]) -> Line:
  best = []
  for i, higher in enumerate(summary_lib.HIGHER_IS_BETTER):
    shown = [_rounded(value[i]) for value in values.values() if not math.isnan(value[i])]
    best.append((max(shown) if higher else min(shown)) if shown else math.nan)
  # All ties at the digits shown are best: a reader can't tell them apart.
  return Line(
    name,
    tuple(
      tuple(Number(value, _rounded(value) == best[i]) for i, value in enumerate(values[algorithm]))
      if algorithm in values
      else None
      for algorithm in algorithms
    ),
  )


def _rounded(value: float) -> float:
  return round(value, _DIGITS) + 0.0  # Without the sign of -0.0.
