"""Interfaces, and nothing else. Every swappable part of lambda_kit is one of these."""

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import sys
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import dm_env
from dm_env import specs
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
    """Says which problem this is. Data and agents of different names are not mixed."""
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
  def action_repeat(self) -> int:
    """Simulator steps for which `step` holds an action. Rewards and costs are summed over them."""
    return 1

  @property
  def episode_length(self) -> int | None:
    """Simulator steps until the time limit; None if there is none, or if it isn't known."""
    return None

  def optimum(self, cost_limits: Sequence[float]) -> tuple[float, Sequence[float]] | None:
    """The largest expected return of an episode within the limits [C] on its costs, and those [C]; None if unknown."""
    return None

  @property
  @abc.abstractmethod
  def next_episode(self) -> int:
    """Number of the episode that the next `reset` begins, counted from 0."""

  @next_episode.setter
  @abc.abstractmethod
  def next_episode(self, number: int) -> None: ...

  @property
  @abc.abstractmethod
  def last_step_count(self) -> int:
    """Simulator steps that the last `step` took: `action_repeat`, or fewer at an episode's end. 0 after `reset`."""

  @abc.abstractmethod
  def render(self, height: int = 256, width: int = 256) -> np.ndarray:
    """A picture of the current state for people, uint8 [height, width, 3]."""


@dataclasses.dataclass(frozen=True)
class EnvironmentSpec:
  """The facts about an environment, each bound once: made by `environments.spec.make_spec` from what was built."""

  task_name: str
  observations: Mapping[str, specs.Array]
  actions: specs.BoundedArray  # [A]
  constraint_names: tuple[str, ...]  # [C]
  cost_limits: tuple[float, ...]  # [C], d: of the undiscounted costs of an episode.
  action_repeat: int  # Simulator steps in an agent step.
  episode_length: int | None  # Simulator steps; None if unknown.

  @property
  def num_actions(self) -> int:
    """A."""
    return self.actions.shape[0]

  @property
  def num_constraints(self) -> int:
    """C."""
    return len(self.constraint_names)


class EnvironmentFactory(Protocol):
  def __call__(self, seed: int) -> Environment: ...


class ActorCore(NamedTuple):
  """How an agent acts, as pure functions: what an actor compiles, and what is exported."""

  # Maps a key, from which all noise of an episode follows, and the number k of environments to a carry.
  init: Callable[[Key, int], types.Nest]
  # Maps variables, carry, observations [k, ...] and `is_first` [k], which marks rows that begin an episode, to actions
  # [k, A] and the next carry.
  step: Callable[[Sequence[Params], types.Nest, types.Observation, types.Array], tuple[types.Array, types.Nest]]
  variable_names: tuple[str, ...]  # What `step` takes of a `VariableSource`, in this order.


class WarmUp(Protocol):
  """What an agent does before its first update: draws actions [k, A] from (-1, 1), given the last ones.

  Rows with `is_first` [k] begin an episode.
  """

  def __call__(self, key: Key, last_action: types.Array, is_first: types.Array) -> types.Array: ...


