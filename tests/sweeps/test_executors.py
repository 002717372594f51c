"""Executors by name, and engines that are not there."""

import sys

import pytest

from lambda_kit.sweeps import errors
from lambda_kit.sweeps import executors
from lambda_kit.sweeps import local_executor


@pytest.mark.parametrize('name,engine', [('slurm', 'submitit'), ('ray', 'ray')])
def test_an_engine_that_is_not_installed_is_named_with_its_remedy(name, engine, tmp_path, monkeypatch):
  monkeypatch.delitem(sys.modules, f'lambda_kit.sweeps.{name}_executor', raising=False)
  monkeypatch.delattr(f'lambda_kit.sweeps.{name}_executor', raising=False)
  monkeypatch.setitem(sys.modules, engine, None)
  with pytest.raises(errors.SweepError, match=rf"needs {engine}, which is not installed.*pip install -e '.\[{name}\]'"):
    executors.make_executor(name, tmp_path, executors.Options())


def test_the_local_budget_is_the_machine_by_default(tmp_path):
  executor = executors.make_executor('local', tmp_path, executors.Options())
  assert isinstance(executor, local_executor.LocalExecutor)
  executor.close()


def test_more_cores_than_there_are_is_refused(tmp_path):
  with pytest.raises(errors.SweepError, match='--cores=5000, but this process may use'):
    executors.make_executor('local', tmp_path, executors.Options(cores=5000))
