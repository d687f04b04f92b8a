"""P20: scale-in protection of groups' members: gpuwatch takes off only its own, as the first half of an end."""

from dataclasses import replace

import pytest

from gpuwatch.guard import RULES as GUARD_RULES
from gpuwatch.guard import Limits, judge
from gpuwatch.ledger import Ledger
from gpuwatch.ledger.tables import SHIELDS
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies import PoolRules
from tests.support.builders.fleet import RULES, Desk, a_node
from tests.support.builders.guard_cases import a_case, unshielding, with_group, with_ledger
from tests.support.builders.past_steps import a_done, a_group, a_step

ENDING = replace(RULES, idle=replace(RULES.idle, action="terminate"))
LIMITS = Limits(max_stops_per_hour_ratio=1.0, mass_idleness_nodes=99)


def a_desk(rules: PoolRules = ENDING, *, protected: bool = False, limits: Limits = LIMITS) -> Desk:
    """A consented group of two working members, which somebody else protects or nobody."""
    desk = Desk(rules=rules, limits=limits)
    for name in ("i-1", "i-2"):
        desk.fleet.put(a_node(name, State.BUSY, group="g-1", scale_in_protected=protected))
    desk.fleet.groups_["g-1"] = a_group(desired=2, node_ids=("i-1", "i-2"))
    return desk


def calls(desk: Desk, *names: str) -> list[tuple[str, str]]:
    """What was asked of the cloud, of these kinds."""
    return [(call, node_id) for call, node_id, _ in desk.fleet.calls if call in names]


def test_its_own_protection_goes_after_notice_and_grace_and_then_the_member() -> None:
    """Protected while it works; idle, noticed, and only when the grace is over unprotected, and terminated next."""
    desk = a_desk()
    desk.round()
    assert calls(desk, "protect") == [("protect", "i-1"), ("protect", "i-2")]
    desk.fleet.show("i-1", State.IDLE, 0.0)
    for _ in range(30 + 10):
        desk.round()
    assert calls(desk, "tag", "unprotect", "terminate") == [("tag", "i-1")]
    for _ in range(3):
        desk.round()

    assert calls(desk, "unprotect", "terminate") == [("unprotect", "i-1"), ("terminate", "i-1")]
    assert desk.fleet.nodes_["i-1"].state in {NodeState.TERMINATING, NodeState.TERMINATED}


@pytest.mark.parametrize(
    ("told", "rules"),
    [
        ("terminate", ENDING),
        ("stop", RULES),
        ("report", replace(RULES, idle=replace(RULES.idle, action="report"))),
        ("parked", replace(ENDING, idle=replace(ENDING.idle, parked="terminate", parked_timeout=1800.0))),
    ],
)
def test_what_others_protect_is_neither_unprotected_nor_noticed_nor_terminated(told: str, rules: PoolRules) -> None:
    """NewInstancesProtectedFromScaleIn, or a person: also where the cloud would terminate it all the same."""
    desk = a_desk(rules, protected=True)
    desk.round()
    desk.fleet.show("i-1", State.PARKED if told == "parked" else State.IDLE, 0.0)
    for _ in range(120):
        desk.round()

    assert desk.fleet.calls == []


@pytest.mark.parametrize("then", ["stop", "report"])
def test_a_pool_that_terminates_nothing_takes_no_protection_off(then: str) -> None:
    """Also not what gpuwatch set itself."""
    desk = a_desk(replace(RULES, idle=replace(RULES.idle, action=then)))  # type: ignore[arg-type]  # its words
    desk.round()
    desk.fleet.show("i-1", State.IDLE, 0.0)
    for _ in range(120):
        desk.round()

    assert calls(desk, "unprotect", "terminate", "stop", "tag") == []


def test_what_an_owner_protects_after_gpuwatch_did_is_the_owners() -> None:
    """Somebody takes gpuwatch's protection off, a round sees that, and sets it again: it stays, as does the member."""
    desk = a_desk()
    for _ in range(4):
        desk.round()
    desk.fleet.show("i-1", State.IDLE, 3600.0)
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], scale_in_protected=False))
    desk.round()
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], scale_in_protected=True))
    for _ in range(60):
        desk.round()

    assert calls(desk, "unprotect", "terminate") == []


def test_a_protection_that_is_set_after_it_came_off_is_the_owners() -> None:
    """Between the two halves of the end somebody protects the member: it is not terminated."""
    desk = a_desk()
    desk.round()
    desk.fleet.show("i-1", State.IDLE, 0.0)
    while not calls(desk, "unprotect"):
        desk.round()
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], scale_in_protected=True))
    for _ in range(60):
        desk.round()

    assert calls(desk, "terminate") == []


