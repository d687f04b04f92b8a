"""The idle policy: who becomes a candidate, when a notice runs out, and what withdraws it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation, Verb
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.policies import idle
from gpuwatch.policies.idle import IdleRules
from tests.support.builders.fleet import HOUR, NOW, RULES, a_node, a_notice, a_verdict, an_observation


def the_verb(observation: Observation, rules: IdleRules = RULES.idle) -> Verb:
    """What the policy proposes for the first node."""
    return idle.propose(observation, "default", rules).steps[0].verb


def test_an_idle_node_gets_its_notice_after_the_wait() -> None:
    """A node that has been idle for `timeout` becomes a candidate: it gets a notice, not a stop."""
    assert the_verb(an_observation(a_node(held=1800.0))) is Verb.NOTICE


def test_a_node_idle_for_less_than_the_wait_is_left_alone() -> None:
    """One second short of `timeout` is short."""
    assert the_verb(an_observation(a_node(held=1799.0))) is Verb.HOLD


def test_a_notice_that_has_run_out_leads_to_a_stop() -> None:
    """After the grace period a node that stayed idle is asked to stop."""
    assert the_verb(an_observation(a_node(), notices=(a_notice(age=600.0),))) is Verb.STOP


def test_within_the_grace_period_nothing_happens() -> None:
    """One second before the notice runs out the node is held, and the step says how long is left."""
    step = idle.propose(an_observation(a_node(), notices=(a_notice(age=599.0),)), "default", RULES.idle).steps[0]

    assert (step.verb, step.reason.code) == (Verb.HOLD, "grace")
    assert "1s" in step.change


@pytest.mark.parametrize("state", [State.BUSY, State.OCCUPIED, State.PARKED, State.STALLED])
def test_a_notice_is_withdrawn_as_soon_as_the_node_is_not_idle(state: State) -> None:
    """Anything but idleness ends a notice."""
    assert the_verb(an_observation(a_node(state=state), notices=(a_notice(),))) is Verb.WITHDRAW


def test_doubt_neither_stops_a_node_nor_withdraws_its_notice() -> None:
    """A node whose use is unknown waits, with its notice in force."""
    assert the_verb(an_observation(a_node(state=State.UNKNOWN), notices=(a_notice(),))) is Verb.HOLD


def test_a_node_that_was_busy_after_its_notice_needs_a_new_one() -> None:
    """Idle long enough, but not since the notice: the old notice does not count."""
    rules = replace(RULES.idle, timeout=300.0)

    assert the_verb(an_observation(a_node(held=400.0), notices=(a_notice(age=900.0),)), rules) is Verb.WITHDRAW


def test_a_clock_that_jumps_ahead_does_not_shorten_the_grace_period() -> None:
    """A controller whose clock leaps by an hour sees a notice older than the idle time, and starts anew (P9)."""
    verdict = a_verdict(held=1900.0)
    node = a_node(signal=NodeReport(verdict=verdict))

    assert the_verb(an_observation(node, notices=(a_notice(age=100.0 + HOUR),))) is Verb.WITHDRAW


@pytest.mark.parametrize("state", [State.OCCUPIED, State.PARKED, State.STALLED, State.BUSY])
def test_only_idle_nodes_become_candidates_unless_the_pool_says_otherwise(state: State) -> None:
    """Occupied or parked for a week is still not idle, and this pool only tells about it."""
    assert the_verb(an_observation(a_node(state=state, held=7 * 24 * HOUR))) is Verb.HOLD


def test_a_pool_may_choose_to_reclaim_parked_nodes_after_a_time_of_their_own() -> None:
    """`parked: stop` waits for `parked_timeout`, not for `timeout`."""
    rules = replace(RULES.idle, parked="stop", parked_timeout=4 * HOUR)

    assert the_verb(an_observation(a_node(state=State.PARKED, held=3 * HOUR)), rules) is Verb.HOLD
    assert the_verb(an_observation(a_node(state=State.PARKED, held=4 * HOUR)), rules) is Verb.NOTICE


def test_tell_never_gives_notice() -> None:
    """`action: report` reports an idle node and leaves it at that."""
    assert the_verb(an_observation(a_node()), replace(RULES.idle, action="report")) is Verb.HOLD


def test_a_stopped_node_loses_its_notice() -> None:
    """A node that somebody else stopped is no longer under notice."""
    node = replace(a_node(), state=NodeState.STOPPED)

    assert the_verb(an_observation(node, notices=(a_notice(),))) is Verb.WITHDRAW


def test_every_node_gets_a_step_that_says_why_and_what_would_change_it() -> None:
    """Holding is said aloud, for nodes in every state."""
    nodes = [replace(a_node(f"i-{n}"), state=state) for n, state in enumerate(NodeState)]
    nodes += [a_node(f"i-v{n}", state) for n, state in enumerate(State)]

    steps = idle.propose(an_observation(*nodes), "default", RULES.idle).steps

    assert [step.node_id for step in steps] == [node.id for node in nodes]
    assert all(step.reason.sentence and step.change for step in steps)


@given(
    state=st.sampled_from(State),
    held=st.floats(0, 1e7),
    notice_age=st.none() | st.floats(0, 1e7),
    parked=st.sampled_from(["stop", "report"]),
)
def test_unknown_busy_and_stalled_never_lead_to_a_stop(
    state: State, held: float, notice_age: float | None, parked: str
) -> None:
    """Whatever times and notices: only idle, or parked where chosen, can be stopped (P1, P2)."""
    rules = replace(RULES.idle, parked=parked)  # type: ignore[arg-type]
    notices = () if notice_age is None else (a_notice(age=notice_age),)

    verb = the_verb(an_observation(a_node(state=state, held=held), notices=notices), rules)

    may = state is State.IDLE or (state is State.PARKED and parked == "stop")
    assert may or verb not in {Verb.STOP, Verb.NOTICE}


@given(held=st.floats(0, 1e6), less=st.floats(0, 1e6), notice_age=st.floats(0, 1e6))
def test_less_idleness_never_makes_a_stop_likelier(held: float, less: float, notice_age: float) -> None:
    """If a node idle for some time is not stopped, one idle for less is not either (P8)."""
    longer, shorter = held + less, held
    notices = (a_notice(age=notice_age),)

    if the_verb(an_observation(a_node(held=longer), notices=notices)) is not Verb.STOP:
        assert the_verb(an_observation(a_node(held=shorter), notices=notices)) is not Verb.STOP


def test_the_policy_looks_at_its_own_pool_alone() -> None:
    """Nodes of other pools get no step."""
    proposal = idle.propose(an_observation(a_node(pool="other"), now=NOW), "default", RULES.idle)

    assert proposal.steps == ()
