"""Text that people also read elsewhere, such as a docstring or an alert, as part of a page."""

import re
import textwrap

_PAGE = re.compile(r"\bdocs/([\w/-]+\.md)(#[\w-]+)?")


def linked(text: str, up: str = "") -> str:
    """The text with `docs/page.md#place` as a link; `up` leads from the page that shows the text to docs/."""
    return _PAGE.sub(lambda found: f"[{found[1]}]({up}{found[0].removeprefix('docs/')})", text)


def filled(text: str, indent: str = "") -> str:
    """A paragraph in lines of the width of all pages; code is not broken."""
    whole = re.sub(r"`[^`]+`", lambda found: found[0].replace(" ", "\0"), text)
    lines = textwrap.fill(whole, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")
