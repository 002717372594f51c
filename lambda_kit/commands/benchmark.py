"""Finds `benchmarks/`, which lies beside the package in a clone and is not part of an installed one."""

import sys

from absl import flags

from lambda_kit import errors
from lambda_kit import resources

if not resources.is_clone():
  raise errors.UserError('Benchmarks are not part of the installed package: run them in a clone of lambda_kit.')
sys.path.insert(0, str(resources.root()))
from benchmarks import command

__doc__ = command.__doc__
main = command.main
flags.adopt_module_key_flags(command)
