"""Tencent Cloud's own description of its APIs, and whether a request or an answer is one that it allows.

It comes with `tccli`, the official command line: `api.json` has every member of each action with its type,
`examples.json` texts of requests and answers. Neither is copied into this repository, and tccli itself is not loaded.
"""

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

# X-TC-Version and the first word of the endpoint, and where tccli keeps the description.
FOLDERS = {
    "as": "autoscaling/v20180419",
    "cam": "cam/v20190116",
    "cbs": "cbs/v20170312",
    "cvm": "cvm/v20170312",
    "monitor": "monitor/v20180724",
    "sts": "sts/v20180813",
    "tag": "tag/v20180813",
    "tke": "tke/v20180525",
    "vpc": "vpc/v20170312",
}
_NUMBERS = {"int": (int,), "float": (int, float)}


def versions() -> dict[str, str]:
    """The version of each API, as a request names it."""
    found = {}
    for service, folder in FOLDERS.items():
        digits = folder.partition("/v")[2]
        found[service] = f"{digits[:4]}-{digits[4:6]}-{digits[6:]}"
    return found


@dataclass(frozen=True)
class Description:
    """One API."""

    actions: Mapping[str, Mapping[str, Any]]
    objects: Mapping[str, Mapping[str, Any]]

    def wrong_request(self, action: str, request: Mapping[str, Any]) -> list[str]:
        """What in a request the description does not allow."""
        if action not in self.actions:
            return [f"there is no action {action}"]
        return list(self._wrong(self.actions[action]["input"], request, action, asked=True))

    def wrong_answer(self, action: str, answer: Mapping[str, Any]) -> list[str]:
        """What in an answer the description does not allow, or misses."""
        name = self.actions[action]["output"]
        missing = {each["name"] for each in self.objects[name].get("members", ())} - set(answer)
        lacks = [f"{action}: {each} is missing" for each in sorted(missing)]
        return [*lacks, *self._wrong(name, answer, action, asked=False)]

    def _wrong(self, name: str, given: Mapping[str, Any], path: str, *, asked: bool) -> Iterator[str]:
        members = {each["name"]: each for each in self.objects[name].get("members", ())}
        for key, value in given.items():
            where = f"{path}.{key}"
            if key not in members:
                yield f"{where} is not described"
            elif asked and members[key].get("disabled"):
                yield f"{where} is out of use"
            else:
                yield from self._value(members[key], value, where, asked=asked)
        if asked:
            yield from (f"{path}.{key} is missing" for key in members if members[key]["required"] and key not in given)

    def _value(self, member: Mapping[str, Any], value: object, where: str, *, asked: bool) -> Iterator[str]:
        kind = member["type"]
        if value is None:
            allowed = member.get("value_allowed_null") or "null" in member.get("document", "")
            if asked or not (allowed or re.sub(r"\d+", "", where) in _NULL_ALL_THE_SAME):
                yield f"{where} may not be null"
        elif kind == "list":
            if not isinstance(value, list):
                yield f"{where} is no list"
                return
            for index, each in enumerate(value):
                yield from self._each(member["member"], each, f"{where}[{index}]", asked=asked)
        else:
            yield from self._each(member["member"] if kind == "object" else kind, value, where, asked=asked)

    def _each(self, kind: str, value: object, where: str, *, asked: bool) -> Iterator[str]:
        if kind in self.objects:
            if isinstance(value, Mapping):
                yield from self._wrong(kind, value, where, asked=asked)
            else:
                yield f"{where} is no object {kind}"
        elif kind in {"bool", "boolean"}:
            if not isinstance(value, bool):
                yield f"{where} is no bool: {value!r}"
        elif kind in {"int", "int64", "uint64", "integer", "float"}:
            numbers = _NUMBERS["float" if kind == "float" else "int"]
            if isinstance(value, bool) or not isinstance(value, numbers):
                yield f"{where} is no {kind}: {value!r}"
        elif not isinstance(value, str):  # string, and the many words for times
            yield f"{where} is no text: {value!r}"


@cache
def description(service: str) -> Description:
    """The description of one API."""
    read = json.loads((_folder(service) / "api.json").read_text(encoding="utf-8"))
    return Description(actions=read["actions"], objects=read["objects"])


def examples(service: str, action: str) -> list[tuple[str, dict[str, Any]]]:
    """Title and answer of each documented example of an action."""
    read = json.loads((_folder(service) / "examples.json").read_text(encoding="utf-8"))["actions"].get(action, [])
    return [(each["title"], json.loads(each["output"])["Response"]) for each in read]


def _folder(service: str) -> Path:
    spec = importlib.util.find_spec("tccli")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "services" / FOLDERS[service]


# What was seen to be null, whatever the description says.
_NULL_ALL_THE_SAME = frozenset({"DescribeAddresses.AddressSet[].InstanceId"})
