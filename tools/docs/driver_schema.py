"""docs/clouds/driver.schema.json: what gpuwatch and a driver say to each other, as JSON Schema, from the tables."""

import json
import re
from collections.abc import Mapping
from typing import Any

from gpuwatch.clouds.driver.protocol import (
    CALLS,
    CAPACITIES,
    ERROR,
    KINDS,
    LAST_STOP,
    MACHINE,
    PRICE,
    VERSION,
    Call,
    Member,
)
from gpuwatch.model.fleet import NodeState

_TEXT = {"type": "string", "minLength": 1, "maxLength": 1024}
_KINDS: Mapping[str, dict[str, Any]] = {
    "id": {"type": "string", "pattern": "^[!-~]{1,200}$"},
    "text": _TEXT,
    "texts": {"type": "array", "items": _TEXT},
    "flag": {"type": "boolean"},
    "count": {"type": "integer", "minimum": 0, "maximum": 1024},
    "time": {"type": "string", "format": "date-time"},
    "money": {"type": ["string", "number"]},
    "tags": {"type": "object", "maxProperties": 200, "additionalProperties": {"type": "string", "maxLength": 1024}},
    "state": {"enum": [str(each) for each in NodeState]},
    "capacity": {"enum": [str(each) for each in CAPACITIES]},
    "kind": {"oneOf": [{"const": name, "description": says} for name, (_, says) in KINDS.items()]},
    "calls": {"type": "array", "items": {"enum": list(CALLS)}},
    "stop": {"$ref": "#/$defs/last_stop"},
    "machine": {"$ref": "#/$defs/machine"},
    "machines": {"type": "array", "items": {"$ref": "#/$defs/machine"}},
    "prices": {"type": "array", "items": {"$ref": "#/$defs/price"}},
}
_ALL = {
    "fleet": {"type": "string", "description": "The fleet of the settings."},
    "region": {"type": ["string", "null"], "description": "One of cloud.regions; null: all."},
    "endpoint": {"type": ["string", "null"], "description": "cloud.endpoint_url."},
    "options": {"type": "object", "description": "cloud.driver.options."},
    "secrets": {"type": "object", "description": "cloud.driver.secrets, read."},
}


def render() -> str:
    """The schema."""
    defs: dict[str, Any] = {
        "machine": _members(MACHINE),
        "last_stop": _members(LAST_STOP),
        "price": _members(PRICE),
        "error": _members(ERROR),
    }
    for name, call in CALLS.items():
        defs[f"{name}_request"] = _request(name, call)
        defs[f"{name}_answer"] = _answer(name, call)
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"gpuwatch's protocol for drivers, version {VERSION}",
        "description": "A driver gets one request on standard input and writes one answer on standard output.",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in defs if name.endswith(("_request", "_answer"))],
        "$defs": defs,
    }
    return json.dumps(whole, indent=2) + "\n"


def _members(members: Mapping[str, Member], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    first = {} if more is None else dict(more)
    return {
        "type": "object",
        "properties": first | {name: _KINDS[each.kind] | {"description": each.says} for name, each in members.items()},
        "required": [*first, *(name for name, each in members.items() if each.needed)],
        "additionalProperties": False,
    }


def _head(name: str) -> dict[str, Any]:
    return {"gpuwatch": {"const": VERSION}, "call": {"const": name}}


def _request(name: str, call: Call) -> dict[str, Any]:
    return {"description": call.does, **_members(call.request, _head(name) | _ALL)}


def _answer(name: str, call: Call) -> dict[str, Any]:
    refused = _members({}, _head(name) | {"error": {"$ref": "#/$defs/error"}})
    return {"description": f"The answer to {name}.", "oneOf": [_members(call.answer, _head(name)), refused]}


def with_tables(page: str) -> str:
    """The guide with its tables of calls and of kinds of refusals; what people wrote stays.

    Raises:
        ValueError: the guide has not one place for each table.

    """
    tables = {
        "calls": [
            "| call | what it asks | the request has | the answer has |",
            "| --- | --- | --- | --- |",
            *(
                f"| `{name}` | {call.does.rstrip('.')} | {_names(call.request)} | {_names(call.answer)} |"
                for name, call in CALLS.items()
            ),
        ],
        "kinds": ["| kind | what it means |", "| --- | --- |"]
        + [f"| `{name}` | {says.rstrip('.')} |" for name, (_, says) in KINDS.items()],
    }
    for name, rows in tables.items():
        place = re.compile(rf"(<!-- {name} -->)\n.*?(<!-- end of {name} -->)", re.DOTALL)
        page, times = place.subn("\n".join(["<!-- " + name + " -->", *rows, f"<!-- end of {name} -->"]), page)
        if times != 1:
            raise ValueError(f"the page has {times} places <!-- {name} -->, expected 1")
    return page


def _names(members: Mapping[str, Member]) -> str:
    return ", ".join(f"`{name}`" for name in members)
