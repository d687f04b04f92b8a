"""Every value that is decoded from others' words is held to a bound where it is decoded.

One integer beyond 64 bits, of one agent of thousands, ended every round: the ledger could not write it. So no type that
is read from outside has a number without a bound, and others' JSON is read by `read_json`, which has one.
"""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import msgspec
import pytest

import gpuwatch
from gpuwatch.agent.metadata.base import decode_json
from gpuwatch.controller.web.api import ENDPOINTS
from gpuwatch.model.bounds import MOST, BoundedInt, BoundedText
from gpuwatch.model.fleet import NodeVerdict
from tests.support.paths import ROOT

# What is read back of gpuwatch's own, or from root's own files and programs, and from whom.
OWN = {
    "gpuwatch.agent.control": "the agent's own socket, which answers root",
    "gpuwatch.agent.devices.capture": "recordings that the agent itself made",
    "gpuwatch.agent.devices.messages": "the agent's own probe; counters of bytes take all 64 bits",
    "gpuwatch.agent.evidence.habits": "the agent's own file",
    "gpuwatch.agent.health.watch": "the agent's own file",
    "gpuwatch.agent.launch": "the agent's own process",
    "gpuwatch.agent.metadata.state_file": "the agent's own file",
    "gpuwatch.agent.probe.preforked": "the agent's own process",
    "gpuwatch.cli.last_round": "the controller's own socket, which its user alone can make",
    "gpuwatch.cli.top.source": "one agent, shown on one screen, which nothing else rests on",
    "gpuwatch.clouds.aws.secrets": "an administrator's own secret",
    "gpuwatch.clouds.azure.actions": "an administrator's own template",
    "gpuwatch.clouds.azure.standing": "our own token",
    "gpuwatch.clouds.gcp.credentials": "an administrator's own key",
    "gpuwatch.kubernetes.credentials": "a program that the administrator's kubeconfig names",
    "gpuwatch.ledger": "the ledger's own records",
    "gpuwatch.money.accounting": "the ledger's own books",
    "gpuwatch.money.prices.fetch": "our own file",
    "gpuwatch.money.prices.http": "a price list: its numbers stay texts, and each row is judged by itself",
    "gpuwatch.money.report.history": "the ledger's own records",
    "gpuwatch.runtime.installed": "what pip noted beside the package",
    "gpuwatch.runtime.json_document": "read_json itself",
}


def numbers_without_bound(kind: Any, path: str = "", within: tuple[type, ...] = ()) -> Iterator[str]:  # noqa: ANN401  msgspec's types of types
    """The places of a type at which any integer or any number may stand, or a text of any length from an agent."""
    name = type(kind).__name__
    if name in {"IntType", "FloatType"} and None in (
        (kind.ge, kind.gt)[kind.ge is None],
        (kind.le, kind.lt)[kind.le is None],
    ):
        yield f"{path}: any {name.removesuffix('Type').lower()}"
    if name in {"StructType", "DataclassType"} and kind.cls not in within:
        for field in kind.fields:
            yield from numbers_without_bound(field.type, f"{path}.{field.name}", (*within, kind.cls))
    for inner in (*(getattr(kind, "types", ())), *(getattr(kind, "item_types", ()) or ())):
        yield from numbers_without_bound(inner, path, within)
    for part in ("item_type", "key_type", "value_type"):
        if (one := getattr(kind, part, None)) is not None:
            yield from numbers_without_bound(one, f"{path}[]", within)


def texts_without_bound(kind: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401  likewise
    """The places of a type at which a text of any length may stand."""
    if type(kind).__name__ == "StrType" and kind.max_length is None:
        yield path
    for field in getattr(kind, "fields", ()) if hasattr(kind, "cls") else ():
        yield from texts_without_bound(field.type, f"{path}.{field.name}")
    for part in ("types", "item_types", "item_type", "key_type", "value_type"):
        inner = getattr(kind, part, None) or ()
        for one in inner if isinstance(inner, tuple) else (inner,):
            yield from texts_without_bound(one, path)


@cache
def modules() -> dict[str, ModuleType]:
    """Every module of the package, by name; those of an extra that is not installed are left out."""
    found = {}
    for each in pkgutil.walk_packages(gpuwatch.__path__, "gpuwatch."):
        try:
            found[each.name] = importlib.import_module(each.name)
        except ImportError:
            continue
    return found


def is_own(module: str) -> bool:
    """Whether what a module decodes is gpuwatch's own."""
    return any(module == name or module.startswith(f"{name}.") for name in OWN)


def calls(module: ModuleType) -> Iterator[ast.Call]:
    """Every call in a module's source."""
    path = ROOT / (module.__name__.replace(".", "/") + ".py")
    source = path if path.is_file() else path.with_suffix("") / "__init__.py"
    yield from (node for node in ast.walk(ast.parse(source.read_text("utf-8"))) if isinstance(node, ast.Call))


def decoded_types() -> Iterator[tuple[str, Any]]:
    """What the doors decode: of each decoder, of each `decode(…, type=…)`, and of the metadata services."""
    for name, module in modules().items():
        if is_own(name):
            continue
        for key, value in vars(module).items():
            if isinstance(value, msgspec.json.Decoder | msgspec.msgpack.Decoder):
                yield f"{name}.{key}", value.type
        for call in calls(module):
            called = ast.unparse(call.func)
            named = [each.value for each in call.keywords if each.arg == "type"] if called.endswith(".decode") else []
            if called == decode_json.__name__:
                named = call.args[1:2]
            for each in named:
                kind = ast.unparse(each)
                if kind not in {"kind", "model", "endpoint.body"}:  # a caller's, which is found there
                    yield f"{name}: {kind}", eval(kind, vars(module))  # noqa: S307  a name in that module
    for endpoint in ENDPOINTS:
        yield from ((endpoint.path, kind) for kind in (endpoint.query, endpoint.body) if kind is not None)


def test_no_type_that_is_decoded_from_others_words_has_a_number_without_a_bound() -> None:
    """P22: what a door lets in can be written by the ledger, added up and shown."""
    found = {where: list(numbers_without_bound(msgspec.inspect.type_info(kind))) for where, kind in decoded_types()}

    assert len(found) > 20
    assert {where: wrong for where, wrong in found.items() if wrong} == {}


def test_an_agents_answer_has_no_text_without_a_bound() -> None:
    """Of 50,000 agents one may fill a megabyte, round by round, in a ledger that is kept for a year."""
    assert list(texts_without_bound(msgspec.inspect.type_info(NodeVerdict))) == []


def test_others_json_is_read_in_one_place() -> None:
    """`json.loads` takes integers of any length, infinities, halves of characters, and ends in RecursionError."""
    plain = {
        name
        for name, module in modules().items()
        for call in calls(module)
        if ast.unparse(call.func) in {"json.loads", "json.load"} and not is_own(name)
    }

    assert plain == set()


def test_every_exception_for_what_is_our_own_is_still_needed() -> None:
    """A name in that list that no module has would hide a later one."""
    assert [name for name in OWN if name not in modules()] == []


@pytest.mark.parametrize("wrong", [MOST + 1, -MOST - 1, 2**63, 2**64, 2**70])
def test_an_integer_that_another_program_would_read_otherwise_is_refused(wrong: int) -> None:
    """Beyond 2^53 a double has no place for each integer."""
    with pytest.raises(msgspec.MsgspecError):
        msgspec.json.decode(str(wrong), type=BoundedInt)
    assert msgspec.json.decode(b'"' + b"x" * 10_000 + b'"', type=BoundedText)
