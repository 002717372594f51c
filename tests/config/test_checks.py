"""Tests of what is refused before anything is built, and of our account of gin's scopes against gin itself."""

from collections.abc import Callable
from typing import Any

import pytest

import gin
from lambda_kit.config import configuration
from tests.fakes import toys


class TestNames:
  def test_unknown_configurable(self, folder):
    assert folder.error('\nToySwga.decay = 0.5') == "1.gin:2: there is no configurable 'ToySwga'. Did you mean ToySwag?"
    assert folder.error('toyswag:\n  decay = 0.5\n') == (
      "1.gin:1: there is no configurable 'toyswag'. Did you mean ToySwag?"
    )

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
      "1.gin:1: ToyDataclass has no parameter 'sizes'. Did you mean size?"
    )
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
      '--gin_bindings="STEPS = ...".'
    )

  def test_undefined_macro_is_compared_with_unused_ones(self, folder):
    message = folder.error('STEP = 3\nRATE = 4.\ntoy_run.steps = %STEPS\ntoy_run.learning_rate = %RATE')
    assert message.endswith('(STEP is defined but not used: is STEPS meant?)')
    assert '\n' not in message

  def test_undefined_macro_of_an_unused_part_does_no_harm(self, folder):
    folder.parse(
      'toy_run.posterior = @ToySwag()\nToySwag.decay = %DECAY\nDECAY = 0.5', 'toy_run.posterior = @ToyEnsemble()'
    )

  def test_required_macro(self, folder):
    base = 'TASK = %gin.REQUIRED\ntoy_run.environment = @toy_environment\ntoy_environment.task = %TASK'
    assert folder.error(base) == (
      '1.gin:1: the macro TASK must be set (used by toy_environment.task). Write TASK = ... in a gin file, or pass '
      '--gin_bindings="TASK = ...".'
    )
    assert folder.error(base, flags=('TAKS = 1',)).endswith('(TAKS is defined but not used: is TASK meant?)')
    folder.parse(base, flags=('TASK = "goal"',))
    folder.parse(base, 'TASK = "goal"')

  def test_required_value(self, folder):
    base = 'ToySwag.decay = %gin.REQUIRED\ntoy_run.posterior = @ToySwag'
    assert folder.error(base) == (
      '1.gin:1: ToySwag.decay must be set. Write ToySwag.decay = ... in a gin file, or pass '
      '--gin_bindings="ToySwag.decay = ...".'
    )
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
      'pass --gin_bindings="a/toy_environment.task = ...".'
    )
    folder.parse('toy_run.environment = @a/toy_environment()\ntoy_environment.task = "goal"')
    assert "1.gin:1: @ToyDataclass() has no value for 'size'." in folder.error('toy_run.parts = [@ToyDataclass()]')
    # Whoever calls a factory may pass it.
    folder.parse('toy_run.environment = @toy_environment')

  def test_argument_of_the_root(self, folder):
    # The launcher passes the workdir.
    assert folder.error(root='toy_run_that_checks') == (
      'toy_run_that_checks.factory must be set. Write toy_run_that_checks.factory = ... in a gin file, or pass '
      '--gin_bindings="toy_run_that_checks.factory = ...".'
    )

  def test_all_problems_are_listed(self, folder):
    lines = folder.error('toy_run.steps = %STEPS\ntoy_run.learning_rate = %RATE').splitlines()
    assert len(lines) == 2


