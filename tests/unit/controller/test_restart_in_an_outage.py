"""A controller that begins while a cloud is silent: what the ledger saw counts, and nothing is done on it."""

from dataclasses import replace
from decimal import Decimal

import pytest

from gpuwatch.cli.render import plan_text, round_line
from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.controller.node_row import nodes_page
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.model.money import Price
from gpuwatch.policies import PoolRules
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import NOW, RULES, a_node
from tests.support.fakes.two_clouds import TwoClouds

SILENT = CloudUnavailableError("no answer")
LAUNCH = LaunchRules(template="lt-1", instance_type="g6.xlarge", cloud="us")


def wanting(nodes: int, *clouds: str) -> PoolRules:
    """A pool with a floor."""
    window = Window(hours="00:00-24:00", min_nodes=nodes)
    return replace(RULES, schedule={"day": window}, launch=LAUNCH, clouds=clouds)


def silence(desk: TwoClouds, *, silent: bool = True) -> None:
    """The cloud bj gives no answer, or answers again."""
    desk.fleet.fault = lambda _call, _node: SILENT if silent else None


def launches(desk: TwoClouds) -> int:
    """How many machines were asked for."""
    return sum(call == "launch" for call, *_ in desk.other.calls)


def rounds(desk: TwoClouds, count: int) -> None:
    """So many minutes."""
    for _ in range(count):
        desk.round()


def test_machines_of_a_silent_cloud_count_as_the_ledger_saw_them() -> None:
    """In an unknown state with the reason, over several restarts; the other cloud's idle machine is stopped."""
    desk = TwoClouds()
    desk.round()
    silence(desk)
    for _ in range(3):
        desk.restart()
        rounds(desk, 10)
    done = desk.round()

    seen = {node.id: node for node in done.observation.fleet.nodes}
    assert (seen["ins-1"].state, seen["ins-1"].last_shown) == (NodeState.UNKNOWN, NodeState.RUNNING)
    assert seen["ins-1"].unseen == "cloud bj: no answer"
    assert desk.stops() == ([], ["i-1"])
    assert desk.fleet.calls[1:] == [], "the silent cloud was asked for a change"
    assert desk.ledger.view(desk.clock.now()).notice("ins-1") is not None
    row = next(row for row in nodes_page(done, desk.rulebook).nodes if row.id == "ins-1")
    assert row.why == "Its state is not known: cloud bj: no answer."
    assert "no answer from cloud bj (no answer)" in plan_text(done)
    assert round_line(done).endswith("no answer from cloud bj")


def test_nothing_is_launched_for_machines_that_are_merely_unseen() -> None:
    """P17: a floor of two holds with one machine in the silent cloud; with three wanted, one is launched."""
    desk = TwoClouds(rules=wanting(2))
    desk.round()
    silence(desk)
    desk.restart()
    rounds(desk, 10)
    assert launches(desk) == 0

    desk.rules = wanting(3)
    rounds(desk, 3)
    assert launches(desk) == 1


def test_the_price_of_unseen_machines_counts_against_the_hourly_limit() -> None:
    """What ran when it was last shown is assumed to run."""
    desk = TwoClouds(rules=wanting(3))
    price = Price(usd_per_hour=Decimal(1), source="test", as_of=NOW.date())
    desk.prices = {"g6.xlarge": price}
    desk.limits = replace(desk.limits, max_usd_per_hour=Decimal("2.5"))
    desk.ledger.record_round(desk.plan().observation)
    silence(desk)
    desk.restart()
    done = desk.round()

    (review,) = [each for each in done.reviews if each.step.verb is Verb.LAUNCH]
    assert {answer.rule for answer in review.refusals} == {"hourly_cost_limit"}


@pytest.mark.parametrize(("clouds", "grows"), [((), False), (("bj",), False), (("us",), True)])
def test_a_pool_does_not_grow_on_a_cloud_of_which_nothing_is_known(clouds: tuple[str, ...], grows: bool) -> None:
    """The first start ever, with credentials that are wrong: pools that name other clouds go on."""
    desk = TwoClouds(rules=wanting(3, *clouds))
    silence(desk)
    done = desk.round()

    assert (launches(desk) > 0) is grows
    refused = {answer.rule for review in done.reviews for answer in review.refusals}
    assert ("cloud_silent" in refused) is not grows
    assert "Nobody knows what is there" in plan_text(done)

    silence(desk, silent=False)
    rounds(desk, 2)
    assert launches(desk) == (2 if grows else 1)


def test_a_cloud_that_was_seen_empty_holds_up_no_growth() -> None:
    """That it had nothing is knowledge, too."""
    desk = TwoClouds(rules=wanting(2))
    del desk.fleet.nodes_["ins-1"]
    desk.rules = RULES
    desk.round()
    silence(desk)
    desk.restart()
    desk.rules = wanting(2)
    rounds(desk, 2)

    assert launches(desk) == 1


def test_a_cloud_that_is_back_after_an_hour_goes_on_where_it_was() -> None:
    """Its machine is stopped by its notice or a new one, and what ended meanwhile is gone."""
    desk = TwoClouds()
    desk.fleet.put(a_node("ins-2"))
    desk.round()
    silence(desk)
    desk.restart()
    rounds(desk, 60)
    del desk.fleet.nodes_["ins-2"]
    silence(desk, silent=False)
    done = desk.round()

    assert {node.id for node in done.observation.fleet.nodes} == {"ins-1", "i-1"}
    assert done.observation.fleet.silent == ()
    rounds(desk, 20)
    assert desk.fleet.stops() == ["ins-1"]


def test_without_any_answer_there_is_no_round() -> None:
    """Both are silent: nobody sees anything, whatever the ledger remembers."""
    desk = TwoClouds()
    desk.round()
    silence(desk)
    desk.other.fault = lambda _call, _node: SILENT
    desk.restart()

    assert desk.round().trouble is not None


def test_a_machine_that_was_stopped_is_not_started_on_what_the_ledger_remembers() -> None:
    """It may be running by now; a start is a change to a machine that nobody sees."""
    desk = TwoClouds(rules=replace(RULES, start="any"))
    desk.fleet.put(
        replace(desk.fleet.nodes_["ins-1"], state=NodeState.STOPPED, signal=NodeReport(failure="it is stopped"))
    )
    desk.round()
    silence(desk)
    desk.restart()
    desk.rules = replace(wanting(3), start="any")
    rounds(desk, 5)

    assert [call for call, *_ in desk.fleet.calls] == []
