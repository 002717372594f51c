"""`lambda-kit doctor` in a clone: the same function and flags, see lambda_kit/commands/doctor.py."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lambda_kit.commands import main

if __name__ == '__main__':  # Spawned processes import this module, too.
  main.main(['doctor', *sys.argv[1:]])