class TestDeadBindings:
  def test_part_that_nothing_refers_to(self, folder):
    assert folder.error('toy_run.posterior = @ToyEnsemble()\nToySwag.decay = 0.5') == (
      '1.gin:2: ToySwag.decay configures nothing: nothing refers to ToySwag: toy_run.posterior is @ToyEnsemble().'
    )

  def test_part_that_only_a_dead_part_refers_to(self, folder):
    lines = folder.error('ToyCritic.mlp = @ToyMlp()\nToyMlp.width = 1').splitlines()
    assert lines == [
      '1.gin:1: ToyCritic.mlp configures nothing: nothing refers to ToyCritic.',
      '1.gin:2: ToyMlp.width configures nothing: nothing refers to ToyMlp but ToyCritic.mlp, which configures '
      'nothing either.',
    ]

  def test_parts_are_reached_through_containers_macros_and_scopes(self, folder):
    folder.parse("""
        toy_run.parts = [1, ('x', {'a': @ToySwag()}), %NET]
        NET = {'net': [%INNER]}
        INNER = @a/b/ToyCritic
        ToyCritic.mlp = @ToyMlp()
        ToySwag.decay = 0.5
        a/ToyMlp.name = 'x'
        a/b/ToyMlp.width = 2
        """)
    assert not configuration.unused_bindings()

  def test_swapped_part_is_not_in_use(self, folder):
    folder.parse(
      'toy_run.posterior = @ToySwag()\nToySwag.decay = %DECAY\nDECAY = 0.5',
      'toy_run.posterior = @ToyEnsemble()\nToyEnsemble.members = 3',
    )
    assert configuration.unused_bindings() == ['DECAY = 0.5 (1.gin:3)', 'ToySwag.decay = %DECAY (1.gin:2)']

  def test_swap_by_a_flag(self, folder):
    folder.parse(
      'toy_run.posterior = @ToySwag()\nToySwag.decay = 0.5',
      flags=('ToyEnsemble.members = 3', 'toy_run.posterior = @ToyEnsemble()'),
    )
    assert configuration.unused_bindings() == ['ToySwag.decay = 0.5 (1.gin:2)']

  def test_swap_in_the_including_file(self, folder):
    folder.write('base.gin', 'toy_run.posterior = @ToySwag()\nToySwag.decay = 0.5')
    folder.parse("include 'base.gin'\ntoy_run.posterior = @ToyEnsemble()")
    assert configuration.unused_bindings() == ['ToySwag.decay = 0.5 (base.gin:2)']

  def test_swap_within_one_file_is_an_error(self, folder):
    message = folder.error('toy_run.posterior = @ToySwag()\nToySwag.decay = 0.5\ntoy_run.posterior = @ToyEnsemble()')
    assert message == (
      '1.gin:2: ToySwag.decay configures nothing: nothing refers to ToySwag. toy_run.posterior was @ToySwag() '
      '(1.gin:1), but is now @ToyEnsemble() (1.gin:3).'
    )

  def test_binding_that_a_later_layer_needs(self, folder):
    folder.parse('ToySwag.decay = 0.5', 'toy_run.posterior = @ToySwag()')
    assert not configuration.unused_bindings()

  def test_binding_of_a_part_that_an_earlier_layer_swapped(self, folder):
    # That the same parameter was of use in the first layer is no excuse for the flag.
    message = folder.error(
      'toy_run.posterior = @ToySwag()\nToySwag.decay = 0.5',
      'toy_run.posterior = @ToyEnsemble()',
      flags=('ToySwag.decay = 0.9',),
    )
    assert message == (
      '--gin_bindings="ToySwag.decay = 0.9": ToySwag.decay configures nothing: nothing refers to ToySwag. '
      'toy_run.posterior was @ToySwag() (1.gin:1), but is now @ToyEnsemble() (2.gin:1).'
    )

  def test_unused_macro(self, folder):
    assert folder.error('STEPS = 3\nSTEP = 4\ntoy_run.steps = %STEPS') == (
      '1.gin:2: STEP configures nothing: nothing uses the macro. Did you mean STEPS?'
    )
    assert folder.error('XYZ = 4') == '1.gin:1: XYZ configures nothing: nothing uses the macro.'

  def test_macro_whose_use_was_overridden(self, folder):
    base, variant = 'STEPS = 3\ntoy_run.steps = %STEPS', 'toy_run.steps = 4'
    folder.parse(base, variant)
    assert configuration.unused_bindings() == ['STEPS = 3 (1.gin:1)']
    assert folder.error(base, variant, flags=('STEPS = 5',)) == (
      '--gin_bindings="STEPS = 5": STEPS configures nothing: nothing uses the macro. toy_run.steps was %STEPS '
      '(1.gin:2), but is now 4 (2.gin:1).'
    )

  def test_configurable_bound_like_a_macro(self, folder):
    assert folder.error('ToySwag = 4') == (
      '1.gin:1: ToySwag configures nothing: this defines a macro. To configure ToySwag, name a parameter: '
      'ToySwag.<parameter> = ...'
    )

  def test_misspelt_scope(self, folder):
    assert folder.error('toy_run.critic = @reward_critic/ToyMlp()\nrewrad_critic/ToyMlp.width = 2') == (
      "1.gin:2: rewrad_critic/ToyMlp.width configures nothing: no reference opens the scope 'rewrad_critic'. "
      'Did you mean reward_critic?'
    )

  def test_scope_that_an_uncalled_reference_loses(self, folder):
    assert folder.error('toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = @ToyMlp\ncritic/ToyMlp.width = 2') == (
      '1.gin:3: critic/ToyMlp.width configures nothing: ToyCritic.mlp = @ToyMlp (1.gin:2) has no parentheses: it is '
      "called later, outside the scope 'critic'. Write @critic/ToyMlp there."
    )

  def test_scope_of_another_part(self, folder):
    assert folder.error('toy_run.parts = [@a/ToyMlp(), @ToyMlp(), @b/ToySwag()]\nb/ToyMlp.width = 2') == (
      "1.gin:2: b/ToyMlp.width configures nothing: ToyMlp is not used in the scope 'b', only outside any scope, in "
      "the scope 'a'."
    )

  def test_scope_that_a_macro_replaces(self, folder):
    text = 'toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = %NET\nNET = @ToyMlp()\ncritic/ToyMlp.width = 2'
    assert folder.error(text) == (
      "1.gin:4: critic/ToyMlp.width configures nothing: ToyMlp is not used in the scope 'critic', only in the scope "
      "'NET'. The macro NET is a scope of its own, which replaces others."
    )

  def test_binding_that_narrower_ones_hide(self, folder):
    base = 'toy_run.parts = [@a/ToyMlp(), @b/ToyMlp()]\na/ToyMlp.width = 1\nb/ToyMlp.width = 2'
    assert folder.error(base, flags=('ToyMlp.width = 3',)) == (
      '--gin_bindings="ToyMlp.width = 3": ToyMlp.width configures nothing: each use of ToyMlp has a narrower '
      'binding: a/ToyMlp.width = 1 (1.gin:2), b/ToyMlp.width = 2 (1.gin:3).'
    )
    folder.parse(
      'ToyMlp.width = 3\ntoy_run.parts = [@a/ToyMlp(), @b/ToyMlp()]', 'a/ToyMlp.width = 1\nb/ToyMlp.width = 2'
    )
    assert configuration.unused_bindings() == ['ToyMlp.width = 3 (1.gin:1)']

  def test_cycles_end(self, folder):
    folder.parse('toy_run.critic = @ToyCritic\nToyCritic.mlp = @ToyCritic')


