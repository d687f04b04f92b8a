"""What operators read: status, plan and explain of one small fleet, word by word."""

import json

from gpuwatch.cli import render as show
from gpuwatch.cli import status
from gpuwatch.cli.explain_text import explain_text
from gpuwatch.controller.explain import node_page
from gpuwatch.controller.node_row import nodes_page
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.plan_page import plan_page
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport
from gpuwatch.model.usage import FLEET_TAG
from gpuwatch.runtime.json_document import json_text
from tests.support.builders.fleet import Desk, a_node
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


def test_plan_names_the_cloud_of_a_node_where_the_settings_name_it() -> None:
    """The operator must look for it there."""
    desk = Desk()
    desk.fleet.put(a_node("i-1", held=7200.0, name="forgotten", cloud="bj"))
    desk.fleet.put(a_node("i-2", held=7200.0, cloud="us", protected="tag gpuwatch:protect is 'true'"))
    lines = show.plan_text(desk.plan()).splitlines()

    assert lines[0].startswith("would notice i-1 (forgotten, bj): ")
    assert lines[1].startswith("may not notice i-2 (us): ")


def test_a_fleet_name_that_no_machine_has_is_told_with_those_that_there_are() -> None:
    """`status` alone shows it: nobody is enrolled, and the tags say why."""
    desk = Desk()
    for name in ("a", "b"):
        desk.fleet.put(a_node(f"i-{name}", enrolled=False, tags={FLEET_TAG: "ml"}))

    plan = desk.plan()
    (told,) = show.remarks(plan, "")

    assert show.fleets_instead(plan) == {"ml": 2}
    assert told.startswith("Warning: no machine is of the fleet that the setting `fleet` names. By their tags")
    assert "2 machines of 'ml'" in told


def test_an_address_of_a_machine_that_is_not_there_is_told() -> None:
    """With the name that was probably meant."""
    desk = Desk()
    desk.fleet.put(a_node("i-1", name="eval"))
    signals = ObserveSettings(targets={"evall": "http://10.0.0.7:9460", "eval": "http://10.0.0.8:9460"})

    assert list(show.addresses_of_nobody(desk.plan(), signals)) == [
        "Warning: signals.targets.evall: no GPU machine has this id or name. The nearest is 'eval'."
    ]


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
        explain_text(node_page(done, desk.rulebook, desk.ledger, node, done.observation.ledger, round_id=None)),
    ]

    assert not any("\x1b" in text or "\nbusy" in text for text in texts)
    assert all(r"ann\x1b[2J\nbusy" in text for text in texts[:2])
