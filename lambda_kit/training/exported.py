"""A policy as files, which acts without gin and without the agent's code.

    policy.stablehlo      one step of acting, compiled to StableHLO by `jax.export` for CPU and CUDA
    policy.safetensors    the arrays that it needs
    policy.json           task, observations, actions and origin; sizes and checksums of the other files
    calibration.json      its certificate, if its checkpoint was calibrated: what it costs, and whether its models knew

Nothing is pickled. JAX guarantees to read StableHLO of earlier versions for six months only. To use a policy for
longer, export it again from its checkpoint.
"""

from collections.abc import Mapping, Sequence
from concurrent import futures
import dataclasses
import glob
import operator
import os
import pathlib
import shutil
import threading
from typing import Any, NamedTuple

import jax
from jax import export as jax_export
import jax.numpy as jnp
import numpy as np

from lambda_kit import core
from lambda_kit import files
from lambda_kit import reading
from lambda_kit import types
from lambda_kit.analysis import certificate as certificate_lib
from lambda_kit.training.checkpoints import arrays
from lambda_kit.training.checkpoints import errors
from lambda_kit.training.checkpoints import manifest
from lambda_kit.training.checkpoints import sealed

PLATFORMS = ('cpu', 'cuda')

_FORMAT = 'lambda_kit policy'
_VERSION = 2
_JSON, _ARRAYS, _PROGRAM = 'policy.json', 'policy.safetensors', 'policy.stablehlo'
_REMEDY = 'Export it again from its checkpoint: python launchers/evaluate.py --workdir=... --export=...'


_Computed = futures.Future[tuple[np.ndarray, list[jax.Array]]]  # An action [1, A] and the next carry.


class PolicyError(errors.CheckpointError):
  """A policy gave no action that can be taken."""


class Field(NamedTuple):
  """Shape and dtype of an observation or an action."""

  shape: tuple[int, ...]
  dtype: str


class Description(NamedTuple):
  """The description of a policy in `policy.json`."""

  task: str  # The environment's `task_name`.
  observations: Mapping[str, Field]
  action: Field  # In [-1, 1].
  constraint_names: tuple[str, ...]
  action_repeat: int  # Simulator steps for which an action is to be held.
  source: Mapping[str, Any]  # The checkpoint, and its score.

  @classmethod
  def of(cls, spec: core.EnvironmentSpec, source: Mapping[str, Any]) -> 'Description':
    field = lambda array: Field(tuple(array.shape), np.dtype(array.dtype).name)
    observations = {name: field(array) for name, array in spec.observations.items()}
    return cls(spec.task_name, observations, field(spec.actions), spec.constraint_names, spec.action_repeat, source)

  @classmethod
  def from_json(cls, content: Mapping[str, Any]) -> 'Description':
    field = lambda value: Field(tuple(map(operator.index, value['shape'])), np.dtype(value['dtype']).name)
    observations = {name: field(value) for name, value in content['observations'].items()}
    return cls(
      content['task'],
      observations,
      field(content['action']),
      tuple(content['constraint_names']),
      content['action_repeat'],
      content['source'],
    )

  def to_json(self) -> dict[str, Any]:
    return {
      **self._asdict(),
      'action': {**self.action._asdict(), 'minimum': -1.0, 'maximum': 1.0},
      'observations': {name: field._asdict() for name, field in self.observations.items()},
    }


