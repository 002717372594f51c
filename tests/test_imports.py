"""What importing lambda_kit brings along, each time in a new process."""

import subprocess
import sys

import pytest

# Slow to import, and needed at the end of a run, in tests, or never.
_HEAVY = (
  'distrax',
  'tensorflow_probability',
  'tensorflow',
  'matplotlib',
  'scipy',
  'imageio',
  'gymnasium',
  'mujoco',
  'safety_gymnasium',
  'ray',
)


def _python(program):
  result = subprocess.run([sys.executable, '-c', program], check=False, capture_output=True, text=True)
  assert result.returncode == 0, result.stderr
  return result.stdout.split()


@pytest.mark.parametrize('module', ['lambda_kit.components', 'lambda_kit.commands.run'])
def test_heavy_packages_are_left_out(module):
  loaded = _python(f'import sys, {module}; print(*{{name.partition(".")[0] for name in sys.modules}})')
  assert 'rlax' in loaded and 'haiku' in loaded
  assert not set(_HEAVY) & set(loaded)


def test_rlax_is_whole_and_distrax_is_imported_when_it_is_needed():
  # V_lambda and GAE by hand, with a discount of 0.5 and lambda = 0.5:
  #   G_1 = 2 + 0.5 * 8 = 6,  G_0 = 1 + 0.5 (0.5 * 4 + 0.5 * 6) = 3.5
  #   delta_1 = 2 + 0.5 * 8 - 4 = 2,  delta_0 = 1 + 0.5 * 4 - 2 = 1,  A_0 = 1 + 0.25 * 2 = 1.5
  lines = _python("""
import sys
import jax
import jax.numpy as jnp
from lambda_kit.agents.on_policy import gae
from lambda_kit.policies import returns
from lambda_kit.policies.quick_rlax import rlax
values = returns.lambda_values(jnp.array([1.0, 2.0]), jnp.ones(2), jnp.array([4.0, 8.0]), 0.5, 0.5)
print(*values.tolist())
advantages = gae.advantages(jnp.array([1.0, 2.0]), jnp.full(2, 0.5), jnp.zeros(2, bool), jnp.array([2.0, 4.0]),
                            jnp.array([4.0, 8.0]), 0.5)
print(*advantages.tolist())
print('distrax' in sys.modules)
# One of the functions of rlax that need it: the entropy of a fair coin.
print(round(float(rlax.softmax().entropy(jnp.zeros(2))), 4))
import distrax
print(round(float(distrax.Categorical(logits=jnp.zeros(2)).entropy()), 4))
print(sys.modules['distrax'] is distrax, 'distrax._src' in sys.modules, distrax.__spec__.name)
""")
  assert lines == ['3.5', '6.0', '1.5', '2.0', 'False', '0.6931', '0.6931', 'True', 'True', 'distrax']


@pytest.mark.parametrize('first', ['distrax', 'rlax', 'distrax, rlax'])
def test_packages_that_were_imported_before_stay(first):
  assert _python(f"""
import {first}
import sys
before = {{name: sys.modules[name] for name in ('distrax', 'rlax') if name in sys.modules}}
from lambda_kit.policies import quick_rlax
import distrax, rlax
print(quick_rlax.rlax is rlax, all(sys.modules[name] is module for name, module in before.items()))
print(distrax.Categorical.__name__, rlax.lambda_returns.__name__)
""") == ['True', 'True', 'Categorical', 'lambda_returns']


def test_a_later_rlax_may_read_more_of_distrax():
  assert _python("""
import sys
from lambda_kit.policies import quick_rlax
sys.modules['distrax'] = quick_rlax._LateDistrax('distrax')
from distrax import Categorical  # As if rlax, while it is imported, derived a class from it.
import distrax
print(sys.modules['distrax'] is distrax, distrax.Categorical is Categorical, Categorical.__module__)
""") == ['True', 'True', 'distrax._src.distributions.categorical']