# Ways to reach a ToyMlp, and how Python gets at it.
STRUCTURES: dict[str, tuple[str, Callable[[Any], toys.ToyMlp]]] = {
  'plain': ('toy_run.critic = @ToyMlp()', lambda critic: critic),
  'scoped': ('toy_run.critic = @critic/ToyMlp()', lambda critic: critic),
  'uncalled and scoped': ('toy_run.critic = @critic/ToyMlp', lambda critic: critic()),
  'called in a scope': ('toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = @ToyMlp()', lambda critic: critic.mlp),
  'uncalled in a scope': ('toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = @ToyMlp', lambda critic: critic.mlp()),
  'uncalled in uncalled': (
    'toy_run.critic = @critic/ToyCritic\nToyCritic.mlp = @ToyMlp',
    lambda critic: critic().mlp(),
  ),
  'called in uncalled': ('toy_run.critic = @critic/ToyCritic\nToyCritic.mlp = @ToyMlp()', lambda critic: critic().mlp),
  'other scope': ('toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = @inner/ToyMlp()', lambda critic: critic.mlp),
  'other scope, uncalled': (
    'toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = @inner/ToyMlp',
    lambda critic: critic.mlp(),
  ),
  'nested scopes': ('toy_run.critic = @critic/inner/ToyCritic()\nToyCritic.mlp = @ToyMlp()', lambda critic: critic.mlp),
  'macro': ('toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = %NET\nNET = @ToyMlp()', lambda critic: critic.mlp),
  'macro, uncalled': (
    'toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = %NET\nNET = @ToyMlp',
    lambda critic: critic.mlp(),
  ),
  'macro in a scope': ('toy_run.critic = %critic/NET\ncritic/NET = @ToyMlp()', lambda critic: critic),
  'macro of an outer scope': ('toy_run.critic = %critic/NET\ncritic = @ToyMlp()', lambda critic: critic),
  'list': ('toy_run.critic = @critic/ToyCritic()\nToyCritic.mlp = [@ToyMlp()]', lambda critic: critic.mlp[0]),
  'singleton': (
    'toy_run.critic = @NET/gin.singleton()\nNET/gin.singleton.constructor = @ToyMlp',
    lambda critic: critic,
  ),
}
SCOPES = ['', 'critic', 'inner', 'critic/inner', 'inner/critic', 'NET', 'critic/NET']


class TestScopesAgainstGin:
  @pytest.mark.parametrize('scope', SCOPES)
  @pytest.mark.parametrize('structure', STRUCTURES)
  def test_binding_is_accepted_exactly_if_it_has_an_effect(self, folder, structure, scope):
    text, get_mlp = STRUCTURES[structure]
    text += f'\n{scope}{"/" if scope else ""}ToyMlp.width = 7'
    gin.parse_config(text)
    has_effect = get_mlp(toys.toy_run()).width == 7
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
      width = get_mlp(toys.toy_run()).width
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
    assert toys.toy_run().mlp.width == 7
    assert 'Write @critic/ToyMlp there.' in folder.error(text + 'ToyCritic.mlp = @ToyMlp')
    folder.parse(text + 'ToyCritic.mlp = @critic/ToyMlp')
    assert toys.toy_run().mlp.width == 7
