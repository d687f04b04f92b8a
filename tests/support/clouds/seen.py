"""What was seen of real answers, as facts: for each kind of thing the members that gpuwatch reads, and their types.

A row of `seen/CLOUD.tsv`: the kind of thing, the path of a member, its types (`any`: only XML was recorded, which has
none), and `always` or `sometimes`, since what stands around it may come without it. The rows were found in recorded
answers. `tests/contracts/test_fakes_and_reality.py` holds the fakes and the adapters to them.
"""

import ast
import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.support.clouds.recorded import Recorded, recorded
from tests.support.components import loaded
from tests.support.paths import ROOT

CLOUDS = ("alibaba", "aws", "azure", "gcp", "tencent")
ANY = "any"
FOLDER = ROOT / "tests/support/clouds/seen"
# What somebody names himself: what is in it has no fixed members.
_CHOSEN = frozenset({"tags", "labels", "metadata", "resourcelabels"})
_TYPES = {dict: "object", list: "list", str: "text", bool: "truth", int: "number", float: "number", type(None): "null"}


@dataclass(frozen=True, order=True, slots=True)
class Member:
    """A member of a kind of things, by its path."""

    kind: str
    path: str


@dataclass(slots=True)
class Seen:
    """What was seen of a member."""

    types: set[str] = field(default_factory=set)
    missing: bool = False  # from something that could have had it


Table = Mapping[Member, Seen]


@cache
def words_of(cloud: str) -> frozenset[str]:
    """Every text of the cloud's adapter that could be a member's name: what is none of these is not read."""
    found: set[str] = set()
    for file in (ROOT / "gpuwatch/clouds" / cloud).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
                found.update(node.value.split("."))
    return frozenset(found)


_NAME = re.compile(r"[A-Za-z]\w*(?:\.[A-Za-z]\w*)*")


def members_of(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Each member below a value, by its path and with its type. An item of a list is []."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _member(each, f"{path}.{name}" if path else name, name)
    elif isinstance(value, list):
        for each in value:
            yield from members_of(each, f"{path}[]")


def _member(value: object, path: str, name: str) -> Iterator[tuple[str, str]]:
    yield path, _TYPES.get(type(value), "text")  # a time of botocore's is text on the wire
    if name.lower() not in _CHOSEN:
        yield from members_of(value, path)


def table_of(cloud: str, things: Iterable[tuple[str, object]]) -> Table:
    """What is seen of these things, as far as the cloud's adapter may read it."""
    found: dict[Member, Seen] = defaultdict(Seen)
    parents: dict[tuple[str, str], int] = defaultdict(int)
    counts: dict[Member, int] = defaultdict(int)
    for kind, thing in things:
        for path, count in _objects(thing):
            parents[kind, path] += count
        for path, type_ in members_of(thing):
            if set(re.split(r"[.\[\]]+", path.removesuffix("[]"))) <= words_of(cloud):
                found[Member(kind, path)].types.add(type_)
                counts[Member(kind, path)] += 1
    for member, seen in found.items():
        around = member.path.rpartition(".")[0]
        seen.missing = counts[member] < parents[member.kind, around]
    return found


def _objects(value: object, path: str = "") -> Iterator[tuple[str, int]]:
    """Where there are objects, which have members or lack them."""
    if isinstance(value, Mapping):
        yield path, 1
        for name, each in value.items():
            yield from _objects(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for each in value:
            yield from _objects(each, f"{path}[]")


def things_in(cloud: str, answers: Iterable[Recorded]) -> Iterator[tuple[str, object]]:
    """The things in good answers, by kinds."""
    adapter = loaded(f"tests.support.clouds.{cloud}.recorded")
    for answer in answers:
        yield from adapter.things_of(answer)


def read_table(cloud: str) -> Table:
    """The rows of a cloud's file."""
    file = FOLDER / f"{cloud}.tsv"
    rows = list(csv.reader(file.read_text(encoding="utf-8").splitlines(), delimiter="\t"))
    return {
        Member(kind, path): Seen(types=set(types.split(",")), missing=often == "sometimes")
        for kind, path, types, often in rows[1:]
    }


def recorded_table(cloud: str) -> Table:
    """What the recorded answers show."""
    answers: list[Any] = recorded(cloud, loaded(f"tests.support.clouds.{cloud}.recorded").Answer)
    return table_of(cloud, things_in(cloud, answers))
