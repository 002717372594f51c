"""Builds LAMBDA from components; what gin configures meets the agent here and goes no further."""

import dataclasses

import jax
import numpy as np

import gin
from lambda_kit import core
from lambda_kit import errors
from lambda_kit import ranges
from lambda_kit import types
from lambda_kit.agents import naming
from lambda_kit.agents.lambda_ import acting
from lambda_kit.agents.lambda_ import config as config_lib
from lambda_kit.agents.lambda_ import devices as devices_lib
from lambda_kit.agents.lambda_ import forecasting
from lambda_kit.agents.lambda_ import held_out
from lambda_kit.agents.lambda_ import learning
from lambda_kit.agents.lambda_ import networks as networks_lib
from lambda_kit.agents.lambda_ import objective as objective_lib
from lambda_kit.agents.lambda_ import policy_gradients
from lambda_kit.agents.lambda_ import precision as precision_lib
from lambda_kit.agents.lambda_ import prediction
from lambda_kit.agents.lambda_ import update
from lambda_kit.models import optimizers
from lambda_kit.replay import adder as adder_lib
from lambda_kit.replay import buffer as buffer_lib
from lambda_kit.replay import dataset as dataset_lib
from lambda_kit.replay import episodes
from lambda_kit.replay import offline

_NAMESAKES = (
  'posterior',
  'width',
  'solver',
  'feedback',
  'recalibration',
  'world_model',
)  # Parts after which variants are called, beside bounds and planner.


@gin.register
@ranges.checked
@dataclasses.dataclass(frozen=True)
class LambdaAgent(config_lib.LambdaConfig):
  """LAMBDA (algorithm 2)."""

  @property
  def display_name(self) -> str:
    """LAMBDA, or the planner that acts for it, with the parts that are not the paper's."""
    ours, papers = (naming.parts_of(config) for config in (self, config_lib.LambdaConfig()))
    swapped = [ours[role] for role in _NAMESAKES if ours[role] != papers[role]]
    bounds = [parts[role] for parts in (ours, papers) for role in ('reward_bound', 'cost_bound')]
    if bounds[:2] == ['MeanBound', 'MeanBound']:
      swapped.append('greedy')
    elif bounds[:2] != bounds[2:]:
      swapped.append('/'.join(bounds[:2]))
    name = ours.get('planner', 'LAMBDA')
    return f'{name} ({", ".join(swapped)})' if swapped else name

  def build(self, spec: core.EnvironmentSpec) -> 'LambdaBuilder':
    return LambdaBuilder(self, spec)


