"""Checks what is installed, what works and how fast, with a remedy for each failure, and draws the views of SG6.

  lambda-kit doctor
  lambda-kit doctor --contact_sheet=sg6.png

The last line is the verdict; the exit code is 0 if everything works, else 1.
"""

import pathlib
import sys

from absl import app
from absl import flags
from absl import logging
from rich import console as rich_console

from lambda_kit.commands import examination

_CONTACT_SHEET = flags.DEFINE_string(
  'contact_sheet', 'runs/doctor/sg6_views.png', 'File for a picture of the first-person views of SG6; empty for none.'
)
_COLOURS = {
  examination.State.OK: 'green',
  examination.State.WARNING: 'yellow',
  examination.State.FAILS: 'red',
  examination.State.NOT_NEEDED: 'dim',
}


def main(argv: list[str]) -> None:
  if not flags.FLAGS['verbosity'].present:
    logging.set_verbosity(logging.WARNING)  # Absl's own default in a program is INFO.
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
  findings = examination.examine(pathlib.Path(_CONTACT_SHEET.value) if _CONTACT_SHEET.value else None)
  console = rich_console.Console(soft_wrap=True, highlight=False)
  for finding in findings:
    console.print(f'[{_COLOURS[finding.state]}]{finding.state.value:10s}[/] {finding.what:18s}', end='')
    console.print(finding.detail, markup=False)
    if finding.remedy:
      console.print(f'{"":29s}Remedy: {finding.remedy}', markup=False)
  sentence, works = examination.verdict(findings)
  console.print(f'Verdict: {sentence}', markup=False)
  sys.exit(0 if works else 1)
