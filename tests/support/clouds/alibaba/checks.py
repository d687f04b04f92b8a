"""What may come from us and from the fake, by the models of the official SDKs, which are made of Alibaba's OpenAPI.

A request is read into the SDK's model of it and written again: nothing may be lost, and each value must be of its
type. So with an answer.
"""

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from alibabacloud_tea_openapi.utils import Utils

_MODULES = {
    "2014-05-26": "alibabacloud_ecs20140526",
    "2022-02-22": "alibabacloud_ess20220222",
    "2016-04-28": "alibabacloud_vpc20160428",
    "2015-04-01": "alibabacloud_sts20150401",
    "2019-01-01": "alibabacloud_cms20190101",
    "2015-05-01": "alibabacloud_ram20150501",
}

# Loaded at once: a request would wait for it.
_MODELS = {version: importlib.import_module(f"{name}.models") for version, name in _MODULES.items()}


def check_request(version: str, action: str, query: Mapping[str, str]) -> None:
    """Hold a request to the SDK's model.

    Raises:
        AssertionError: the cloud knows no such call, parameter or value.

    """
    if action == "GetCallerIdentity":  # the SDK has no model for a call without parameters
        assert not query, f"GetCallerIdentity takes no parameters: {dict(query)}"
        return
    model = _model(version, f"{action}Request")().from_map(_nested(query))
    written = Utils.query(model.to_map())
    given = {name: {"true": "True", "false": "False"}.get(value, value) for name, value in query.items()}
    said = {name: {"true": "True", "false": "False"}.get(value, value) for name, value in written.items()}
    assert said == given, f"{action}: not a request of this call: {sorted(given.items() ^ said.items())}"
    _typed(model, f"{action}Request", words=True)


def check_answer(version: str, action: str, body: Mapping[str, Any]) -> None:
    """Hold an answer to the SDK's model.

    Raises:
        AssertionError: the cloud would not say that.

    """
    model = _model(version, f"{action}ResponseBody")().from_map(body)
    written = model.to_map()
    # The SDK writes an empty list where there was none.
    assert _filled(written) == _filled(body), (
        f"{action}: the SDK reads something else: {written} instead of {dict(body)}"
    )
    _typed(model, f"{action}ResponseBody", words=False)


@cache
def _model(version: str, name: str) -> Any:  # noqa: ANN401  a class of the SDK
    models = _MODELS[version]
    assert hasattr(models, name), f"{_MODULES[version]} has no {name}"
    return getattr(models, name)


def _nested(query: Mapping[str, str]) -> dict[str, Any]:
    """Tag.1.Key as a list of objects."""
    tree: dict[str, Any] = {}
    for name, value in query.items():
        *way, last = name.split(".")
        node = tree
        for step in way:
            node = node.setdefault(step, {})
        node[last] = value
    found: dict[str, Any] = _listed(tree)
    return found


def _listed(tree: Any) -> Any:  # noqa: ANN401  any part of a request
    if not isinstance(tree, dict):
        return tree
    if tree and all(key.isdecimal() for key in tree):
        assert sorted(map(int, tree)) == list(range(1, len(tree) + 1)), f"a list with holes: {sorted(tree)}"
        return [_listed(tree[str(index)]) for index in range(1, len(tree) + 1)]
    return {key: _listed(value) for key, value in tree.items()}


def _filled(value: Any) -> Any:  # noqa: ANN401  any part of an answer
    """Without empty lists."""
    if isinstance(value, dict):
        return {name: _filled(each) for name, each in value.items() if each != []}
    return [_filled(each) for each in value] if isinstance(value, list) else value


def _typed(model: Any, name: str, *, words: bool) -> None:  # noqa: ANN401  an object of the SDK
    """Each value of its declared type; in a request the values are words that must read as one."""
    kind: type = type(model)
    for member, hint in _hints(kind).items():
        value = getattr(model, member)
        if value is not None:
            _fits(value, hint, f"{name}.{member}", words=words)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(kind.__init__).items() if name != "return"}  # type: ignore[misc]


def _fits(value: Any, hint: Any, name: str, *, words: bool) -> None:  # noqa: ANN401  any value
    if get_origin(hint) is list:
        assert isinstance(value, list), f"{name} is no list: {value!r}"
        for each in value:
            _fits(each, get_args(hint)[0], name, words=words)
    elif hasattr(value, "to_map"):
        assert isinstance(value, hint), f"{name} is no {hint.__name__}"
        _typed(value, name, words=words)
    elif hint in (bool, int, float, str):
        assert _read(value, hint) if words else _is(value, hint), f"{name} is no {hint.__name__}: {value!r}"


def _read(value: str, hint: type) -> bool:
    """Whether a word reads as that type."""
    if hint is bool:
        return value in ("true", "false")
    if hint is int:
        return value.lstrip("-").isdecimal()
    return hint is str or value.replace(".", "", 1).isdecimal()


def _is(value: object, hint: type) -> bool:
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
