"""`gpuwatch backtest --keep`: the command that every refusal for want of a backtest names, run as it stands."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.backtest_input import Asked
from gpuwatch.cli.main import commands
from gpuwatch.config import load
from gpuwatch.controller.operations import operator_name
from gpuwatch.guard import untried_pools
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.orders import BacktestRecord
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import Meter
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import NOW, Desk, a_node, an_observation
from tests.support.nightly import by_night
from tests.support.real.postgresql import postgresql

HOUR = 3600.0
TRIED = ("--pool", "training", "--compare", "never", "--keep")


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """A configuration that requires a backtest, and the ledger of its controller, which runs and leads."""

    file: Path
    ledger: Ledger

    def gpuwatch(self, *arguments: str | Path) -> Result:
        """One command."""
        return CliRunner().invoke(commands, [*map(str, arguments)])

    @property
    def kept(self) -> tuple[BacktestRecord, ...]:
        """What the controller's next round sees."""
        return self.ledger.view(SystemClock().now()).backtests

    def configure(self, **sections: dict[str, Any]) -> None:
        """Other settings."""
        result = json.loads(self.file.read_text(encoding="utf-8"))
        self.file.write_text(json.dumps(result | sections), encoding="utf-8")


@pytest.fixture
def house(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """In SQLite, where a test does not say otherwise."""
    settings = LedgerSettings(path=str(tmp_path / "ledger.db"))
    if getattr(request, "param", "sqlite") == "postgresql":
        settings = LedgerSettings(url=postgresql().database())
    file = tmp_path / "gpuwatch.yaml"
    place = {"path": settings.path} if settings.url is None else {"url": settings.url}
    limits = {"require_backtest": "30d"}
    file.write_text(json.dumps({"ledger": place, "limits": limits, "pools": {"training": {}}}), encoding="utf-8")
    monkeypatch.setenv("GPUWATCH_CONFIG", str(file))
    ledger = Ledger.connect(settings)
    assert ledger.lead()
    yield House(file=file, ledger=ledger)
    ledger.close()


@pytest.fixture
def trace(house: House, tmp_path: Path) -> Path:
    """Six hours of the pool's two nodes, which the ledger knows: one works now and then, one was forgotten."""
    nodes = [a_node(f"i-{name}", name=name, pool="training") for name in ("often", "forgotten")]
    house.ledger.record_round(an_observation(*nodes))
    path = tmp_path / "trace.csv"
    often = [f"often,{at * HOUR:g},{at * HOUR + 1200:g}" for at in range(6)]
    path.write_text("\n".join(["node,busy_from_s,busy_to_s", *often, "forgotten,0,900"]))
    return path


def lived(ledger: Ledger, hours: float) -> None:
    """The controller observes until now: every other hour one node works, the other is forgotten."""
    begin = SystemClock().now() - timedelta(hours=hours)
    desk = Desk(clock=ManualClock(wall=begin), ledger=ledger, enforce=False)
    for node_id in ("i-1", "i-2"):
        desk.fleet.put(a_node(node_id, held=0.0, pool="training", launched_at=begin - timedelta(days=2)))
    for number in range(int(hours * 60)):
        if number % 60 == 0:
            desk.fleet.show("i-1", State.BUSY if number % 120 else State.IDLE)
        desk.round()


@pytest.mark.parametrize(
    "house", [pytest.param("postgresql", marks=pytest.mark.component("pg_ctl")), *by_night("sqlite")], indirect=True
)
def test_the_command_that_a_refusal_names_ends_the_refusal(house: House) -> None:
    """Run as it stands, beside the running controller, on what that has observed."""
    lived(house.ledger, 8)
    rules = load(house.file, {}).rulebook

    def refused() -> dict[str, str]:
        return {pool: word[2] for pool, word in untried_pools(["training"], rules, house.kept, SystemClock().now())}

    command = refused()["training"].split("`")[1]
    done = house.gpuwatch(*shlex.split(command)[1:])

    assert done.exit_code == 0, done.output
    assert done.stderr.endswith("the backtest of pool training passed.\n")
    assert refused() == {}
    assert house.ledger.audit().broken is None


def test_a_trace_is_taken_for_the_pools_load_and_what_came_of_it_is_kept(house: House, trace: Path) -> None:
    """The pool's own rules stand first among those that are compared; what is kept says who, when and over what."""
    done = house.gpuwatch("backtest", "--trace", trace, "--pool", "training", "--compare", "never", "--keep", "--json")
    result = json.loads(done.stdout)
    (made,) = house.kept

    assert done.exit_code == 0, done.output
    assert [each["name"] for each in result["policies"]] == ["training:timeout=learned", "never"]
    assert (made.pool, made.source, made.who, made.failure) == ("training", str(trace), operator_name(), None)
    assert (made.stops, made.checked_stops) == (result["policies"][0]["stops"], result["policies"][0]["checked_stops"])
    assert timedelta(0) <= SystemClock().now() - made.at < timedelta(minutes=5)


def test_rules_that_fail_are_kept_as_such(house: House, trace: Path) -> None:
    """Exit status 1, and the guard goes by it."""
    house.configure(pools={"training": {"idle": {"timeout": "25m"}}})
    done = house.gpuwatch("backtest", "--trace", trace, "--pool", "training", "--compare", "never", "--keep")
    (made,) = house.kept

    assert done.exit_code == 1
    assert made.failure is not None
    assert made.failure.startswith("nodes needed again within 15m of their stop, 5 of 6, more than 25%; this cost ")
    assert f"the backtest of pool training failed: {made.failure}." in done.stderr


def test_own_rules_may_be_tried_without_a_record(house: House, trace: Path) -> None:
    """As the policy `pool`, beside others."""
    done = house.gpuwatch("backtest", "--trace", trace, "--pool", "training", "--compare", "never", "pool", "--json")

    assert done.exit_code == 0, done.output
    assert [each["name"] for each in json.loads(done.stdout)["policies"]] == ["never", "training:timeout=learned"]
    assert house.kept == ()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--keep"], "--pool is missing"),
        (["--compare", "pool"], "--pool is missing"),
        (["--pool", "telling", "--keep"], "the rules of pool 'telling' never remove a node"),
        (["--pool", "training", "--keep", "--regret", "1m"], "--keep goes by --regret 15m"),
        (["--pool", "training", "--keep", "--check-hours", "0"], "--keep needs a check"),
        (["--pool", "parking", "--keep", "--parked", "busy"], "expected --parked idle"),
    ],
    ids=str,
)
def test_what_could_not_be_kept_is_said_before_the_work(
    house: House, trace: Path, arguments: list[str], told: str
) -> None:
    """Exit status 2, and what would be right."""
    house.configure(
        pools={"training": {}, "telling": {"idle": {"action": "report"}}, "parking": {"idle": {"parked": "stop"}}}
    )
    done = house.gpuwatch("backtest", "--trace", trace, *arguments)

    assert done.exit_code == 2
    assert told in done.stderr
    assert house.kept == ()


