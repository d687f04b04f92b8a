"""What every command prints with `--json`, in a world that fills it, is what its document declares."""

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from socket import gethostname
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from gpuwatch.cli.documents import DOCUMENTS, document_type
from gpuwatch.cli.main import commands
from tests.support.builders.json_world import made_in, stand_in
from tests.support.each import for_each
from tests.support.paths import GOLDEN

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*")
_GOOD = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
RENEW = os.environ.get("GPUWATCH_UPDATE_GOLDEN") == "1"
_FORTNIGHT = "--from 2026-03-14 --to 2026-03-28"

# What is typed after `gpuwatch`, by the kind of its document. Orders come last: they change the ledger.
LINES: dict[str, tuple[str, ...]] = {
    "version": ("version",),
    "cloud.test": ("cloud test driver",),
    "config.check": ("config check",),
    "config.show": ("config show",),
    "status": ("status",),
    "scan": ("scan",),
    "plan": ("plan",),
    "explain": ("explain forgotten", "explain note-1 --at 2026-03-28"),
    "blocked": ("blocked",),
    "join.list": ("join list",),
    "unused": ("unused",),
    "rounds": ("rounds",),
    "audit.log": ("audit log --since 30d",),
    "audit.verify": ("audit verify",),
    "cost": (f"cost {_FORTNIGHT} --unused --explain", f"cost {_FORTNIGHT} --by owner"),
    "cost.rates": ("cost rates --bill bill.csv",),
    "cost.reconcile": ("cost reconcile --bill bill.csv",),
    "budget": ("budget",),
    "report": ("report --day 2026-03-28 --unused", "report --month 2026-03"),
    "forecast": ("forecast --csv series.csv", "forecast --csv short.csv"),
    "prices": ("prices --gpu H100",),
    "recommend.instance": ("recommend instance --params 7B", "recommend instance --params 7B --train --tokens 1T"),
    "recommend.commitments": ("recommend commitments --csv series.csv --price 2",),
    "recommend.rightsize": ("recommend rightsize --over 1d",),
    "recommend.ownership": ("recommend ownership --price 250000 --rent 40 --csv series.csv",),
    "recommend.spot": ("recommend spot --csv spot.csv", "recommend spot --csv spot.csv --work 1h --by 2h"),
    "recommend.vendors": ("recommend vendors --scores vendors.csv",),
    "recommend.restarts": ("recommend restarts --trace load.csv --boot 3m --image 4m",),
    "backtest": ("backtest --trace load.csv --check-hours 0",),
    "demo": ("demo --headless --hours 0.2",),
    "doctor.agent": ("doctor agent --alive",),
    "doctor.controller": ("doctor controller --alive",),
    "notify.test": ("notify test",),
    "top": ("top --once",),
    "snooze": ("snooze 4h --reason evaluation", "snooze --list", "snooze --end", "snooze team-a/notebook/alice --end"),
    "acknowledge": ("acknowledge --pool serving",),
    "approve": ("approve", "approve i-train-1 --reason reviewed"),
    "pause": ('pause --pool training --for 2h --reason "moving the racks"',),
    "resume": ("resume --pool serving",),
}
# Lists that stay empty in this world, for they tell what is wrong or missing.
EMPTY = {
    "config.check": {"warnings"},
    "cost": {"anomalies", "wrong"},
    "cost.rates": {"left_out"},
    "explain": {"blind", "last_busy", "owners"},
    "plan": {"silent", "workloads"},
    "prices": {"warnings"},
    "recommend.rightsize": {"advice"},
    "report": {"anomalies", "jobs"},
    "snooze": {"broken"},
    "status": {"pods", "regrets", "silent", "workloads"},
    "top": {"snoozes"},
    "unused": {"silent"},
}


