"""What an ensemble costs: its update and the learner's whole update, beside those of a single model."""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Any

import jax

from benchmarks import contenders
from benchmarks import learner_pieces
from benchmarks import stand_ins

_PIECES = ('update', 'model')


def measure(size: stand_ins.Size, search_paths: Sequence[str], rounds: int = 5, updates: int = 5) -> dict[str, Any]:
  """Measures the learner of a size, as its gin files have it but for the posterior.

  Returns:
    `update_times_point`, `model_times_point`: how many times as long an update with an ensemble takes as one with a
      single model, of all that learns and of the model alone; medians over rounds in turns.
  """
  posteriors = {name: f'LambdaAgent.posterior_factory = @{name}' for name in ('Point', 'Ensemble')}
  result: dict[str, Any] = dict(rounds=rounds)
  for piece in _PIECES:
    times = contenders.take_turns(
      {
        name: (
          prepare,
          dict(
            size=dataclasses.replace(size, bindings=(*size.bindings, posterior)),
            search_paths=list(search_paths),
            piece=piece,
            updates=updates,
          ),
        )
        for name, posterior in posteriors.items()
      },
      rounds,
    )
    result[f'{piece}_times_point'] = contenders.ratio(times['Ensemble'], times['Point'])
  return result


def prepare(size: stand_ins.Size, search_paths: Sequence[str], piece: str, updates: int) -> Callable[[int], int]:
  subject = learner_pieces.make_subject(size, search_paths)
  step, state = _steps(subject, piece)

  def work(seed: int) -> int:
    nonlocal state
    del seed
    for _ in range(updates):
      state = step(state)
    jax.block_until_ready(state)
    return updates

  return work


def _steps(subject: learner_pieces.Subject, piece: str) -> tuple[Callable[[Any], Any], Any]:
  """A function from state to state, and the first one."""
  if piece == 'update':
    return lambda state: subject.update(state, subject.batch)[0], subject.state
  model = subject.pieces(subject.state)['model update']
  state, batch, key = model.arguments
  update = jax.jit(model.function, donate_argnums=0)
  return lambda state: update(state, batch, key), state
