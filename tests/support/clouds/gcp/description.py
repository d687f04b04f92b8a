"""Google's own descriptions of its APIs (discovery documents), and whether a request or an answer keeps to them.

They come with google-api-python-client, a development dependency: nothing of them is copied here. A request or an
answer that the description does not know is a defect of the code or of the fake, and raises AssertionError.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import googleapiclient

_DOCUMENTS = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
_FILES = (
    "compute.v1.json",
    "cloudresourcemanager.v3.json",
    "monitoring.v3.json",
    "cloudbilling.v1.json",
    "iam.v1.json",
)
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "any": (object,),
}
_NUMBERS_AS_TEXT = frozenset({"int64", "uint64"})
_RANGES = {"int32": 2**31, "uint32": 2**32}
_VARIABLE = re.compile(r"\{(\+?)([A-Za-z]+)\}")


@dataclass(frozen=True, slots=True)
class Method:
    """One method of an API."""

    name: str
    verb: str
    path: re.Pattern[str]
    described: Mapping[str, Any] = field(repr=False)
    schemas: Mapping[str, Any] = field(repr=False)


@cache
def methods() -> tuple[Method, ...]:
    """All methods of the APIs, those with the longest paths first."""
    found: list[Method] = []
    for file in _FILES:
        document = json.loads((_DOCUMENTS / file).read_text())
        _collect(document, document["servicePath"], document["schemas"], found)
    return tuple(sorted(found, key=lambda method: -len(method.path.pattern)))


@lru_cache(maxsize=4096)
def method_of(verb: str, path: str) -> tuple[Method, Mapping[str, str]]:
    """The method that a request is for, and the variables of its path."""
    for method in methods():
        match = method.path.fullmatch(path.lstrip("/")) if method.verb == verb else None
        if match is not None:
            return method, match.groupdict()
    raise AssertionError(f"Google describes no {verb} {path}")


def named(name: str) -> Method:
    """The method of that name."""
    return next(method for method in methods() if method.name == name)


def check_request(method: Method, variables: Mapping[str, str], query: Mapping[str, str], body: Any) -> None:  # noqa: ANN401
    """Every parameter is known and of its type, all that are required are there, and the body keeps to its schema."""
    parameters = method.described.get("parameters", {})
    known = {name: told for name, told in parameters.items() if told["location"] == "query"}
    words = method.described.get("description", "")
    for name, value in query.items():
        if name not in known and f"`{name}`" in words:  # it recommends a parameter that its list leaves out
            continue
        assert name in known, f"{method.name} takes no {name}"
        _check_text(f"{method.name} {name}", value, known[name])
    for name, told in parameters.items():
        assert not told.get("required") or name in query or name in variables, f"{method.name} needs {name}"
        pattern = told.get("pattern")
        if told["location"] == "path" and pattern and name in variables and not pattern.startswith("^"):
            assert re.fullmatch(pattern, variables[name]), f"{variables[name]!r} is no {name} of {method.name}"
    if "request" in method.described:
        check(method.schemas, method.described["request"]["$ref"], body or {}, method.name)
    else:
        assert not body, f"{method.name} takes no body"


def check_answer(method: Method, body: Any) -> None:  # noqa: ANN401  whatever was made up
    """The answer keeps to the schema of the method's response."""
    check(method.schemas, method.described["response"]["$ref"], body, method.name)


def check(schemas: Mapping[str, Any], name: str, value: Any, where: str) -> None:  # noqa: ANN401
    """A value against a schema by its name."""
    _check(schemas, schemas[name], value, f"{where}: {name}")


def _check(schemas: Mapping[str, Any], schema: Mapping[str, Any], value: Any, where: str) -> None:  # noqa: ANN401
    if "$ref" in schema:
        _check(schemas, schemas[schema["$ref"]], value, f"{where}→{schema['$ref']}")
        return
    kind: str = schema.get("type", "any")
    fits: bool = isinstance(value, _TYPES[kind])
    assert fits, f"{where} is {value!r}, which is no {kind}"
    assert kind == "boolean" or not isinstance(value, bool) or kind == "any", f"{where} is a bool, which is no {kind}"
    if "enum" in schema:
        assert value in schema["enum"], f"{where} is {value!r}, which is none of {schema['enum']}"
    if schema.get("format") in _NUMBERS_AS_TEXT and kind == "string":
        assert value.lstrip("-").isdigit(), f"{where} is {value!r}, which is no number"
    if schema.get("format") in _RANGES:
        assert abs(value) < _RANGES[schema["format"]], f"{where} is {value!r}, which is too large"
    if kind == "array":
        for number, each in enumerate(value):
            _check(schemas, schema["items"], each, f"{where}[{number}]")
    if kind == "object":
        _check_members(schemas, schema, value, where)


def _check_members(schemas: Mapping[str, Any], schema: Mapping[str, Any], value: Mapping[str, Any], where: str) -> None:
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    for name, each in value.items():
        if name in known:
            _check(schemas, known[name], each, f"{where}.{name}")
        else:
            assert more is not None, f"{where} has no member {name}"
            _check(schemas, more, each, f"{where}[{name}]")


def _check_text(where: str, text: str, told: Mapping[str, Any]) -> None:
    """A parameter, which is text on the wire."""
    if told["type"] == "boolean":
        assert text in {"true", "false"}, f"{where} is {text!r}, which is no boolean"
    if told["type"] == "integer":
        assert text.isdigit(), f"{where} is {text!r}, which is no number"
        assert int(told.get("minimum", 0)) <= int(text) <= int(told.get("maximum", 2**32)), f"{where} is {text}"
    if "enum" in told:
        assert text in told["enum"], f"{where} is {text!r}"


def _collect(node: Mapping[str, Any], base: str, schemas: Mapping[str, Any], found: list[Method]) -> None:
    for described in node.get("methods", {}).values():
        path = _pattern(base + described.get("path", described.get("flatPath")), described)
        found.append(Method(described["id"], described["httpMethod"], path, described, schemas))
    for resource in node.get("resources", {}).values():
        _collect(resource, base, schemas, found)


def _pattern(path: str, described: Mapping[str, Any]) -> re.Pattern[str]:
    """A path with its variables as groups; those with a "+" keep their slashes."""
    text, last = "", 0
    for match in _VARIABLE.finditer(path):
        own = described["parameters"][match[2]].get("pattern", "^.+$").strip("^$")
        text += re.escape(path[last : match.start()]) + f"(?P<{match[2]}>{own if match[1] else '[^/]+'})"
        last = match.end()
    return re.compile(text + re.escape(path[last:]))
