"""Interfaces, and nothing else. Every swappable part of lambda_kit is one of these."""

import abc
import sys
from typing import Any, Callable, Generic, Iterator, NamedTuple, Protocol, Sequence, TypeVar, runtime_checkable

import dm_env
import numpy as np

from lambda_kit import types

Params = Any  # A pytree of arrays.
Key = Any  # A JAX PRNG key.


class Environment(dm_env.Environment):
  """A `dm_env.Environment` of a constrained MDP.

  On top of dm_env's rules:
    * `TimeStep.reward` is a `CmdpReward` with `cost` of shape [C]; `reward_spec()` has the same structure.
    * Observations are mappings from name to array.
    * A time limit ends an episode with discount 1, a true terminal state with discount 0.
    * Episode n of an environment made with a seed is a function of (seed, n) and the actions, whatever came before.
  """

  @property
  def task_name(self) -> str:
    """Says which problem this is. Data and agents of environments with different names are not mixed."""
    return type(self).__name__

  @property
  def mujoco_version(self) -> str | None:
    """Of the MuJoCo in the process that simulates; None if there is none. Scores of different physics aren't mixed."""
    return getattr(sys.modules.get('mujoco'), '__version__', None)

  @property
  @abc.abstractmethod
  def constraint_names(self) -> tuple[str, ...]:
    """Names of the C costs, in the order of `CmdpReward.cost`."""

  @property
  @abc.abstractmethod
  def next_episode(self) -> int:
    """Number of the episode that the next `reset` begins, counted from 0."""

  @next_episode.setter
  @abc.abstractmethod
  def next_episode(self, number: int) -> None:
    ...

  @property
  @abc.abstractmethod
  def last_step_count(self) -> int:
    """Simulator steps that the last `step` took: 1, or more under an action repeat. 0 after `reset`."""

  @abc.abstractmethod
  def render(self, height: int = 256, width: int = 256) -> np.ndarray:
    """A picture of the current state for people, uint8 [height, width, 3]."""


class EnvironmentFactory(Protocol):
  """Makes an environment. The loop and each evaluation use environments of their own."""

  def __call__(self, seed: int) -> Environment:
    ...


class Actor(abc.ABC):
  """Chooses actions and sees what follows. The environment loop calls, in this order:

    reseed(n); observe_first(t_0); repeat: a_t = select_action(o_t); observe(a_t, t_{t+1}); update().
  """

  @abc.abstractmethod
  def reseed(self, episode: int) -> None:
    """Makes all noise of an episode follow from the actor's seed and the episode's number, whatever came before."""

  @abc.abstractmethod
  def select_action(self, observation: types.Observation) -> np.ndarray:
    """Returns an action [A] for an unbatched observation."""

  @abc.abstractmethod
  def observe_first(self, timestep: dm_env.TimeStep) -> None:
    """Tells the actor that an episode begins."""

  @abc.abstractmethod
  def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
    """Tells the actor what its action led to."""

  def give_up(self) -> None:
    """Tells the actor that its episode will not go on, because the environment failed."""

  @abc.abstractmethod
  def update(self, wait: bool = False) -> None:
    """Fetches fresh variables, from which the next actions are chosen."""


class BatchedActor(Actor):
  """An actor that can also act in k environments at once. `reseed` then makes the noise of them all."""

  @abc.abstractmethod
  def select_actions(self, observation: types.Observation) -> np.ndarray:
    """Returns actions [k, A] for observations [k, ...]."""


class VariableSource(abc.ABC):
  """Something that has parameters to act with."""

  @abc.abstractmethod
  def get_variables(self, names: Sequence[str]) -> list[Any]:
    """Returns the named collections of variables, in the order of `names`."""


State = TypeVar('State')


class Learner(VariableSource, Generic[State]):
  """Improves variables from data. All of its state is one pytree."""

  @abc.abstractmethod
  def step(self, num_updates: int) -> dict[str, float]:
    """Takes `num_updates` gradient steps and returns metrics to log."""

  @abc.abstractmethod
  def save(self) -> State:
    ...

  @abc.abstractmethod
  def restore(self, state: State) -> None:
    ...