class ExportedPolicy:
  """Acts in one environment, as the agent does in its evaluations.

      policy = lambda_kit.load_policy('exported')
      policy.reset(seed=3)  # At the start of each episode.
      action = policy(observation)

  Args:
    description: Observations and actions.
    program: One step, with arguments as in `_flatten`.
    variables: Arrays by name.
    certificate: Of its checkpoint; None if it was not calibrated.
    time_limit: Seconds that an action may take; None for any. Compiling, at the first action, doesn't count.
  """

  def __init__(
    self,
    description: Description,
    program: jax_export.Exported,
    variables: Mapping[str, np.ndarray],
    certificate: certificate_lib.Certificate | None = None,
    time_limit: float | None = None,
  ):
    if time_limit is not None and not time_limit > 0:
      raise ValueError(f'A time limit is positive, got {time_limit}.')
    self.description = description
    self.certificate = certificate
    self._time_limit = time_limit
    self._is_compiled = False
    self._last: _Computed | None = None  # The last action with a time limit, which may be overdue.
    self._step: Any = jax.jit(program.call)
    self._variables = jax.device_put(dict(variables))
    self._first_carry = _arguments(program)[1]
    self.reset()

  def reset(self, seed: int = 0) -> None:
    """Starts an episode. All of its noise follows from `seed` in [0, 2^32): inferred states are sampled."""
    seed = operator.index(seed)
    if not 0 <= seed < 2**32:
      raise ValueError(f'A seed is in [0, 2^32), got {seed}.')
    self._episode = np.uint32(seed)
    self._carry = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in self._first_carry]
    self._is_first = np.ones((1,), bool)

  def __call__(self, observation: types.Observation) -> np.ndarray:
    """Returns an action [A] in [-1, 1] for an observation: of the environment's reset, then of each of its steps.

    Raises:
      ValueError: The observation is not of the kind that the policy was trained on.
      PolicyError: The action is not finite, or did not come within the time limit.
    """
    batch = self._checked(observation)
    arguments = self._variables, self._carry, batch, self._is_first, self._episode
    action, carry = self._compute(*arguments) if self._time_limit is None else self._compute_in_time(*arguments)
    if not np.isfinite(action).all():
      raise PolicyError(
        f'The policy gave an action that is not finite, {action[0]}. Its observation may be unlike any that it was '
        'trained on, or its files are those of a run that diverged.'
      )
    self._carry, self._is_first = carry, np.zeros((1,), bool)
    return action[0]

  def _compute(self, *arguments: Any) -> tuple[np.ndarray, list[jax.Array]]:
    action, carry = self._step(*arguments)
    return np.asarray(action), carry

  def _compute_in_time(self, *arguments: Any) -> tuple[np.ndarray, list[jax.Array]]:
    """Computes in a thread that is left alone when its time is up: a compiled program can't be stopped."""
    if self._last is not None and not self._last.done():
      raise PolicyError('The policy is still computing an action that is overdue. Load it anew, or end the process.')
    if not self._is_compiled:
      self._step, self._is_compiled = self._step.lower(*arguments).compile(), True
    future = self._last = _Computed()

    def work():
      try:
        future.set_result(self._compute(*arguments))
      except BaseException as error:
        future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
      return future.result(self._time_limit)
    except futures.TimeoutError:
      raise PolicyError(
        f'The policy took more than its time limit of {self._time_limit:g} s for an action. Raise the limit if this '
        'machine is slow.'
      ) from None

  def _checked(self, observation: types.Observation) -> dict[str, np.ndarray]:
    fields = self.description.observations
    if observation.keys() != fields.keys():
      raise ValueError(f'Observations of this policy have {sorted(fields)}, got {sorted(observation)}.')
    batch = {}
    for name, field in fields.items():
      value = np.asarray(observation[name])
      if value.shape != field.shape or not np.can_cast(value.dtype, field.dtype, 'same_kind'):
        raise ValueError(
          f'Observation {name!r} is {field.dtype} {list(field.shape)}, got {value.dtype} {list(value.shape)}.'
        )
      batch[name] = value.astype(field.dtype)[None]
    return batch


def save(
  folder: str | os.PathLike,
  actor_core: core.ActorCore,
  variables: Sequence[core.Params],
  key: core.Key,
  description: Description,
  certificate: certificate_lib.Certificate | None = None,
) -> pathlib.Path:
  """Writes a policy, replacing an earlier export. The folder appears complete or not at all.

  Args:
    folder: Where to write.
    actor_core: How to act.
    variables: What it acts with.
    key: The key of the actor that the policy is to agree with to the bit.
    description: For readers.
    certificate: Of its checkpoint; None if it was not calibrated.

  Raises:
    OSError: The policy can't be written, or the folder holds something else.
  """
  folder = pathlib.Path(folder).absolute()
  check_folder(folder)
  step, named_variables, carry = _flatten(actor_core, variables, key)
  observation = {
    name: jax.ShapeDtypeStruct((1, *field.shape), field.dtype) for name, field in description.observations.items()
  }
  program = jax_export.export(jax.jit(step), platforms=PLATFORMS)(
    named_variables, carry, observation, jax.ShapeDtypeStruct((1,), bool), jax.ShapeDtypeStruct((), np.uint32)
  )
  contents = {
    _ARRAYS: arrays.to_bytes(named_variables, {'task': description.task}),
    _PROGRAM: bytes(program.serialize()),
  }
  if certificate is not None:
    contents[certificate_lib.NAME] = certificate_lib.to_text(certificate_lib.to_json(certificate)).encode()
  entries = {name: dataclasses.asdict(manifest.Entry.of(content)) for name, content in contents.items()}
  contents[_JSON] = sealed.to_bytes(
    _FORMAT, _VERSION, dict(description.to_json(), files=entries, jax=jax.__version__, platforms=PLATFORMS)
  )
  for earlier in folder.parent.glob(f'{glob.escape(folder.name)}.partial.*'):
    pid = earlier.suffix[1:]
    if pid.isdecimal() and len(pid) < 10 and not files.is_alive(int(pid)):
      shutil.rmtree(earlier, ignore_errors=True)
  partial = folder.with_name(f'{folder.name}.partial.{os.getpid()}')
  try:
    partial.mkdir(parents=True)
    for name, content in contents.items():
      files.write(partial / name, content)
    files.sync_folder(partial)
    if folder.exists():
      shutil.rmtree(folder)
    os.replace(partial, folder)
    files.sync_folder(folder.parent)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return folder


