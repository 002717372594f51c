"""Lists everything that gin files may name, with parameters and defaults, as Markdown.

lambda-kit components
lambda-kit components > docs/components.md
"""

import signal

from absl import app

from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit.config import catalogue


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `lambda-kit components | head` ends without a stack trace.
  print(catalogue.markdown(), end='')
