"""Tests of `configuration`, and of our account of gin's scopes against gin itself."""

import dataclasses
import math
import pathlib
import textwrap
from typing import Any, Callable, Protocol

import gin
import numpy as np
import pytest

from lambda_kit.experiments import configuration
from lambda_kit.experiments import gin_internals

ROOT = 'toy_run'


# The registry is shared with all other tests of a session, hence the names.
class ToyPosterior:
  pass


@gin.register
class ToySwag(ToyPosterior):

  def __init__(self, decay: float = 0.8, columns: int = 20):
    self.decay = decay
    self.columns = columns


@gin.register
class ToyEnsemble(ToyPosterior):

  def __init__(self, members: int = 5):
    self.members = members


@gin.register
class ToyMlp:

  def __init__(self, width: int = 1, name: str = ''):
    self.width = width
    self.name = name


@gin.register
class ToyCritic:

  def __init__(self, mlp: Any = None, eager: bool = False):
    self.mlp = mlp() if eager else mlp


@gin.register
class ToyBare:
  """Has no constructor of its own, so gin believes that it takes any argument."""


class ToyProtocol(Protocol):

  def __call__(self) -> None:
    ...


@gin.register
class ToyImplementation(ToyProtocol):
  """Inherits a constructor that claims to take any argument."""

  def __call__(self) -> None:
    ...


@gin.register
@dataclasses.dataclass
class ToyDataclass:
  size: int
  scale: float = 1.


gin.external_configurable(np.tanh, 'toy_tanh')


@gin.register
def toy_environment(task: str, layout: dict[str, Any] | None = None) -> tuple[str, Any]:
  return task, layout


@gin.configurable
def toy_run(posterior: Any = None, critic: Any = None, parts: Any = (), steps: int = 1, learning_rate: float = 1e-3,
            environment: Any = None) -> Any:
  del posterior, parts, steps, learning_rate, environment
  return critic


@gin.configurable
def toy_run_that_checks(workdir: str, factory: Callable[[], Any] = gin.REQUIRED) -> None:
  del workdir, factory
  configuration.check_operative()


@pytest.fixture(autouse=True)
def _clear_config():
  gin.clear_config()
  yield
  gin.clear_config()


class Folder:
  """A folder of gin files, which is also the search path."""

  def __init__(self, path: pathlib.Path):
    self.path = path

  def write(self, name: str, text: str) -> str:
    path = self.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return name

  def parse(self, *layers: str, flags: tuple[str, ...] = (), root: str = ROOT) -> None:
    """Parses texts as the files 1.gin, 2.gin, ..., or files if the names of such are given."""
    files = [layer if layer.endswith('.gin') else self.write(f'{number}.gin', layer)
             for number, layer in enumerate(layers, start=1)]
    configuration.parse(files, flags, search_paths=[str(self.path)], root=root)

  def error(self, *layers: str, flags: tuple[str, ...] = (), root: str = ROOT) -> str:
    with pytest.raises(configuration.ConfigurationError) as error:
      self.parse(*layers, flags=flags, root=root)
    return str(error.value)


@pytest.fixture(name='folder')
def _folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
  # Away from the project's own gin files, which the working directory would give first.
  (tmp_path / 'elsewhere').mkdir()
  monkeypatch.chdir(tmp_path / 'elsewhere')
  (tmp_path / 'files').mkdir()
  return Folder(tmp_path / 'files')


def _config() -> dict[str, str]:
  # As text: gin's references are equal whatever their scope.
  return {str(key): repr(value) for key, value in gin_internals.bindings().items()}