class OnPolicyLearner(Learner[State]):
  """A learner whose updates each need new data of the current variables."""

  @abc.abstractmethod
  def collect(self, rollout: types.Rollout) -> None:
    """Takes the data of the next update, which `step(1)` then learns from."""


class Adder(abc.ABC):
  """Puts an actor's experience into replay."""

  @abc.abstractmethod
  def add_first(self, timestep: dm_env.TimeStep) -> None:
    ...

  @abc.abstractmethod
  def add(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
    ...

  @abc.abstractmethod
  def cut(self) -> None:
    """Ends an episode that will not go on. What was complete of it is kept."""


# Makes of a function of (parameters, arrays [B, ...], ...) to arrays [B, ...], whose rows don't depend on each other,
# the same function, computed in parts of B: on several devices.
OverBatch = Callable[[Callable[..., Any]], Callable[..., Any]]


class WorldModel(abc.ABC):
  """A differentiable p(s_{t+1} | s_t, a_t, theta) with inference and predictions. Holds functions, not arrays.

  A state is any pytree of arrays with the same leading axes. Parameters are pytrees, too.
  """

  noise_size: int  # Standard normal numbers that a step of imagination takes.

  @abc.abstractmethod
  def init(self, key: Key, batch: types.Trajectory) -> Params:
    """Draws parameters that fit the shapes of `batch`."""

  @abc.abstractmethod
  def loss(self, params: Params, batch: types.Trajectory, key: Key,
           over_batch: OverBatch = lambda function: function) -> tuple[types.Array, types.ModelOutput]:
    """The loss [] to minimise, e.g. the negative ELBO, and the states inferred on the way.

    Where parameters are used in a loop over time, `over_batch` has to be applied around it: else several devices would
    exchange their gradients in each of its steps.
    """

  @abc.abstractmethod
  def initial_state(self, batch_size: int) -> types.Nest:
    """The state before the first observation, [batch_size, ...]."""

  @abc.abstractmethod
  def filter(self, params: Params, state: types.Nest, action: types.Array, observation: types.Observation,
             key: Key) -> types.Nest:
    """Draws s_t ~ q(. | s_{t-1}, a_{t-1}, o_t) for a batch [k, ...]."""

  @abc.abstractmethod
  def imagine_step(self, params: Params, state: types.Nest, action: types.Array, noise: types.Array) -> types.Nest:
    """Draws s_{t+1} ~ p(. | s_t, a_t, theta) for a batch [k, ...] by noise [k, noise_size], differentiably."""

  @abc.abstractmethod
  def features(self, state: types.Nest) -> types.Array:
    """What policy, critics and heads see of a state, [..., F]."""

  @abc.abstractmethod
  def predict(self, params: Params, features: types.Array) -> types.Predictions:
    """Reward, costs and continuation expected of states with `features` [..., F]."""

  @abc.abstractmethod
  def decode(self, params: Params, features: types.Array) -> dict[str, types.Array]:
    """Means of observations for features [..., F]: images [..., height, width, 3] in [-0.5, 0.5], vectors [..., D]."""

  @abc.abstractmethod
  def imagination_params(self, params: Params) -> Params:
    """The part of `params` that `imagine_step` and `predict` need: what the posterior has to sample."""


class WorldModelFactory(Protocol):
  """Makes a world model for an environment's shapes."""

  def __call__(self, observation_spec: Any, action_spec: Any, num_constraints: int, action_repeat: int) -> WorldModel:
    ...


PosteriorState = TypeVar('PosteriorState')
# Maps parameters and a key to a loss [] and anything else that came out on the way.
ModelLoss = Callable[[Params, Key], tuple[types.Array, Any]]


class Posterior(abc.ABC, Generic[PosteriorState]):
  """An approximate posterior p(theta | D), and the way in which it is learned.

  Implementations take `select` in their constructor: it picks the part of all parameters that is to be sampled.
  """

  @abc.abstractmethod
  def init(self, key: Key, init_params: Callable[[Key], Params]) -> PosteriorState:
    ...

  @abc.abstractmethod
  def update(self, state: PosteriorState, loss: ModelLoss, key: Key
             ) -> tuple[PosteriorState, Any, dict[str, types.Array]]:
    """Takes one gradient step. Returns the new state, what `loss` returned beside the loss, and metrics."""

  @abc.abstractmethod
  def mean(self, state: PosteriorState) -> Params:
    """One complete set of parameters, for filtering."""

  @abc.abstractmethod
  def sample(self, state: PosteriorState, key: Key, num_samples: int) -> Params:
    """Draws N different sets of the selected parameters, stacked: leaves [N, ...]."""


class PosteriorFactory(Protocol):

  def __call__(self, select: Callable[[Params], Params]) -> Posterior:
    ...


# Algorithm 1, line 7, for one start state: maps an estimate for each posterior sample, [N], to weights [N]. The bound
# is the weighted sum of the estimates, its gradient that of the sum with the weights held fixed. One-hot weights
# select a sample; 1/N takes the mean.
Bound = Callable[[types.Array], types.Array]

SolverState = TypeVar('SolverState')


class ConstraintSolver(abc.ABC, Generic[SolverState]):
  """Turns a constrained problem, max J s.t. J_i <= d_i, into max J - penalty. All arrays are [C]."""

  @abc.abstractmethod
  def init(self, num_constraints: int) -> SolverState:
    ...

  @abc.abstractmethod
  def penalty(self, state: SolverState, cost_values: types.Array, budgets: types.Array) -> types.Array:
    """What is subtracted from the objective, []. Differentiable in `cost_values`, the J_i."""

  @abc.abstractmethod
  def update(self, state: SolverState, cost_values: types.Array, budgets: types.Array) -> SolverState:
    """Takes one step of the multipliers."""

  @abc.abstractmethod
  def multipliers(self, state: SolverState) -> types.Array:
    """The weight of each constraint's gradient when its value equals its budget, [C]."""


class PolicyOptimizer(abc.ABC, Generic[State]):
  """Improves a policy by the data that it has just gathered: PPO, TRPO, CPO. Holds settings, not arrays."""

  @abc.abstractmethod
  def init(self, params: Params, num_constraints: int) -> State:
    ...

  @abc.abstractmethod
  def update(self, state: State, params: Params, apply: Callable[..., Any], batch: Any, costs: Any,
             key: Key) -> tuple[State, Params, dict[str, types.Array]]:
    """Improves `params`. Pure.

    Args:
      state: What `init` or the update before returned.
      params: Of the policy.
      apply: Maps parameters and observations to a distribution over actions.
      batch: Steps of this policy, a `agents.on_policy.surrogates.Batch`.
      costs: What its episodes cost, a `agents.on_policy.surrogates.EpisodeCosts`.
      key: For whatever is drawn at random.

    Returns:
      The new state, the new parameters, and metrics.
    """


# Converts limits of episodes' cost returns, [C], into what a solver compares discounted values with, [C].
# Called with limits, discount and action_repeat.
Budget = Callable[[Sequence[float], float, int], np.ndarray]


class Planner(abc.ABC):
  """Finds action sequences by imagining them. Holds settings, not arrays."""

  horizon: int  # H, agent steps of a plan.

  @abc.abstractmethod
  def initial_plan(self, num_actions: int) -> types.Array:
    """What to pass as the previous plan at the first step of an episode, [H, A]."""

  @abc.abstractmethod
  def plan(self, key: Key, params: Params, world_model: WorldModel, state: types.Nest,
           previous_plan: types.Array) -> Any:
    """Plans from one state (no batch axis) under N stacked posterior samples. Pure.

    Returns a NamedTuple with `actions` [H, A] in [-1, 1], beside whatever else the planner knows of them.
    """


class PlannerFactory(Protocol):

  def __call__(self, limits: Sequence[float], action_repeat: int) -> Planner:
    ...


class ActionSelection(NamedTuple):
  """Pure functions that choose actions from beliefs, for an actor that keeps their carry between steps.

  At the first step of an episode the actor calls `carry = init_carry(k)`; at every step, after it has filtered its
  belief, `actions, carry = step(variables, carry, belief, key)`.
  """
  # Maps the number k of parallel environments to a carry, a pytree with leaves [k, ...].
  init_carry: Callable[[int], types.Nest]
  # Maps variables, carry [k, ...], belief [k, ...] and a key to actions [k, A] and the next carry.
  step: Callable[[Params, types.Nest, types.Nest, Key], tuple[types.Array, types.Nest]]


class PurePolicy(NamedTuple):
  """How an agent acts in one environment, as a pure function that can be compiled, stored, and run without the agent.

  Axes of observations and actions begin with one of size 1. At the first step of an episode nothing of the carry
  counts, and all noise follows from the episode's number.
  """
  # Maps variables, carry, observation, `is_first` [1] and the episode's number [] uint32 to an action [1, A] and the
  # next carry.
  step: Callable[[Params, types.Nest, types.Observation, types.Array, types.Array], tuple[types.Array, types.Nest]]
  variables: Params
  carry: types.Nest  # One with the right shapes.
  settings: dict[str, Any]  # For readers, as JSON: what the agent knows and the environment doesn't.


# Shows a model the first n observations of an episode and all of its actions. Called with observations o_0, ..., o_T
# [T + 1, ...], actions a_0, ..., a_{T-1} [T, A] and 1 <= n <= T; what is returned is about o_n, ..., o_T.
Predictor = Callable[[types.Observation, types.Array, int], types.OpenLoop]


# Forecasts what a policy will cost. Called with observations o_0, ..., o_T [T + 1, ...] and actions a_0, ..., a_{T-1}
# [T, A] of an episode.
CostForecaster = Callable[[types.Observation, types.Array], types.CostForecast]


class UpdateSchedule(Protocol):
  """Says how many updates are due, as a function of the data so far, so that a resumed run takes the same ones."""

  def __call__(self, environment_steps: int) -> int:
    """Updates that a learner should have taken in all after `environment_steps`."""


class LoopFactory(Protocol):
  """Makes the loop of acting and learning, an `training.environment_loop.EnvironmentLoop`."""

  def __call__(self, environment: Environment, actor: Actor, learner: Learner, schedule: UpdateSchedule | None,
               max_failed_episodes: int, environment_factory: EnvironmentFactory, seed: int) -> Any:
    """`environment_factory` and `seed` are for loops that make environments of their own."""


class AgentBuilder(Protocol):
  """Makes the parts of an agent, so that the experiment can wire them without knowing which agent it is."""

  def make_replay(self, environment: Environment, environment_steps: int, seed: int) -> Any:
    """The store that the adder fills and the iterator reads; None if the agent keeps no data.

    `environment_steps` is the length of the run, to say in time how much memory it will take.
    """

  def make_adder(self, replay: Any) -> Adder | None:
    ...

  def make_dataset_iterator(self, replay: Any) -> Iterator[Any] | None:
    ...

  def make_learner(self, environment: Environment, dataset: Iterator[Any] | None, seed: int) -> Learner:
    ...

  def make_actor(self, environment: Environment, variable_source: VariableSource, adder: Adder | None, seed: int,
                 evaluation: bool) -> Actor:
    """With `evaluation` the actor takes the mode of its policy and stores nothing."""


@runtime_checkable
class PolicyBuilder(Protocol):
  """An agent builder whose agent can be exported has this method, too."""

  def make_policy(self, environment: Environment, variable_source: VariableSource, seed: int) -> PurePolicy:
    """What the actor does that `make_actor` makes with this seed for evaluation, to the bit."""


@runtime_checkable
class PredictorBuilder(Protocol):
  """An agent builder whose agent has a model of observations has this method, too."""

  def make_predictor(self, environment: Environment, variable_source: VariableSource, seed: int) -> Predictor:
    """Lets the model predict with the variables of this moment."""


@runtime_checkable
class ForecasterBuilder(Protocol):
  """An agent builder whose agent bounds the costs of its policy by models has this method, too."""

  def make_cost_forecaster(self, environment: Environment, variable_source: VariableSource,
                           seed: int) -> tuple[CostForecaster, int]:
    """Lets models forecast with the variables of this moment. Returns the forecaster and its horizon H."""


class Logger(abc.ABC):
  """Takes rows of scalars."""

  @abc.abstractmethod
  def write(self, kind: str, row: dict[str, Any]) -> None:
    """Writes one row. `kind` ('episode', 'evaluation', 'learner') says what it describes."""

  @abc.abstractmethod
  def close(self) -> None:
    ...
