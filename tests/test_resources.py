"""Where files that come with lambda_kit are found."""

import pathlib

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit import resources
from lambda_kit.config import configuration


def test_a_clone_has_its_gin_files_at_the_top():
  assert resources.root() == pathlib.Path(__file__).resolve().parents[1] and resources.is_clone()


def test_an_installed_package_has_them_inside_and_does_not_take_the_library_for_them(tmp_path, monkeypatch):
  monkeypatch.setattr(resources, '_PACKAGE', tmp_path / 'lambda_kit')
  (tmp_path / 'gin').mkdir()  # The library, beside the package.
  (tmp_path / 'lambda_kit' / 'data' / 'gin').mkdir(parents=True)
  assert resources.root() == tmp_path / 'lambda_kit' / 'data' and not resources.is_clone()


def test_a_file_of_the_current_folder_wins(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  parse = lambda: configuration.parse(['gin/tasks/grid.gin'], search_paths=[str(resources.root())])
  parse()
  theirs = gin.query_parameter('%ENVIRONMENT_STEPS')
  path = pathlib.Path('gin', 'tasks', 'grid.gin')
  (tmp_path / path.parent).mkdir(parents=True)
  (tmp_path / path).write_text(f'{(resources.root() / path).read_text()}\nENVIRONMENT_STEPS = {theirs + 1}\n')
  parse()
  assert gin.query_parameter('%ENVIRONMENT_STEPS') == theirs + 1
  gin.clear_config()


def test_the_cache_is_the_users(monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', '/x')
  assert resources.cache_folder() == pathlib.Path('/x/lambda_kit')
  monkeypatch.delenv('XDG_CACHE_HOME')
  monkeypatch.setenv('HOME', '/home/someone')
  assert resources.cache_folder() == pathlib.Path('/home/someone/.cache/lambda_kit')