class TestReading:

  def test_later_layers_win_and_flags_come_last(self, folder):
    folder.parse('toy_run.steps = 1\ntoy_run.learning_rate = 1.', 'toy_run.steps = 2\ntoy_run.learning_rate = 2.',
                 flags=('toy_run.steps = 3',))
    assert _config() == {'toy_run.steps': '3', 'toy_run.learning_rate': '2.0'}

  def test_includes_are_found_through_the_search_path(self, folder):
    folder.write('gin/base/deep.gin', 'toy_run.steps = 1')
    folder.write('gin/base/base.gin', "include 'gin/base/deep.gin'\ntoy_run.learning_rate = 1.")
    folder.parse("include 'gin/base/base.gin'\ntoy_run.steps = 2")
    assert _config() == {'toy_run.steps': '2', 'toy_run.learning_rate': '1.0'}

  def test_replaces_the_previous_configuration(self, folder):
    folder.parse('toy_run.steps = 1')
    folder.parse('toy_run.learning_rate = 1.')
    assert _config() == {'toy_run.learning_rate': '1.0'}

  def test_blocks_and_imports(self, folder):
    folder.parse('import math\ntoy_run:\n  steps = 1\n  learning_rate = 2.\n')
    assert _config() == {'toy_run.steps': '1', 'toy_run.learning_rate': '2.0'}
    assert configuration.resolved_config().startswith('import math\n')

  def test_missing_file(self, folder):
    folder.write('gin/sg6_pointgoal1.gin', '')
    folder.write('gin/tiny.gin', '')
    for wrong in ('gin/sg6_pointgaol1.gin', 'sg6_pointgoal1.gin', 'gim/sg6_pointgoal1.gin', 'gin/envs/sg6_pointgoal.gin'
                 ):
      message = folder.error(wrong)
      assert message.startswith(f'there is no file {wrong} in ')
      assert str(folder.path) in message
      assert message.endswith('Did you mean gin/sg6_pointgoal1.gin?')
    assert 'Did you mean' not in folder.error('gin/entirely_different.gin')
    assert folder.error(f'{folder.path}/gin/tony.gin') == (
        f'there is no file {folder.path}/gin/tony.gin. Did you mean {folder.path}/gin/tiny.gin?')

  def test_missing_included_file(self, folder):
    folder.write('gin/base/lambda.gin', '')
    message = folder.error("\ninclude 'gin/base/lamda.gin'")
    assert message.startswith('1.gin:2: there is no file gin/base/lamda.gin')
    assert message.endswith('Did you mean gin/base/lambda.gin?')

  def test_file_that_includes_itself(self, folder):
    folder.write('b.gin', "include '1.gin'")
    assert folder.error("include 'b.gin'") == 'b.gin:1: 1.gin includes itself, directly or through other files.'

  @pytest.mark.parametrize('text, message', [
      ('\ntoy_run.steps 3',
       "1.gin:2: syntax error: Couldn't parse statement, expected ':' or '='.\n    toy_run.steps 3"),
      ('toy_run.steps =', '1.gin:1: syntax error: Unable to parse value.\n    toy_run.steps ='),
      ('\n\ntoy_run.parts = [1,', '1.gin:3: a bracket or quote that opens here is never closed.'),
      ('toy_run.steps = many',
       "1.gin:1: 'many' is not a value. A string needs quotes: 'many'.\n    toy_run.steps = many"),
      ('toy_run.steps = true', "1.gin:1: 'true' is not a value. Did you mean True?\n    toy_run.steps = true"),
      ('toy_run:\nsteps = 1', '1.gin:2: syntax error: Expected indentation.  Got NAME = steps.\n    steps = 1'),
      ('import no_such_module', "1.gin:1: can't import no_such_module: No module named 'no_such_module'"),
      ('from __gin__ import dynamic_registration',
       '1.gin:1: dynamic registration is not supported. Use @gin.register.'),
  ])
  def test_syntax_error(self, folder, text, message):
    assert folder.error(text + '\n') == message

  def test_error_in_a_flag_shows_the_flag(self, folder):
    assert folder.error(flags=('toy_run.steps = 1', 'toy_run.steps = x')) == (
        """--gin_bindings="toy_run.steps = x": 'x' is not a value. A string needs quotes: 'x'.""")


