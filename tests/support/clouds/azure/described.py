"""Azure's own description of its answers: the models of azure-mgmt-compute and azure-mgmt-network, read as a schema.

What a fake answers, and what it is asked, must fit them: no key that they do not have, no word that is not in their
enumerations, the right kind of value, and all that is required.
"""

import re
import typing
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import azure.mgmt.compute.models as compute
import azure.mgmt.network.models as network
from azure.mgmt.compute import operations


class UndescribedError(AssertionError):
    """Something that Azure's description does not have."""


def check(value: Any, model: str, *, module: ModuleType = compute, where: str = "") -> None:  # noqa: ANN401  JSON
    """Raise UndescribedError where a value does not fit a model."""
    _check(value, getattr(module, model), module, where or model)


def check_network(value: Any, model: str) -> None:  # noqa: ANN401  JSON
    """The same for Microsoft.Network."""
    check(value, model, module=network)


@cache
def routes() -> frozenset[tuple[str, str]]:
    """Method and path of every operation of the SDK, with {} for what is filled in, in small letters."""
    source = "".join(path.read_text() for path in Path(operations.__file__).parent.glob("_operations.py"))
    found = re.findall(r'_url = "([^"]+)".*?HttpRequest\(\s*method="(\w+)"', source, re.DOTALL)
    return frozenset((method, re.sub(r"\{\w+\}", "{}", path).lower()) for path, method in found)


def check_route(method: str, path: str) -> None:
    """Raise UndescribedError where the SDK has no such operation."""
    for known, template in routes():
        if known == method and re.fullmatch(re.escape(template).replace(r"\{\}", "[^/]+"), path.lower()):
            return
    raise UndescribedError(f"azure-mgmt-compute has no {method} {path}")


def _check(value: Any, kind: Any, module: ModuleType, where: str) -> None:  # noqa: ANN401  JSON, and any annotation
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        _check_any(value, parts, module, where)
    elif origin is list:
        _expect(isinstance(value, list), value, "a list", where)
        for number, each in enumerate(value):
            _check(each, parts[0], module, f"{where}[{number}]")
    elif origin is dict:
        _expect(isinstance(value, dict), value, "an object", where)
        for key, each in value.items():
            _check(each, parts[1], module, f"{where}.{key}")
    elif origin is typing.Literal:
        _expect(value in parts, value, f"one of {parts}", where)
    elif isinstance(kind, type) and hasattr(kind, "_is_model"):
        _check_model(value, kind, module, where)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        # Of sizes Azure says itself that this enumeration is of a day long past, and lists them in the SKUs.
        _expect(
            kind.__name__ == "VirtualMachineSizeTypes" or value in {each.value for each in kind},
            value,
            f"of {kind.__name__}",
            where,
        )
    elif kind is datetime:
        _expect(isinstance(value, str) and bool(datetime.fromisoformat(value)), value, "a time", where)
    elif kind is float:
        _expect(isinstance(value, int | float), value, "a number", where)
    elif kind in (str, int, bool):
        _expect(type(value) is kind, value, kind.__name__, where)


def _check_any(value: Any, parts: tuple[Any, ...], module: ModuleType, where: str) -> None:  # noqa: ANN401  as above
    """Of an enumeration that may grow, the words that are known: a fake invents none."""
    if value is None:
        _expect(NoneType in parts, value, "something", where)
        return
    kinds = [part for part in parts if part is not NoneType]
    words = [part for part in kinds if isinstance(part, type) and issubclass(part, Enum)]
    _check(value, (words or kinds)[0], module, where)


def _check_model(value: Any, kind: Any, module: ModuleType, where: str) -> None:  # noqa: ANN401  as above
    _expect(isinstance(value, dict), value, "an object", where)
    fields = _fields(kind, module)
    for key, each in value.items():
        if key not in fields:
            raise UndescribedError(f"{where}: {kind.__name__} has no {key}")
        _check(each, fields[key], module, f"{where}.{key}")
    for name, field in fields.items():
        optional = get_origin(field) in (Union, UnionType) and NoneType in get_args(field)
        _expect(optional or name in value, None, f"something, {kind.__name__} requires it", f"{where}.{name}")


@cache
def _fields(kind: Any, module: ModuleType) -> Mapping[str, Any]:  # noqa: ANN401  a model's class
    """The annotation of each field, by its name on the wire."""
    kind({})  # fills the table of names
    hints = typing.get_type_hints(kind, localns={"_models": module, "datetime": __import__("datetime")})
    return {field._rest_name: hints[name] for name, field in kind._attr_to_rest_field.items()}


def _expect(fits: bool, value: object, expected: str, where: str) -> None:
    if not fits:
        raise UndescribedError(f"{where}: {value!r} is not {expected}")
