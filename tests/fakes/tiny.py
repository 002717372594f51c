"""LAMBDA at tiny size on the built-in CMDP, for the tests of agents."""

import functools

import numpy as np

from lambda_kit.agents import actor as actor_lib
from lambda_kit.agents.lambda_ import builder as builder_lib
from lambda_kit.environments import factory
from lambda_kit.environments import grid_cmdp
from lambda_kit.environments import spec as spec_lib
from lambda_kit.models import decoders
from lambda_kit.models import encoders
from lambda_kit.models import heads
from lambda_kit.models import world_model
from lambda_kit.policies import critic
from lambda_kit.policies import squashed_gaussian
from lambda_kit.posteriors import swag
from lambda_kit.replay import buffer

_SIZES = (8, 8)


def make_environment(num_constraints=1, seed=0, episode_length=12):
  """The built-in CMDP with short episodes."""
  simulator = functools.partial(grid_cmdp.GridCmdp, episode_length=episode_length, num_constraints=num_constraints)
  return factory.make_environment(seed=seed, simulator=simulator, action_repeat=1)


def make_agent(decoded_steps=None, overshooting_steps=0, **options):
  """LAMBDA with the smallest networks; `options` are arguments of `LambdaAgent`."""
  model = functools.partial(
    world_model.RecurrentWorldModel,
    stochastic_size=3,
    deterministic_size=8,
    hidden_size=8,
    decoded_steps=decoded_steps,
    overshooting_steps=overshooting_steps,
    encoder_factory=functools.partial(
      encoders.ObservationEncoder, vector_factory=functools.partial(encoders.VectorEncoder, hidden_sizes=_SIZES)
    ),
    decoder_factory=functools.partial(
      decoders.ObservationDecoder, vector_factory=functools.partial(decoders.VectorDecoder, hidden_sizes=_SIZES)
    ),
    reward_factory=functools.partial(heads.NormalHead, hidden_sizes=_SIZES),
    cost_factory=functools.partial(heads.BernoulliCost, hidden_sizes=_SIZES),
    terminal_factory=functools.partial(heads.BernoulliHead, hidden_sizes=_SIZES),
  )
  arguments = dict(
    world_model_factory=model,
    posterior_factory=functools.partial(swag.Swag, burn_in=1, period=1, num_models=2),
    policy_factory=functools.partial(squashed_gaussian.SquashedGaussianPolicy, hidden_sizes=_SIZES),
    critic_factory=functools.partial(critic.Critic, hidden_sizes=_SIZES),
    cost_critic_factory=functools.partial(critic.Critic, hidden_sizes=_SIZES),
    replay_factory=functools.partial(buffer.EpisodeBuffer, sequence_length=5),
    batch_size=4,
    num_samples=3,
    horizon=3,
    model_only_updates=0,
  )
  return builder_lib.LambdaAgent(**{**arguments, **options})


class Parts:
  """An agent with two random episodes in its replay."""

  def __init__(self, num_constraints=1, cost_limit=1.0, **options):
    self.environment = make_environment(num_constraints)
    self.spec = spec_lib.make_spec(self.environment, cost_limit)
    self.builder = make_agent(**options).build(self.spec)
    self.replay = self.builder.make_replay(environment_steps=100, seed=0)
    self.adder = self.builder.make_adder(self.replay)
    self.learner = self.builder.make_learner(self.builder.make_dataset(self.replay), seed=1)
    self.actor = self.make_actor(seed=2, evaluation=False, adder=self.adder)
    for _ in range(2):
      self.play()

  def make_actor(self, seed, evaluation, adder=None):
    return actor_lib.Actor(self.builder.make_actor_core(evaluation), self.learner, seed, adder)

  def play(self):
    """Lets the actor play an episode; returns its actions."""
    actions = []
    timestep = self.environment.reset()
    self.actor.observe_first(timestep)
    while not timestep.last():
      actions.append(self.actor.select_action(timestep.observation))
      timestep = self.environment.step(actions[-1])
      self.actor.observe(actions[-1], timestep)
    return np.array(actions)
