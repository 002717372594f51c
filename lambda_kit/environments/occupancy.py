"""Finite constrained MDPs, and their exact optimum by linear programming over occupation measures.

The best policy of a constrained MDP over T steps solves a linear program in x[t, s, m], the probability of being in
state s at step t and taking action m (Altman, Constrained Markov Decision Processes, 1999):

  maximise    sum_tsm x[t, s, m] r[s, m]
  subject to  sum_m x[0, s, m] = initial[s]
              sum_m x[t, s', m] = sum_sm x[t - 1, s, m] p[s' | s, m]       for t = 1, ..., T - 1
              sum_tsm x[t, s, m] c[s, m, i] <= limits[i]                    for i = 1, ..., C
              x >= 0

Legend, beyond that of `types.py`: S states, M actions (finitely many, so not the A action dimensions).
"""

from typing import NamedTuple, Sequence

import chex
import numpy as np
from scipy import optimize
from scipy import sparse


class FiniteCmdp(NamedTuple):
  """A constrained MDP with finitely many states and actions, undiscounted, over a fixed number of steps."""
  transitions: np.ndarray  # [S, M, S], p[s' | s, m].
  rewards: np.ndarray  # [S, M], expected over s'.
  costs: np.ndarray  # [S, M, C], expected over s'.
  initial: np.ndarray  # [S], distribution of the first state.
  horizon: int  # T


class Value(NamedTuple):
  """Expected undiscounted sums over one episode."""
  value: float  # Of rewards.
  cost_values: np.ndarray  # [C], of costs.


class Solution(NamedTuple):
  """An optimal policy and what it attains."""
  value: float
  cost_values: np.ndarray  # [C]
  policy: np.ndarray  # [T, S, M] probabilities of actions, or [S, M] if stationary.
  multipliers: np.ndarray  # [C], d value / d limits: 0 where a limit doesn't bind.


class InfeasibleError(ValueError):
  """No policy keeps all costs within the limits."""


def uniform_policy(cmdp: FiniteCmdp) -> np.ndarray:
  """The stationary policy [S, M] that takes all actions with the same probability."""
  num_states, num_actions = cmdp.rewards.shape
  return np.full((num_states, num_actions), 1.0 / num_actions)


def evaluate(cmdp: FiniteCmdp, policy: np.ndarray) -> Value:
  """Exact value and costs of a policy, by propagating the distribution of states forward.

  Args:
    cmdp: the constrained MDP.
    policy: probabilities of actions, [T, S, M], or [S, M] if the policy is stationary.

  Returns:
    The expected sums of rewards and of costs over T steps.
  """
  _check(cmdp)
  policy = np.broadcast_to(policy, (cmdp.horizon,) + cmdp.rewards.shape)
  value, cost_values = 0.0, np.zeros(cmdp.costs.shape[-1])
  states = cmdp.initial
  for pi_t in policy:
    x_t = states[:, None] * pi_t
    value += np.sum(x_t * cmdp.rewards)
    cost_values += np.einsum('sm,smc->c', x_t, cmdp.costs)
    states = np.einsum('sm,smn->n', x_t, cmdp.transitions)
  return Value(float(value), cost_values)


