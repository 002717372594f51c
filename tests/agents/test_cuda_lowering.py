"""The programs of a run as they are lowered for CUDA: nothing calls back to the host, nothing is in double precision.

No GPU is needed for that. Both would be silent there: a callback stalls the device at each step, and a number of double
precision takes 32 or 64 times as long on most of them.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lambda_kit.agents.lambda_ import networks as networks_lib
from tests.fakes import tiny

# Ways to reach the host: calls of Python, and transfers in the middle of a program.
_HOST = re.compile(r'custom_call.*(?:callback|python|host)|stablehlo\.(?:infeed|outfeed|send|recv)', re.IGNORECASE)
_DOUBLE = re.compile(r'(?:x|<)f64>|complex<f64>')


def _lowered(function, *arguments, platform='cuda'):
  """The text of a jitted function's program for a platform."""
  return function.trace(*arguments).lower(lowering_platforms=(platform,)).as_text()


def _faults(program):
  """Lines that reach the host or compute in double precision."""
  assert 'func.func public @main' in program
  return [line for line in program.splitlines() if _HOST.search(line) or _DOUBLE.search(line)]


@pytest.fixture(scope='module')
def parts():
  return tiny.Parts()


def test_the_learners_update(parts):
  learner, batch = parts.learner, networks_lib.example_batch(parts.spec)

  assert not _faults(_lowered(learner._update, learner.save(), batch))
  assert not _faults(_lowered(learner._update_many, learner.save(), (batch, batch)))


@pytest.mark.parametrize('evaluation', [False, True])
def test_the_actors_step(parts, evaluation):
  actor_core = parts.builder.make_actor_core(evaluation)
  observation = {name: np.zeros((2, *spec.shape), spec.dtype) for name, spec in parts.spec.observations.items()}
  variables = parts.learner.get_variables(actor_core.variable_names)
  carry = actor_core.init(jax.random.PRNGKey(0), 2)
  assert not _faults(_lowered(jax.jit(actor_core.step), variables, carry, observation, np.zeros((2,), bool)))


def test_what_actors_fetch(parts):
  learner = parts.learner
  for source in learner._sources.values():
    assert not _faults(_lowered(source, learner.save()))


def test_faults_would_be_found():
  number = jnp.ones(())

  def calls_back(x):
    jax.debug.print('{x}', x=x)
    return x + 1

  # For CUDA, JAX lowers callbacks only where there is such a device; else it raises an error.
  assert _faults(_lowered(jax.jit(calls_back), number, platform='cpu'))
  with jax.enable_x64():
    assert _faults(_lowered(jax.jit(lambda x: x.astype(jnp.float64) * 2), number))
  assert not _faults(_lowered(jax.jit(lambda x: x * 2), number))
