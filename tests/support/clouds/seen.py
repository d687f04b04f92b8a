"""What was seen of real answers, as facts: for each kind of thing the members that gpuwatch reads, and their types.

A row of `seen/CLOUD.tsv`: the kind of thing, the path of a member, its types (`any`: only XML was recorded, which has
none), and `always` or `sometimes`, since what stands around it may come without it; `unread` is what an adapter has a
word for and does not read there, so that no fake has to show it. The rows were found in recorded answers. `links.tsv`
has how lists go on, and `errors.tsv` codes with their HTTP status, what gpuwatch makes of them, and where they were
seen. `tests/contracts/test_fakes_and_reality.py` holds the fakes and the adapters to them.

`python -m tests.support.clouds.seen` adds what recorded answers have and the facts do not (RECORDED_ANSWERS names their
folder). Of a new member somebody says whether it is read: the fake shows it then, or the row is `unread`.
"""

import ast
import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from xml.etree import ElementTree as ET

from tests.support.clouds.recorded import Recorded, recorded
from tests.support.components import loaded
from tests.support.paths import ROOT

CLOUDS = ("alibaba", "aws", "azure", "gcp", "tencent")
ANY, UNREAD = "any", "unread"
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


def rows_of(name: str) -> list[list[str]]:
    """The rows of a file of facts, without its head."""
    text = (FOLDER / f"{name}.tsv").read_text(encoding="utf-8")
    return list(csv.reader(text.splitlines(), delimiter="\t"))[1:]


def read_table(cloud: str) -> Table:
    """The rows of a cloud's file, but for what is not read."""
    return {
        Member(kind, path): Seen(types=set(types.split(",")), missing=often == "sometimes")
        for kind, path, types, often in rows_of(cloud)
        if often != UNREAD
    }


def unread_members(cloud: str) -> frozenset[Member]:
    """Those that are known to come, and not read."""
    return frozenset(Member(kind, path) for kind, path, _, often in rows_of(cloud) if often == UNREAD)


def recorded_table(cloud: str) -> Table:
    """What the recorded answers show."""
    answers: list[Any] = recorded(cloud, loaded(f"tests.support.clouds.{cloud}.recorded").Answer)
    return table_of(cloud, things_in(cloud, answers))


# How lists go on, and what is refused.

_LINKS = {"nextLink", "nextPageToken", "NextToken", "nextToken", "PageNumber", "TotalCount"}


def links_in(answers: Iterable[Any]) -> set[tuple[str, str]]:
    """The members of these answers that lead to more, each with its shape."""
    return {(name, _shape(str(value))) for each in answers for name, value in _leaves(each.body) if name in _LINKS} - {
        (name, "") for name in _LINKS
    }


def _shape(value: str) -> str:
    """Of a link its port and the names of its parameters; whether anything else is a number."""
    parts = urlsplit(value)
    if not parts.scheme.startswith("http"):
        return "number" if value.isdecimal() else "text" if value else ""
    names = "&".join(sorted({name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}))
    return f"{parts.scheme}://*{'' if parts.port is None else f':{parts.port}'}?{names}"


def _leaves(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, ET.Element):
        yield from ((each.tag, (each.text or "").strip()) for each in value.iter())
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(each, str(key))
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each, name)
    elif value is not None:
        yield name, value


def errors_in(cloud: str, answers: Iterable[Any]) -> set[tuple[str, str]]:
    """Status and code of each of these answers that is a refusal."""
    return {(str(getattr(each, "status", 200)), code) for each in answers for code in _codes(cloud, each)}


def _codes(cloud: str, answer: Any) -> Iterator[str]:  # noqa: ANN401  the cloud's own wrapper
    if cloud == "aws" or not getattr(answer, "refused", False):  # an operation of Google's that failed is no refusal
        yield from [answer.code] if getattr(answer, "refused", False) else []
        return
    error = answer.body.get("Error" if cloud == "tencent" else "error") if isinstance(answer.body, Mapping) else None
    if isinstance(error, Mapping):
        inner = error.get("errors") or [{}]
        yield str(inner[0].get("reason") or inner[0].get("code") or error.get("code") or error.get("Code"))


def links_seen(cloud: str) -> set[tuple[str, str]]:
    """By the facts."""
    return {(member, shape) for each, member, shape, _ in rows_of("links") if each == cloud}


def errors_seen(cloud: str) -> set[tuple[str, str]]:
    """By the facts."""
    return {(status, code) for each, status, code, _, _ in rows_of("errors") if each == cloud}


# Renewing the facts.


def _renew() -> None:
    more: dict[str, list[list[str]]] = {"links": [], "errors": []}
    for cloud in CLOUDS:
        answers: list[Any] = recorded(cloud, loaded(f"tests.support.clouds.{cloud}.recorded").Answer)
        more["links"] += [[cloud, *each, "recorded"] for each in links_in(_good(answers)) - links_seen(cloud)]
        more["errors"] += [
            [cloud, *each, "CloudError", "recorded"] for each in errors_in(cloud, answers) - errors_seen(cloud)
        ]
        rows = {Member(row[0], row[1]): row for row in rows_of(cloud)}
        for member, seen in recorded_table(cloud).items():
            _, _, types, often = rows.get(member, ["", "", "", "always"])
            known = {ANY} if types == ANY else {*filter(None, types.split(","))} | seen.types
            often = "sometimes" if seen.missing and often == "always" else often
            rows[member] = [member.kind, member.path, ",".join(sorted(known)), often]
        _write(cloud, ["kind", "path", "types", "often"], rows.values())
    _write("links", ["cloud", "member", "shape", "source"], [*rows_of("links"), *more["links"]])
    _write("errors", ["cloud", "status", "code", "means", "source"], [*rows_of("errors"), *more["errors"]])


def _write(name: str, head: list[str], rows: Iterable[list[str]]) -> None:
    text = "\n".join("\t".join(row) for row in [head, *sorted(rows)])
    (FOLDER / f"{name}.tsv").write_text(f"{text}\n", encoding="utf-8")


def _good(answers: Iterable[Any]) -> list[Any]:
    """Those that have a body: what is refused leads nowhere."""
    return [each for each in answers if not getattr(each, "refused", False)]


if __name__ == "__main__":
    _renew()
