"""The paper's three metrics as pure functions (section 5.1), and the summary of an episode that they need.

return       J(pi)      mean over E evaluation episodes of the undiscounted sum of rewards
cost return  J_c(pi)    mean over E evaluation episodes of the undiscounted sum of costs
cost regret  rho_c(pi)  sum of all costs of training, divided by the environment steps of training
"""

from collections.abc import Sequence

import numpy as np

from lambda_kit import types


def summarize_episode(rewards: types.Array, costs: types.Array, environment_steps: int) -> types.EpisodeSummary:
  """Sums `rewards` [T] and `costs` [T, C] over the agent steps of an episode."""
  rewards, costs = np.asarray(rewards, np.float64), np.asarray(costs, np.float64)
  if rewards.ndim != 1 or costs.ndim != 2 or len(rewards) != len(costs):
    raise ValueError(f'Expected rewards [T] and costs [T, C], got {rewards.shape} and {costs.shape}.')
  return types.EpisodeSummary(float(rewards.sum()), costs.sum(axis=0), len(rewards), environment_steps)


def average_return(episodes: Sequence[types.EpisodeSummary]) -> float:
  """J(pi) of E episodes."""
  return float(np.mean([episode.episode_return for episode in episodes]))


def average_cost_return(episodes: Sequence[types.EpisodeSummary]) -> np.ndarray:
  """J_c(pi) of E episodes, [C]."""
  return np.mean([episode.cost_return for episode in episodes], axis=0)


def cost_regret(total_cost: np.ndarray, environment_steps: int) -> np.ndarray:
  """rho_c(pi), [C]: summed costs of training [C], divided by the environment steps so far."""
  total_cost = np.asarray(total_cost, np.float64)
  return total_cost / environment_steps if environment_steps else np.zeros_like(total_cost)
