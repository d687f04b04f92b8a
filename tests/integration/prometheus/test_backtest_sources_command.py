"""`gpuwatch backtest` over a Prometheus and over a ledger, as people and tools run it, and what it refuses."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from gpuwatch.ledger import Ledger
from gpuwatch.simulate.fleet.options import Options
from gpuwatch.simulate.fleet.play import play, stage_play
from gpuwatch.simulate.fleet.workloads import demo_fleet
from tests.support.builders.known_load import BEGIN, Load, tell_agent, tell_exporter
from tests.support.real.tsdb import History, prometheus

HOURS = 2
SPAN = [
    "--from",
    f"{datetime.fromtimestamp(BEGIN, UTC):%Y-%m-%dT%H:%M:%SZ}",
    "--to",
    f"{datetime.fromtimestamp(BEGIN + HOURS * 3600, UTC):%Y-%m-%dT%H:%M:%SZ}",
]
UNPLAYED = ["--compare", "timeout=10m", "--check-hours", "0", "--json"]
MACHINES = ["--instance-type", "g6.xlarge"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two nodes, told by our agents and, one of them, by another exporter."""
    series = History()
    tell_agent(series, "often", Load(busy=[(0, 600), (3000, 3600), (7000, 7200)]), HOURS, pool="a")
    tell_agent(series, "forgotten", Load(busy=[(0, 60)]), HOURS, pool="b")
    tell_exporter(series, "nvitop", "other", Load(busy=[(0, 600)]), HOURS)
    with prometheus(tmp_path_factory.mktemp("engine") / "data", series) as address:
        yield address


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hours of a node that nobody needs."""
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    lives = [life for life in demo_fleet(1, 3 * 3600) if life.name in {"forgotten-1", "batch-1"}]
    book, options = Ledger.open(path), Options(hours=3.0)
    parts, world = stage_play(options, lives, 3 * 3600, book)
    play(parts, world, options, 3 * 3600)
    book.close()
    return path


def run(*arguments: object) -> Result:
    """One run of the command."""
    return CliRunner().invoke(commands, ["backtest", *map(str, arguments)])


@pytest.mark.component("prometheus")
@pytest.mark.parametrize(("dialect", "nodes"), [((), 2), (("--dialect", "nvitop"), 1)])
def test_a_prometheus_is_a_source(url: str, dialect: tuple[str, ...], nodes: int) -> None:
    """Our own agents where nobody says whose metrics are meant; the source is told with its time."""
    done = run("--prometheus", url, *SPAN, *dialect, *MACHINES, *UNPLAYED)
    result = json.loads(done.stdout)

    assert done.exit_code == 0, done.output
    assert (result["nodes"], result["node_hours"]) == (nodes, nodes * 2.0)
    assert result["trace"].startswith(f"{url} ({dialect[1] if dialect else 'gpuwatch'}), {SPAN[1][:10]} ")
    assert result["policies"][0]["stops"] == {1: 1, 2: 3}[nodes]


@pytest.mark.component("prometheus")
def test_the_real_controller_plays_what_a_prometheus_told(url: str, tmp_path: Path) -> None:
    """The check and the page work as they do for a file, with the agents' own words as evidence."""
    page = tmp_path / "report.html"
    done = run(
        "--prometheus",
        url,
        *SPAN,
        *MACHINES,
        "--compare",
        "timeout=10m",
        "--check-hours",
        "2",
        "--json",
        "--html",
        page,
    )
    result = json.loads(done.stdout)["policies"][0]

    assert done.exit_code == 0, done.output
    assert (result["wrongly_stopped"], result["violations"]) == (0, 0)
    assert result["checked_stops"] >= 2
    assert "by its agent" in page.read_text(encoding="utf-8")