class TestNames:

  def test_unknown_configurable(self, folder):
    assert folder.error('\nToySwga.decay = 0.5') == "1.gin:2: there is no configurable 'ToySwga'. Did you mean ToySwag?"
    assert folder.error('toyswag:\n  decay = 0.5\n') == (
        "1.gin:1: there is no configurable 'toyswag'. Did you mean ToySwag?")

  def test_unknown_configurable_in_a_reference(self, folder):
    message = "there is no configurable 'ToySwga' in the value of toy_run.parts. Did you mean ToySwag?"
    assert folder.error("toy_run.parts = [1, {'a': (@b/ToySwga(),)}]") == f'1.gin:1: {message}'
    flag = 'toy_run.parts = @ToySwga'
    assert folder.error(flags=(flag,)) == f'--gin_bindings="{flag}": {message}'

  def test_unknown_parameter(self, folder):
    assert folder.error('ToySwag.decy = 0.5') == "1.gin:1: ToySwag has no parameter 'decy'. Did you mean decay?"
    assert folder.error('ToySwag.zzz = 0.5') == "1.gin:1: ToySwag has no parameter 'zzz'. It has: decay, columns."
    assert folder.error('ToyBare.x = 0.5') == "1.gin:1: ToyBare has no parameter 'x'. It has none."
    assert folder.error('ToyImplementation.x = 1') == "1.gin:1: ToyImplementation has no parameter 'x'. It has none."
    assert folder.error('ToyDataclass.sizes = 1') == (
        "1.gin:1: ToyDataclass has no parameter 'sizes'. Did you mean size?")
    assert folder.error('ToySwag:\n  self = 1\n').startswith("1.gin:2: ToySwag has no parameter 'self'.")

  def test_function_without_signature(self, folder):
    folder.parse('toy_run.parts = [@toy_tanh]')
    assert folder.error('toy_run.parts = [@toy_tnah]').endswith('Did you mean toy_tanh?')

  def test_unknown_root(self, folder):
    assert "there is no configurable 'toy_rnu'. Did you mean toy_run?" in folder.error(root='toy_rnu')


class TestMissing:

  def test_undefined_macro(self, folder):
    assert folder.error('toy_run.steps = %STEPS') == (
        '1.gin:1: the macro STEPS, used by toy_run.steps, is never defined. Write STEPS = ... in a gin file, or pass '
        '--gin_bindings="STEPS = ...".')

  def test_undefined_macro_is_compared_with_unused_ones(self, folder):
    message = folder.error('STEP = 3\nRATE = 4.\ntoy_run.steps = %STEPS\ntoy_run.learning_rate = %RATE')
    assert message.endswith('(STEP is defined but not used: is STEPS meant?)')
    assert '\n' not in message

  def test_undefined_macro_of_an_unused_part_does_no_harm(self, folder):
    folder.parse('toy_run.posterior = @ToySwag()\nToySwag.decay = %DECAY\nDECAY = 0.5',
                 'toy_run.posterior = @ToyEnsemble()')

  def test_required_macro(self, folder):
    base = 'TASK = %gin.REQUIRED\ntoy_run.environment = @toy_environment\ntoy_environment.task = %TASK'
    assert folder.error(base) == (
        '1.gin:1: the macro TASK must be set (used by toy_environment.task). Write TASK = ... in a gin file, or pass '
        '--gin_bindings="TASK = ...".')
    assert folder.error(base, flags=('TAKS = 1',)).endswith('(TAKS is defined but not used: is TASK meant?)')
    folder.parse(base, flags=('TASK = "goal"',))
    folder.parse(base, 'TASK = "goal"')

  def test_required_value(self, folder):
    base = 'ToySwag.decay = %gin.REQUIRED\ntoy_run.posterior = @ToySwag'
    assert folder.error(base) == (
        '1.gin:1: ToySwag.decay must be set. Write ToySwag.decay = ... in a gin file, or pass '
        '--gin_bindings="ToySwag.decay = ...".')
    folder.parse(base, 'ToySwag.decay = 0.5')
    # Nobody needs the decay of a posterior that was swapped.
    folder.parse(base, 'toy_run.posterior = @ToyEnsemble')

  def test_required_value_inside_a_container(self, folder):
    assert 'toy_run.parts must be set' in folder.error("toy_run.parts = [1, {'a': %gin.REQUIRED}]")

  def test_required_value_is_found_in_the_scope_that_lacks_it(self, folder):
    base = 'ToyMlp.width = %gin.REQUIRED\ntoy_run.parts = [@a/ToyMlp(), @b/ToyMlp()]\na/ToyMlp.width = 1\n'
    assert '1.gin:1: ToyMlp.width must be set' in folder.error(base)
    folder.parse(base, flags=('ToyMlp.width = 2',))

  def test_argument_without_default(self, folder):
    assert folder.error('toy_run.environment = @a/toy_environment()') == (
        "1.gin:1: @a/toy_environment() has no value for 'task'. Write a/toy_environment.task = ... in a gin file, or "
        'pass --gin_bindings="a/toy_environment.task = ...".')
    folder.parse('toy_run.environment = @a/toy_environment()\ntoy_environment.task = "goal"')
    assert "1.gin:1: @ToyDataclass() has no value for 'size'." in folder.error('toy_run.parts = [@ToyDataclass()]')
    # Whoever calls a factory may pass it.
    folder.parse('toy_run.environment = @toy_environment')

  def test_argument_of_the_root(self, folder):
    # The launcher passes the workdir.
    assert folder.error(root='toy_run_that_checks') == (
        'toy_run_that_checks.factory must be set. Write toy_run_that_checks.factory = ... in a gin file, or pass '
        '--gin_bindings="toy_run_that_checks.factory = ...".')

  def test_all_problems_are_listed(self, folder):
    lines = folder.error('toy_run.steps = %STEPS\ntoy_run.learning_rate = %RATE').splitlines()
    assert len(lines) == 2