def strings(value: Any) -> Iterator[str]:  # noqa: ANN401  JSON
    """All texts in a document."""
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from strings(each)
        case list():
            for each in value:
                yield from strings(each)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The world, made once."""
    return made_in(tmp_path_factory.mktemp("world"))


def test_every_document_is_printed_here() -> None:
    """A new command with --json gets a line here."""
    assert sorted(LINES) == sorted(DOCUMENTS)


@pytest.mark.parametrize("kind", LINES)
def test_what_is_printed_is_what_is_declared(kind: str, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line; no field that the type does not have, and none missing; times end in Z; each list has an entry."""
    monkeypatch.delenv("GPUWATCH_UPDATE_GOLDEN", raising=False)  # not a setting
    stand_in(world, monkeypatch)
    filled: dict[str, bool] = {}
    if kind == "resume":  # something must be paused, whichever tests ran before
        assert CliRunner().invoke(commands, shlex.split(LINES["pause"][0])).exit_code == 0
    for line in LINES[kind]:
        done = CliRunner().invoke(commands, [*shlex.split(line), "--json"])
        assert done.exit_code in {0, 1}, done.output
        found = json.loads(done.stdout)

        assert done.stdout.count("\n") == 1
        assert next(iter(found)) == "schema"
        assert found.pop("schema") == schema(kind)
        assert as_declared(kind, found) == found
        assert [each for each in strings(found) if _TIME.fullmatch(each) and not _GOOD.fullmatch(each)] == []
        if RENEW and line == LINES[kind][0] and not is_example(kind):
            cut = json.dumps({"schema": schema(kind), **shortened(read_as(kind, found), found)}, indent=1)
            cut = re.sub(rf"\b{re.escape(gethostname())}\b", "host-1", cut.replace(str(world), "/var/lib/gpuwatch"))
            example(kind).write_text(cut + "\n", encoding="utf-8")
        filled |= {name: filled.get(name, False) or value not in ([], {}) for name, value in found.items()}
    assert {name for name, has in filled.items() if not has} - EMPTY.get(kind, set()) == set()


@for_each(DOCUMENTS)
def test_the_example_of_a_document_is_what_is_declared(kind: str) -> None:
    """docs/json/ shows what was printed here, cut to one entry of each list; GPUWATCH_UPDATE_GOLDEN=1 renews it."""
    assert is_example(kind)


def example(kind: str) -> Path:
    """The file that has it: its values are of the day when it was printed."""
    return GOLDEN / "json" / f"{kind}.json"


def is_example(kind: str) -> bool:
    """Whether it is there, and has the fields that the type has now."""
    if not example(kind).exists():
        return False
    found = json.loads(example(kind).read_text(encoding="utf-8"))
    try:
        return bool(found.pop("schema") == schema(kind) and as_declared(kind, found) == found)
    except msgspec.ValidationError:
        return False


def shortened(read: Any, found: Any) -> Any:  # noqa: ANN401  JSON
    """What was found, with one entry in each list and in each object by name; `read` is how its type reads it."""
    match found:
        case dict() if isinstance(read, dict):
            return {name: shortened(read[name], each) for name, each in list(found.items())[:1]}
        case dict():
            return {name: shortened(getattr(read, name), each) for name, each in found.items()}
        case [str() | int() | float(), _]:
            return found  # it may be a pair
        case list():
            return [shortened(*each) for each in zip(read, found[:1], strict=False)]
    return found


def schema(kind: str) -> str:
    """The first field of a document."""
    return f"gpuwatch.{kind}/{2 if kind in {'cost', 'report'} else 1}"


def read_as(kind: str, found: dict[str, Any]) -> Any:  # noqa: ANN401  of the document's type
    """A document without its `schema`, as its type reads it."""
    return msgspec.convert({"schema": 1, **found}, document_type(kind), strict=False)


def as_declared(kind: str, found: dict[str, Any]) -> Any:  # noqa: ANN401  JSON
    """What is left of a document when its type has read it; a `schema` of the type's own is replaced when printed."""
    kept = json.loads(json.dumps(msgspec.to_builtins(read_as(kind, found))))
    return {name: value for name, value in kept.items() if name != "schema"}