@pytest.mark.component("prometheus")
def test_a_configuration_says_which_prometheus_and_who_asks(url: str, tmp_path: Path) -> None:
    """--prometheus without a URL; credentials and tenants are those of the controller's own queries."""
    (tmp_path / "token").write_text("t0p-secret\n")
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(
        f"signals: {{promql: {{url: '{url}', bearer_file: {tmp_path}/token, headers: {{X-Scope-OrgID: a}}}}}}"
    )
    done = run("--prometheus", "--config", file, "--pool", "b", *SPAN, *MACHINES, *UNPLAYED)

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["nodes"] == 1
    assert "t0p-secret" not in done.output


def test_a_ledger_is_a_source(ledger: Path, tmp_path: Path) -> None:
    """The file, or the one of the configuration."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(f"ledger: {{path: {ledger}}}")
    named, configured = run("--ledger", ledger, *UNPLAYED), run("--ledger", "--config", file, *UNPLAYED)
    result = json.loads(named.stdout)

    assert (named.exit_code, configured.exit_code) == (0, 0), named.output + configured.output
    assert (result["trace"], result["nodes"]) == (f"the ledger {ledger}", 2)
    assert result["policies"][0]["stops"] >= 2
    assert json.loads(configured.stdout)["policies"] == result["policies"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "no source is given; expected one of --trace FILE, --prometheus [URL] or --ledger [FILE]"),
        (["--prometheus", "http://a", "--ledger", "b"], "--prometheus and --ledger are both given"),
        (["--prometheus", "http://me:secret@a"], "credentials in signals.promql of --config"),
        (["--prometheus", "prometheus:9090"], "expected a URL such as http://127.0.0.1:9090"),
        (["--prometheus", "http://a", "--config", "c"], "--prometheus URL and --config are both given"),
        (["--prometheus", "http://a", "--from", "soon"], "'soon' is not a time; expected now, a duration"),
        (["--prometheus", "http://a", "--from", "1h", "--to", "2h"], "'1h' is not before '2h'"),
        (["--prometheus", "http://a", "--step", "1h"], "expected whole seconds from 15s to 5m"),
        (["--prometheus", "http://a", "--dialect", "smi"], "'smi' is not one of"),
        (["--ledger", "a", "--step", "30s"], "--step says nothing about --ledger; leave it out"),
        (["--ledger", "a", "--to", "never"], "'never' is not a time"),
        (["--ledger", "/nowhere/ledger.db"], "/nowhere/ledger.db"),
        (["--trace", __file__, "--pool", "a"], "--pool says nothing about --trace; leave it out"),
        (["--prometheus", "http://127.0.0.1:1"], "http://127.0.0.1:1: Prometheus could not be asked"),
    ],
)
def test_what_cannot_be_a_source_is_refused_with_what_would_be_right(arguments: list[str], complaint: str) -> None:
    """Exit status 2 and a sentence; a secret is not repeated."""
    done = run(*arguments)

    assert done.exit_code == 2, done.output
    assert complaint in " ".join(done.output.split())
    assert "secret@" not in done.output


@pytest.mark.component("prometheus")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--from", "2020-01-01", "--to", "2020-01-02"], "has none of these metrics from 2020-01-01 00:00 to"),
        (["--dialect", "dcgm", *SPAN], "(dcgm) has no DCGM_FI_DEV_GPU_UTIL from"),
        (["--pool", "c", *SPAN], "shows no node with the label pool 'c'"),
    ],
)
def test_a_prometheus_that_knows_nothing_of_it_is_no_source(url: str, arguments: list[str], complaint: str) -> None:
    """Exit status 2 and one sentence."""
    done = run("--prometheus", url, *arguments)

    assert done.exit_code == 2, done.output
    assert complaint in done.output
    assert len(done.output.splitlines()) == 1


def test_a_ledger_without_rounds_is_no_source(ledger: Path) -> None:
    """Exit status 2 and what keeps rounds whole."""
    done = run("--ledger", ledger, "--from", "2020-01-01", "--to", "2020-02-01")

    assert done.exit_code == 2, done.output
    assert (
        "keeps 0 rounds of that time whole, and a backtest needs two (ledger.quiet_round_retention, ledger.retention)"
        in done.output
    )
