"""What every command prints with `--json`, in a world that fills it, is what its document declares."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from gpuwatch.cli.documents import DOCUMENTS, document_type
from gpuwatch.cli.main import commands
from tests.support.builders.json_world import made_in, stand_in

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*")
_GOOD = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
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
        assert found.pop("schema") == f"gpuwatch.{kind}/{2 if kind in {'cost', 'report'} else 1}"
        assert as_declared(kind, found) == found
        assert [each for each in strings(found) if _TIME.fullmatch(each) and not _GOOD.fullmatch(each)] == []
        filled |= {name: filled.get(name, False) or value not in ([], {}) for name, value in found.items()}
    assert {name for name, has in filled.items() if not has} - EMPTY.get(kind, set()) == set()


def as_declared(kind: str, found: dict[str, Any]) -> Any:  # noqa: ANN401  JSON
    """What is left of a document when its type has read it; a `schema` of the type's own is replaced when printed."""
    declared = document_type(kind)
    read = msgspec.convert({"schema": 1, **found}, declared, strict=False)
    kept = json.loads(json.dumps(msgspec.to_builtins(read)))
    return {name: value for name, value in kept.items() if name != "schema"}
