"""The command `run` in this process, for settings and environments that it has to refuse."""

from collections.abc import Callable, Iterator
import contextlib
import pathlib
import signal
import sys
from typing import Any

from absl import flags
from absl import logging
from absl.testing import flagsaver
import pytest

import gin
from lambda_kit.agents.lambda_ import learning
from lambda_kit.agents.on_policy import learning as on_policy_learning
from lambda_kit.commands import run
from lambda_kit.training import train

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_LEARNERS = (learning.LambdaLearner, on_policy_learning.OnPolicyLearner)


class Accepted(BaseException):
  """The command went on to what has to be compiled, or to training."""


def _accept(*args: Any, **kwargs: Any) -> None:
  raise Accepted


@contextlib.contextmanager
def refusals(monkeypatch: pytest.MonkeyPatch, workdir: pathlib.Path) -> Iterator[Callable[..., str]]:
  """Yields a function of bindings and flags to the one sentence that the command ends with.

  Without `learner`, what is refused has to be refused before there is one; 'empty' is one that nothing compiles.
  """
  monkeypatch.chdir(_ROOT)
  monkeypatch.setattr(train, 'train', _accept)
  monkeypatch.setattr(signal, 'signal', lambda *args: None)
  monkeypatch.setattr(sys, 'unraisablehook', sys.unraisablehook)
  verbosity = logging.get_verbosity()

  def refuse(*bindings: str, learner: str | None = None, **other_flags: str) -> str:
    arguments = ['run', f'--workdir={workdir}', *(f'--gin_bindings={binding}' for binding in bindings)]
    arguments += [f'--{name}={value}' for name, value in {'task': 'grid', **other_flags}.items()]
    before = _content(workdir)
    with monkeypatch.context() as patches, flagsaver.flagsaver(), pytest.raises(SystemExit) as end:
      for each in _LEARNERS if learner != 'real' else ():
        patches.setattr(each, '__init__', _accept if learner is None else lambda self, **parts: None)
        patches.setattr(each, 'get_variables', lambda self, names: [None] * len(names))
      run.main(flags.FLAGS(arguments))
    message = str(end.value.code)
    assert message.startswith('error: ') and '\n' not in message and _content(workdir) == before, message
    return message.removeprefix('error: ')

  yield refuse
  logging.set_verbosity(verbosity)
  gin.clear_config()


def _content(folder: pathlib.Path) -> dict[pathlib.Path, bytes]:
  return {path: path.read_bytes() for path in folder.rglob('*') if path.is_file()}
