"""Builds the model-free baselines; what gin configures meets the agent here and goes no further."""

from typing import Any, Callable, Iterator, Sequence

import gin
import jax
import numpy as np

from lambda_kit import core
from lambda_kit.agents.on_policy import acting
from lambda_kit.agents.on_policy import gaussian
from lambda_kit.agents.on_policy import learning
from lambda_kit.agents.on_policy import ppo
from lambda_kit.analysis import tables


@gin.register
class OnPolicyAgent(core.AgentBuilder):
  """PPO, TRPO, CPO and their Lagrangian variants. Defaults are those of safety-starter-agents (Ray et al., 2019).

  But for three: critics are fitted to 1,024 steps of an epoch at a time, drawn anew, instead of to all of them, and an
  eighth of the steps makes the Fisher matrix, for speed. And observations are normalised.

  Args:
    cost_limit: d, of an episode's undiscounted costs; one for all constraints, or one for each.
    policy_optimizer: `Ppo`, `Trpo` or `Cpo`. The first two have a `solver` for constraints.
    policy_factory, critic_factory: Haiku modules.
    discount, cost_discount: For one agent step.
    lambda_, cost_lambda: Of generalised advantage estimation.
    critic_learning_rate, critic_iterations: Of Adam's steps on critics, in each update.
    critic_batch_size: Steps drawn at random for each of these; None for all of them.
    image_chunk_size: Images that networks see at a time; the memory of an update grows with it.
    normalize_observations: Whether vectors are centred and scaled by running statistics, see `gaussian.normalize`.
    noisy_evaluation: Whether evaluations draw actions from the policy, as in training: it is the policy with its noise
      that the methods improve and keep within the limit, and whose scores were published. Otherwise they take its mode.
    max_skips: Non-finite gradients in a row before the run is stopped.
  """

  def __init__(self, cost_limit: float | Sequence[float], policy_optimizer: core.PolicyOptimizer = ppo.Ppo(),
               policy_factory: Callable[..., Any] = gaussian.GaussianPolicy,
               critic_factory: Callable[..., Any] = gaussian.ObservationCritic, discount: float = 0.99,
               cost_discount: float = 0.99, lambda_: float = 0.97, cost_lambda: float = 0.97,
               critic_learning_rate: float = 1e-3, critic_iterations: int = 80, critic_batch_size: int | None = 1024,
               image_chunk_size: int = 500, normalize_observations: bool = True, noisy_evaluation: bool = True,
               max_skips: int = 50):
    if image_chunk_size < 1:
      raise ValueError(f'OnPolicyAgent.image_chunk_size = {image_chunk_size} must be at least 1.')
    for name, value in dict(discount=discount, cost_discount=cost_discount, lambda_=lambda_,
                            cost_lambda=cost_lambda).items():
      if not 0.0 <= value <= 1.0:
        raise ValueError(f'OnPolicyAgent.{name} = {value} must be between 0 and 1.')
    self._cost_limit = cost_limit
    self._policy_optimizer = policy_optimizer
    self._networks_arguments = (policy_factory, critic_factory, image_chunk_size)
    self._reward_numbers, self._cost_numbers = (discount, lambda_), (cost_discount, cost_lambda)
    self._critic_training = learning.CriticTraining(critic_learning_rate, critic_iterations, critic_batch_size)
    self._normalize = normalize_observations
    self._noisy_evaluation = noisy_evaluation
    self._max_skips = max_skips
    self._networks: gaussian.OnPolicyNetworks | None = None

  def make_replay(self, environment: core.Environment, environment_steps: int, seed: int) -> None:
    """None: what a policy has done is of no use to the next one."""

  def make_adder(self, replay: None) -> None:
    """None: the loop hands rollouts to the learner."""

  def make_dataset_iterator(self, replay: None) -> None:
    """None, likewise."""

  def make_learner(self, environment: core.Environment, dataset: Iterator[Any] | None,
                   seed: int) -> learning.OnPolicyLearner:
    names = environment.constraint_names
    if not names:
      raise ValueError(f'The task {environment.task_name} has no cost, and OnPolicyAgent keeps costs under a limit.')
    limits = tables.cost_limits(self._cost_limit, len(names))
    if not np.all(np.isfinite(limits) & (limits >= 0)):
      raise ValueError(f'OnPolicyAgent.cost_limit = {self._cost_limit}: limits must be finite and not negative.')
    discounts, lambdas = np.array([self._reward_numbers, *(self._cost_numbers for _ in names)]).T
    return learning.OnPolicyLearner(
        self._make_networks(environment), self._policy_optimizer, limits, learning.Returns(discounts, lambdas),
        self._critic_training, self._normalize, jax.random.PRNGKey(seed), self._max_skips)

  def make_actor(self, environment: core.Environment, variable_source: core.VariableSource, adder: core.Adder | None,
                 seed: int, evaluation: bool) -> acting.GaussianActor:
    return acting.GaussianActor(self._make_networks(environment), variable_source, jax.random.PRNGKey(seed),
                                with_noise=self._noisy_evaluation or not evaluation, clip=evaluation)

  def make_policy(self, environment: core.Environment, variable_source: core.VariableSource,
                  seed: int) -> core.PurePolicy:
    variables, = variable_source.get_variables(('policy',))
    return acting.make_pure_policy(self._make_networks(environment), variables, jax.random.PRNGKey(seed),
                                   self._noisy_evaluation, settings=dict(with_noise=self._noisy_evaluation))

  def _make_networks(self, environment: core.Environment) -> gaussian.OnPolicyNetworks:
    # Made once: gin's references would build other objects at each call.
    if self._networks is None:
      self._networks = gaussian.make_networks(environment, *self._networks_arguments)
    return self._networks