class TestDeadBindings:

  def test_part_that_nothing_refers_to(self, folder):
    assert folder.error('toy_run.posterior = @ToyEnsemble()\nToySwag.decay = 0.5') == (
        '1.gin:2: ToySwag.decay configures nothing: nothing refers to ToySwag: toy_run.posterior is @ToyEnsemble().')

  def test_part_that_only_a_dead_part_refers_to(self, folder):
    lines = folder.error('ToyCritic.mlp = @ToyMlp()\nToyMlp.width = 1').splitlines()
    assert lines == [
        '1.gin:1: ToyCritic.mlp configures nothing: nothing refers to ToyCritic.',
        '1.gin:2: ToyMlp.width configures nothing: nothing refers to ToyMlp but ToyCritic.mlp, which configures '
        'nothing either.']

  def test_parts_are_reached_through_containers_macros_and_scopes(self, folder):
    folder.parse('''
        toy_run.parts = [1, ('x', {'a': @ToySwag()}), %NET]
        NET = {'net': [%INNER]}
        INNER = @a/b/ToyCritic
        ToyCritic.mlp = @ToyMlp()
        ToySwag.decay = 0.5
        a/ToyMlp.name = 'x'
        a/b/ToyMlp.width = 2
        ''')
    assert not configuration.superseded_bindings()

  def test_swapped_part_is_superseded(self, folder):
    folder.parse('toy_run.posterior = @ToySwag()\nToySwag.decay = %DECAY\nDECAY = 0.5',
                 'toy_run.posterior = @ToyEnsemble()\nToyEnsemble.members = 3')
    assert configuration.superseded_bindings() == ['ToySwag.decay = %DECAY (1.gin:2)', 'DECAY = 0.5 (1.gin:3)']

  def test_swap_by_a_flag(self, folder):
    folder.parse('toy_run.posterior = @ToySwag()\nToySwag.decay = 0.5',
                 flags=('ToyEnsemble.members = 3', 'toy_run.posterior = @ToyEnsemble()'))
    assert configuration.superseded_bindings() == ['ToySwag.decay = 0.5 (1.gin:2)']

  def test_swap_in_the_including_file(self, folder):
    folder.write('base.gin', 'toy_run.posterior = @ToySwag()\nToySwag.decay = 0.5')
    folder.parse("include 'base.gin'\ntoy_run.posterior = @ToyEnsemble()")
    assert configuration.superseded_bindings() == ['ToySwag.decay = 0.5 (base.gin:2)']

  def test_swap_within_one_file_is_an_error(self, folder):
    message = folder.error('toy_run.posterior = @ToySwag()\nToySwag.decay = 0.5\ntoy_run.posterior = @ToyEnsemble()')
    assert message == (
        '1.gin:2: ToySwag.decay configures nothing: nothing refers to ToySwag. toy_run.posterior was @ToySwag() '
        '(1.gin:1), but is now @ToyEnsemble() (1.gin:3).')

  def test_binding_that_a_later_layer_needs(self, folder):
    folder.parse('ToySwag.decay = 0.5', 'toy_run.posterior = @ToySwag()')
    assert not configuration.superseded_bindings()

  def test_binding_of_a_part_that_an_earlier_layer_swapped(self, folder):
    # That the same parameter was of use in the first layer is no excuse for the flag.
    message = folder.error('toy_run.posterior = @ToySwag()\nToySwag.decay = 0.5', 'toy_run.posterior = @ToyEnsemble()',
                           flags=('ToySwag.decay = 0.9',))
    assert message == (
        '--gin_bindings="ToySwag.decay = 0.9": ToySwag.decay configures nothing: nothing refers to ToySwag. '
        'toy_run.posterior was @ToySwag() (1.gin:1), but is now @ToyEnsemble() (2.gin:1).')

  def test_unused_macro(self, folder):
    assert folder.error('STEPS = 3\nSTEP = 4\ntoy_run.steps = %STEPS') == (
        '1.gin:2: STEP configures nothing: nothing uses the macro. Did you mean STEPS?')
    assert folder.error('XYZ = 4') == '1.gin:1: XYZ configures nothing: nothing uses the macro.'

  def test_macro_whose_use_was_overridden(self, folder):
    base, variant = 'STEPS = 3\ntoy_run.steps = %STEPS', 'toy_run.steps = 4'
    folder.parse(base, variant)
    assert configuration.superseded_bindings() == ['STEPS = 3 (1.gin:1)']
    assert folder.error(base, variant, flags=('STEPS = 5',)) == (
        '--gin_bindings="STEPS = 5": STEPS configures nothing: nothing uses the macro. toy_run.steps was %STEPS '
        '(1.gin:2), but is now 4 (2.gin:1).')

  def test_configurable_bound_like_a_macro(self, folder):
    assert folder.error('ToySwag = 4') == (
        '1.gin:1: ToySwag configures nothing: this defines a macro. To configure ToySwag, name a parameter: '
        'ToySwag.<parameter> = ...')

  def test_misspelt_scope(self, folder):
    assert folder.error('toy_run.critic = @reward_critic/ToyMlp()\nrewrad_critic/ToyMlp.width = 2') == (
        "1.gin:2: rewrad_critic/ToyMlp.width configures nothing: no reference opens the scope 'rewrad_critic'. "
        'Did you mean reward_critic?')

  def test_scope_that_an_uncalled_reference_loses(self, folder):
    assert folder.error('toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = @ToyMlp\ncritic/ToyMlp.width = 2') == (
        '1.gin:3: critic/ToyMlp.width configures nothing: ToyCritic.mlp = @ToyMlp (1.gin:2) has no parentheses: it is '
        "called later, outside the scope 'critic'. Write @critic/ToyMlp there.")

  def test_scope_of_another_part(self, folder):
    assert folder.error('toy_run.parts = [@a/ToyMlp(), @ToyMlp(), @b/ToySwag()]\nb/ToyMlp.width = 2') == (
        "1.gin:2: b/ToyMlp.width configures nothing: ToyMlp is not used in the scope 'b', only outside any scope, in "
        "the scope 'a'.")

  def test_scope_that_a_macro_replaces(self, folder):
    text = 'toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = %NET\nNET = @ToyMlp()\ncritic/ToyMlp.width = 2'
    assert folder.error(text) == (
        "1.gin:4: critic/ToyMlp.width configures nothing: ToyMlp is not used in the scope 'critic', only in the scope "
        "'NET'. The macro NET is a scope of its own, which replaces others.")

  def test_binding_that_narrower_ones_hide(self, folder):
    base = 'toy_run.parts = [@a/ToyMlp(), @b/ToyMlp()]\na/ToyMlp.width = 1\nb/ToyMlp.width = 2'
    assert folder.error(base, flags=('ToyMlp.width = 3',)) == (
        '--gin_bindings="ToyMlp.width = 3": ToyMlp.width configures nothing: each use of ToyMlp has a narrower '
        'binding: a/ToyMlp.width = 1 (1.gin:2), b/ToyMlp.width = 2 (1.gin:3).')
    folder.parse('ToyMlp.width = 3\ntoy_run.parts = [@a/ToyMlp(), @b/ToyMlp()]',
                 'a/ToyMlp.width = 1\nb/ToyMlp.width = 2')
    assert configuration.superseded_bindings() == ['ToyMlp.width = 3 (1.gin:1)']

  def test_cycles_end(self, folder):
    folder.parse('toy_run.critic = @ToyCritic\nToyCritic.mlp = @ToyCritic')


