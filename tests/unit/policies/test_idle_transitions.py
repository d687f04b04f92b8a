"""What becomes of a notice when its node turns from one state into another, and whose node it says it is.

The agent counts each state from zero. So the table is short:

| from (with a notice) | busy     | unknown | the same state      | any other state |
| -------------------- | -------- | ------- | ------------------- | --------------- |
| idle                 | withdraw | hold    | grace, then removal | withdraw        |
| occupied             | withdraw | hold    | grace, then removal | withdraw        |
| parked               | withdraw | hold    | grace, then removal | withdraw        |
| stalled              | withdraw | hold    | grace, then removal | withdraw        |

A new notice, with the whole wait and grace of the new state, follows.
"""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import Evidence, State, WorkOwner
from gpuwatch.model.decision import REMOVALS, Observation, Step, Verb
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.policies import idle
from gpuwatch.policies.idle_settings import IdleRules
from tests.support.builders.fleet import HOUR, NOW, RULES, Desk, a_node, a_notice, a_verdict, an_observation

BALANCED = IdleRules()
REMOVABLE = (State.IDLE, State.OCCUPIED, State.PARKED, State.STALLED)
OWNED = REMOVABLE[1:]


def the_step(observation: Observation, rules: IdleRules = BALANCED) -> Step:
    """What the policy proposes for the first node."""
    return idle.propose(observation, "default", rules).steps[0]


def owned(state: State, *owners: WorkOwner | None, held: float = 17 * HOUR, note: str | None = None) -> Node:
    """A node that is so because of these processes."""
    verdict = a_verdict(state=state, held=held)
    evidence = tuple(
        Evidence(name="x", says=state, observed=1.0, limit=None, unit="", source="/proc", owner=owner, note=note)
        for owner in owners
    )
    return a_node(signal=NodeReport(verdict=replace(verdict, activity=replace(verdict.activity, evidence=evidence))))


@pytest.mark.parametrize("was", REMOVABLE)
@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_change_of_state_withdraws_the_notice(was: State, state: State, seconds: float) -> None:
    """Also where the grace is over by then: somebody's process is new, or its end is. Doubt alone waits."""
    if state is was:
        return
    grace = BALANCED.grace_period if was is State.IDLE else BALANCED.owner_grace_period
    notice = a_notice(age=grace + 3600.0, grace=grace)
    step = the_step(an_observation(a_node(state=state, held=seconds), notices=(notice,)))

    assert step.verb is (Verb.HOLD if state is State.UNKNOWN else Verb.WITHDRAW)


def test_a_pool_that_only_reports_by_now_says_so_of_a_notice_that_it_takes_back() -> None:
    """The pool's rules were changed in the grace: "it has been idle" alone would not tell."""
    found = an_observation(a_node(state=State.IDLE, held=2 * HOUR), notices=(a_notice(age=60.0, grace=3600.0),))
    step = the_step(found, replace(BALANCED, action="report"))

    assert (step.verb, "only reports idle nodes" in step.reason.sentence) == (Verb.WITHDRAW, True)


@pytest.mark.parametrize("state", OWNED)
def test_an_owner_has_the_long_grace(state: State) -> None:
    """The notice promises it, and nothing happens before; an idle node's is short."""
    given = the_step(an_observation(a_node(state=state, held=16 * HOUR)))
    idle_one = the_step(an_observation(a_node(held=1800.0)))

    assert (given.verb, given.arguments["grace_seconds"]) == (Verb.NOTICE, repr(4 * HOUR))
    assert (idle_one.verb, idle_one.arguments["grace_seconds"]) == (Verb.NOTICE, repr(600.0))
    for age, verb in ((4 * HOUR - 1, Verb.HOLD), (4 * HOUR, Verb.STOP)):
        notice = a_notice(age=age, grace=4 * HOUR, idle_seconds=16 * HOUR)
        node = a_node(state=state, held=16 * HOUR + age)
        assert the_step(an_observation(node, notices=(notice,))).verb is verb


def test_a_short_notice_does_not_serve_an_owner() -> None:
    """However it came about: of a notice with ten minutes an occupied node has the four hours all the same."""
    notice = a_notice(age=3 * HOUR, grace=600.0, idle_seconds=16 * HOUR)

    assert the_step(an_observation(a_node(state=State.OCCUPIED, held=19 * HOUR), notices=(notice,))).verb is Verb.HOLD


