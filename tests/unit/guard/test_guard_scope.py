"""How far an open step reaches: its own node always, its pool's additions for a while, and nothing else."""

from dataclasses import replace

import pytest

from gpuwatch.guard import Limits, judge, review
from gpuwatch.model.decision import Decision, LedgerView, OpenIntent, Status, Verb
from tests.support.builders.fleet import NOW, RULES, a_node, a_notice, an_observation
from tests.support.builders.guard_cases import a_case, a_growth, a_launch, a_rulebook, a_start, with_group, with_ledger
from tests.support.builders.past_steps import a_done, a_step, an_open, launching_since

ALL = sorted(set(Verb) - {Verb.HOLD})


def refused_in_flight(verb: Verb, *entries: OpenIntent) -> bool:
    """Whether in_flight objects to that step of i-1."""
    member = {Verb.PROTECT: with_group, Verb.UNPROTECT: with_group}
    sized = {Verb.GROW: a_growth, Verb.SHRINK: a_growth}
    case = {Verb.LAUNCH: a_launch, **sized, Verb.START: a_start, **member}.get(verb, lambda c: c)(a_case())
    case = replace(case, step=replace(case.step, verb=verb))
    found = judge(with_ledger(case, open_intents=entries))
    assert "in_flight" in {answer.rule for answer in found.answers}, "the rule was not asked"
    return "in_flight" in {answer.rule for answer in found.refusals}


@pytest.mark.parametrize("verb", ALL)
@pytest.mark.parametrize("status", [Status.ACCEPTED, Status.UNAVAILABLE, None])
def test_another_nodes_open_removal_blocks_no_verb(verb: Verb, status: Status | None) -> None:
    """However it stands and however old it is."""
    for seconds_ago in (1.0, 600.0, 86400.0):
        assert not refused_in_flight(verb, an_open("i-2", status, seconds_ago=seconds_ago))


@pytest.mark.parametrize("verb", sorted(set(ALL) - {Verb.LAUNCH, Verb.GROW, Verb.SHRINK}))
@pytest.mark.parametrize("status", [Status.ACCEPTED, Status.UNAVAILABLE, Status.ASKED, None])
def test_an_open_removal_blocks_its_own_node_whatever_its_age(verb: Verb, status: Status | None) -> None:
    """Nothing else is done to a machine of which it is not known what becomes of it."""
    for seconds_ago in (1.0, 600.0, 86400.0):
        assert refused_in_flight(verb, an_open("i-1", status, seconds_ago=seconds_ago))


@pytest.mark.parametrize("verb", ALL)
@pytest.mark.parametrize(("seconds_ago", "blocks"), [(0.0, True), (600.0, True), (601.0, False)])
def test_an_open_launch_blocks_additions_to_its_pool_for_ten_minutes(
    verb: Verb, seconds_ago: float, *, blocks: bool
) -> None:
    """Neither removals nor notices, withdrawals and protections; and no other pool."""
    addition = verb in {Verb.LAUNCH, Verb.GROW, Verb.START}
    entry = launching_since(seconds_ago)
    elsewhere = replace(entry, intent=replace(entry.intent, pool="training"))

    assert refused_in_flight(verb, entry) is (blocks and addition)
    assert not refused_in_flight(verb, elsewhere)


def test_an_open_start_blocks_no_other_start() -> None:
    """Capacity counts it as there; a machine that does not come up holds up no other."""
    entry = an_open("i-9", Status.ACCEPTED, seconds_ago=60.0)
    entry = replace(entry, intent=replace(entry.intent, verb=Verb.START))

    assert not refused_in_flight(Verb.START, entry)


@pytest.mark.parametrize(
    ("refused", "minutes_ago", "cools"),
    [(False, 59.0, True), (False, 60.0, False), (True, 60.0, True), (True, 359.0, True), (True, 360.0, False)],
)
def test_a_refused_removal_cools_down_for_longer(minutes_ago: float, *, refused: bool, cools: bool) -> None:
    """An hour after a failure, six after refusals; the longer of the two where the hour is set to more."""
    done = replace(a_done("i-1", Status.FAILED, minutes_ago=minutes_ago), refused=refused, reached=not refused)
    limits = Limits(max_stops_per_hour_ratio=1.0)
    case = replace(with_ledger(a_case(), recent=(done,)), limits=limits)
    patient = replace(case, limits=replace(limits, failure_cooldown=7 * 3600.0))

    assert ("cooling_down" in {answer.rule for answer in judge(case).refusals}) is cools
    assert "cooling_down" in {answer.rule for answer in judge(patient).refusals}


def test_whoever_was_vetoed_or_refused_lately_has_his_turn_last() -> None:
    """With one stop a round: fewest tries in vain first, and vetoes of more than an hour ago are forgotten."""
    names = ["i-vetoed", "i-refused", "i-long-ago", "i-new"]
    nodes = [a_node(name) for name in names]
    ledger = LedgerView(
        notices=tuple(a_notice(name) for name in names),
        open_intents=(an_open("i-refused", Status.REFUSED, attempts=1),),
        recent=(
            a_done("i-vetoed", Status.CANCELLED, key="a"),
            a_done("i-vetoed", Status.CANCELLED, key="b"),
            a_done("i-long-ago", Status.CANCELLED, key="c", minutes_ago=61.0),
        ),
    )
    observation = replace(an_observation(*nodes, now=NOW), ledger=ledger)
    decision = Decision(pool="default", steps=tuple(a_step(name) for name in names))
    limits = Limits(max_stops_per_round=1, max_stops_per_hour_ratio=1.0)
    found = review(observation, [decision], a_rulebook(RULES, limits))

    assert [each.step.node_id for each in found] == ["i-long-ago", "i-new", "i-refused", "i-vetoed"]
    assert [each.allowed for each in found] == [True, False, False, False]


def test_an_open_start_takes_no_removals_place_within_the_hour() -> None:
    """Limits of an hour count what they are about, whatever else is open."""
    start = an_open("i-9", Status.ACCEPTED, seconds_ago=60.0)
    start = replace(start, intent=replace(start.intent, verb=Verb.START))
    limits = Limits(max_stops_per_hour=1, max_stops_per_hour_ratio=1.0)
    case = replace(with_ledger(a_case(), open_intents=(start,)), limits=limits)
    stop = replace(case, observation=with_ledger(a_case(), open_intents=(an_open("i-9", Status.ACCEPTED),)).observation)

    assert "blast_radius" not in {answer.rule for answer in judge(case).refusals}
    assert "blast_radius" in {answer.rule for answer in judge(stop).refusals}
