"""Scale-in protection of groups' members: on every working one, off what is proven idle."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.decision import LedgerView, Observation, Verb
from gpuwatch.model.fleet import Fleet, Node, NodeGroup, NodeReport, NodeState
from gpuwatch.policies import scale_in_protection
from gpuwatch.policies.idle import IdleRules
from tests.support.builders.fleet import NOW, RULES, a_node
from tests.support.builders.past_steps import a_group


def a_member(state: State = State.IDLE, held: float = 7200.0, **other: object) -> Node:
    """A running member of the consented group."""
    return a_node("i-1", state, held, group="g-1", **other)


ENDING = replace(RULES.idle, action="terminate")


def the_verb(
    node: Node, group: NodeGroup | None = None, rules: IdleRules = ENDING, *, ours: bool = True
) -> Verb | None:
    """What the policy proposes for one member, whose protection is gpuwatch's own; None: nothing."""
    fleet = Fleet(observed_at=NOW, nodes=(node,), groups=(group or a_group(),))
    ledger = LedgerView(shields=(node.id,) if ours else ("i-404",))
    steps = scale_in_protection.propose(Observation(now=NOW, fleet=fleet, ledger=ledger), "default", rules).steps
    return steps[0].verb if steps else None


@pytest.mark.parametrize("state", [state for state in State if state is not State.IDLE])
def test_a_member_that_is_not_idle_is_shielded(state: State) -> None:
    """Busy, parked, stalled and unknown members are kept from their group's own scale-in, once."""
    assert the_verb(a_member(state)) is Verb.PROTECT
    assert the_verb(a_member(state, scale_in_protected=True)) is None


def test_a_member_idle_for_long_enough_is_let_go() -> None:
    """One second short of `timeout` it stays shielded; from then on its group may have it."""
    assert the_verb(a_member(held=1799.0)) is Verb.PROTECT
    assert the_verb(a_member(held=1799.0, scale_in_protected=True)) is None
    assert the_verb(a_member(held=1800.0, scale_in_protected=True)) is Verb.UNPROTECT
    assert the_verb(a_member(held=1800.0)) is None


def test_what_somebody_else_protected_stays_protected() -> None:
    """P20: a protection that gpuwatch did not set, or sets in a pool that terminates nothing, is never taken off."""
    idle = a_member(scale_in_protected=True)

    assert the_verb(idle) is Verb.UNPROTECT
    assert the_verb(idle, ours=False) is None
    for then in ("stop", "report", "resize-advice"):
        assert the_verb(idle, rules=replace(ENDING, action=then)) is None, then


@pytest.mark.parametrize(
    ("told", "kept", "rules"),
    [
        ("protected", {"protected": "a tag"}, RULES.idle),
        ("snoozed", {"snoozed": "2026-03-03T12:00Z"}, RULES.idle),
        ("short of evidence", {}, replace(RULES.idle, required_evidence=("people",))),
        ("without a price", {}, replace(RULES.idle, timeout="break_even", restart_usd=Decimal(5))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_idle_member_that_is_kept_stays_shielded(told: str, kept: dict[str, Any], rules: IdleRules) -> None:
    """What may not be removed is not let go to be removed by its group either (P3)."""
    assert the_verb(a_member(scale_in_protected=True, **kept), rules=rules) is None, told
    assert the_verb(a_member(**kept), rules=rules) is Verb.PROTECT, told


def test_a_snooze_shields_up_to_its_cap() -> None:
    """A member idle for longer than max_snooze is let go although it is snoozed."""
    rules = replace(ENDING, max_snooze=3600.0)
    member = a_member(held=3600.0, scale_in_protected=True, snoozed="2026-03-03T12:00Z")

    assert the_verb(member, rules=rules) is None
    assert the_verb(replace(member, signal=a_member(held=3601.0).signal), rules=rules) is Verb.UNPROTECT


@pytest.mark.parametrize(
    ("node", "group"),
    [
        (a_member(State.BUSY), a_group(enrolled=False)),
        (a_member(State.BUSY, enrolled=False), a_group()),
        (a_member(State.BUSY, managed_by="EKS"), a_group()),
        (replace(a_member(State.BUSY), group=None), a_group()),
        (replace(a_member(State.BUSY), group="g-2"), a_group()),
        (replace(a_member(State.BUSY), state=NodeState.PENDING), a_group()),
    ],
    ids=["no consent", "foreign", "another system's", "no member", "another group's", "not running"],
)
def test_only_running_members_of_consented_groups_are_looked_at(node: Node, group: NodeGroup) -> None:
    """Everything else is its owner's."""
    assert the_verb(node, group) is None


@given(
    state=st.sampled_from(State),
    held=st.floats(0, 1e7),
    protected=st.sampled_from([None, "a tag"]),
    shielded=st.booleans(),
    deaf=st.booleans(),
)
def test_only_proven_idleness_ever_lifts_a_shield(
    state: State, held: float, protected: str | None, shielded: bool, deaf: bool
) -> None:
    """Whatever a member shows, an UNPROTECT rests on `timeout` of idleness, and the other way round (P1, P2, P3)."""
    node = a_member(state, held, protected=protected, scale_in_protected=shielded)
    node = replace(node, signal=NodeReport(failure="no answer")) if deaf else node
    verb = the_verb(node)

    proven = state is State.IDLE and held >= 1800.0 and protected is None and not deaf
    assert verb is (None if proven is not shielded else Verb.UNPROTECT if proven else Verb.PROTECT)
