"""What the pictures of the pages share: one look in light and dark, and text in its place."""

from collections.abc import Iterable
from html import escape

_STYLE = """
:root { --ink: #1b1f24; --faint: #59636e; --paper: #ffffff; --line: #d0d7de; --mark: #0b62a8; --keep: #1a7a43; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --faint: #9aa5b1; --paper: #0d1117; --line: #30363d; --mark: #66b3f2; --keep: #63c98b; }
}
text { fill: var(--ink); font: 13px system-ui, "Noto Sans CJK SC", sans-serif; }
.name { font-weight: 600; } .head { fill: var(--faint); } .keep { fill: var(--keep); } .number { fill: var(--paper); }
.paper { fill: var(--paper); } .dot { fill: var(--mark); } .rule { stroke: var(--line); }
"""


def draw(width: int, height: int, parts: Iterable[str]) -> str:
    """A whole picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img">\n<style>{_STYLE}</style>\n<rect class="paper" width="{width}" height="{height}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def text_at(x: int, y: int, words: str, kind: str = "") -> str:
    """A line of text whose class is one of the style's."""
    return f'<text x="{x}" y="{y}"' + (f' class="{kind}"' if kind else "") + f">{escape(words)}</text>"
