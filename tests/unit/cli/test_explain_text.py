"""`gpuwatch explain`: the answer first, then what bears on it, word by word."""

from dataclasses import replace

import pytest

from gpuwatch.agent.health.causes import xid_finding
from gpuwatch.cli.explain_text import explain_text
from gpuwatch.controller.explain import node_page
from gpuwatch.controller.round import Round
from gpuwatch.model.activity import Evidence, State, WorkOwner
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.model.health import GpuHealth, Health
from tests.support.builders.fleet import Desk, a_node, a_verdict
from tests.support.builders.gpu import START
from tests.support.builders.last_busy import busy_last, cpu_evidence
from tests.support.builders.small_fleet import a_day
from tests.support.golden_text import check


def explained_text(desk: Desk, plan: Round, node: Node, *, verbose: bool = True) -> str:
    """The node's explanation."""
    page = node_page(plan, desk.rulebook, desk.ledger, node, plan.observation.ledger, round_id=None)
    return explain_text(page, verbose=verbose)


@pytest.mark.parametrize("name", ["forgotten", "demo-day", "trainer", "silent", "refusing"])
def test_explain_answers_first_and_then_shows_what_bears_on_it(name: str) -> None:
    """What happens next, when, why, and what would change it: in the first four lines."""
    desk, plan = a_day()
    node = plan.observation.fleet.node(name)
    assert node is not None

    check(f"explain-{name}.txt", explained_text(desk, plan, node, verbose=False))


def test_with_v_it_tells_every_signal_every_rule_and_the_whole_past() -> None:
    """The short text says how to get it."""
    desk, plan = a_day()
    node = plan.observation.fleet.nodes[0]
    short, whole = (explained_text(desk, plan, node, verbose=each) for each in (False, True))

    check("explain-verbose.txt", whole)
    assert short.splitlines()[:4] == whole.splitlines()[:4]
    assert short.endswith("gpuwatch explain -v forgotten")


def test_of_many_signals_the_most_telling_ones_are_shown() -> None:
    """Those that say busy, then those nearest to their limits; the others are counted. Blanks read as blanks."""
    signals = [
        cpu_evidence(
            name=f"gpu{number}.power",
            says=State.IDLE,
            observed=10.0 * number,
            limit=245.0,
            unit="watts",
            owner=None,
            note=None,
        )
        for number in range(8)
    ]
    signals += [
        cpu_evidence(name="keep", says=State.IDLE, observed=None, limit=None, unit="", owner=None, note=None),
        cpu_evidence(name="network", observed=1.6672e7, limit=1e6, unit="bytes per second", owner=None, note=None),
    ]
    verdict = a_verdict("i-1", State.BUSY)
    verdict = replace(verdict, activity=replace(verdict.activity, evidence=tuple(signals)))
    desk = Desk()
    desk.fleet.put(a_node("i-1", signal=NodeReport(verdict=verdict)))
    plan = desk.plan()
    node = plan.observation.fleet.nodes[0]
    short, whole = (explained_text(desk, plan, node, verbose=each) for each in (False, True))

    assert "network" in short.split("Verdict:")[1].splitlines()[1]
    assert "busy  16.7 MB/s, limit 1" in short
    assert "gpu7.power" in short
    assert "gpu4.power" not in short
    assert "\n    and 6 more, which say idle\n" in short
    assert "not known (limit not known)" not in whole
    assert "keep" in whole


def watched(*found: tuple[Evidence, float], state: State = State.IDLE, held: float = 720.0) -> str:
    """The explanation of a machine by an agent that says what was busy last."""
    verdict = busy_last(a_verdict("i-1", state, held, age=0.0), *found)
    verdict = replace(verdict, blind=("/proc hides other users' processes (hidepid): exempt the agent by its gid=.",))
    desk = Desk()
    desk.fleet.put(a_node("i-1", name="forgotten", signal=NodeReport(verdict=verdict)))
    plan = desk.plan()
    node = plan.observation.fleet.nodes[0]
    return explained_text(desk, plan, node)


def test_explain_says_what_was_busy_last_and_whose_it_was() -> None:
    """When, which signal, how much of the limit, who, and the setting to change; and what the agent cannot see."""
    owner = WorkOwner(user="alice", unit="session-3.scope", process="python3", pid=4711)
    power = cpu_evidence(name="gpu3.power", observed=410.0, limit=245.0, unit="watts", owner=None, setting=None)
    traffic = cpu_evidence(
        name="network",
        observed=1.1e6,
        limit=1e6,
        unit="bytes per second",
        owner=owner,
        setting="agent.evidence.network.busy_bytes_per_second",
    )
    text = watched(
        (cpu_evidence(), 720.0),
        (power, 4000.0),
        (traffic, 90_000.0),
    )

    check("explain-busy-last.txt", text)


def test_explain_says_since_when_nothing_was_busy() -> None:
    """After a restart of its agent nobody knows what was before, and the page says so."""
    assert (
        "What was busy last:\n    Nothing was busy since the agent started at 2026-03-01 12:00 UTC; what" in watched()
    )


def test_explain_says_who_keeps_a_node_occupied_or_busy() -> None:
    """Beside the evidence, with the setting; no name of a process moves the cursor."""
    owner = WorkOwner(user="alice", unit="session-3.scope", process="py\x1b[2Jthon3", pid=4711)
    alive = cpu_evidence(owner=owner, note=None)
    verdict = busy_last(a_verdict("i-1", State.BUSY, 300.0), (alive, 0.0))
    verdict = replace(verdict, activity=replace(verdict.activity, evidence=(alive,)))
    desk = Desk()
    desk.fleet.put(a_node("i-1", signal=NodeReport(verdict=verdict)))
    plan = desk.plan()
    node = plan.observation.fleet.nodes[0]
    text = explained_text(desk, plan, node)

    assert "\nIt has been busy for 5m: cpu was busy: 1.4 cores, limit 0.8, alice's py" in text
    assert "1.4 cores, limit 0.8  alice's py\\x1b[2Jthon3, pid 4711, session-3.scope  /proc/stat  agent." in text
    assert "\x1b" not in text


def test_explain_shows_each_gpu_that_is_not_well() -> None:
    """What is wrong with it, since when, what to do and where that is known from; nothing of the healthy ones."""
    desk, plan = a_day()
    node = plan.observation.fleet.node("forgotten")
    assert node is not None
    assert node.verdict is not None
    finding = xid_finding(48)
    assert finding is not None
    failing = GpuHealth(state=Health.FAILING, since=START, findings=(finding,))
    healthy = GpuHealth(state=Health.HEALTHY, since=START)
    gpus = tuple(replace(node.verdict.gpus[0], index=n, health=each) for n, each in enumerate((failing, healthy)))
    ill = replace(node, signal=NodeReport(verdict=replace(node.verdict, gpus=gpus)))
    text = explained_text(desk, plan, ill)

    assert "    GPU 0 is failing since 2026-01-05 00:00:00 UTC\n" in text
    assert "        xid_48: A memory error could not be corrected. Remedy: reset; source: NVIDIA's Xid cat" in text
    assert "GPU 1" not in text


@pytest.mark.parametrize("name", ["forgotten", "silent", "trainer"])
def test_a_reader_of_chinese_gets_chinese(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The answer, the verdict, each rule and the past; names, signals and settings as they are."""
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    desk, plan = a_day()
    node = plan.observation.fleet.node(name)
    assert node is not None

    check(f"explain-zh-{name}.txt", explained_text(desk, plan, node, verbose=name == "forgotten"))
