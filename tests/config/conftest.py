"""What several tests of experiments need."""

from collections.abc import Iterator
import pathlib

import pytest

import gin
from tests.fakes import toys


@pytest.fixture(name='folder')
def _folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[toys.Folder]:
  gin.clear_config()
  # Away from the project's own gin files, which the working directory would give first.
  (tmp_path / 'elsewhere').mkdir()
  monkeypatch.chdir(tmp_path / 'elsewhere')
  (tmp_path / 'files').mkdir()
  yield toys.Folder(tmp_path / 'files')
  gin.clear_config()
