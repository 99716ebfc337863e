"""A comparison as one page: no script, no other file, and as wide as the window is."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tcomp.commands.comparing.sides import Side
from tcomp.version import __version__

_STYLE = """
:root { --ink: #222; --soft: #667; --paper: #fff; --more: #e4f4e8; --less: #fbe7e4; --line: #dde4e8 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ddd; --soft: #99a; --paper: #16191c; --more: #1e3b28; --less: #43241f; --line: #333a40 } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 1.2em auto;
  max-width: 1400px; padding: 0 1em }
h1 { font-size: 1.3em } h2 { font-size: 1.1em; margin-top: 1.6em }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: 14px }
td, th { padding: 3px 14px 3px 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--soft); font-weight: normal } .differs td { font-weight: 600 }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 1em }
pre { font-size: 12px; overflow-x: auto; margin: 0.4em 0; padding: 0.6em; border: 1px solid var(--line) }
.more { background: var(--more) } .less { background: var(--less) }
"""


def page(title: str, sides: Sequence[Side], rows: Sequence[tuple[str, ...]], texts: Sequence[str]) -> str:
    """The text of the page; ``rows`` are the facts, ``texts`` the differences from each side to the next."""
    heads = "".join(f"<th>{escape(side.name)}</th>" for side in sides)
    body = "".join(f"<tr{_class(row)}>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    loops = "".join(
        f"<section><h3>{escape(side.name)}</h3><p><code>{escape(side.nest)}</code></p>"
        f"<pre>{escape(side.loops)}</pre></section>"
        for side in sides
    )
    changes = "".join(f"<pre>{_coloured(text)}</pre>" for text in texts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<title>tcomp compare: {escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>tcomp compare: {escape(title)}</h1>"
        f'<div class="wide"><table><tr><th></th>{heads}</tr>{body}</table></div>'
        f'<h2>Loops</h2><div class="sides">{loops}</div>'
        f"<h2>What differs in the text</h2>{changes}<p><small>tcomp {__version__}</small></p></body></html>\n"
    )


def _class(row: tuple[str, ...]) -> str:
    return ' class="differs"' if len({*row[1:]}) > 1 else ""


def _coloured(text: str) -> str:
    kinds = {"+": "more", "-": "less"}
    lines = []
    for line in text.splitlines():
        kind = kinds.get(line[:1])
        lines.append(f'<span class="{kind}">{escape(line)}</span>' if kind else escape(line))
    return "\n".join(lines)
