"""The guard: each rule refuses what it is there for, alone, and says so; together they list every objection."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.guard import RULES as GUARD_RULES
from gpuwatch.guard import Case, Limits, judge, retry_wait_seconds, review
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Decision, LedgerView, Status, Verb
from gpuwatch.model.fleet import NodeReport
from tests.support.builders.fleet import RULES, a_node, a_notice, a_verdict, an_observation
from tests.support.builders.guard_cases import FAIR, SPOILED, a_case, a_rulebook, with_ledger, with_node
from tests.support.builders.guard_cases_gpus import FAIR_GPUS, SPOILED_GPUS
from tests.support.builders.guard_cases_groups import FAIR_GROUPS, SPOILED_GROUPS
from tests.support.builders.guard_cases_growth import FAIR_GROWTH, SPOILED_GROWTH
from tests.support.builders.guard_cases_kubernetes import FAIR_KUBERNETES, SPOILED_KUBERNETES
from tests.support.builders.guard_cases_launches import FAIR_LAUNCHES, SPOILED_LAUNCHES
from tests.support.builders.guard_cases_notices import FAIR_NOTICES, SPOILED_NOTICES
from tests.support.builders.guard_cases_slurm import FAIR_SLURM, SPOILED_SLURM
from tests.support.builders.guard_cases_undone import FAIR_UNDONE, SPOILED_UNDONE
from tests.support.builders.past_steps import a_done, a_step, an_open

ALL = [
    *SPOILED,
    *SPOILED_GROWTH,
    *SPOILED_GROUPS,
    *SPOILED_NOTICES,
    *SPOILED_KUBERNETES,
    *SPOILED_SLURM,
    *SPOILED_GPUS,
    *SPOILED_LAUNCHES,
    *SPOILED_UNDONE,
]
FAIRS = [*FAIR, *FAIR_GROWTH, *FAIR_GROUPS, *FAIR_NOTICES, *FAIR_KUBERNETES, *FAIR_SLURM, *FAIR_GPUS, *FAIR_LAUNCHES]
FAIRS += FAIR_UNDONE


@pytest.mark.parametrize(("name", "change"), FAIRS, ids=[row[0] for row in FAIRS])
def test_a_fair_case_meets_no_objection(name: str, change: Callable[[Case], Case]) -> None:
    """An enrolled, fresh, long idle machine whose notice has run out may go; a consented group may grow."""
    result = judge(change(a_case()))

    assert result.refusals == (), name
    assert result.allowed


@pytest.mark.parametrize(("name", "rule", "spoil", "word"), ALL, ids=[f"{row[1]}: {row[0]}" for row in ALL])
def test_each_rule_refuses_what_it_is_there_for(name: str, rule: str, spoil: Callable[[Case], Case], word: str) -> None:
    """A spoiled case is refused by its rule, in a sentence that names the cause, with a remedy."""
    refusals = {answer.rule: answer for answer in judge(spoil(a_case())).refusals}

    assert rule in refusals, f"{name}: nobody but {sorted(refusals)} objected"
    assert word in refusals[rule].sentence + refusals[rule].remedy
    assert refusals[rule].remedy


def test_machines_that_nobody_enrolled_count_neither_as_coverage_nor_towards_the_minimum() -> None:
    """Foreign machines without an agent blind no pool; foreign machines that run keep no pool above its minimum."""
    case = a_case()
    foreign = tuple(a_node(f"i-f{n}", enrolled=False, signal=NodeReport(failure="no answer")) for n in range(9))
    fleet = replace(case.observation.fleet, nodes=case.observation.fleet.nodes + foreign)
    case = replace(case, observation=replace(case.observation, fleet=fleet))

    assert judge(case).allowed
    assert {a.rule for a in judge(replace(case, pool_rules=replace(RULES, min_nodes=3))).refusals} == {"min_nodes"}


def test_every_rule_is_tested_here() -> None:
    """A new rule needs a case of its own."""
    assert {row[1] for row in ALL} == {name for name, rule in GUARD_RULES.items() if rule.machines is not None}


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
    """30 s, 60 s, … 900 s; where the cloud does not allow it 30 minutes, 1 hour, … 4 hours."""
    assert [retry_wait_seconds(n) for n in (1, 2, 3, 9)] == [30.0, 60.0, 120.0, 900.0]
    assert [retry_wait_seconds(n, denied=True) for n in (1, 2, 4, 9)] == [1800.0, 3600.0, 14400.0, 14400.0]


@pytest.mark.parametrize(
    ("verb", "status", "waits"),
    [
        (Verb.STOP, Status.DENIED, True),
        (Verb.TERMINATE, Status.DENIED, True),
        (Verb.STOP, Status.REFUSED, False),
        (Verb.NOTICE, Status.DENIED, False),
    ],
)
def test_only_a_removal_that_is_not_allowed_waits_for_people(verb: Verb, status: Status, *, waits: bool) -> None:
    """What protects a machine, or tells its owner, is tried again soon."""
    entry = an_open("i-1", status, seconds_ago=1799.0)
    entry = replace(entry, intent=replace(entry.intent, verb=verb))
    answers = judge(with_ledger(a_case(), open_intents=(entry,))).answers

    assert [answer.refused for answer in answers if answer.rule == "in_flight"] == [waits]


def test_stops_allowed_earlier_in_the_round_count_against_the_next() -> None:
    """With a floor of two, one of three stops passes; limits see it as well."""
    nodes = tuple(a_node(f"i-{n}") for n in range(3))
    observation = an_observation(*nodes, notices=tuple(a_notice(node.id) for node in nodes))
    decision = Decision(pool="default", steps=tuple(a_step(node.id) for node in nodes))

    reviews = review(observation, [decision], a_rulebook(replace(RULES, min_nodes=2), Limits()))

    assert [each.allowed for each in reviews] == [True, False, False]


def test_a_withdrawal_needs_no_idle_node() -> None:
    """Taking a notice back from a busy, protected or owned node is always fine."""
    case = replace(a_case(), step=a_step(verb=Verb.WITHDRAW))
    node = {"protected": "tag", "managed_by": "EKS", "signal": NodeReport(verdict=a_verdict(state=State.BUSY))}

    assert judge(with_node(case, **node)).allowed


def only_spoils(spoil: Callable[[Case], Case]) -> bool:
    """Whether a case is still a stop of its node, in a pool that reclaims no more than before."""
    case = spoil(a_case())
    idle = case.pool_rules.idle
    return case.step == a_step() and {idle.occupied, idle.parked, idle.stalled} == {"report"}


@given(spoils=st.sets(st.sampled_from([row for row in SPOILED if only_spoils(row[2])]), max_size=5))
def test_an_objection_never_disappears_by_adding_another(
    spoils: set[tuple[str, str, Callable[[Case], Case], str]],
) -> None:
    """However many things are wrong with a stop, it stays refused (P8)."""
    case = a_case()
    for _, _, spoil, _ in sorted(spoils, key=lambda row: row[0]):
        case = spoil(case)

    assert judge(case).allowed is not bool(spoils)


@given(
    past=st.integers(0, 20),
    waiting=st.integers(0, 5),
    refused=st.integers(0, 3),
    candidates=st.integers(0, 20),
    per_round=st.integers(0, 6),
    per_hour=st.integers(0, 12),
    share=st.floats(0, 1),
    floor=st.integers(0, 25),
)
def test_no_limit_is_ever_exceeded(  # noqa: PLR0913, PLR0917  each is a dimension of the past
    past: int, waiting: int, refused: int, candidates: int, per_round: int, per_hour: int, share: float, floor: int
) -> None:
    """Whatever the past holds, the stops of a round keep within every limit and above the floor (P4, P7)."""
    nodes = tuple(a_node(f"i-{n}") for n in range(candidates + waiting))
    ledger = LedgerView(
        notices=tuple(a_notice(node.id) for node in nodes),
        recent=tuple(a_done(f"i-x{n}", key=f"p{n}", minutes_ago=30.0) for n in range(past)),
        open_intents=(
            *(an_open(f"i-{candidates + n}", Status.UNAVAILABLE) for n in range(waiting)),
            *(an_open(f"i-{n}", Status.THROTTLED) for n in range(min(refused, candidates))),
        ),
    )
    observation = replace(an_observation(*nodes), ledger=ledger)
    decision = Decision(pool="default", steps=tuple(a_step(node.id) for node in nodes[:candidates]))
    limits = Limits(max_stops_per_round=per_round, max_stops_per_hour=per_hour, max_stops_per_hour_ratio=share)

    rules = replace(RULES, min_nodes=floor)
    allowed = sum(each.allowed for each in review(observation, [decision], a_rulebook(rules, limits)))

    assert allowed <= per_round
    assert allowed == 0 or past + waiting + allowed <= per_hour
    assert allowed == 0 or past + waiting + allowed <= share * (len(nodes) + past) + 1  # the past ones are gone
    assert allowed == 0 or len(nodes) - waiting - allowed >= floor
