"""Configures and builds the model-free baselines. Configuration ends here: the learner takes ordinary arguments."""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit.agents import naming
from lambda_kit.agents.on_policy import acting
from lambda_kit.agents.on_policy import gaussian
from lambda_kit.agents.on_policy import interfaces
from lambda_kit.agents.on_policy import learning
from lambda_kit.agents.on_policy import ppo


@gin.register
@ranges.checked
@dataclasses.dataclass(frozen=True)
class OnPolicyAgent:
  """PPO, TRPO, CPO and their Lagrangian variants. Defaults are those of safety-starter-agents (Ray et al., 2019).

  There are three exceptions: for speed, a gradient step on the critics uses 1,024 random steps of the epoch instead of
  all of them, and the Fisher matrix an eighth of the steps; and observations are normalised.
  """

  policy_optimizer: interfaces.PolicyOptimizer = ppo.Ppo()  # `Ppo`, `Trpo` or `Cpo`; the first two have a `solver`.
  policy_factory: Callable[..., Any] = gaussian.GaussianPolicy  # A Haiku module.
  critic_factory: Callable[..., Any] = gaussian.ObservationCritic  # A Haiku module.
  discount: ranges.Discount = 0.99  # Of rewards, per agent step.
  cost_discount: ranges.Discount = 0.99  # Of costs, per agent step.
  lambda_: ranges.Share = 0.97  # Of generalised advantage estimation, for rewards.
  cost_lambda: ranges.Share = 0.97  # The same for costs.
  critic_learning_rate: ranges.Positive = 1e-3  # Adam's.
  critic_iterations: ranges.Count = 80  # Adam steps on the critics in each update.
  critic_batch_size: ranges.Count | None = 1024  # Agent steps drawn at random for each of these; None for all.
  image_chunk_size: ranges.Count = 500  # Images that networks process at a time; the memory of an update grows with it.
  normalize_observations: bool = True  # Whether vectors are centred and scaled; see `gaussian.normalize`.
  # Whether evaluations draw actions from the policy, as in training, or take its mode. The methods improve, and keep
  # within the limit, the policy with its noise; published scores are those of this policy, too.
  noisy_evaluation: bool = True
  max_skips: ranges.Whole = 50  # Non-finite gradients in a row that end the run.

  @property
  def display_name(self) -> str:
    return naming.name_of(self.policy_optimizer)

  def build(self, spec: core.EnvironmentSpec) -> 'OnPolicyBuilder':
    return OnPolicyBuilder(self, spec)


class OnPolicyBuilder(core.AgentBuilder):
  """Makes the parts of a baseline. There is no replay: each update needs data of the current policy."""

  def __init__(self, config: OnPolicyAgent, spec: core.EnvironmentSpec):
    if not spec.constraint_names:
      raise errors.SetupError(f'The task {spec.task_name} has no cost, and OnPolicyAgent keeps costs under a limit.')
    self._config = config
    self._spec = spec
    self._networks = gaussian.make_networks(spec, config.policy_factory, config.critic_factory, config.image_chunk_size)

  def make_learner(self, dataset: core.Dataset | None, seed: int) -> learning.OnPolicyLearner:
    config, count = self._config, self._spec.num_constraints
    return learning.OnPolicyLearner(
      networks=self._networks,
      policy_optimizer=config.policy_optimizer,
      limits=np.asarray(self._spec.cost_limits),
      returns=learning.Returns(
        discounts=np.array([config.discount] + [config.cost_discount] * count),
        lambdas=np.array([config.lambda_] + [config.cost_lambda] * count),
      ),
      critic_training=learning.CriticTraining(
        config.critic_learning_rate, config.critic_iterations, config.critic_batch_size
      ),
      normalize=config.normalize_observations,
      key=jax.random.PRNGKey(seed),
      max_skips=config.max_skips,
    )

  def make_actor_core(self, evaluation: bool) -> core.ActorCore:
    return acting.make_actor_core(
      self._networks, with_noise=self._config.noisy_evaluation or not evaluation, clip=evaluation
    )