# Ways to reach a ToyMlp, and how Python gets at it.
STRUCTURES: dict[str, tuple[str, Callable[[Any], ToyMlp]]] = {
    'plain': ('toy_run.critic = @ToyMlp()', lambda critic: critic),
    'scoped': ('toy_run.critic = @critic/ToyMlp()', lambda critic: critic),
    'uncalled and scoped': ('toy_run.critic = @critic/ToyMlp', lambda critic: critic()),
    'called in a scope': ('toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = @ToyMlp()', lambda critic: critic.mlp),
    'uncalled in a scope': ('toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = @ToyMlp',
                            lambda critic: critic.mlp()),
    'uncalled in uncalled': ('toy_run.critic = @critic/ToyCritic\nToyCritic.mlp = @ToyMlp',
                             lambda critic: critic().mlp()),
    'called in uncalled': ('toy_run.critic = @critic/ToyCritic\nToyCritic.mlp = @ToyMlp()',
                           lambda critic: critic().mlp),
    'other scope': ('toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = @inner/ToyMlp()', lambda critic: critic.mlp),
    'other scope, uncalled': ('toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = @inner/ToyMlp',
                              lambda critic: critic.mlp()),
    'nested scopes': ('toy_run.critic = @critic/inner/ToyCritic()\nToyCritic.mlp = @ToyMlp()',
                      lambda critic: critic.mlp),
    'macro': ('toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = %NET\nNET = @ToyMlp()', lambda critic: critic.mlp),
    'macro, uncalled': ('toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = %NET\nNET = @ToyMlp',
                        lambda critic: critic.mlp()),
    'macro in a scope': ('toy_run.critic = %critic/NET\ncritic/NET = @ToyMlp()', lambda critic: critic),
    'macro of an outer scope': ('toy_run.critic = %critic/NET\ncritic = @ToyMlp()', lambda critic: critic),
    'list': ('toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = [@ToyMlp()]', lambda critic: critic.mlp[0]),
    'singleton': ('toy_run.critic = @NET/gin.singleton()\nNET/gin.singleton.constructor = @ToyMlp',
                  lambda critic: critic),
}
SCOPES = ['', 'critic', 'inner', 'critic/inner', 'inner/critic', 'NET', 'critic/NET']


