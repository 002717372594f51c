"""Tables of text, as Markdown and as HTML."""

from collections.abc import Iterable
import html

Row = tuple[str, ...]

MISSING = '—'


def to_markdown(head: Row, rows: Iterable[Row]) -> str:
  """A line for each row, without a line break at the end."""
  lines = [head, ('---',) * len(head), *rows]
  return '\n'.join('| ' + ' | '.join(text.replace('|', r'\|') for text in line) + ' |' for line in lines)


def to_html(caption: str, head: Row, rows: Iterable[Row]) -> str:
  """A table with its caption."""
  row = lambda cells, tag: '<tr>' + ''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells) + '</tr>'
  body = ''.join(row(line, 'td') for line in rows)
  return (
    f'<table><caption>{html.escape(caption)}</caption><thead>{row(head, "th")}</thead><tbody>{body}</tbody></table>'
  )
