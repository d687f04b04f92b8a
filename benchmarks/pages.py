"""Puts a measured table into a page of the documentation, in place of the last one."""

import re
from pathlib import Path


def put(page: Path, section: str, table: str) -> None:
    """Replace the block after the line `<!-- measured: SECTION -->`.

    Raises:
        ValueError: the page has no such place.

    """
    text = page.read_text(encoding="utf-8")
    place = re.compile(rf"(<!-- measured: {re.escape(section)} -->\n```text\n).*?(\n```\n)", re.DOTALL)
    written, count = place.subn(lambda found: found[1] + table + found[2], text)
    if count != 1:
        message = (
            f"{page} has {count} places for the table of {section}; expected one line <!-- measured: {section} -->"
        )
        raise ValueError(message)
    page.write_text(written, encoding="utf-8")
