"""Finite constrained MDPs, and their exact optimum by linear programming over occupation measures.

The best policy of a constrained MDP over T steps solves a linear program in x[t, s, m], the probability of being in
state s at step t and taking action m (Altman, Constrained Markov Decision Processes, 1999):

  maximise    sum_tsm x[t, s, m] r[s, m]
  subject to  sum_m x[0, s, m] = initial[s]
              sum_m x[t, s', m] = sum_sm x[t - 1, s, m] p[s' | s, m]        for t = 1, ..., T - 1
              sum_tsm x[t, s, m] c[s, m, i] <= limits[i]                     for i = 1, ..., C
              x >= 0

Solved directly, T = 100 steps in a room of 48 cells take half a minute. Only the C limits couple the steps, so we use
the Dantzig-Wolfe decomposition: a feasible x is a mixture of the measures of deterministic policies. A small program
finds the best mixture of the policies found so far; its multipliers price the costs; and backward induction finds the
best policy for the priced rewards, which joins the mixture. This ends when no policy improves the mixture.

Legend, beyond that of `types.py`: S states, M actions (finitely many, hence not A), K policies of a mixture.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

# The value that `solve` returns is at most this far below the optimum, up to rounding errors.
TOLERANCE = 1e-7
_SOLVER_OPTIONS = {'primal_feasibility_tolerance': 1e-9, 'dual_feasibility_tolerance': 1e-9}
# SciPy is imported inside functions: it is slow to import, and most runs solve no linear program.


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
  """An optimal policy and its value."""

  value: float
  cost_values: np.ndarray  # [C]
  policy: np.ndarray  # [T, S, M] probabilities of actions; [S, M] if stationary.
  multipliers: np.ndarray  # [C], d value / d limits: 0 where a limit doesn't bind.


class InfeasibleError(ValueError):
  """No policy keeps all costs within the limits."""


def evaluate(cmdp: FiniteCmdp, policy: np.ndarray) -> Value:
  """Returns the exact value and costs of a policy, [T, S, M], or [S, M] if it is stationary."""
  _check(cmdp)
  _check_probabilities('policy', policy)
  return _value(cmdp, occupation_measure(cmdp, policy))


def occupation_measure(cmdp: FiniteCmdp, policy: np.ndarray) -> np.ndarray:
  """Propagates the distribution of states forward: x[t, s, m] = p(s_t = s) policy[t, s, m], of shape [T, S, M]."""
  policy = np.broadcast_to(policy, (cmdp.horizon,) + cmdp.rewards.shape)
  kernel = cmdp.transitions.reshape(-1, cmdp.initial.size)
  x = np.empty(policy.shape)
  p_t = cmdp.initial
  for t in range(cmdp.horizon):
    x[t] = p_t[:, None] * policy[t]
    p_t = x[t].reshape(-1) @ kernel
  return x


def solve(cmdp: FiniteCmdp, limits: Sequence[float] | None = None) -> Solution:
  """Returns the best of all policies, time-dependent ones included, by the linear program at the top of this file.

  Args:
    cmdp: The constrained MDP.
    limits: [C], largest expected sums of costs over an episode; None for the unconstrained optimum.

  Returns:
    The optimum. Its actions are uniform in states that it never visits.

  Raises:
    InfeasibleError: No policy stays within the limits.
  """
  _check(cmdp)
  x = occupation_measure(cmdp, _greedy_policy(cmdp, cmdp.rewards))
  if limits is None:
    return Solution(*_value(cmdp, x), _conditional(x), np.zeros(cmdp.costs.shape[-1]))
  ceilings = np.asarray(limits, float)
  _check_shape(ceilings, cmdp.costs.shape[-1:])
  measures = [x]
  excess: float | None = None
  # First with zero rewards, to find a mixture within the limits; then with the rewards, to find the best one.
  for objective in (np.zeros_like(cmdp.rewards), cmdp.rewards):
    max_excess = excess
    while True:
      weights, excess, bound, multipliers = _best_mixture(cmdp, objective, np.stack(measures), ceilings, max_excess)
      priced = objective - cmdp.costs @ multipliers
      x = occupation_measure(cmdp, _greedy_policy(cmdp, priced))
      # A policy that is already in the mixture improves it by rounding errors only.
      if np.sum(x * priced) <= bound + TOLERANCE or any(np.array_equal(x, known) for known in measures):
        break
      measures.append(x)
    if excess > TOLERANCE:
      raise InfeasibleError(
        f'No policy keeps the expected costs of an episode within {ceilings}: '
        f'one of them exceeds its limit by {excess:.3g} at least.'
      )
  x = np.einsum('k,ktsm->tsm', weights, np.stack(measures))
  return Solution(*_value(cmdp, x), _conditional(x), multipliers)


def solve_stationary(cmdp: FiniteCmdp, limits: Sequence[float] | None = None, max_rounds: int = 20) -> Solution:
  """Returns a good stationary policy, the kind that agents without a clock can learn.

  Finding the best stationary policy over T steps is not a linear program. With a discount of 1 - 1/T it is one, in
  x[s, m], and we evaluate its policy exactly over T steps. The program's limits are shifted until the costs over T
  steps stay within the true ones. So the value is attained, and is a lower bound on the best stationary policy's.

  Args:
    cmdp: The constrained MDP.
    limits: [C], largest expected sums of costs over an episode; None for no limits.
    max_rounds: How often the limits may be shifted.

  Returns:
    The policy [S, M], its exact value and costs over T steps, and the multipliers of the discounted program.

  Raises:
    InfeasibleError: No policy within the limits was found.
  """
  from scipy import sparse

  _check(cmdp)
  num_states, num_actions = cmdp.rewards.shape
  pairs = num_states * num_actions
  discount = 1.0 - 1.0 / cmdp.horizon
  leave = sparse.kron(sparse.eye(num_states), np.ones((1, num_actions)))
  enter = sparse.csr_matrix(cmdp.transitions.reshape(pairs, num_states).T)
  # No limits: those that no policy can exceed.
  ceilings = np.asarray(cmdp.horizon * cmdp.costs.max((0, 1)) if limits is None else limits, float)
  _check_shape(ceilings, cmdp.costs.shape[-1:])
  shifted = ceilings
  for _ in range(max_rounds):
    # The measure sums to T, since (1 - discount) T = 1 enters through the initial states.
    result = _linear_program(
      -cmdp.rewards.reshape(pairs),
      A_ub=cmdp.costs.reshape(pairs, -1).T,
      b_ub=shifted,
      A_eq=leave - discount * enter,
      b_eq=cmdp.initial,
    )
    if not result.success:
      break
    policy = _conditional(np.maximum(result.x, 0.0).reshape(num_states, num_actions))
    value, cost_values = evaluate(cmdp, policy)
    excess = cost_values - ceilings
    multipliers = np.maximum(-result.ineqlin.marginals, 0.0)
    if np.all(excess <= 1e-6) and np.all((excess >= -1e-6) | (multipliers == 0.0)):
      return Solution(value, cost_values, policy, multipliers)
    shifted = shifted - excess
  raise InfeasibleError(f'Found no stationary policy with expected costs of an episode within {ceilings}.')


def _best_mixture(
  cmdp: FiniteCmdp, objective: np.ndarray, measures: np.ndarray, limits: np.ndarray, max_excess: float | None
) -> tuple[np.ndarray, float, float, np.ndarray]:
  """Mixes measures [K, T, S, M] to maximise the sum of `objective` [S, M], minus the excess over the limits [C].

  Returns:
    The weights [K], the excess, the value of the Lagrangian that a new measure must exceed to improve the mixture,
    and the multipliers [C].
  """
  num_measures = len(measures)
  values = np.einsum('ktsm,sm->k', measures, objective)
  costs = np.einsum('ktsm,smc->kc', measures, cmdp.costs)
  # The variables are the weights and the excess. SciPy minimises, hence the signs of values and marginals.
  result = _linear_program(
    np.append(-values, 1.0),
    A_ub=np.column_stack([costs.T, -np.ones(len(limits))]),
    b_ub=limits,
    A_eq=np.append(np.ones(num_measures), 0.0)[None],
    b_eq=[1.0],
    bounds=[(0.0, None)] * num_measures + [(0.0, max_excess)],
  )
  if not result.success:
    raise RuntimeError(f'The linear program was not solved: {result.message}')
  multipliers = np.maximum(-result.ineqlin.marginals, 0.0)
  return result.x[:-1], result.x[-1], -result.eqlin.marginals[0], multipliers


def _linear_program(objective: np.ndarray, **constraints: Any) -> Any:
  """SciPy's `linprog`, with our tolerances."""
  from scipy import optimize

  return optimize.linprog(objective, options=_SOLVER_OPTIONS, **constraints)