def test_a_list_that_is_late_or_short_makes_nobodys_protection_of_ours() -> None:
    """One round without the machine, or right after the protection: it stays known as gpuwatch's own."""
    desk = a_desk()
    desk.round()
    desk.round()
    node = desk.fleet.nodes_.pop("i-1")
    desk.round()
    desk.fleet.put(node)
    desk.round()

    assert desk.ledger.view(desk.clock.now()).is_shielded_by_us("i-1")


def test_a_machine_that_is_gone_for_an_hour_is_forgotten() -> None:
    """Groups make and end machines all the time: what is known of them does not pile up."""
    desk = a_desk()
    desk.round()
    desk.round()
    desk.fleet.nodes_.pop("i-1")
    for _ in range(63):
        desk.round()

    assert desk.ledger.view(desk.clock.now()).shields == ("i-2",)


def test_a_forged_protection_is_nobodys() -> None:
    """Without a settled record of it, or after it ended on record, the index says nothing."""
    desk = a_desk()
    desk.round()
    desk.round()
    key = next(entry.intent.key for entry in desk.ledger.history("i-1") if entry.intent.verb is Verb.PROTECT)
    forge(desk.ledger, "i-2", key)
    assert desk.ledger.view(desk.clock.now()).shields == ("i-1",)
    forge(desk.ledger, "i-1", "made-up")
    assert desk.ledger.view(desk.clock.now()).shields == ()


def forge(ledger: Ledger, node_id: str, key: str) -> None:
    """Write the index by hand."""
    row = {"node_id": node_id, "key": key, "at": "2026-03-02T12:00:00.000000+00:00", "missing_since": None}
    with ledger.store.writing() as writer:
        writer.db.execute(SHIELDS.delete().where(SHIELDS.c.node_id == node_id))
        writer.db.execute(SHIELDS.insert(), row)


def test_the_end_of_a_protection_counts_in_the_limits_as_an_end() -> None:
    """One an hour: one member is let go, although three are idle; both halves of one end count once."""
    desk = a_desk(limits=replace(LIMITS, max_stops_per_hour=1))
    desk.fleet.put(a_node("i-3", State.BUSY, group="g-1"))
    desk.fleet.groups_["g-1"] = a_group(desired=3, node_ids=("i-1", "i-2", "i-3"))
    desk.round()
    for name in ("i-1", "i-2", "i-3"):
        desk.fleet.show(name, State.IDLE, 0.0)
    for _ in range(60):
        desk.round()

    assert calls(desk, "unprotect", "terminate") == [("unprotect", "i-1"), ("terminate", "i-1")]


def test_a_member_that_works_again_is_protected_whatever_the_limits_say() -> None:
    """Nothing may be stopped any more in this hour, and nothing at all: it is protected in the next round."""
    none = Limits(max_stops_per_hour=0, max_stops_per_round=0, max_additions_per_hour=0, max_additions_per_round=0)
    desk = a_desk(limits=none)
    desk.round()

    assert calls(desk, "protect") == [("protect", "i-1"), ("protect", "i-2")]


def test_no_rule_is_put_to_a_termination_that_is_not_put_to_the_end_of_a_protection() -> None:
    """The first half takes all that the whole takes."""
    of_both = [
        Verb.UNPROTECT in rule.machines.verbs
        for rule in GUARD_RULES.values()
        if rule.machines is not None and Verb.TERMINATE in rule.machines.verbs
    ]

    assert all(of_both)
    assert len(of_both) > 20


def test_a_removal_after_its_own_unprotection_counts_once_and_others_count_each() -> None:
    """The edges of the count: its own first half, another's, another's with its second half."""
    own = replace(a_done("i-1", key="a"), verb=Verb.UNPROTECT)
    other = replace(a_done("i-2", key="b"), verb=Verb.UNPROTECT)
    ended = replace(a_done("i-2", key="c"), verb=Verb.TERMINATE)

    def allowed(most: int, *past: object) -> bool:
        case = with_ledger(with_group(a_case()), recent=past)
        return judge(replace(case, limits=replace(LIMITS, max_stops_per_hour=most))).allowed

    assert allowed(1, own)
    assert not allowed(1, own, other)
    assert allowed(2, own, other)
    assert allowed(2, other, ended)
    assert not allowed(1, ended)


@pytest.mark.parametrize(
    ("most", "granted", "allowed"),
    [(2, (), True), (2, ("i-2",), False), (9, ("i-2",), True)],
)
def test_unprotections_of_the_round_count_towards_the_groups_minimum(
    most: int, granted: tuple[str, ...], *, allowed: bool
) -> None:
    """Two members whose protection ends are two that leave."""
    case = unshielding(a_case())
    assert case.group is not None
    group = replace(case.group, min_size=0 if most == 9 else 2)
    earlier = tuple(a_step(name, Verb.UNPROTECT) for name in granted)

    assert judge(replace(case, group=group, granted=earlier)).allowed is allowed
