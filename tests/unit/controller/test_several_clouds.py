"""One controller over two clouds: one ledger, one page, one guard; a cloud that is down holds up no other."""

from dataclasses import replace

import pytest

from gpuwatch.cli import status
from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.controller.node_row import nodes_page
from gpuwatch.model.decision import Status
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES, Desk, a_node
from tests.support.fakes.two_clouds import TwoClouds

SILENT = CloudUnavailableError("no answer")


def rounds(desk: Desk, count: int = 30) -> None:
    """Half an hour: longer than the grace."""
    for _ in range(count):
        desk.round()


def test_idle_machines_of_both_clouds_are_stopped_each_by_its_own() -> None:
    """Notice, grace and stop; the ledger knows of both."""
    desk = TwoClouds()
    rounds(desk)

    assert desk.stops() == (["ins-1"], ["i-1"])
    done = desk.ledger.view(desk.clock.now()).recent
    assert {each.node_id: each.status for each in done if each.verb == "stop"} == {
        "ins-1": Status.SETTLED,
        "i-1": Status.SETTLED,
    }


def test_a_cloud_that_is_down_holds_up_no_other() -> None:
    """Its machine keeps its notice and is left alone until it answers again; nothing of it counts as gone."""
    desk = TwoClouds()
    desk.round()
    desk.fleet.fault = lambda _call, _node: SILENT
    rounds(desk)

    assert desk.stops() == ([], ["i-1"])
    last = desk.round()
    states = {node.id: node.state for node in last.observation.fleet.nodes}
    assert states == {"ins-1": NodeState.UNKNOWN, "i-1": NodeState.STOPPED}
    assert desk.ledger.view(desk.clock.now()).notice("ins-1") is not None

    desk.fleet.fault = lambda _call, _node: None
    rounds(desk, 3)
    assert desk.stops() == (["ins-1"], ["i-1"])


def test_a_pool_of_one_cloud_leaves_the_others_machines_alone() -> None:
    """The reason is in the plan, and a notice that was given before is withdrawn."""
    desk = TwoClouds()
    desk.round()
    desk.rules = replace(RULES, clouds=("us",))
    rounds(desk)

    assert desk.stops() == ([], ["i-1"])
    page = nodes_page(desk.round(), desk.rulebook)
    rows = {row.id: row for row in page.nodes}
    assert rows["ins-1"].why.startswith("It is in the cloud bj, and its pool is for us.")
    assert rows["ins-1"].notified_at is None
    assert (rows["ins-1"].cloud, rows["i-1"].cloud) == ("bj", "us")
    table = [line.plain for line in status.table(page, status.Choice(), None)]
    assert "CLOUD" in table[0]


def test_what_is_missing_comes_from_the_pools_own_clouds() -> None:
    """A stopped machine elsewhere is in nobody's way: the next one is started, or one is launched."""
    window = Window(hours="00:00-24:00", min_nodes=1)
    launch = LaunchRules(template="lt-1", instance_type="g6.xlarge", cloud="us")
    desk = TwoClouds(rules=replace(RULES, clouds=("us",), schedule={"day": window}, start="any", launch=launch))
    for fleet, node_id in ((desk.fleet, "ins-1"), (desk.other, "i-1")):
        fleet.put(replace(fleet.nodes_[node_id], state=NodeState.STOPPED, signal=NodeReport(failure="it is stopped")))
    desk.round()

    assert [call for call, *_ in desk.fleet.calls] == []
    assert [call[:2] for call in desk.other.calls] == [("start", "i-1")]

    del desk.other.nodes_["i-1"]
    rounds(desk, 2)
    assert desk.fleet.calls == []
    assert "launch" in [call for call, *_ in desk.other.calls]


@pytest.mark.parametrize("enforce", [True, False])
def test_one_id_in_two_clouds_is_never_acted_on(enforce: bool) -> None:
    """Somebody configured the same account twice: its machines are in doubt, not stopped twice."""
    desk = TwoClouds(enforce=enforce)
    desk.fleet.put(a_node("i-1"))
    rounds(desk)

    assert desk.stops() == (["ins-1"] if enforce else [], [])
    page = nodes_page(desk.round(), desk.rulebook)
    doubtful = next(row for row in page.nodes if row.id == "i-1")
    assert doubtful.state is NodeState.UNKNOWN


def test_a_machine_whose_settings_name_no_cloud_has_no_cloud_column() -> None:
    """The table of one cloud stays what it was."""
    desk = Desk()
    desk.fleet.put(a_node("i-1"))
    page = nodes_page(desk.round(), desk.rulebook)

    assert page.nodes[0].cloud is None
    assert "CLOUD" not in status.table(page, status.Choice(), None)[0].plain
