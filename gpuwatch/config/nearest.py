"""Keys that people mistype: what a key or a variable that does not exist was probably meant to be.

A neighbour comes first, then the same words one section deeper or elsewhere, nearest to where they were written.
"""

import difflib
from collections.abc import Iterator
from itertools import takewhile

from gpuwatch.config import keys
from gpuwatch.config.chosen_file import PREFIX
from gpuwatch.config.keys import GROUPS, NAME, Path
from gpuwatch.config.settings import Settings

KEYS = keys.declared_keys(Settings)

_VARIABLES = [each.variable for each in KEYS.values() if each.kind not in GROUPS]
_MOST_ELSEWHERE = 3
_USUAL = "pools"  # what most people look for is there, so it is named first
# What other programs call the address that a part of gpuwatch listens at.
_LISTEN = {"address", "bind", "listen", "listen_address"}
# How other programs choose the machines of a group.
_CHOOSES = {"filter", "filters", "instances", "labels", "machines", "match", "nodes", "select", "selector", "tags"}
_MEMBERS = "no key: a machine names its pool by the tag gpuwatch:pool, and its fleet by gpuwatch:fleet"
_ADDRESS = ("host", "port")


def key(path: Path) -> str:
    """What to write in place of a key that does not exist."""
    *group, name = path
    if name in _CHOOSES and keys.pattern(KEYS, tuple(group)) == (_USUAL, NAME):
        return _MEMBERS
    siblings = below(tuple(group))
    elsewhere, shared = _elsewhere(path)
    alike = 0.85 if elsewhere and not group else 0.75  # `port` at the top is agent.port, not report
    within = [(*group, *parts) for parts in _split_name(name) if keys.pattern(KEYS, (*group, *parts)) is not None]
    beside = (
        [each for each in _ADDRESS if name in _LISTEN and each in siblings]
        or difflib.get_close_matches(name, siblings, 1, alike)
        or [each for each in siblings if each.startswith(f"{name}_") or name.startswith(f"{each}_")]
    )
    if within or beside:
        return " or ".join(".".join(each) for each in within or [(*group, each) for each in beside])
    if elsewhere and (shared or not group):
        return " or ".join(elsewhere)
    near = [".".join((*group, each)) for each in difflib.get_close_matches(name, siblings, 1)]
    here = " or ".join(near) or f"one of {', '.join(siblings)}"
    return f"{here}; in another section there is {' or '.join(elsewhere)}" if elsewhere else here


def variable(name: str) -> str | None:
    """The variable that was probably meant; a name outside our prefix must be very near."""
    ours = name.startswith(PREFIX)
    written = tuple(name.split("__"))
    meant = ["__".join(keys.named_like(tuple(each.split("__")), written)) for each in _VARIABLES]
    start = len(PREFIX) if ours else 0
    compared = {each.upper()[start:]: each for each in meant}
    near = difflib.get_close_matches(name.upper()[start:], compared, 1, 0.6 if ours else 0.9)
    return compared[near[0]] if near else None


def below(path: Path) -> list[str]:
    """The names of the keys directly under a group."""
    pattern = keys.pattern(KEYS, path)
    return [each[-1] for each in KEYS if each[:-1] == pattern]


def _split_name(name: str) -> Iterator[Path]:
    """`idle_timeout` as a key of a section: `idle.timeout`."""
    words = name.split("_")
    for length in range(1, len(words)):
        yield ("_".join(words[:length]), "_".join(words[length:]))


def _elsewhere(path: Path) -> tuple[list[str], int]:
    """Some keys of that name, nearest to where it was written, and how much of the path they share with it."""
    shared = {each: _shared_parts(each, path) for each in KEYS if each[-1] == path[-1]}
    most = max(shared.values(), default=0)
    found = sorted((each for each in shared if shared[each] == most), key=lambda each: (each[0] != _USUAL, len(each)))
    return [".".join(keys.named_like(each, path[:most])) for each in found[:_MOST_ELSEWHERE]], most


def _shared_parts(declared: Path, written: Path) -> int:
    """How many parts the two have in common at their beginning."""
    same = (one in {other, NAME} for one, other in zip(declared, written, strict=False))
    return sum(1 for _ in takewhile(bool, same))
