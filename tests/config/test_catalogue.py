"""The catalogue of components is written from the code, and docs/components.md is up to date."""

import pathlib

import gin
from lambda_kit import components  # noqa: F401 (registers)
from lambda_kit.config import catalogue

_PAGE = pathlib.Path(__file__).resolve().parents[2] / 'docs' / 'components.md'


@gin.register
class CataloguedToy:
  """Adds (see eq. 4) numbers. Nothing else.

  Args:
    first: What to begin with.
  """

  def __init__(self, first: int, rest: tuple[float, ...] = (0.5,), kind: type = dict, name: str | None = None):
    del first, rest, kind, name


def test_page_is_up_to_date():
  assert _PAGE.read_text('utf-8') == catalogue.markdown(), 'Run: lambda-kit components > docs/components.md'


def test_entry_has_sentence_needs_and_defaults_as_gin_text():
  package = __name__.split('.')[0]
  entry = catalogue.markdown(package).partition('### CataloguedToy\n\n')[2]
  assert entry.startswith(
    'Adds (see eq. 4) numbers. In [test_catalogue.py](../tests/config/test_catalogue.py). Needs '
    '`first`.\n\n    CataloguedToy.rest = (0.5,)\n    CataloguedToy.kind = @dict\n'
  )
  assert 'CataloguedToy.name' not in entry


def test_components_of_others_are_left_out():
  assert 'CataloguedToy' not in catalogue.markdown()
