"""What the pages of the clouds have from the code: what nobody has seen on the real cloud yet."""

import re

from gpuwatch.clouds.unseen import HEADING, UNSEEN, unseen_of
from tools.docs.text import filled, linked

_INTRO = (
    "Written by `make docs` from `gpuwatch/clouds/unseen.py`; do not edit. If one of these is otherwise, it mostly "
    "ends in a refusal or in a machine that is left alone. Please send what you see (docs/doctor.md)."
)
_SECTION = re.compile(rf"^## {HEADING}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
CLOUDS = tuple(dict.fromkeys(each.cloud for each in UNSEEN))


def with_unseen(cloud: str, page: str) -> str:
    """The page of a cloud with its rows under their heading; what people wrote stays.

    Raises:
        ValueError: the page has no such heading, or several.

    """
    changed, times = _SECTION.subn(lambda _: _section(cloud), page)
    if times != 1:
        raise ValueError(f"the page of {cloud} has {times} headings {HEADING!r}, expected 1")
    return changed.rstrip("\n") + "\n"


def _section(cloud: str) -> str:
    lines = [f"## {HEADING}", filled(linked(_INTRO, "../")), ""]
    lines += ["| what | what gpuwatch takes for granted | how to see it |", "| --- | --- | --- |"]
    lines += [linked(f"| {each.what} | {each.taken} | {each.see} |", "../") for each in unseen_of(cloud)]
    return "\n".join([*lines, "", ""])