def solve(cmdp: FiniteCmdp, limits: Sequence[float] | None = None) -> Solution:
  """Solves the linear program at the head of this file.

  Args:
    cmdp: the constrained MDP.
    limits: [C] largest expected sums of costs over an episode, or None for the unconstrained optimum.

  Returns:
    The optimum, with a policy that depends on time. Where the policy never comes, its actions are uniform.

  Raises:
    InfeasibleError: if no policy keeps within the limits.
  """
  _check(cmdp)
  num_states, num_actions = cmdp.rewards.shape
  pairs, steps = num_states * num_actions, cmdp.horizon
  # Rows of the flow: what leaves each state at t, less what entered it from t - 1.
  leave = sparse.kron(sparse.eye(num_states), np.ones((1, num_actions)))
  enter = sparse.csr_matrix(cmdp.transitions.reshape(pairs, num_states).T)
  flow = sparse.kron(sparse.eye(steps), leave) - sparse.kron(sparse.eye(steps, k=-1), enter)
  sources = np.concatenate([cmdp.initial, np.zeros((steps - 1) * num_states)])
  rewards = np.tile(cmdp.rewards.reshape(pairs), steps)
  costs = np.tile(cmdp.costs.reshape(pairs, -1), (steps, 1))
  occupancy, multipliers = _linear_program(rewards, costs, flow, sources, limits)
  policy = _conditional(occupancy.reshape(steps, num_states, num_actions))
  value, cost_values = rewards @ occupancy, occupancy @ costs
  return Solution(float(value), cost_values, policy, multipliers)


def solve_stationary(cmdp: FiniteCmdp, limits: Sequence[float] | None = None) -> Solution:
  _check(cmdp)
  num_states, num_actions = cmdp.rewards.shape
  pairs = num_states * num_actions
  leave = sparse.kron(sparse.eye(num_states), np.ones((1, num_actions)))
  enter = sparse.csr_matrix(cmdp.transitions.reshape(pairs, num_states).T)
  flow = sparse.vstack([leave - enter, np.ones((1, pairs))])
  sources = np.concatenate([np.zeros(num_states), [cmdp.horizon]])
  occupancy, multipliers = _linear_program(
      cmdp.rewards.reshape(pairs), cmdp.costs.reshape(pairs, -1), flow, sources, limits)
  policy = _conditional(occupancy.reshape(num_states, num_actions))
  return Solution(*evaluate(cmdp, policy), policy, multipliers)


def _linear_program(rewards: np.ndarray, costs: np.ndarray, flow: sparse.spmatrix, sources: np.ndarray,
                    limits: Sequence[float] | None) -> tuple[np.ndarray, np.ndarray]:
  """Maximises rewards @ x over x >= 0 with flow @ x = sources and x @ costs <= limits; returns x and multipliers."""
  num_constraints = costs.shape[-1]
  bounds = {}
  if limits is not None:
    limits = np.asarray(limits, float)
    chex.assert_shape(limits, (num_constraints,))
    bounds = dict(A_ub=costs.T, b_ub=limits)
  # SciPy minimises, hence the signs of the rewards and of the marginals.
  result = optimize.linprog(-rewards, A_eq=flow, b_eq=sources, method='highs', **bounds)
  if result.status == 2:
    raise InfeasibleError(f'No policy keeps the expected costs within the limits {limits}.')
  if not result.success:
    raise RuntimeError(f'The linear program was not solved: {result.message}')
  multipliers = np.zeros(num_constraints) if limits is None else np.maximum(-result.ineqlin.marginals, 0.0)
  return np.maximum(result.x, 0.0), multipliers


def _conditional(occupancy: np.ndarray) -> np.ndarray:
  """p(m | s) of occupation measures [..., S, M]; uniform where s is never visited."""
  visits = occupancy.sum(-1, keepdims=True)
  uniform = np.full_like(occupancy, 1.0 / occupancy.shape[-1])
  return np.divide(occupancy, visits, out=uniform, where=visits > 1e-12)


def _check(cmdp: FiniteCmdp) -> None:
  chex.assert_rank([cmdp.rewards, cmdp.costs, cmdp.initial], [2, 3, 1])
  num_states, num_actions = cmdp.rewards.shape
  chex.assert_shape(cmdp.transitions, (num_states, num_actions, num_states))
  chex.assert_shape(cmdp.costs, (num_states, num_actions, None))
  chex.assert_shape(cmdp.initial, (num_states,))
  for name in ('transitions', 'initial'):
    probabilities = getattr(cmdp, name)
    if np.min(probabilities) < 0.0 or not np.allclose(probabilities.sum(-1), 1.0):
      raise ValueError(f'{name} must be probabilities that sum to 1.')
