"""`lambda-kit sweep` in a clone: the same function and flags, see lambda_kit/commands/sweep.py."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lambda_kit.commands import main

if __name__ == '__main__':  # Spawned processes import this module, too.
  main.main(['sweep', *sys.argv[1:]])
