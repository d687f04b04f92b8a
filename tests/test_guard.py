"""The guard: each rule refuses what it is there for, alone, and says so; together they list every objection."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.guard import RULES as GUARD_RULES
from gpuwatch.guard import Case, Limits, judge, retry_wait_seconds, review
from gpuwatch.model.decision import (
    Decision,
    Done,
    Intent,
    LedgerView,
    OpenIntent,
    Outcome,
    Reason,
    Status,
    Step,
    Verb,
)
from gpuwatch.model.fleet import NodeState, Signal, State
from tests.fleets import NOW, RULES, a_node, a_notice, a_verdict, an_observation

REASON = Reason(code="expired", sentence="Its notice has run out.")


def a_step(node_id: str = "i-1", verb: Verb = Verb.STOP) -> Step:
    """A stop of the first node."""
    return Step(node_id=node_id, verb=verb, reason=REASON, change="Any activity.")


def a_done(node_id: str = "i-9", status: Status = Status.SETTLED, *, minutes_ago: float = 10.0, key: str = "k") -> Done:
    """A finished stop of the recent past."""
    at = NOW - timedelta(minutes=minutes_ago)
    return Done(key=key, verb=Verb.STOP, node_id=node_id, pool="default", status=status, at=at)


def an_open(node_id: str, status: Status | None, *, attempts: int = 1, seconds_ago: float = 3600.0) -> OpenIntent:
    """An intent that is not closed."""
    at = NOW - timedelta(seconds=seconds_ago)
    intent = Intent(key=f"k-{node_id}", verb=Verb.STOP, node_id=node_id, pool="default", at=at, reason=REASON)
    last = None if status is None else Outcome(key=intent.key, at=at, status=status, detail="as told")
    return OpenIntent(intent=intent, attempts=attempts, last=last)


def a_case() -> Case:
    """A stop to which no rule objects; each test spoils one thing."""
    nodes = (a_node("i-1"), a_node("i-2"), a_node("i-3", State.BUSY))
    return Case(
        step=a_step(),
        node=nodes[0],
        pool="default",
        pool_rules=RULES,
        limits=Limits(),
        observation=an_observation(*nodes, notices=(a_notice(),)),
        enforce=True,
    )


def with_node(case: Case, **changes: object) -> Case:
    """The case with its node changed, in the fleet as well."""
    assert case.node is not None
    node = replace(case.node, **changes)  # type: ignore[arg-type]
    nodes = tuple(node if each.id == node.id else each for each in case.observation.fleet.nodes)
    fleet = replace(case.observation.fleet, nodes=nodes)
    return replace(case, node=node, observation=replace(case.observation, fleet=fleet))


def with_ledger(case: Case, **changes: object) -> Case:
    """The case with another past."""
    ledger = replace(case.observation.ledger, **changes)  # type: ignore[arg-type]
    return replace(case, observation=replace(case.observation, ledger=ledger))


def with_verdict(case: Case, **changes: object) -> Case:
    """The case with another answer of its agent."""
    verdict = replace(a_verdict(), **changes)  # type: ignore[arg-type]
    return with_node(case, signal=Signal(verdict=verdict))


def blind(case: Case) -> Case:
    """The case in a pool of which most is unknown."""
    deaf = tuple(a_node(f"i-d{n}", signal=Signal(failure="no answer")) for n in range(4))
    fleet = replace(case.observation.fleet, nodes=case.observation.fleet.nodes + deaf)
    return replace(case, observation=replace(case.observation, fleet=fleet))


# What is spoiled, which rule must object, and what its sentence must name.
SPOILED: list[tuple[str, str, Callable[[Case], Case], str]] = [
    ("observing", "observe_only", lambda c: replace(c, enforce=False), "observes"),
    ("no tag", "not_enrolled", lambda c: with_node(c, enrolled=False), "enrolled"),
    ("protect tag", "protected", lambda c: with_node(c, protected="tag gpuwatch:protect"), "gpuwatch:protect"),
    ("in a group", "owned", lambda c: with_node(c, managed_by="Auto Scaling group web"), "web"),
    ("stopping", "not_running", lambda c: with_node(c, state=NodeState.STOPPING), "stopping"),
    ("silent", "unknown", lambda c: with_node(c, signal=Signal(failure="no answer")), "no answer"),
    ("old by its count", "stale", lambda c: with_verdict(c, age_seconds=31.0), "31s"),
    ("old by our clock", "stale", lambda c: with_verdict(c, at=NOW - timedelta(seconds=40)), "40s"),
    ("from the future", "stale", lambda c: with_verdict(c, at=NOW + timedelta(seconds=40)), "-40s"),
    ("busy", "busy", lambda c: with_node(c, signal=Signal(verdict=a_verdict(state=State.BUSY))), "busy"),
    ("parked", "busy", lambda c: with_node(c, signal=Signal(verdict=a_verdict(state=State.PARKED))), "parked"),
    ("one GPU busy", "busy", lambda c: with_verdict(c, gpus=a_verdict(state=State.BUSY).gpus), "busy"),
    ("GPU not seen", "gpus_missing", lambda c: with_node(c, gpu_count=8), "1 of 8"),
    ("young", "warm_up", lambda c: with_node(c, launched_at=NOW - timedelta(seconds=899)), "14m59s"),
    ("unknown age", "warm_up", lambda c: with_node(c, launched_at=None), "Nobody knows"),
    ("impossible", "warm_up", lambda c: with_node(c, launched_at=NOW - timedelta(seconds=7000)), "claims"),
    ("mostly deaf pool", "blind", blind, "3 of 7"),
    ("failed lately", "cooling_down", lambda c: with_ledger(c, recent=(a_done("i-1", Status.FAILED),)), "given up"),
    ("other stopping", "in_flight", lambda c: with_ledger(c, open_intents=(an_open("i-2", Status.ACCEPTED),)), "i-2"),
    ("nobody knows", "in_flight", lambda c: with_ledger(c, open_intents=(an_open("i-2", Status.UNAVAILABLE),)), "i-2"),
    ("accepted", "in_flight", lambda c: with_ledger(c, open_intents=(an_open("i-1", Status.ACCEPTED),)), "i-1"),
    (
        "backing off",
        "in_flight",
        lambda c: with_ledger(c, open_intents=(an_open("i-1", Status.THROTTLED, seconds_ago=5.0),)),
        "throttled",
    ),
    ("no notice", "no_notice", lambda c: with_ledger(c, notices=()), "no notice"),
    ("young notice", "no_notice", lambda c: with_ledger(c, notices=(a_notice(age=599.0),)), "9m59s"),
    ("minimum", "floor", lambda c: replace(c, pool_rules=replace(RULES, min_nodes=3)), "2 nodes"),
    ("per round", "blast_radius", lambda c: replace(c, limits=Limits(max_stops_per_round=0)), "max_stops_per_round"),
    (
        "per hour",
        "blast_radius",
        lambda c: with_ledger(replace(c, limits=Limits(max_stops_per_hour=1)), recent=(a_done(),)),
        "max_stops_per_hour",
    ),
    (
        "share",
        "blast_radius",
        lambda c: with_ledger(c, recent=(a_done(key="a"), a_done(key="b"))),
        "max_stops_per_hour_ratio",
    ),
]


def test_a_fair_case_meets_no_objection() -> None:
    """An enrolled, fresh, long idle machine whose notice has run out may be stopped."""
    result = judge(a_case())

    assert result.refusals == ()
    assert result.allowed


@pytest.mark.parametrize(("name", "rule", "spoil", "word"), SPOILED, ids=[row[0] for row in SPOILED])
def test_each_rule_refuses_what_it_is_there_for(name: str, rule: str, spoil: Callable[[Case], Case], word: str) -> None:
    """A spoiled case is refused by its rule, in a sentence that names the cause, with a remedy."""
    refusals = {answer.rule: answer for answer in judge(spoil(a_case())).refusals}

    assert rule in refusals, f"{name}: nobody but {sorted(refusals)} objected"
    assert word in refusals[rule].sentence + refusals[rule].remedy
    assert refusals[rule].remedy


def test_machines_that_nobody_enrolled_count_neither_as_coverage_nor_towards_the_minimum() -> None:
    """Foreign machines without an agent blind no pool; foreign machines that run keep no pool above its minimum."""
    case = a_case()
    foreign = tuple(a_node(f"i-f{n}", enrolled=False, signal=Signal(failure="no answer")) for n in range(9))
    fleet = replace(case.observation.fleet, nodes=case.observation.fleet.nodes + foreign)
    case = replace(case, observation=replace(case.observation, fleet=fleet))

    assert judge(case).allowed
    assert {a.rule for a in judge(replace(case, pool_rules=replace(RULES, min_nodes=3))).refusals} == {"floor"}


def test_every_rule_is_tested_here() -> None:
    """A new rule needs a case of its own."""
    assert {row[1] for row in SPOILED} == set(GUARD_RULES)


def test_all_objections_are_listed() -> None:
    """One objection does not hide another."""
    case = with_node(replace(a_case(), enforce=False), enrolled=False, protected="tag", managed_by="EKS")

    assert {"observe_only", "not_enrolled", "protected", "owned"} <= {a.rule for a in judge(case).refusals}


def test_a_node_that_is_gone_is_refused() -> None:
    """A step for a node that the cloud does not list goes nowhere."""
    assert not judge(replace(a_case(), node=None)).allowed


def test_an_intent_that_was_throttled_may_be_tried_again_after_its_wait() -> None:
    """The same intent, once its back-off has run out, is no obstacle to itself."""
    case = with_ledger(a_case(), open_intents=(an_open("i-1", Status.THROTTLED, seconds_ago=31.0),))

    assert judge(case).allowed


def test_intents_to_be_tried_again_do_not_block_each_other() -> None:
    """Two throttled stops of one pool can both go on: otherwise neither ever could."""
    both = (
        an_open("i-1", Status.THROTTLED, seconds_ago=31.0),
        an_open("i-2", Status.THROTTLED, seconds_ago=31.0),
    )

    assert judge(with_ledger(replace(a_case(), limits=Limits(max_stops_per_hour_ratio=1.0)), open_intents=both)).allowed


def test_the_wait_between_attempts_doubles_up_to_a_quarter_of_an_hour() -> None:
    """30 s, 60 s, … 900 s."""
    assert [retry_wait_seconds(n) for n in (1, 2, 3, 9)] == [30.0, 60.0, 120.0, 900.0]


def test_stops_allowed_earlier_in_the_round_count_against_the_next() -> None:
    """With a floor of two, one of three stops passes; limits see it as well."""
    nodes = tuple(a_node(f"i-{n}") for n in range(3))
    observation = an_observation(*nodes, notices=tuple(a_notice(node.id) for node in nodes))
    decision = Decision(pool="default", steps=tuple(a_step(node.id) for node in nodes))

    reviews = review(observation, [decision], lambda _: replace(RULES, min_nodes=2), Limits(), enforce=True)

    assert [each.allowed for each in reviews] == [True, False, False]


def test_a_withdrawal_needs_no_idle_node() -> None:
    """Taking a notice back from a busy, protected or owned node is always fine."""
    case = replace(a_case(), step=a_step(verb=Verb.WITHDRAW))
    node = {"protected": "tag", "managed_by": "EKS", "signal": Signal(verdict=a_verdict(state=State.BUSY))}

    assert judge(with_node(case, **node)).allowed


@given(
    spoils=st.sets(st.sampled_from(range(len(SPOILED))), min_size=1, max_size=5),
)
def test_an_objection_never_disappears_by_adding_another(spoils: set[int]) -> None:
    """However many things are wrong, the step stays refused (P8)."""
    case = a_case()
    for index in sorted(spoils):
        case = SPOILED[index][2](case)

    assert not judge(case).allowed


@given(
    past=st.integers(0, 20),
    waiting=st.integers(0, 5),
    candidates=st.integers(0, 20),
    per_round=st.integers(0, 6),
    per_hour=st.integers(0, 12),
    share=st.floats(0, 1),
    floor=st.integers(0, 25),
)
def test_no_limit_is_ever_exceeded(
    past: int, waiting: int, candidates: int, per_round: int, per_hour: int, share: float, floor: int
) -> None:
    """Whatever the past holds, the stops of a round keep within every limit and above the floor (P4, P7)."""
    nodes = tuple(a_node(f"i-{n}") for n in range(candidates + waiting))
    ledger = LedgerView(
        notices=tuple(a_notice(node.id) for node in nodes),
        recent=tuple(a_done(f"i-x{n}", key=f"p{n}", minutes_ago=30.0) for n in range(past)),
        open_intents=tuple(an_open(f"i-{candidates + n}", Status.THROTTLED) for n in range(waiting)),
    )
    observation = replace(an_observation(*nodes), ledger=ledger)
    decision = Decision(pool="default", steps=tuple(a_step(node.id) for node in nodes[:candidates]))
    limits = Limits(max_stops_per_round=per_round, max_stops_per_hour=per_hour, max_stops_per_hour_ratio=share)

    rules = replace(RULES, min_nodes=floor)
    allowed = sum(each.allowed for each in review(observation, [decision], lambda _: rules, limits, enforce=True))

    assert allowed <= per_round
    assert allowed == 0 or past + waiting + allowed <= per_hour
    assert allowed == 0 or past + waiting + allowed <= share * len(nodes) + 1
    assert allowed == 0 or len(nodes) - waiting - allowed >= floor