class Actor(abc.ABC):
  """Acts in one environment, or in k at once, and sees what follows. A loop over episodes calls, in this order:

  reseed(n); observe_first(t_0); repeat: a_t = select_action(o_t); observe(a_t, t_{t+1}); update().
  """

  variable_names: tuple[str, ...]  # What of a `VariableSource` it acts with.

  @abc.abstractmethod
  def reseed(self, episode: int) -> None:
    """Makes all noise of an episode follow from the actor's seed and the episode's number, whatever came before."""

  @abc.abstractmethod
  def select_action(self, observation: types.Observation) -> np.ndarray:
    """Returns an action [A] for an unbatched observation."""

  @abc.abstractmethod
  def select_actions(self, observation: types.Observation, is_first: np.ndarray) -> np.ndarray:
    """Returns actions [k, A] for observations [k, ...]; rows with `is_first` [k] begin an episode."""

  @abc.abstractmethod
  def observe_first(self, timestep: dm_env.TimeStep) -> None:
    """Tells the actor that an episode begins."""

  @abc.abstractmethod
  def observe(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None:
    """Tells the actor what its action led to."""

  @abc.abstractmethod
  def give_up(self) -> None:
    """Tells the actor that its episode will not go on, because the environment failed."""

  @abc.abstractmethod
  def update(self) -> None:
    """Fetches the newest variables. Without it, actions are chosen by those of the last call."""


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

  def observe_episode(self, episode: types.Trajectory) -> types.Array | None:
    """Shows an episode of training that has ended, [T + 1, ...], before it enters the replay. Most ignore it.

    Returns its surprise, [T + 1]: how much more cost came around each time step than was forecast; None if unknown.
    """
    return None

  @abc.abstractmethod
  def save(self) -> State: ...

  @abc.abstractmethod
  def restore(self, state: State) -> None: ...


class Adder(abc.ABC):
  """Puts an actor's experience into replay."""

  @abc.abstractmethod
  def add_first(self, timestep: dm_env.TimeStep) -> None: ...

  @abc.abstractmethod
  def add(self, action: np.ndarray, next_timestep: dm_env.TimeStep) -> None: ...

  @abc.abstractmethod
  def cut(self) -> None:
    """Ends an episode that will not go on. What was complete of it is kept."""


class Dataset(Protocol):
  """Batches for a learner."""

  num_recent: int  # Of the B sequences of a batch, so many, the first ones, are from the latest episodes only.

  def batches(self, num_batches: int) -> Iterator[types.Trajectory]:
    """The batches [B, L, ...] of the next updates."""


# Wraps a function of (parameters, arrays [B, ...], ...) to arrays [B, ...] whose rows don't depend on each other, so
# that each device computes its slice of the batch.
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
  def loss(
    self, params: Params, batch: types.Trajectory, key: Key, over_batch: OverBatch = lambda function: function
  ) -> tuple[types.Array, types.ModelOutput]:
    """The loss [] to minimise, e.g. the negative ELBO, and the states inferred on the way.

    Where parameters are used in a loop over time, `over_batch` has to be applied around it: else several devices would
    exchange their gradients in each of its steps.
    """

  def member_loss(
    self,
    theta: Params,
    output: types.ModelOutput,
    batch: types.Trajectory,
    key: Key,
    over_batch: OverBatch = lambda function: function,
  ) -> types.Array:
    """How badly other `imagination_params` fit the states that `loss` inferred: a loss for each sequence, [B].

    What `theta` expects of each next state, of its reward and so on is compared with what was inferred and recorded, so
    that it predicts from these states as well as the model that inferred them. Ensembles need this, and samples that
    are `models.sums.Sum`s; other posteriors don't.
    """
    raise NotImplementedError

  @abc.abstractmethod
  def initial_state(self, batch_size: int) -> types.Nest:
    """The state before the first observation, [batch_size, ...]."""

  @abc.abstractmethod
  def filter(
    self, params: Params, state: types.Nest, action: types.Array, observation: types.Observation, key: Key
  ) -> types.Nest:
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
  def log_likelihood(self, params: Params, features: types.Array, came: types.Trajectory) -> dict[str, types.Array]:
    """Log likelihoods [...], up to constants, of 'reward', of 'cost' (all C) and of parts of `came.observation`."""

  @abc.abstractmethod
  def draw_costs(self, params: Params, features: types.Array, factors: types.Array, key: Key) -> types.Array:
    """Costs [..., C] of states with `features` [..., F], drawn with `predict`'s expectation times `factors` [..., C].

    Where costs can't be as large as that, they are as large as they can be.
    """

  @abc.abstractmethod
  def imagination_params(self, params: Params) -> Params:
    """The part of `params` that `imagine_step`, `predict` and `draw_costs` need: what the posterior has to sample."""


class WorldModelFactory(Protocol):
  def __call__(
    self, observation_spec: Any, action_spec: Any, num_constraints: int, action_repeat: int
  ) -> WorldModel: ...


PosteriorState = TypeVar('PosteriorState')
# Maps parameters and a key to a loss [] and anything else that came out on the way.
ModelLoss = Callable[[Params, Key], tuple[types.Array, Any]]


class EnsembleLoss(abc.ABC):
  """A `ModelLoss` on a batch that can also train further models, in the latent space of the first one."""

  @abc.abstractmethod
  def __call__(self, params: Params, key: Key) -> tuple[types.Array, types.ModelOutput]:
    """See `WorldModel.loss`."""

  @abc.abstractmethod
  def of_member(self, theta: Params, output: types.ModelOutput, key: Key) -> types.Array:
    """See `WorldModel.member_loss`."""

  @property
  @abc.abstractmethod
  def episodes(self) -> types.Array | None:
    """The number of each sequence's episode, [B]; None if unknown."""


class Posterior(abc.ABC, Generic[PosteriorState]):
  """An approximate posterior p(theta | D), and the way in which it is learned."""

  needs_member_loss: bool = False  # Whether `update` takes an `EnsembleLoss`, rather than any `ModelLoss`.
  max_samples: int | None = None  # The most that `sample` can draw; None if there is no such limit.

  @abc.abstractmethod
  def init(self, key: Key, init_params: Callable[[Key], Params]) -> PosteriorState: ...

  @abc.abstractmethod
  def update(
    self, state: PosteriorState, loss: ModelLoss, key: Key
  ) -> tuple[PosteriorState, Any, dict[str, types.Array]]:
    """Takes one gradient step. Returns the new state, what `loss` returned beside the loss, and metrics."""

  @abc.abstractmethod
  def current(self, state: PosteriorState) -> Params:
    """One complete set of parameters, as they are trained: start states of imagination are inferred with it."""

  def mean(self, state: PosteriorState) -> Params:
    """One complete set of parameters in the posterior's centre."""
    return self.current(state)

  @abc.abstractmethod
  def sample(
    self, state: PosteriorState, key: Key, num_samples: int, scale: types.Array | float | None = None
  ) -> Params:
    """Draws N different sets of the selected parameters, stacked: leaves [N, ...].

    `scale` [] multiplies the posterior's own covariance, and may be traced: one key draws alike at all scales.
    """


class PosteriorFactory(Protocol):
  def __call__(self, select: Callable[[Params], Params]) -> Posterior:
    """`select` picks the part of all parameters that is to be sampled."""


WidthState = TypeVar('WidthState')


class Width(abc.ABC, Generic[WidthState]):
  """How wide the posterior is: a factor of its covariance."""

  scales: tuple[float, ...]  # K factors at which new episodes are scored.
  evidence: Sequence[str] = ()  # What `observe` needs of the log likelihood.

  @abc.abstractmethod
  def init(self) -> WidthState: ...

  @abc.abstractmethod
  def scale(self, state: WidthState) -> types.Array | None:
    """The factor, []; None leaves the posterior as it is."""

  @abc.abstractmethod
  def observe(self, state: WidthState, log_likelihood: Mapping[str, types.Array]) -> WidthState:
    """After an episode that no model has learned from: its log likelihood at each scale [K], by what is predicted."""


# Algorithm 1, line 7, for one start state: maps an estimate for each posterior sample, [N], to weights [N]. The bound
# is the weighted sum of the estimates, its gradient that of the sum with the weights held fixed. One-hot weights
# select a sample; 1/N takes the mean.
Bound = Callable[[types.Array], types.Array]

SolverState = TypeVar('SolverState')


class ConstraintSolver(abc.ABC, Generic[SolverState]):
  """Turns a constrained problem, max J s.t. J_i <= d_i, into max J - penalty. All arrays are [C]."""

  @abc.abstractmethod
  def init(self, num_constraints: int) -> SolverState: ...

  @abc.abstractmethod
  def penalty(self, state: SolverState, cost_values: types.Array, budgets: types.Array) -> types.Array:
    """What is subtracted from the objective, []. Differentiable in `cost_values`, the J_i."""

  @abc.abstractmethod
  def update(self, state: SolverState, cost_values: types.Array, budgets: types.Array) -> SolverState:
    """Takes one step of the multipliers."""

  @abc.abstractmethod
  def multipliers(self, state: SolverState) -> types.Array:
    """The weight of each constraint's gradient when its value equals its budget, [C]."""


FeedbackState = TypeVar('FeedbackState')


class Feedback(abc.ABC, Generic[FeedbackState]):
  """Corrects budgets by what real episodes of training cost. All arrays are [C]."""

  @abc.abstractmethod
  def init(self, num_constraints: int) -> FeedbackState: ...

  @abc.abstractmethod
  def shares(self, state: FeedbackState, num_constraints: int) -> types.Array:
    """Factors of the budgets."""

  @abc.abstractmethod
  def observe_update(
    self, state: FeedbackState, cost_values: types.Array, budgets: types.Array, multipliers: types.Array
  ) -> FeedbackState:
    """After an update: the cost values J_i that were imagined, and the corrected budgets."""

  @abc.abstractmethod
  def observe_episode(self, state: FeedbackState, cost_return: types.Array, limits: types.Array) -> FeedbackState:
    """After an episode of training."""


RecalibrationState = TypeVar('RecalibrationState')


class Recalibration(abc.ABC, Generic[RecalibrationState]):
  """Corrects the costs that models expect by what came on new episodes of training."""

  @abc.abstractmethod
  def init(self, horizon: int, num_constraints: int) -> RecalibrationState: ...

  @abc.abstractmethod
  def factors(self, state: RecalibrationState, horizon: int, num_constraints: int) -> types.Array:
    """Factors of the costs expected of each step ahead, [H, C]."""

  @abc.abstractmethod
  def observe(self, state: RecalibrationState, forecast: types.Array, came: types.Array) -> RecalibrationState:
    """After an episode: mean costs of each step ahead [H, C] that models expected of the policy, and that came.

    Without factors.
    """


# Converts the limits on episodes' costs into what discounted cost values are compared with, [C], given their discount.
Budget = Callable[[EnvironmentSpec, float], np.ndarray]


class Planner(abc.ABC):
  """Finds action sequences by imagining them. Holds settings, not arrays."""

  horizon: int  # H, agent steps of a plan.

  @abc.abstractmethod
  def initial_plan(self, num_actions: int) -> types.Array:
    """What to pass as the previous plan at the first step of an episode, [H, A]."""

  @abc.abstractmethod
  def plan(
    self, key: Key, params: Params, world_model: WorldModel, state: types.Nest, previous_plan: types.Array
  ) -> Any:
    """Plans from one state (no batch axis) under N stacked samples; a NamedTuple with `actions` [H, A]. Pure."""


class PlannerFactory(Protocol):
  def __call__(self, spec: EnvironmentSpec) -> Planner: ...


class AgentBuilder(abc.ABC):
  """Makes the parts of an agent for one environment, so that the experiment can wire them without knowing which."""

  def make_replay(self, environment_steps: int, seed: int) -> Any:
    """The store that the adder fills and the dataset reads in a run of this length; None if the agent keeps no data."""
    return None

  def make_adder(self, replay: Any, learner: Learner | None = None) -> Adder | None:
    """Where actors put what they see; `learner` is shown each episode before it enters the replay."""
    return None

  def make_dataset(self, replay: Any) -> Dataset | None:
    return None

  @abc.abstractmethod
  def make_learner(self, dataset: Dataset | None, seed: int) -> Learner: ...

  @abc.abstractmethod
  def make_actor_core(self, evaluation: bool) -> ActorCore:
    """How the agent acts: in training with noise, or as it is to be measured and used."""

  def make_predictor(self, variable_source: VariableSource, seed: int) -> types.Predictor | None:
    """Open-loop prediction with the present variables; None for an agent without a model of observations."""
    return None

  def make_cost_forecaster(self, variable_source: VariableSource, seed: int) -> types.CostForecaster | None:
    """Forecasts with the present variables; None for an agent that doesn't bound costs by models."""
    return None


class Agent(Protocol):
  """An agent's configuration: `LambdaAgent`, `OnPolicyAgent`, `RandomAgent`, or your own; see `agents.naming`."""

  def build(self, spec: EnvironmentSpec) -> AgentBuilder: ...


class Logger(abc.ABC):
  """Takes rows of scalars."""

  @abc.abstractmethod
  def write(self, kind: str, row: dict[str, Any]) -> None:
    """Writes one row. `kind` ('episode', 'evaluation', 'learner') says what it describes."""

  @abc.abstractmethod
  def close(self) -> None: ...
