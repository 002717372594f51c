"""Says what is installed, what works and how fast, with a remedy for each failure, and draws the views of SG6.

  lambda-kit doctor
  lambda-kit doctor --contact_sheet=sg6.png
"""

import pathlib
import sys

from absl import app
from absl import flags
from absl import logging
from rich import console as rich_console

from lambda_kit.experiments import doctor

_CONTACT_SHEET = flags.DEFINE_string('contact_sheet', 'runs/doctor/sg6_views.png',
                                     'Where to draw the first-person views of SG6; empty for no picture.')


def main(argv: list[str]) -> None:
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)  # Absl's own default in a program is INFO.
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
  findings = doctor.examine(pathlib.Path(_CONTACT_SHEET.value) if _CONTACT_SHEET.value else None)
  console = rich_console.Console(soft_wrap=True, highlight=False)
  for finding in findings:
    mark = '[green]ok   [/]' if finding.works else '[red]fails[/]'
    console.print(f'{mark} {finding.what:18s}', end='')
    console.print(finding.detail, markup=False)
  if not doctor.healthy(findings):
    sys.exit('Some things need mending: see the remedies above.')
