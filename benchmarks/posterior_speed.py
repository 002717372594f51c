"""What the SWAG posterior costs: time of a sample and of an update, and memory.

The loss is a sum of squares, so that an update is the work of the optimiser and the posterior, and little else.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax import flatten_util
import jax.numpy as jnp
import numpy as np

from benchmarks import contenders
from lambda_kit import core
from lambda_kit.posteriors import point
from lambda_kit.posteriors import swag

_NEVER = 10**9
_UPDATES = 20  # Of each round.


def measure(
  num_parameters: int = 1_100_000, num_models: int = 20, num_samples: int = 5, rounds: int = 5
) -> dict[str, Any]:
  """Times sampling and updates of SWAG, in turns with the same by other means. Medians over rounds.

  Returns:
    `sample_ms` for N samples, and `plain_sample_ms` for the same with `jax.random.normal`; `update_ms` between
    snapshots, `snapshot_ms` of an update with a snapshot, and `point_update_ms` of Adam alone; the bytes of the
    posterior's state, of N samples, and those that sampling and updates allocate on the way.
  """
  arguments = dict(num_parameters=num_parameters, num_models=num_models)
  samples = contenders.take_turns(
    {
      'plain_sample': (plain_samples, dict(arguments, num_samples=num_samples)),
      'sample': (swag_samples, dict(arguments, num_samples=num_samples)),
    },
    rounds,
  )
  updates = contenders.take_turns(
    {
      'point_update': (point_updates, dict(num_parameters=num_parameters)),
      'update': (swag_updates, dict(arguments, period=_NEVER)),
      'snapshot': (swag_updates, dict(arguments, period=1)),
    },
    rounds,
  )
  result = {f'{name}_ms': float(np.median(times) * 1e3) for name, times in {**samples, **updates}.items()}
  return dict(
    num_parameters=num_parameters,
    num_models=num_models,
    num_samples=num_samples,
    rounds=rounds,
    **result,
    sample_times_faster=contenders.ratio(samples['plain_sample'], samples['sample']),
    update_times_point=contenders.ratio(updates['update'], updates['point_update']),
    **memory(num_parameters, num_models, num_samples),
  )


def memory(num_parameters: int, num_models: int, num_samples: int) -> dict[str, int]:
  """Bytes, as the compiler plans them; nothing of that size is allocated."""
  posterior = swag.Swag(lambda params: params, num_models=num_models)
  key = jax.random.key(0)
  state = jax.eval_shape(lambda key: posterior.init(key, _init_params(num_parameters)), key)
  plan: Callable[[Any], Any] = lambda function: function.lower(state, key).compile().memory_analysis()
  sample = plan(jax.jit(lambda state, key: posterior.sample(state, key, num_samples)))
  return dict(
    state_bytes=_num_bytes(state),
    samples_bytes=sample.output_size_in_bytes,
    sample_temporary_bytes=sample.temp_size_in_bytes,
    update_temporary_bytes=plan(_jit_update(posterior)).temp_size_in_bytes,
  )


def swag_samples(num_parameters: int, num_models: int, num_samples: int) -> Callable[[int], int]:
  posterior, state = _filled_swag(num_parameters, num_models)
  return _sampling(jax.jit(lambda key: posterior.sample(state, key, num_samples)))


def plain_samples(num_parameters: int, num_models: int, num_samples: int) -> Callable[[int], int]:
  """The same distribution, written down in the obvious way."""
  _, state = _filled_swag(num_parameters, num_models)

  def sample(key: core.Key) -> core.Params:
    mean, unflatten = flatten_util.ravel_pytree(state.moments.mean)
    diagonal_key, low_rank_key = jax.random.split(key)
    diagonal = jnp.sqrt(state.moments.variance / 2)[None] * jax.random.normal(diagonal_key, (num_samples, mean.size))
    low_rank = jax.random.normal(low_rank_key, (num_samples, num_models)) @ state.moments.columns
    return jax.vmap(unflatten)(mean[None] + diagonal + low_rank / np.sqrt(2 * (num_models - 1)))

  return _sampling(jax.jit(sample))


def swag_updates(num_parameters: int, num_models: int, period: int) -> Callable[[int], int]:
  return _updating(swag.Swag(lambda params: params, num_models=num_models, burn_in=0, period=period), num_parameters)


def point_updates(num_parameters: int) -> Callable[[int], int]:
  return _updating(point.Point(lambda params: params), num_parameters)


def _filled_swag(num_parameters: int, num_models: int) -> tuple[swag.Swag, swag.SwagState]:
  """A posterior that has all its snapshots."""
  posterior = swag.Swag(lambda params: params, num_models=num_models, burn_in=0, period=1)
  key = jax.random.key(0)
  state = jax.jit(lambda key: posterior.init(key, _init_params(num_parameters)))(key)
  update = _jit_update(posterior)
  for _ in range(num_models):
    state = update(state, key)
  return posterior, state


def _sampling(sample: Callable[[core.Key], core.Params]) -> Callable[[int], int]:
  def work(seed: int) -> int:
    jax.block_until_ready(sample(jax.random.key(seed)))
    return 1

  return work


def _updating(posterior: core.Posterior, num_parameters: int) -> Callable[[int], int]:
  state = jax.jit(lambda key: posterior.init(key, _init_params(num_parameters)))(jax.random.key(0))
  update = _jit_update(posterior)

  def work(seed: int) -> int:
    nonlocal state
    for key in jax.random.split(jax.random.key(seed), _UPDATES):
      state = update(state, key)
    jax.block_until_ready(state)
    return _UPDATES

  return work


def _jit_update(posterior: core.Posterior) -> Any:
  loss = lambda params, key: (sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(params)), ())
  return jax.jit(lambda state, key: posterior.update(state, loss, key)[0], donate_argnums=0)


def _init_params(num_parameters: int) -> Callable[[core.Key], core.Params]:
  """Makes four matrices and a vector of at least `num_parameters` numbers in all."""
  width = int(np.ceil(np.sqrt(num_parameters / 4)))
  shapes = {f'layer_{i}': (width, width) for i in range(4)} | {'bias': (width,)}
  return lambda key: {
    name: jax.random.normal(jax.random.fold_in(key, i), shape) for i, (name, shape) in enumerate(shapes.items())
  }


def _num_bytes(tree: Any) -> int:
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
