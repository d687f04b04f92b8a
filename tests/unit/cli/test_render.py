"""What operators read: status, plan and explain of one small fleet, word by word."""

import json
from dataclasses import replace

import pytest

from gpuwatch.agent.health.causes import xid_finding
from gpuwatch.cli import render as show
from gpuwatch.cli import status
from gpuwatch.controller.explain import node_page
from gpuwatch.controller.node_row import nodes_page
from gpuwatch.controller.plan_page import plan_page
from gpuwatch.controller.round import explained
from gpuwatch.model.fleet import Evidence, NodeReport, State, WorkOwner
from gpuwatch.model.health import GpuHealth, Health
from gpuwatch.runtime.json_document import json_text
from tests.support.builders.fleet import Desk, a_node, a_verdict
from tests.support.builders.gpu import START
from tests.support.builders.last_busy import busy_last, cpu_evidence
from tests.support.builders.small_fleet import a_day
from tests.support.golden_text import check


def test_plan_says_what_it_would_do_what_forbids_it_and_what_it_leaves_alone() -> None:
    """Every objection is on a line of its own."""
    check("plan.txt", show.plan_text(a_day()[1]))


def test_plan_names_the_first_of_many_nodes_and_counts_the_others() -> None:
    """By reason; in a fleet of thousands the lines stay short."""
    desk = Desk()
    for number in range(49):
        desk.fleet.put(a_node(f"i-{number}", State.BUSY, name=f"trainer-{number:02d}"))
    text = show.plan_text(desk.plan())

    named = ", ".join(f"trainer-{number:02d}" for number in range(12))
    assert text == f"pool default: 49 held, busy: {named} and 37 more"


@pytest.mark.parametrize("name", ["forgotten", "trainer", "silent"])
def test_explain_tells_verdict_evidence_rules_remedies_and_past(name: str) -> None:
    """Everything that bears on one machine, on one screen."""
    desk, plan = a_day()
    node = plan.observation.fleet.node(name)
    assert node is not None

    check(
        f"explain-{name}.txt",
        show.explain_text(
            node, *explained(plan.observation, plan.decisions, node, desk.rulebook), desk.ledger.history(node.id)
        ),
    )


def watched(*found: tuple[Evidence, float], state: State = State.IDLE, held: float = 720.0) -> str:
    """The explanation of a machine by an agent that says what was busy last."""
    verdict = busy_last(a_verdict("i-1", state, held, age=0.0), *found)
    verdict = replace(verdict, blind=("/proc hides other users' processes (hidepid): exempt the agent by its gid=.",))
    desk = Desk()
    desk.fleet.put(a_node("i-1", name="forgotten", signal=NodeReport(verdict=verdict)))
    plan = desk.plan()
    node = plan.observation.fleet.nodes[0]
    return show.explain_text(node, *explained(plan.observation, plan.decisions, node, desk.rulebook), ())


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
    text = show.explain_text(node, *explained(plan.observation, plan.decisions, node, desk.rulebook), ())

    assert "\nIt has been busy for 5m: cpu was busy: 1.4 of 0.8 cores, alice's py" in text
    assert (
        "says busy; source: /proc/stat; alice's py\\x1b[2Jthon3, pid 4711, session-3.scope; to change: agent." in text
    )
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
    text = show.explain_text(ill, *explained(plan.observation, plan.decisions, node, desk.rulebook), ())

    assert "    GPU 0 is failing since 2026-01-05 00:00:00 UTC\n" in text
    assert "        xid_48: A memory error could not be corrected. Remedy: reset; source: NVIDIA's Xid cat" in text
    assert "GPU 1" not in text


def test_the_same_as_json() -> None:
    """Each is one JSON document with the same content."""
    desk, plan = a_day()
    node = plan.observation.fleet.nodes[0]
    page = node_page(plan, desk.rulebook, desk.ledger, node, plan.observation.ledger, round_id=None)

    rows = json.loads(json_text("status", nodes_page(plan, desk.rulebook)))["nodes"]
    planned = json.loads(json_text("plan", plan_page(plan, desk.rulebook)))
    result = json.loads(json_text("explain", page))

    assert [row["id"] for row in rows] == [f"i-{n}" for n in range(1, 8)]
    assert {row["id"]: row["activity"] for row in rows}["i-4"] == "parked"
    assert planned["reviews"][0]["step"]["node_id"] == "i-2"
    assert [row["id"] for row in planned["nodes"]] == [each["step"]["node_id"] for each in planned["reviews"]]
    assert all(row in rows for row in planned["nodes"])
    assert result["activity"]["held_seconds"] == node.activity.held_seconds
    assert result["if_stopped_now"]["answers"]
    assert result["history"][0]["intent"]["verb"] == "notice"


def test_a_round_is_one_line_in_the_log() -> None:
    """Counts of use, what was done, and refusals by rule."""
    desk, _ = a_day()

    assert show.round_line(desk.round()) == (
        "Round: 7 nodes (1 busy, 1 parked, 3 idle, 2 unknown); no action; refused: not_enrolled 1, protected 1"
    )


def test_no_tag_and_no_agent_moves_the_cursor_of_whoever_reads() -> None:
    """A name with a line end or an escape sequence stays within its line, in table, plan and explanation."""
    desk, odd = Desk(), "ann\x1b[2J\nbusy"
    desk.fleet.put(a_node("i-1", name=odd, owner=odd, signal=NodeReport(failure=odd)))
    desk.fleet.put(a_node("i-2", name=odd, held=7200.0))
    desk.ledger.pause(None, odd, odd, desk.clock.now())
    done = desk.plan()
    node = done.observation.fleet.nodes[0]
    texts = [
        "\n".join(line.plain for line in status.table(nodes_page(done, desk.rulebook), status.Choice(), None)),
        *show.remarks(done, odd),
        show.plan_text(done),
        show.explain_text(node, *explained(done.observation, done.decisions, node, desk.rulebook), ()),
    ]

    assert not any("\x1b" in text or "\nbusy" in text for text in texts)
    assert all(r"ann\x1b[2J\nbusy" in text for text in texts[:2])