def test_a_promised_time_stays_where_the_state_turns_milder() -> None:
    """A notice with four hours keeps them, also for an idle node that has been so since the notice."""
    notice = a_notice(age=3 * HOUR, grace=4 * HOUR, idle_seconds=0.0)
    step = the_step(an_observation(a_node(held=3.5 * HOUR), notices=(notice,)))

    assert (step.verb, step.reason.code) == (Verb.HOLD, "grace")


@given(
    state=st.sampled_from(State),
    held=st.floats(0, 1e6),
    age=st.floats(0, 1e6),
    grace=st.sampled_from([600.0, 4 * HOUR]),
    counted=st.floats(0, 1e6),
)
def test_no_removal_before_the_promised_time_or_the_grace_of_the_state(
    state: State, held: float, age: float, grace: float, counted: float
) -> None:
    """Whatever the state was when the notice was given (P14)."""
    notice = a_notice(age=age, grace=grace, idle_seconds=counted)
    node = a_node(state=state, held=held)

    if the_step(an_observation(node, notices=(notice,))).verb in REMOVALS:
        assert age >= max(grace, idle.grace_seconds(node, an_observation(), BALANCED))
        assert state in REMOVABLE
        assert held + 8.0 >= age, "its state has held since the notice"
        assert held >= (1800.0 if state is State.IDLE else 16 * HOUR)


def test_neither_age_nor_window_hastens_somebodys_node() -> None:
    """`max_age` and a short wait for idle nodes are about idle nodes."""
    rules = replace(BALANCED, max_age=HOUR, timeout=300.0)

    for state in OWNED:
        assert the_step(an_observation(a_node(state=state, held=16 * HOUR - 1)), rules).verb is Verb.HOLD


def test_a_process_that_starts_during_the_grace_has_its_own_twenty_hours() -> None:
    """The notice is withdrawn, and the whole wait and grace of an occupied node follow, told anew."""
    desk = Desk(rules=replace(RULES, idle=BALANCED))
    desk.fleet.put(a_node("i-1", held=2 * HOUR))
    desk.round()
    first = desk.ledger.view(desk.clock.now()).notice("i-1")
    assert first is not None
    desk.fleet.show("i-1", State.OCCUPIED, 30.0)
    desk.round()
    assert desk.ledger.view(desk.clock.now()).notice("i-1") is None

    desk.rest(16 * HOUR)
    desk.round()
    second = desk.ledger.view(desk.clock.now()).notice("i-1")
    assert second is not None
    assert second.promise is not None
    assert second.promise.stop_at - second.at == timedelta(hours=4)
    for _ in range(3):
        desk.rest(HOUR)
        desk.round()
    assert desk.fleet.stops() == []
    desk.rest(HOUR)
    desk.round()
    assert desk.fleet.stops() == ["i-1"]


ALICE = WorkOwner(user="alice", process="python3", pid=4711)


@pytest.mark.parametrize(
    ("state", "owners", "words"),
    [
        (State.OCCUPIED, (ALICE,), "occupied (alice's python3, pid 4711, does nothing)"),
        (
            State.OCCUPIED,
            (ALICE, ALICE, WorkOwner(user="bob")),
            "occupied (alice's python3, pid 4711, and 1 more: do nothing)",
        ),
        (
            State.OCCUPIED,
            (WorkOwner(process="tini", pid=7, unit="container 3f2a"),),
            "occupied (tini, pid 7, container 3f2a, does nothing)",
        ),
        (State.OCCUPIED, (WorkOwner(),), "occupied (somebody's process, does nothing)"),
        (State.OCCUPIED, (None,), "occupied (somebody's process is alive and does nothing)"),
        (State.PARKED, (ALICE,), "parked (alice's python3, pid 4711, holds GPU memory and computes nothing)"),
        (State.PARKED, (), "parked (it holds GPU memory and computes nothing)"),
        (State.IDLE, (ALICE,), "idle"),
    ],
)
def test_the_reason_names_the_owner(state: State, owners: tuple[WorkOwner | None, ...], words: str) -> None:
    """Who reads it can ask somebody, and end the process."""
    step = the_step(an_observation(owned(state, *owners), now=NOW))

    assert step.reason.sentence.startswith(f"It has been {words} for 17h")


def test_the_reason_names_what_waits_where_nothing_is_alive() -> None:
    """A queue or a unit is no process: its own words say what it is."""
    node = owned(State.OCCUPIED, WorkOwner(user="carol"), note="carol's incron table waits for an event")
    step = the_step(an_observation(node, now=NOW))

    assert step.reason.sentence.startswith("It has been occupied (carol's incron table waits for an event) for 17h")
