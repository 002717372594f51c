"""Tests of `configuration`: reading, checking after use, and saving."""

import math
import os
import textwrap

import pytest

import gin
from lambda_kit.config import configuration
from lambda_kit.config import gin_internals
from tests.fakes import toys


def _config() -> dict[str, str]:
  # As text: gin's references are equal whatever their scope.
  return {str(key): repr(value) for key, value in gin_internals.bindings().items()}


class TestReading:
  def test_later_layers_win_and_flags_come_last(self, folder):
    folder.parse(
      'toy_run.steps = 1\ntoy_run.learning_rate = 1.',
      'toy_run.steps = 2\ntoy_run.learning_rate = 2.',
      flags=('toy_run.steps = 3',),
    )
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
    assert '\nimport math\n' in configuration.resolved_config()

  def test_missing_file(self, folder):
    folder.write('gin/sg6_pointgoal1.gin', '')
    folder.write('gin/tiny.gin', '')
    for wrong in (
      'gin/sg6_pointgaol1.gin',
      'sg6_pointgoal1.gin',
      'gim/sg6_pointgoal1.gin',
      'gin/envs/sg6_pointgoal.gin',
    ):
      message = folder.error(wrong)
      assert message.startswith(f'there is no file {wrong} in ')
      assert str(folder.path) in message
      assert message.endswith('Did you mean gin/sg6_pointgoal1.gin?')
    assert 'Did you mean' not in folder.error('gin/entirely_different.gin')
    assert folder.error(f'{folder.path}/gin/tony.gin') == (
      f'there is no file {folder.path}/gin/tony.gin. Did you mean {folder.path}/gin/tiny.gin?'
    )

  def test_missing_included_file(self, folder):
    folder.write('gin/agents/lambda.gin', '')
    message = folder.error("\ninclude 'gin/base/lamda.gin'")
    assert message.startswith('1.gin:2: there is no file gin/base/lamda.gin')
    assert message.endswith('Did you mean gin/agents/lambda.gin?')

  def test_file_that_includes_itself(self, folder):
    folder.write('b.gin', "include '1.gin'")
    assert folder.error("include 'b.gin'") == 'b.gin:1: 1.gin includes itself, directly or through other files.'

  @pytest.mark.parametrize(
    'text, message',
    [
      (
        '\ntoy_run.steps 3',
        "1.gin:2: syntax error: Couldn't parse statement, expected ':' or '='.\n    toy_run.steps 3",
      ),
      ('toy_run.steps =', '1.gin:1: syntax error: Unable to parse value.\n    toy_run.steps ='),
      ('\n\ntoy_run.parts = [1,', '1.gin:3: a bracket or quote that opens here is never closed.'),
      (
        'toy_run.steps = many',
        "1.gin:1: 'many' is not a value. A string needs quotes: 'many'.\n    toy_run.steps = many",
      ),
      ('toy_run.steps = true', "1.gin:1: 'true' is not a value. Did you mean True?\n    toy_run.steps = true"),
      ('toy_run:\nsteps = 1', '1.gin:2: syntax error: Expected indentation.  Got NAME = steps.\n    steps = 1'),
      ('import no_such_module', "1.gin:1: can't import no_such_module: No module named 'no_such_module'"),
      (
        'from __gin__ import dynamic_registration',
        '1.gin:1: dynamic registration is not supported. Use @gin.register.',
      ),
    ],
  )
  def test_syntax_error(self, folder, text, message):
    assert folder.error(text + '\n') == message

  def test_error_in_a_flag_shows_the_flag(self, folder):
    assert folder.error(flags=('toy_run.steps = 1', 'toy_run.steps = x')) == (
      """--gin_bindings="toy_run.steps = x": 'x' is not a value. A string needs quotes: 'x'."""
    )