class LambdaBuilder(core.AgentBuilder):
  """Makes the parts of LAMBDA for one environment."""

  def __init__(self, config: config_lib.LambdaConfig, spec: core.EnvironmentSpec):
    self._config = config
    self._spec = spec
    self._devices = devices_lib.Devices(config.num_devices)
    self._devices.check('LambdaAgent.batch_size', config.batch_size)
    self._devices.check('LambdaAgent.num_start_states', config.num_start_states or 0)
    networks = networks_lib.make_networks(
      spec, config.world_model_factory, config.policy_factory, config.critic_factory, config.cost_critic_factory
    )
    self._networks = precision_lib.apply_policy(networks, precision_lib.get_policy(config.precision))
    self._planner = None if config.planner_factory is None else config.planner_factory(spec=spec)

  def make_replay(self, environment_steps: int, seed: int) -> buffer_lib.EpisodeBuffer:
    header = episodes.Header.of(self._spec)
    replay = self._config.replay_factory(header=header, seed=seed)
    replay.check_episodes(self._spec.episode_length)
    replay.warn_if_short(environment_steps, self._spec.episode_length)
    if self._config.offline_data is not None:
      try:
        for episode in offline.load_dataset(self._config.offline_data, header):
          replay.add(episode)
      except (OSError, episodes.EpisodeFileError) as error:
        raise errors.SetupError(f'LambdaAgent.offline_data = {self._config.offline_data!r}: {error}') from error
    return replay

  def make_adder(self, replay: buffer_lib.EpisodeBuffer, learner: core.Learner | None = None) -> adder_lib.EpisodeAdder:
    return (
      adder_lib.EpisodeAdder(replay) if learner is None else adder_lib.EpisodeAdder(replay, learner.observe_episode)
    )

  def make_dataset(self, replay: buffer_lib.EpisodeBuffer) -> dataset_lib.ReplayDataset:
    count, available = self._config.num_start_states or 0, self._config.batch_size * replay.sequence_length
    if count > available:
      raise errors.SetupError(
        f'LambdaAgent.num_start_states = {count} is more than the {available} states of a batch: '
        'lower it, or raise LambdaAgent.batch_size or EpisodeBuffer.sequence_length.'
      )
    return dataset_lib.ReplayDataset(replay, self._config.batch_size, device=self._devices.batch_sharding)

  def make_learner(self, dataset: core.Dataset | None, seed: int) -> learning.LambdaLearner:
    assert dataset is not None  # There is one wherever there is a replay.
    config = self._config
    if config.constrain_recent and not dataset.num_recent:
      raise errors.SetupError(
        'LambdaAgent.constrain_recent needs sequences of the latest episodes in each batch: raise '
        'EpisodeBuffer.recent_share, or turn it off.'
      )
    posterior = config.posterior_factory(select=self._networks.world_model.imagination_params)
    _check_members(posterior, self._networks.world_model)
    _check_samples(posterior, config.num_samples)
    _check_evidence(config.width, self._spec)
    return learning.LambdaLearner(
      networks=self._networks,
      posterior=posterior,
      width=config.width,
      objective=objective_lib.Objective(
        reward_bound=config.reward_bound,
        cost_bound=config.cost_bound,
        solver=config.solver,
        budgets=np.asarray(config.budget(self._spec, config.cost_discount), np.float32),
        feedback=config.feedback,
        recalibration=config.recalibration,
        discount=config.discount,
        cost_discount=config.cost_discount,
        lambda_=config.lambda_,
        horizon=config.horizon,
        entropy_scale=config.entropy_scale,
        bounded_critics=config.bounded_critics,
      ),
      policy_gradient=config.policy_gradient or policy_gradients.default_gradient(config.num_samples),
      optimizers=update.Optimizers(
        policy=optimizers.make_adam(config.policy_learning_rate, config.policy_clip),
        critic=optimizers.make_adam(config.critic_learning_rate, config.critic_clip),
        cost_critics=optimizers.make_adam(config.cost_critic_learning_rate, config.cost_critic_clip),
      ),
      target_update=config.target_update,
      num_samples=config.num_samples,
      num_reward_samples=config.num_reward_samples,
      policy_acts=self._planner is None,
      shared_noise=config.shared_noise,
      filter_with_mean=config.filter_with_mean,
      num_start_states=config.num_start_states,
      num_constrained=dataset.num_recent if config.constrain_recent else None,
      model_only_updates=config.model_only_updates,
      updates_per_call=config.updates_per_call,
      max_skips=config.max_skips,
      dataset=dataset,
      devices=self._devices,
      key=jax.random.PRNGKey(seed),
    )

  def make_actor_core(self, evaluation: bool) -> core.ActorCore:
    return acting.make_actor_core(self._networks, evaluation, self._planner, self._config.warm_up)

  def make_predictor(self, variable_source: core.VariableSource, seed: int) -> types.Predictor:
    (filtering,) = variable_source.get_variables(('belief',))
    return prediction.make_predictor(self._networks.world_model, filtering, jax.random.PRNGKey(seed))

  def make_cost_forecaster(self, variable_source: core.VariableSource, seed: int) -> types.CostForecaster:
    if self._planner is not None:
      raise errors.SetupError('Bounds on costs are those of the policy, and this agent acts by a planner.')
    filtering, policy, samples, cost_factors = variable_source.get_variables(
      ('belief', 'policy', 'samples', 'cost_factors')
    )
    return forecasting.make_forecaster(
      self._networks,
      self._config.cost_bound,
      self._config.horizon,
      filtering,
      policy,
      samples,
      cost_factors,
      jax.random.PRNGKey(seed),
    )


def _check_members(posterior: core.Posterior, world_model: core.WorldModel) -> None:
  if posterior.needs_member_loss and type(world_model).member_loss is core.WorldModel.member_loss:
    raise errors.SetupError(
      f'LambdaAgent.posterior_factory = @{type(posterior).__name__} trains members in the latent space of one model, '
      f'and {type(world_model).__name__} has no member_loss (core.WorldModel). Write it, or choose another posterior.'
    )


def _check_samples(posterior: core.Posterior, num_samples: int) -> None:
  if posterior.max_samples is not None and num_samples > posterior.max_samples:
    name = type(posterior).__name__
    raise errors.SetupError(
      f'LambdaAgent.num_samples = {num_samples} is more than the {posterior.max_samples} models that {name} learns: '
      f'lower it, or raise {name}.num_members.'
    )


def _check_evidence(width: core.Width, spec: core.EnvironmentSpec) -> None:
  known = ('cost', 'reward', *held_out.scored_parts(spec.observations))
  if unknown := [name for name in width.evidence if name not in known]:
    raise errors.SetupError(
      f'{type(width).__name__}.evidence = {tuple(width.evidence)} names {unknown}, and episodes are scored by {known}: '
      'choose among these.'
    )