class TestScopesAgainstGin:

  @pytest.mark.parametrize('scope', SCOPES)
  @pytest.mark.parametrize('structure', STRUCTURES)
  def test_binding_is_accepted_exactly_if_it_has_an_effect(self, folder, structure, scope):
    text, get_mlp = STRUCTURES[structure]
    text += f'\n{scope}{"/" if scope else ""}ToyMlp.width = 7'
    gin.parse_config(text)
    has_effect = get_mlp(toy_run()).width == 7
    if has_effect:
      folder.parse(text)
    else:
      folder.error(text)

  @pytest.mark.parametrize('structure', STRUCTURES)
  def test_binding_is_hidden_exactly_if_a_narrower_one_wins(self, folder, structure):
    text, get_mlp = STRUCTURES[structure]
    for scope in SCOPES[1:]:
      binding = f'ToyMlp.width = 3\n{scope}/ToyMlp.width = 7'
      gin.clear_config()
      gin.parse_config(f'{text}\n{binding}')
      width = get_mlp(toy_run()).width
      # There is one ToyMlp, so one of the two is always dead.
      dead = {3: f'{scope}/ToyMlp.width', 7: 'ToyMlp.width'}[width]
      message = folder.error(f'{text}\n{binding}')
      assert f': {dead} configures nothing: ' in message
      assert '\n' not in message

  def test_known_difference(self, folder):
    # A factory that the constructor calls at once does see the scope, but nothing in a gin file tells so. We ask for
    # `@critic/ToyMlp`, which means the same wherever it is called.
    text = 'toy_run.critic = @critic/ToyCritic()\nToyCritic.eager = True\ncritic/ToyMlp.width = 7\n'
    gin.parse_config(text + 'ToyCritic.mlp = @ToyMlp')
    assert toy_run().mlp.width == 7
    assert 'Write @critic/ToyMlp there.' in folder.error(text + 'ToyCritic.mlp = @ToyMlp')
    folder.parse(text + 'ToyCritic.mlp = @critic/ToyMlp')
    assert toy_run().mlp.width == 7


