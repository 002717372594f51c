"""Builds LAMBDA from components; what gin configures meets the agent here and goes no further."""

from typing import Any, Callable, Sequence

import gin
import jax
import numpy as np

from lambda_kit import core
from lambda_kit.models import optimizers
from lambda_kit.agents.lambda_ import acting
from lambda_kit.agents.lambda_ import devices as devices_lib
from lambda_kit.agents.lambda_ import forecasting
from lambda_kit.agents.lambda_ import learning
from lambda_kit.agents.lambda_ import losses
from lambda_kit.agents.lambda_ import networks as networks_lib
from lambda_kit.agents.lambda_ import policy_gradients
from lambda_kit.agents.lambda_ import precision as precision_lib
from lambda_kit.agents.lambda_ import prediction
from lambda_kit.safety import bounds
from lambda_kit.safety import augmented_lagrangian
from lambda_kit.safety import budgets
from lambda_kit.models import world_model
from lambda_kit.planners import planning_policy
from lambda_kit.policies import squashed_gaussian as actor_lib
from lambda_kit.policies import critic as critic_lib
from lambda_kit.policies import targets
from lambda_kit.posteriors import swag
from lambda_kit.replay import adder as adder_lib
from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import dataset as dataset_lib
from lambda_kit.replay import episodes
from lambda_kit.replay import offline