def foreign(folder: Path, *nodes: str) -> Path:
    """Six hours of nodes: each works an hour and was forgotten."""
    path = folder / "foreign.csv"
    path.write_text(
        "\n".join(["node,busy_from_s,busy_to_s", *(f"{node},0,3600\n{node},21000,21600" for node in nodes)])
    )
    return path


@pytest.mark.parametrize(
    ("nodes", "counts"),
    [
        (("a", "b"), False),
        (("training", "stranger"), False),
        (("forgotten", "a", "b"), False),
        (("forgotten", "a"), True),
        (("i-often",), True),
        (("127.0.0.7",), True),
        (("of-another-pool",), False),
        (("metered-once",), True),
    ],
    ids=str,
)
def test_a_backtest_counts_for_the_nodes_that_it_was_tried_on(
    house: House, tmp_path: Path, nodes: tuple[str, ...], counts: bool
) -> None:
    """At least half of the node-hours are of the pool's nodes: by id, name, address, or once metered in that pool."""
    rules = Metering(zone=ZoneInfo("UTC"))
    for minute, names in enumerate((["metered-once"], ["metered-once"], ["often", "forgotten"])):
        now = NOW + timedelta(minutes=minute)
        seen = [a_node(f"i-{name}", name=name, pool="training", address="127.0.0.7") for name in names]
        seen = [replace(each, id=each.name) for each in seen] if names == ["metered-once"] else seen
        observed = an_observation(*seen, a_node("of-another-pool", pool="default"), now=now)
        house.ledger.record_round(observed)
        Meter(house.ledger, rules)(observed)
    done = house.gpuwatch("backtest", "--trace", foreign(tmp_path, *nodes), *TRIED)

    assert (len(house.kept) == 1) is counts, done.output
    assert (done.exit_code == 2) is not counts, done.output
    assert ("are known as nodes of pool 'training'" in done.stderr) is not counts
    assert ("--other-nodes REASON" in done.stderr) is not counts