class TestCheckOperative:

  def test_used_bindings_pass(self, folder):
    folder.parse('toy_run.posterior = @ToySwag()\nToySwag.decay = 0.5\ntoy_run.critic = @critic/ToyCritic\n'
                 'ToyCritic.mlp = @ToyMlp()\ncritic/ToyMlp.width = %WIDTH\nWIDTH = 3',
                 'toy_run.posterior = @ToyEnsemble()')
    toy_run()()
    configuration.check_operative()

  def test_factory_that_is_never_called(self, folder):
    folder.parse('toy_run.critic = @critic/ToyMlp\ncritic/ToyMlp.width = %WIDTH\nWIDTH = 3')
    factory = toy_run()
    with pytest.raises(configuration.ConfigurationError) as error:
      configuration.check_operative()
    assert str(error.value) == (
        '1.gin:3: WIDTH configures nothing: the macro was never read.\n'
        '1.gin:2: critic/ToyMlp.width configures nothing: ToyMlp was never called.')
    configuration.check_operative(later=['ToyMlp'])
    factory()
    configuration.check_operative()

  def test_argument_that_the_caller_passes(self, folder):
    folder.parse("toy_run.critic = @ToyMlp\nToyMlp.width = 3\nToyMlp.name = 'x'")
    toy_run()(width=4)
    with pytest.raises(configuration.ConfigurationError) as error:
      configuration.check_operative()
    assert str(error.value) == (
        "1.gin:2: ToyMlp.width configures nothing: the code that calls ToyMlp passes its own 'width'.")

  def test_scope_that_is_never_called(self, folder):
    folder.parse('toy_run.parts = [@a/ToyMlp]\ntoy_run.critic = @b/ToyMlp\na/ToyMlp.width = 3\nb/ToyMlp.width = 3')
    toy_run()()
    with pytest.raises(configuration.ConfigurationError) as error:
      configuration.check_operative()
    assert str(error.value) == "1.gin:3: a/ToyMlp.width configures nothing: ToyMlp was only called in the scope 'b'."

  def test_binding_that_narrower_ones_hide_in_all_calls(self, folder):
    folder.parse('toy_run.parts = [@ToyMlp]\ntoy_run.critic = @b/ToyMlp\nToyMlp.width = 3\nb/ToyMlp.width = 3')
    toy_run()()
    with pytest.raises(configuration.ConfigurationError, match='1.gin:3: ToyMlp.width configures nothing'):
      configuration.check_operative()

  def test_format_error_removes_what_gin_adds(self, folder):
    folder.parse('toy_run_that_checks.factory = @ToyMlp\nToyMlp.width = 3', root='toy_run_that_checks')
    with pytest.raises(configuration.ConfigurationError, match='In call to configurable') as error:
      toy_run_that_checks('somewhere')
    assert configuration.format_error(error.value) == (
        '1.gin:2: ToyMlp.width configures nothing: ToyMlp was never called.')
    assert configuration.format_error(ValueError('a\nb')) == 'a\nb'