def _greedy_policy(cmdp: FiniteCmdp, rewards: np.ndarray) -> np.ndarray:
  """The best policy [T, S, M] for rewards [S, M] without limits, by backward induction."""
  actions = np.empty((cmdp.horizon, rewards.shape[0]), int)
  v_t = np.zeros(rewards.shape[0])
  for t in reversed(range(cmdp.horizon)):
    q_t = rewards + cmdp.transitions @ v_t
    actions[t], v_t = q_t.argmax(-1), q_t.max(-1)
  return np.eye(rewards.shape[1])[actions]


def _value(cmdp: FiniteCmdp, x: np.ndarray) -> Value:
  return Value(float(np.einsum('tsm,sm->', x, cmdp.rewards)), np.einsum('tsm,smc->c', x, cmdp.costs))


def _conditional(x: np.ndarray) -> np.ndarray:
  """p(m | s) of occupation measures [..., S, M]; uniform where s is never visited."""
  visits = x.sum(-1, keepdims=True)
  return np.divide(x, visits, out=np.full_like(x, 1.0 / x.shape[-1]), where=visits > 1e-12)


def _check(cmdp: FiniteCmdp) -> None:
  num_states, num_actions = cmdp.rewards.shape
  _check_shape(cmdp.transitions, (num_states, num_actions, num_states))
  _check_shape(cmdp.costs, (num_states, num_actions, None))
  _check_shape(cmdp.initial, (num_states,))
  _check_probabilities('transitions', cmdp.transitions)
  _check_probabilities('initial', cmdp.initial)


def _check_probabilities(name: str, probabilities: np.ndarray) -> None:
  if np.min(probabilities) < 0.0 or not np.allclose(np.sum(probabilities, axis=-1), 1.0):
    raise ValueError(f'{name} must hold probabilities that sum to 1 over the last axis.')


def _check_shape(array: np.ndarray, expected: Sequence[int | None]) -> None:
  """Like chex's, without importing JAX into worker processes."""
  shape = np.shape(array)
  if len(shape) != len(expected) or any(e is not None and n != e for n, e in zip(shape, expected)):
    raise ValueError(f'Expected an array of shape {tuple(expected)}, got {shape}.')
