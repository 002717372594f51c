"""What damage and strangers make of files, as strategies of hypothesis."""

from collections.abc import Iterator
import copy
import json
from typing import Any

from hypothesis import strategies as st

_TEXTS = ('', '\ud800', 'a\nb', '\x1b[2J', '=1+1', '$\\frac{', '<b>', '../../x', '/dev/zero', 'x' * 5000, '%A', '@X()')
_NUMBERS = (0, -1, 2**53, 10**30, 10**400, 1e30, -1e300, 1e308, 5e-324, float('inf'), float('-inf'), float('nan'))
_SCALARS = st.one_of(
  st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.sampled_from(_TEXTS + _NUMBERS)
)
_VALUES = st.one_of(
  st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
  ),
  st.builds(lambda: [[] for _ in range(200)]),
  st.builds(lambda: json.loads('[' * 200 + ']' * 200)),
)


def _places(value: Any, holder: Any = None, key: Any = None) -> Iterator[tuple[Any, Any]]:
  """All places in a value, as (list or dictionary, index or key)."""
  if holder is not None:
    yield holder, key
  for inner, item in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
    yield from _places(item, value, inner)


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
  """JSON with up to three places replaced, removed, renamed or repeated."""
  value = copy.deepcopy(value)
  for _ in range(draw(st.integers(1, 3))):
    places = list(_places(value))
    if not places:
      return draw(_VALUES)
    holder, key = draw(st.sampled_from(places))
    match draw(st.sampled_from(['replace', 'replace', 'remove', 'rename', 'repeat'])):
      case 'remove':
        del holder[key]
      case 'rename' if isinstance(holder, dict):
        holder[draw(st.text(max_size=5))] = holder.pop(key)
      case 'repeat' if isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
      case _:
        holder[key] = draw(_VALUES)
  return value


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
  """Bytes with up to three places cut off, flipped, overwritten or repeated."""
  for _ in range(draw(st.integers(1, 3))):
    start = draw(st.integers(0, max(0, len(content) - 1)))
    end = start + draw(st.integers(0, 40))
    match draw(st.sampled_from(['cut', 'flip', 'write', 'repeat'])):
      case 'cut':
        content = content[:start]
      case 'flip' if content:
        content = content[:start] + bytes([content[start] ^ 1 << draw(st.integers(0, 7))]) + content[start + 1 :]
      case 'repeat':
        content = content[:end] + content[start:end] * draw(st.integers(1, 50)) + content[end:]
      case _:
        content = content[:start] + draw(st.binary(max_size=20)) + content[end:]
  return content


def json_files(value: Any) -> st.SearchStrategy[bytes]:
  """A file of JSON, changed or damaged."""
  return changed(value).map(lambda found: json.dumps(found).encode()) | damaged(json.dumps(value).encode())


@st.composite
def row_files(draw: st.DrawFn, rows: list[dict[str, Any]]) -> bytes:
  """A file of JSON lines, some of them changed, and damaged as a whole or not."""
  rows = [draw(changed(row)) if draw(st.integers(0, 2)) == 0 else row for row in rows]
  content = b''.join(json.dumps(row).encode() + b'\n' for row in rows)
  return draw(damaged(content)) if draw(st.booleans()) else content