class TestSaving:

  LAYERS = (
      '''
      import math
      RATE = 1e-4
      SUITE/TASKS = ('goal', 'button')
      TASK = %gin.REQUIRED
      toy_run.learning_rate = %RATE
      toy_run.posterior = @ToySwag()
      ToySwag.decay = 0.5
      toy_run.environment = @a/b/toy_environment()
      toy_environment.task = %TASK
      a/toy_environment.layout = {
          'walls': [1e999, -1e999, (1,), ()],
          'goals': {'x': None, 'a': [True, -3]},
          'set': %SUITE/TASKS,
      }
      ''',
      '''
      toy_run.posterior = @ToyEnsemble()
      toy_run.critic = @reward_critic/ToyCritic()
      reward_critic/ToyCritic.mlp = @reward_critic/ToyMlp
      reward_critic/ToyMlp.width = 3
      reward_critic/ToyMlp.name = 'it\\'s a "name"\\n# no comment'
      toy_run.parts = [
          'a part with a name of some length',
          'another part with a name of some length',
          [{'x': @ToyMlp}, 1.5, 'more than fits on one line of a file'],
      ]
      ''')

  def test_saved_configuration_is_the_same(self, folder):
    folder.parse(*self.LAYERS, flags=('TASK = "goal"', 'ToyEnsemble:\n  members = 7\n'))
    before = _config()
    result = toy_run()
    configuration.save_config(folder.path / 'runs' / 'config.gin')
    superseded = [line.partition(' = ')[0] for line in configuration.superseded_bindings()]
    assert superseded == ['ToySwag.decay']

    folder.parse('runs/config.gin')
    del before['ToySwag.decay']
    assert _config() == before
    assert toy_run().mlp().name == result.mlp().name
    layout = gin.get_bindings('a/toy_environment')['layout']
    assert list(layout) == ['walls', 'goals', 'set']
    assert layout['walls'] == [math.inf, -math.inf, (1,), ()]
    assert [path.name for path in (folder.path / 'runs').iterdir()] == ['config.gin']

    # A second round changes the sources in the comments only.
    configuration.save_config(folder.path / 'again.gin')
    folder.parse('again.gin')
    assert _config() == before

  def test_resolved_config(self, folder):
    folder.parse("RATE = 1e-4\ntoy_run.learning_rate = %RATE\ntoy_run.posterior = @ToySwag()\nToySwag.decay = 0.5",
                 'toy_run.posterior = @a/ToyEnsemble()', flags=('a/ToyEnsemble.members = 3',))
    assert configuration.resolved_config() == textwrap.dedent('''\
        # Macros
        RATE = 0.0001  # 1.gin:1

        # toy_run
        toy_run.learning_rate = %RATE  # 1.gin:2
        toy_run.posterior = @a/ToyEnsemble()  # 2.gin:1

        # a/ToyEnsemble
        a/ToyEnsemble.members = 3  # --gin_bindings

        # Superseded by later layers
        # ToySwag.decay = 0.5 (1.gin:4)
        ''')

  def test_operative_configuration_has_defaults_and_only_what_was_called(self, folder):
    folder.parse('toy_run.posterior = @a/ToySwag()\nToySwag.decay = 0.5\ntoy_run.critic = @ToyMlp\nToyMlp.width = 2')
    toy_run()
    configuration.save_operative_config(folder.path / 'operative_config.gin')
    text = (folder.path / 'operative_config.gin').read_text()
    assert 'a/ToySwag.decay = 0.5\n' in text
    assert 'a/ToySwag.columns = 20\n' in text
    assert 'ToyMlp.width' not in text
    folder.parse('operative_config.gin')

  def test_failed_write_leaves_the_old_file(self, folder, monkeypatch):
    path = folder.path / 'config.gin'
    path.write_text('old')
    folder.parse('toy_run.steps = 1')

    def fail(*args, **kwargs):
      raise OSError('disk full')

    monkeypatch.setattr(pathlib.Path, 'replace', fail)
    with pytest.raises(OSError, match='disk full'):
      configuration.save_config(path)
    assert path.read_text() == 'old'
    assert sorted(path.name for path in folder.path.iterdir()) == ['1.gin', 'config.gin']
