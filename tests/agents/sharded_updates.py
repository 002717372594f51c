"""Updates of a tiny learner on some devices, as a program: the number of devices is fixed when JAX starts.

XLA_FLAGS=--xla_force_host_platform_device_count=4 python -m tests.agents.sharded_updates result.json selected 1 2 4
python -m tests.agents.sharded_updates result.json selected all --coordinator=127.0.0.1:1234 --process=0
"""

import argparse
import functools
import json
import pathlib

import jax
import numpy as np

from lambda_kit.agents.lambda_ import policy_gradients
from lambda_kit.posteriors import ensemble
from lambda_kit.posteriors import variational
from tests.agents import hlo
from tests.fakes import tiny

_CASES = {
  'parts_of_sequences': dict(decoded_steps=2, overshooting_steps=2, updates_per_call=1),
  # Chunks and blocks that neither divide the 20 start states nor the parts of them.
  'selected': dict(
    policy_gradient=policy_gradients.SelectedGradient(chunk_size=4, block_size=2), num_constraints=2, updates_per_call=1
  ),
  'whole': dict(policy_gradient=policy_gradients.WholeGradient(), updates_per_call=1),
  'some_starts': dict(num_start_states=12, updates_per_call=3),
  'ensemble': dict(
    posterior_factory=functools.partial(ensemble.Ensemble, num_members=2), num_samples=2, updates_per_call=1
  ),
  'variational': dict(posterior_factory=variational.Variational, updates_per_call=1),
}


def _collectives(learner) -> list[dict]:

  if learner._updates_per_call == 1:
    lowered = learner._update.lower(learner.save(), next(learner._dataset.batches(1)))
  else:
    lowered = learner._update_many.lower(learner.save(), tuple(learner._dataset.batches(3)))
  return [collective._asdict() for collective in hlo.collectives(lowered.compile().as_text())]


def _run(case: str, num_devices: int | None) -> dict:
  parts = tiny.Parts(num_devices=num_devices, **_CASES[case])
  learner = parts.learner
  metrics = learner.step(3)
  state = jax.tree.map(np.asarray, learner.save())
  learner.restore(state)
  parts.actor.update()
  again = jax.tree.map(np.asarray, learner.save())
  return dict(
    metrics=metrics,
    policy=np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(state.policy.params)]).tolist(),
    action=parts.play()[0].tolist(),
    restored=all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(state), jax.tree.leaves(again))),
    parameters=sum(
      leaf.size
      for leaf in jax.tree.leaves(
        (state.posterior.params, state.policy.params, state.critic.params, state.cost_critics.params)
      )
    ),
    # Of several processes, each would compile the update once more.
    collectives=_collectives(learner) if jax.process_count() == 1 else [],
  )


def main() -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument('path', type=pathlib.Path)
  parser.add_argument('case', choices=sorted(_CASES))
  parser.add_argument('num_devices', nargs='+')
  parser.add_argument('--coordinator')
  parser.add_argument('--process', type=int)
  args = parser.parse_args()
  if args.coordinator:
    jax.distributed.initialize(args.coordinator, num_processes=2, process_id=args.process)
  results = {count: _run(args.case, None if count == 'all' else int(count)) for count in args.num_devices}
  args.path.write_text(json.dumps(results), encoding='utf-8')


if __name__ == '__main__':
  main()