class TestCheckOperative:
  def test_used_bindings_pass(self, folder):
    folder.parse(
      'toy_run.posterior = @ToySwag()\nToySwag.decay = 0.5\ntoy_run.critic = @critic/ToyCritic\n'
      'ToyCritic.mlp = @ToyMlp()\ncritic/ToyMlp.width = %WIDTH\nWIDTH = 3',
      'toy_run.posterior = @ToyEnsemble()',
    )
    toys.toy_run()()
    configuration.check_operative()

  def test_factory_that_is_never_called(self, folder):
    folder.parse('toy_run.critic = @critic/ToyMlp\ncritic/ToyMlp.width = %WIDTH\nWIDTH = 3')
    factory = toys.toy_run()
    with pytest.raises(configuration.ConfigurationError) as error:
      configuration.check_operative()
    assert str(error.value) == (
      '1.gin:3: WIDTH configures nothing: the macro was never read.\n'
      '1.gin:2: critic/ToyMlp.width configures nothing: ToyMlp was never called.'
    )
    configuration.check_operative(later=['ToyMlp'])
    factory()
    configuration.check_operative()

  def test_argument_that_the_caller_passes(self, folder):
    folder.parse("toy_run.critic = @ToyMlp\nToyMlp.width = 3\nToyMlp.name = 'x'")
    toys.toy_run()(width=4)
    with pytest.raises(configuration.ConfigurationError) as error:
      configuration.check_operative()
    assert str(error.value) == (
      "1.gin:2: ToyMlp.width configures nothing: the code that calls ToyMlp passes its own 'width'."
    )

  def test_scope_that_is_never_called(self, folder):
    folder.parse('toy_run.parts = [@a/ToyMlp]\ntoy_run.critic = @b/ToyMlp\na/ToyMlp.width = 3\nb/ToyMlp.width = 3')
    toys.toy_run()()
    with pytest.raises(configuration.ConfigurationError) as error:
      configuration.check_operative()
    assert str(error.value) == "1.gin:3: a/ToyMlp.width configures nothing: ToyMlp was only called in the scope 'b'."

  def test_binding_that_narrower_ones_hide_in_all_calls(self, folder):
    folder.parse('toy_run.parts = [@ToyMlp]\ntoy_run.critic = @b/ToyMlp\nToyMlp.width = 3\nb/ToyMlp.width = 3')
    toys.toy_run()()
    with pytest.raises(configuration.ConfigurationError, match='1.gin:3: ToyMlp.width configures nothing'):
      configuration.check_operative()

  def test_format_error_removes_what_gin_adds(self, folder):
    folder.parse('toy_run_that_checks.factory = @ToyMlp\nToyMlp.width = 3', root='toy_run_that_checks')
    with pytest.raises(configuration.ConfigurationError, match='In call to configurable') as error:
      toys.toy_run_that_checks('somewhere')
    assert configuration.format_error(error.value) == (
      '1.gin:2: ToyMlp.width configures nothing: ToyMlp was never called.'
    )
    assert configuration.format_error(ValueError('a\nb')) == 'a\nb'


class TestSaving:
  LAYERS = (
    """
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
      """,
    """
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
      """,
  )

  def test_saved_configuration_is_the_same(self, folder):
    folder.parse(*self.LAYERS, flags=('TASK = "goal"', 'ToyEnsemble:\n  members = 7\n'))
    before = _config()
    result = toys.toy_run()
    configuration.save_config(folder.path / 'runs' / 'config.gin')
    unused = [line.partition(' = ')[0] for line in configuration.unused_bindings()]
    assert unused == ['ToySwag.decay']

    folder.parse('runs/config.gin')
    del before['ToySwag.decay']
    assert _config() == before
    assert toys.toy_run().mlp().name == result.mlp().name
    layout = gin.get_bindings('a/toy_environment')['layout']
    assert list(layout) == ['walls', 'goals', 'set']
    assert layout['walls'] == [math.inf, -math.inf, (1,), ()]
    assert [path.name for path in (folder.path / 'runs').iterdir()] == ['config.gin']

    # A second round changes the sources in the comments only.
    configuration.save_config(folder.path / 'again.gin')
    folder.parse('again.gin')
    assert _config() == before

  def test_resolved_config(self, folder):
    folder.parse(
      'RATE = 1e-4\ntoy_run.learning_rate = %RATE\ntoy_run.posterior = @ToySwag()\nToySwag.decay = 0.5',
      'toy_run.posterior = @a/ToyEnsemble()',
      flags=('a/ToyEnsemble.members = 3',),
    )
    assert configuration.resolved_config() == textwrap.dedent("""\
        # The whole configuration of a run, as lambda_kit resolved it.

        # Macros
        RATE = 0.0001  # 1.gin:1

        # toy_run
        toy_run.learning_rate = %RATE  # 1.gin:2
        toy_run.posterior = @a/ToyEnsemble()  # 2.gin:1

        # a/ToyEnsemble
        a/ToyEnsemble.members = 3  # --gin_bindings

        # Not in use
        # ToySwag.decay = 0.5 (1.gin:4)
        """)

  def test_operative_configuration_has_defaults_and_only_what_was_called(self, folder):
    folder.parse('toy_run.posterior = @a/ToySwag()\nToySwag.decay = 0.5\ntoy_run.critic = @ToyMlp\nToyMlp.width = 2')
    toys.toy_run()
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

    monkeypatch.setattr(os, 'replace', fail)
    with pytest.raises(OSError, match='disk full'):
      configuration.save_config(path)
    assert path.read_text() == 'old'
    assert sorted(path.name for path in folder.path.iterdir()) == ['1.gin', 'config.gin']