@gin.register
class LambdaAgent(core.AgentBuilder):
  """LAMBDA (algorithm 2). Defaults are the paper's.

  Args:
    cost_limit: d, of an episode's undiscounted costs; one for all constraints, or one for each.
    action_repeat: That of the environment: costs of repeated steps are summed, and budgets depend on it.
    world_model_factory: p(s' | s, a, theta) with inference and heads.
    posterior_factory: p(theta | D).
    reward_bound, cost_bound: Over the N posterior samples, for each start state; reward and costs independently.
    solver: Of the constrained problem.
    budget: From limits of episodes to what discounted values are compared with.
    policy_factory, critic_factory, cost_critic_factory: Haiku modules.
    replay_factory: Makes the store of episodes.
    batch_size: B.
    num_samples: N.
    num_start_states: Imagination starts from this many states of a batch; None is all of them.
    horizon: H.
    discount, cost_discount, lambda_: Of V_lambda.
    entropy_scale: Weight of an entropy bonus; the paper has none.
    policy_learning_rate, critic_learning_rate, cost_critic_learning_rate: Adam's.
    policy_clip, critic_clip, cost_critic_clip: Largest global norms of gradients.
    target_update: How shadow critics follow.
    policy_gradient: How the policy's gradient is computed: `SelectedGradient`, with little memory, or `WholeGradient`.
      None takes the one with fewer operations: with two samples or one nearly all trajectories count anyway.
    planner_factory: Makes a planner that chooses actions instead of the policy, where given.
    offline_data: Folder of episodes with which the replay begins (algorithm 2, line 1): the `replay` folder of another
      run's workdir, or what `save_dataset` wrote.
    model_only_updates: During the first so many updates only the model learns, as in the authors' code.
    updates_per_call: Updates between two returns to Python, where as many are due.
    max_skips: Non-finite gradients in a row before the run is stopped.
    precision: What layers compute in, as `jmp.get_policy` reads it: 'float32', or
      'params=float32,compute=bfloat16,output=float32'.
    num_devices: GPUs that learn together, each from its part of a batch and of its start states; None takes all of
      them, those of other hosts included. B and the number of start states have to be multiples of it.
  """

  def __init__(
      self,
      cost_limit: float | Sequence[float],
      action_repeat: int,
      world_model_factory: core.WorldModelFactory = world_model.RecurrentWorldModel,
      posterior_factory: core.PosteriorFactory = swag.Swag,
      reward_bound: core.Bound = bounds.UpperBound(),
      cost_bound: core.Bound = bounds.UpperBound(),
      solver: core.ConstraintSolver = augmented_lagrangian.AugmentedLagrangian(),
      budget: core.Budget = budgets.raw_budget,
      policy_factory: Callable[..., Any] = actor_lib.SquashedGaussianPolicy,
      critic_factory: Callable[..., Any] = critic_lib.Critic,
      cost_critic_factory: Callable[..., Any] = critic_lib.Critic,
      replay_factory: Callable[..., Any] = buffer_lib.EpisodeBuffer,
      batch_size: int = 32,
      num_samples: int = 5,
      num_start_states: int | None = None,
      horizon: int = 15,
      discount: float = 0.99,
      cost_discount: float = 0.995,
      lambda_: float = 0.95,
      entropy_scale: float = 0.0,
      policy_learning_rate: float = 8e-5,
      critic_learning_rate: float = 8e-5,
      cost_critic_learning_rate: float = 2e-4,
      policy_clip: float = 5.0,
      critic_clip: float = 1.0,
      cost_critic_clip: float = 50.0,
      target_update: targets.TargetUpdate = targets.PeriodicTarget(),
      policy_gradient: policy_gradients.PolicyGradient | None = None,
      planner_factory: core.PlannerFactory | None = None,
      offline_data: str | None = None,
      model_only_updates: int = 100,
      updates_per_call: int = 10,
      max_skips: int = 50,
      precision: str = 'float32',
      num_devices: int | None = 1,
  ):
    for name, value in (('num_samples', num_samples), ('horizon', horizon), ('batch_size', batch_size),
                        ('updates_per_call', updates_per_call)):
      if value < 1:
        raise ValueError(f'LambdaAgent.{name} must be at least 1, got {value}.')
    if model_only_updates < 0:
      raise ValueError(f'LambdaAgent.model_only_updates must not be negative, got {model_only_updates}.')
    self._cost_limit = cost_limit
    self._action_repeat = action_repeat
    self._world_model_factory = world_model_factory
    self._posterior_factory = posterior_factory
    self._reward_bound, self._cost_bound = reward_bound, cost_bound
    self._solver, self._budget = solver, budget
    self._factories = (policy_factory, critic_factory, cost_critic_factory)
    self._replay_factory = replay_factory
    self._batch_size = batch_size
    self._num_samples = num_samples
    self._num_start_states = num_start_states
    self._objective_numbers = dict(discount=discount, cost_discount=cost_discount, lambda_=lambda_, horizon=horizon,
                                   entropy_scale=entropy_scale)
    self._policy_optimizer = optimizers.make_adam(policy_learning_rate, policy_clip)
    self._critic_optimizer = optimizers.make_adam(critic_learning_rate, critic_clip)
    self._cost_critic_optimizer = optimizers.make_adam(cost_critic_learning_rate, cost_critic_clip)
    self._target_update = target_update
    self._policy_gradient = policy_gradient or policy_gradients.default_gradient(num_samples)
    self._planner_factory = planner_factory
    self._offline_data = offline_data
    self._model_only_updates = model_only_updates
    self._updates_per_call = updates_per_call
    self._max_skips = max_skips
    self._precision = precision_lib.get_policy(precision)
    self._devices = devices_lib.Devices(num_devices)
    self._devices.check('LambdaAgent.batch_size', batch_size)
    self._devices.check('LambdaAgent.num_start_states', num_start_states or 0)
    self._networks: networks_lib.LambdaNetworks | None = None

  def make_replay(self, environment: core.Environment, environment_steps: int, seed: int) -> buffer_lib.EpisodeBuffer:
    header = episodes.Header.of(environment, action_repeat=self._action_repeat)
    replay = self._replay_factory(header=header, seed=seed)
    replay.warn_if_short(environment_steps)
    if self._offline_data is not None:
      for episode in offline.load_dataset(self._offline_data, header):
        replay.add(episode)
    return replay

  def make_adder(self, replay: buffer_lib.EpisodeBuffer) -> adder_lib.EpisodeAdder:
    return adder_lib.EpisodeAdder(replay)

  def make_dataset_iterator(self, replay: buffer_lib.EpisodeBuffer) -> dataset_lib.ReplayDataset:
    return dataset_lib.ReplayDataset(replay, self._batch_size, device=self._devices.batch_sharding)

  def make_learner(self, environment: core.Environment, dataset: dataset_lib.ReplayDataset,
                   seed: int) -> learning.LambdaLearner:
    num_constraints = len(environment.constraint_names)
    networks = self._make_networks(environment)
    limits = self._limits(environment)
    objective = losses.Objective(
        reward_bound=self._reward_bound, cost_bound=self._cost_bound, solver=self._solver,
        budgets=np.asarray(self._budget(limits, self._objective_numbers['cost_discount'], self._action_repeat),
                           np.float32), **self._objective_numbers)
    return learning.LambdaLearner(
        networks, self._posterior_factory(select=networks.world_model.imagination_params), objective,
        self._policy_gradient, dataset, networks_lib.example_batch(environment), self._policy_optimizer,
        self._critic_optimizer, self._cost_critic_optimizer, self._target_update, self._num_samples,
        self._num_start_states, num_constraints, self._model_only_updates, self._updates_per_call,
        jax.random.PRNGKey(seed), self._max_skips, self._devices)

  def make_actor(self, environment: core.Environment, variable_source: core.VariableSource,
                 adder: core.Adder | None, seed: int, evaluation: bool) -> acting.LambdaActor:
    return acting.LambdaActor(self.make_batched_actor(environment, variable_source, seed, 1, evaluation), adder)

  def make_batched_actor(self, environment: core.Environment, variable_source: core.VariableSource, seed: int,
                         num_environments: int, evaluation: bool) -> acting.BatchedActor:
    """An actor for k environments like `environment`."""
    selection, variables = self._make_selection(environment, evaluation)
    return acting.BatchedActor(self._make_networks(environment), selection, variables, variable_source,
                               jax.random.PRNGKey(seed), num_environments, evaluation)

  def make_policy(self, environment: core.Environment, variable_source: core.VariableSource,
                  seed: int) -> core.PurePolicy:
    selection, variables = self._make_selection(environment, evaluation=True)
    filtering, selecting = variable_source.get_variables(('belief', variables))
    settings = dict(action_repeat=self._action_repeat, precision=np.dtype(self._precision.compute_dtype).name)
    return acting.make_pure_policy(self._make_networks(environment), selection, filtering, selecting,
                                   jax.random.PRNGKey(seed), settings)

  def make_predictor(self, environment: core.Environment, variable_source: core.VariableSource,
                     seed: int) -> core.Predictor:
    (filtering,) = variable_source.get_variables(('belief',))
    return prediction.make_predictor(self._make_networks(environment).world_model, filtering, jax.random.PRNGKey(seed))

  def make_cost_forecaster(self, environment: core.Environment, variable_source: core.VariableSource,
                           seed: int) -> tuple[core.CostForecaster, int]:
    if self._planner_factory is not None:
      raise ValueError('Bounds on costs are those of the policy, and this agent acts by a planner.')
    horizon = self._objective_numbers['horizon']
    return forecasting.make_forecaster(
        self._make_networks(environment), self._cost_bound, horizon,
        *variable_source.get_variables(('belief', 'policy', 'samples')), jax.random.PRNGKey(seed)), horizon

  def _make_selection(self, environment: core.Environment, evaluation: bool) -> tuple[core.ActionSelection, str]:
    """How actions are chosen, and the name of the learner's variables that it takes."""
    networks = self._make_networks(environment)
    if self._planner_factory is None:
      return acting.policy_selection(networks, evaluation), 'policy'
    planner = self._planner_factory(limits=self._limits(environment), action_repeat=self._action_repeat)
    selection = planning_policy.make_planning_policy(
        planner, networks.world_model, environment.action_spec().shape[0], evaluation=evaluation)
    return selection, 'samples'

  def _limits(self, environment: core.Environment) -> np.ndarray:
    names = environment.constraint_names
    if np.size(self._cost_limit) not in (1, len(names)):
      raise ValueError(f'LambdaAgent.cost_limit = {self._cost_limit} has {np.size(self._cost_limit)} limits for the '
                       f'{len(names)} constraints {names}.')
    return np.broadcast_to(np.asarray(self._cost_limit, float), (len(names),))

  def _make_networks(self, environment: core.Environment) -> networks_lib.LambdaNetworks:
    # Made once: gin's references would build other objects at each call.
    if self._networks is None:
      networks = networks_lib.make_networks(environment, self._action_repeat, self._world_model_factory,
                                            *self._factories)
      self._networks = precision_lib.apply_policy(networks, self._precision)
    return self._networks