def test_whoever_knows_better_is_on_record(house: House, trace: Path, tmp_path: Path) -> None:
    """Who, and why: in the record itself, which the chain of the audit protects."""
    path = foreign(tmp_path, "old-1", "old-2")
    line = ("backtest", "--trace", path, *TRIED, "--other-nodes")
    empty = house.gpuwatch(*line, " ")
    alone = house.gpuwatch("backtest", "--trace", path, "--other-nodes", "they are the same")
    done = house.gpuwatch(*line, "the nodes that these replace")
    told = house.gpuwatch("audit", "log", "--only", "backtest")

    assert (empty.exit_code, alone.exit_code) == (2, 2)
    assert "needs a reason" in empty.stderr
    assert done.exit_code == 0, done.output
    (made,) = house.kept
    assert made.failure is None
    assert made.source.endswith("which is of other nodes than the pool's: the nodes that these replace")
    assert f"by {operator_name()}" in told.output
    assert "the nodes that these replace" in told.output
    assert house.ledger.audit().broken is None
    house.gpuwatch("backtest", "--trace", trace, "--pool", "training", "--keep", "--other-nodes", "not needed")
    assert "not needed" not in house.kept[-1].source


def test_without_a_ledger_nothing_is_tried_in_vain(house: House, trace: Path, tmp_path: Path) -> None:
    """The controller makes it."""
    house.configure(ledger={"path": str(tmp_path / "none.db")})
    done = house.gpuwatch("backtest", "--trace", trace, "--pool", "training", "--keep")

    assert (done.exit_code, done.stdout) == (2, "")
    assert "none.db does not exist yet; start `gpuwatch controller`" in done.stderr


def test_config_check_names_the_pools_that_wait(house: House, trace: Path) -> None:
    """Until a backtest of their rules passes."""
    before = house.gpuwatch("config", "check")
    house.gpuwatch("backtest", "--trace", trace, "--pool", "training", "--compare", "never", "--keep")
    after = house.gpuwatch("config", "check")

    assert (before.exit_code, after.exit_code) == (0, 0)
    assert (
        "Warning: pool training removes no node: No backtest of the pool is on record.\n"
        "    Run `gpuwatch backtest --ledger --pool training --keep`.\n"
    ) in before.stdout
    assert "pool default removes no node" in after.stdout
    assert "training lets" not in after.stdout
    house.configure(limits={})
    assert "removes no node" not in house.gpuwatch("config", "check").stdout


def test_config_check_says_where_the_ledger_cannot_be_asked(house: House, tmp_path: Path) -> None:
    """A host without the controller's ledger is no error of the configuration."""
    (tmp_path / "broken.db").write_text("no database")
    house.configure(ledger={"path": str(tmp_path / "broken.db")})
    done = house.gpuwatch("config", "check")

    assert done.exit_code == 0
    assert "Warning: limits.require_backtest is set, and the recorded backtests cannot be read: " in done.stdout


@pytest.mark.parametrize(
    ("given", "path", "pool"),
    [
        ({"trace": Path("load.csv")}, Path("g.yaml"), None),
        ({"prometheus": "http://127.0.0.1:9090"}, None, "training"),
        ({"prometheus": "\0"}, Path("g.yaml"), "training"),
        ({"ledger": "copy.db"}, None, "training"),
    ],
    ids=str,
)
def test_config_and_pool_may_be_about_the_rules_alone(
    given: dict[str, Any], path: Path | None, pool: str | None
) -> None:
    """A source that is named whole needs no configuration, and a file knows of no pool."""
    nothing = dict.fromkeys(each.name for each in fields(Asked))
    asked = Asked(**{**nothing, **given, "path": Path("g.yaml"), "pool": "training"}).beside("idle", 60.0)

    assert (asked.path, asked.pool) == (path, pool)
    assert (asked.parked, asked.parked_after) == ((None, None) if asked.trace else ("idle", 60.0))
