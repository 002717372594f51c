"""The settings of LAMBDA. Their comments are the documentation of what gin binds as `LambdaAgent.<name>`."""

from collections.abc import Callable
import dataclasses
from typing import Any

from lambda_kit import core
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit.agents.lambda_ import policy_gradients
from lambda_kit.agents.lambda_ import precision as precision_lib
from lambda_kit.models import world_model
from lambda_kit.policies import critic
from lambda_kit.policies import squashed_gaussian
from lambda_kit.policies import targets
from lambda_kit.policies import warm_up
from lambda_kit.posteriors import swag
from lambda_kit.posteriors import width
from lambda_kit.replay import buffer
from lambda_kit.safety import augmented_lagrangian
from lambda_kit.safety import bounds
from lambda_kit.safety import budgets
from lambda_kit.safety import feedback
from lambda_kit.safety import recalibration


@dataclasses.dataclass(frozen=True)
class LambdaConfig:
  """Defaults are the paper's."""

  # The parts.
  world_model_factory: core.WorldModelFactory = world_model.RecurrentWorldModel  # p(s' | s, a, theta), and heads.
  posterior_factory: core.PosteriorFactory = swag.Swag  # p(theta | D).
  width: core.Width = width.FixedWidth()  # Of the posterior.
  reward_bound: core.Bound = bounds.UpperBound()  # Over the N posterior samples, for each start state.
  cost_bound: core.Bound = bounds.UpperBound()  # Likewise, for each cost independently.
  solver: core.ConstraintSolver = augmented_lagrangian.AugmentedLagrangian()  # Of the constrained problem.
  budget: core.Budget = budgets.raw_budget  # From limits of episodes to what discounted values are compared with.
  feedback: core.Feedback = feedback.NoFeedback()  # Of real costs to these budgets.
  recalibration: core.Recalibration = recalibration.NoRecalibration()  # Of the costs that models expect.
  policy_factory: Callable[..., Any] = squashed_gaussian.SquashedGaussianPolicy  # A Haiku module.
  critic_factory: Callable[..., Any] = critic.Critic  # A Haiku module, of rewards.
  cost_critic_factory: Callable[..., Any] = critic.Critic  # A Haiku module, of each cost.
  target_update: targets.TargetUpdate = targets.PeriodicTarget()  # How target critics follow.
  replay_factory: Callable[..., Any] = buffer.EpisodeBuffer  # Makes the store of episodes.
  planner_factory: core.PlannerFactory | None = None  # Makes a planner that acts instead of the policy.
  warm_up: core.WarmUp = warm_up.uniform_actions  # Acts until the first update.
  # Folder of episodes with which the replay begins (algorithm 2, line 1): the `replay` folder of another run's workdir,
  # or what `save_dataset` wrote. It has to stay where it is for as long as the run may be resumed or evaluated.
  offline_data: str | None = None

  # The data of an update.
  batch_size: ranges.Count = 32  # B
  num_samples: ranges.Count = 5  # N
  # The first so many of the N samples keep the posterior's own width, and rewards are bounded over these alone: weights
  # wide enough to be honest about costs spoil imagined rewards. None treats all alike.
  num_reward_samples: ranges.Count | None = None
  # Whether the N models imagine with the same noise. They then differ by their weights alone; in the paper, each
  # trajectory has noise of its own, and bounds also select on that.
  shared_noise: bool = False
  # Whether actors infer states with the posterior's mean. The authors infer with the weights in training, as the start
  # states of imagination are.
  filter_with_mean: bool = False
  num_start_states: ranges.Count | None = (
    None  # Imagination starts from as many states of a batch; None is all of them.
  )
  # Whether budgets are for the costs imagined from the latest episodes alone (`EpisodeBuffer.recent_share` of a batch).
  # A limit is on what the current policy does, and states of a long past are not where it goes. All start states teach
  # the policy in either case.
  constrain_recent: bool = False
  # Whether critics learn the values that bounds select, as in algorithm 1. A bound over H steps then continues with
  # bounds, and the selection adds up over the horizon of the discount: critics of the samples' values overestimate more
  # the more the samples scatter. Otherwise critics learn the value under any sample, and bounds are over H steps alone.
  bounded_critics: bool = True
  horizon: ranges.Count = 15  # H

  # The objective.
  discount: ranges.Discount = 0.99  # Of rewards, for one agent step.
  cost_discount: ranges.Discount = 0.995  # Of costs.
  lambda_: ranges.Share = 0.95  # Of V_lambda.
  entropy_scale: ranges.NotNegative = 0.0  # Weight of an entropy bonus; the paper has none.

  # Adam's learning rates, and the largest global norms of gradients.
  policy_learning_rate: ranges.Positive = 8e-5
  critic_learning_rate: ranges.Positive = 8e-5
  cost_critic_learning_rate: ranges.Positive = 2e-4
  policy_clip: ranges.PositiveOrInfinite = 5.0
  critic_clip: ranges.PositiveOrInfinite = 1.0
  cost_critic_clip: ranges.PositiveOrInfinite = 50.0
  # How the policy's gradient is computed: `SelectedGradient`, with little memory, or `WholeGradient`. None takes the
  # one with fewer operations: with two samples or one nearly all trajectories count anyway.
  policy_gradient: policy_gradients.PolicyGradient | None = None

  # The run.
  model_only_updates: ranges.Whole = (
    100  # During the first so many updates only the model learns, as in the authors' code.
  )
  updates_per_call: ranges.Count = 10  # Updates between two returns to Python, where as many are due.
  max_skips: ranges.Whole = 50  # Non-finite gradients in a row before the run is stopped.
  # What layers compute in, as `jmp.get_policy` reads it: 'float32', or
  # 'params=float32,compute=bfloat16,output=float32'.
  precision: str = 'float32'
  # GPUs that learn together, each from its part of a batch and of its start states; None takes all of them, those of
  # other hosts included. B and the number of start states have to be multiples of it.
  num_devices: ranges.Count | None = 1

  def __post_init__(self):
    if self.num_reward_samples is not None and self.num_reward_samples > self.num_samples:
      raise errors.SetupError(
        f'LambdaAgent.num_reward_samples = {self.num_reward_samples} must be None, or at most '
        f'LambdaAgent.num_samples = {self.num_samples}: rewards are bounded over so many of the samples.'
      )
    precision_lib.get_policy(self.precision)  # Refuses what the agent can't be trained with.