def check_folder(folder: str | os.PathLike) -> None:
  """Raises FileExistsError if the folder holds something that an export must not replace."""
  folder = pathlib.Path(folder)
  if folder.exists() and not (folder / _JSON).exists() and (not folder.is_dir() or any(folder.iterdir())):
    raise FileExistsError(f'{folder} exists and is not an exported policy. Choose another folder.')


def load(folder: str | os.PathLike, time_limit: float | None = None) -> ExportedPolicy:
  """Reads what `save` wrote.

  Args:
    folder: Where it is.
    time_limit: See `ExportedPolicy`.

  Raises:
    DamagedError: Files are truncated, changed, or missing.
    CheckpointError: They have another version of the format, or the installed JAX can't read them.
  """
  folder = pathlib.Path(folder)
  content = sealed.read(folder / _JSON, _FORMAT, _VERSION, _REMEDY)
  with errors.wrong_content_is_damage(folder / _JSON):
    description, entries = Description.from_json(content), manifest.entries(content['files'])
    jax_version = str(content['jax'])
    program_bytes = entries[_PROGRAM].size
  manifest.verify(folder, entries, _JSON)
  try:
    serialized = reading.read_bytes(folder / _PROGRAM, program_bytes, follow_links=True)
    program = jax_export.deserialize(bytearray(serialized))
    variables, *_ = _arguments(program)
  except Exception as error:  # JAX's reader can raise anything on what is not a program, or is one of another version.
    raise errors.CheckpointError(
      f'{folder / _PROGRAM} was written by JAX {jax_version}, and JAX {jax.__version__} can not read it: '
      f'{type(error).__name__}: {error}. {_REMEDY}'
    ) from error
  with errors.wrong_content_is_damage(folder / certificate_lib.NAME):
    certificate = certificate_lib.read(folder) if certificate_lib.NAME in entries else None
  return ExportedPolicy(description, program, arrays.load_arrays(folder / _ARRAYS, variables), certificate, time_limit)


def _flatten(
  actor_core: core.ActorCore, variables: Sequence[core.Params], key: core.Key
) -> tuple[Any, dict[str, types.Array], list[types.Array]]:
  """Returns one step of acting with plain arguments (variables by name, carry as a list), these variables and carry.

  An export must not depend on classes of this package, as pytrees of NamedTuples would.
  """
  paths, variables_structure = jax.tree_util.tree_flatten_with_path(
    dict(zip(actor_core.variable_names, variables, strict=True), key=key)
  )
  names = [jax.tree_util.keystr(path, simple=True, separator='/') for path, _ in paths]
  assert len(set(names)) == len(names), names
  first_carry, carry_structure = jax.tree.flatten(actor_core.init(key, 1))

  def step(variables, carry, observation, is_first, episode):
    by_name = jax.tree.unflatten(variables_structure, [variables[name] for name in names])
    fresh = actor_core.init(jax.random.fold_in(by_name['key'], episode), 1)  # As `Actor.reseed` does.
    carry = jax.tree.map(
      lambda new, old: jnp.where(is_first[0], new, old), fresh, jax.tree.unflatten(carry_structure, carry)
    )
    action, carry = actor_core.step([by_name[name] for name in actor_core.variable_names], carry, observation, is_first)
    return action, jax.tree.leaves(carry)

  return step, {name: leaf for name, (_, leaf) in zip(names, paths, strict=True)}, first_carry


def _arguments(program: jax_export.Exported) -> tuple[Any, ...]:
  """Shapes and dtypes of variables, carry, observation, is_first and episode."""
  positional, _ = jax.tree.unflatten(program.in_tree, program.in_avals)
  return positional
