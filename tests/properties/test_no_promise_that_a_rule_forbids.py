"""What `explain`, `status`, the page and the report promise of a machine is what the guard says when it is due."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch import guard
from gpuwatch.controller.context import Round
from gpuwatch.controller.node_row import node_rows
from gpuwatch.guard import Limits, outlook
from gpuwatch.guard.obstacles import Obstacle
from gpuwatch.model.activity import LocalDisks, State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import CapacityType, NodeReport
from gpuwatch.model.nodes_page import NodeRow
from gpuwatch.money.report.inventory import inventory
from gpuwatch.policies import PoolRules
from tests.support.builders.blocked import a_priced_desk, blocked_of, obstacles
from tests.support.builders.fleet import NOW, RULES, Desk, a_node, a_verdict
from tests.support.builders.past_steps import a_group
from tests.support.nightly import examples

WAITING, DUE = 600.0, 7200.0
_TRUE, _FALSE = st.sampled_from([True]), st.sampled_from([False])
FIELDS = st.SearchStrategy[dict[str, Any]]
NODES: FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "instance_store": _TRUE,
        "managed_by": st.just("EKS cluster blue"),
        "capacity_type": st.sampled_from(list(CapacityType)),
        "still_billed": st.just("it has local disks"),
        "cannot_stop": st.just("its spot request is one-time"),
        "cannot_terminate": st.just("its spot request launches it again"),
        "may_not_start": st.just("the key k of its volumes is Disabled"),
        "group": st.just("g-1"),
        "scale_in_protected": _TRUE,
        "gpu_count": st.just(8),
        "pool": st.sampled_from(["default", "Prod"]),
    },
)
IDLE: FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "action": st.sampled_from(["stop", "terminate"]),
        "parked": st.just("stop"),
        "instance_store": st.sampled_from(["ask", "discard", "keep"]),
    },
)
GROUPS: FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "min_size": st.just(3),
        "enrolled": _FALSE,
        "suspended": st.just(frozenset({"Terminate"})),
    },
)


@st.composite
def desks(draw: st.DrawFn) -> dict[float, Desk]:
    """A fleet of one machine, and the same when its pool has waited, by how long the machine was idle."""
    rules = replace(RULES, idle=replace(RULES.idle, **draw(IDLE)), min_nodes=draw(st.sampled_from([0, 0, 1])))
    limits = draw(st.sampled_from([Limits(max_stops_per_hour_ratio=1.0), Limits(require_backtest=86400.0)]))
    node, group = draw(NODES), draw(GROUPS)
    state = draw(st.sampled_from([State.IDLE, State.IDLE, State.PARKED]))
    enforce, used = draw(st.booleans()), draw(st.sampled_from([LocalDisks.USED, LocalDisks.UNUSED, None]))
    pause = draw(st.sampled_from(["none", "short", "long"]))
    pools: dict[str, PoolRules] = {"default": rules}
    found = {}
    for held in (WAITING, DUE):
        verdict = replace(a_verdict(state=state, held=held), local_disks=used)
        desk = a_priced_desk(
            a_node(signal=NodeReport(verdict=verdict), **node), pools=pools, limits=limits, enforce=enforce
        )
        if "group" in node:
            desk.fleet.groups_["g-1"] = a_group(**group)
        if pause == "long" or (pause == "short" and held == WAITING):
            until = None if pause == "long" else NOW + timedelta(minutes=10)
            desk.ledger.pause(None, "ann", "an incident", NOW, until)
        found[held] = desk
    return found


def row_of(done: Round, desk: Desk) -> NodeRow:
    """The machine as people see it."""
    (row,) = node_rows(done, desk.rulebook)
    return row


@settings(max_examples=examples(50))
@given(desks())
def test_what_is_promised_while_a_machine_waits_is_what_the_guard_says_when_it_is_due(desks: dict[float, Desk]) -> None:
    """Each rule that refuses its notice then is named from the first minute, and no other."""
    rows, rounds = {}, {}
    for held, desk in desks.items():
        rounds[held] = desk.plan()
        rows[held] = row_of(rounds[held], desk)
    first, then = rows[WAITING].next, rows[DUE].next
    if first is None:
        assert then is None or then.verb is not Verb.NOTICE or then.refused_by
        return
    kept = [step for decision in rounds[DUE].decisions for step in decision.steps if step.verb is Verb.HOLD]
    if kept:  # a longer wait, or its policy keeps it for the pool's minimum
        assert first.refused_by or kept[0].reason.code == "waiting"
        return
    assert then is not None
    if Verb.PROTECT in {first.verb, then.verb}:  # the other members first; its own notice follows
        return
    assert (first.verb, then.verb) == (Verb.NOTICE, Verb.NOTICE)
    assert set(then.refused_by) <= set(first.refused_by)
    # What passes with the notice is named now, too: its removal is refused, if not the notice.
    assert bool(first.refused_by) == bool(set(first.refused_by) & {"min_nodes"} or then.refused_by)


@settings(max_examples=examples(50))
@given(desks())
def test_explain_and_blocked_name_the_same_obstacles(desks: dict[float, Desk]) -> None:
    """`gpuwatch blocked` holds its money back exactly if the headline says that a rule forbids the stop.

    Only a pause that ends before the notice is due is told by `blocked` alone: it is about this moment.
    """
    desk = desks[WAITING]
    done = desk.plan()
    row, found = row_of(done, desk), obstacles(blocked_of(done, desk))
    if row.next is None or row.next.verb is not Verb.NOTICE or Obstacle.GPUS_MISSING in found:
        return
    told = [each for each in found if each is not Obstacle.PAUSED or "paused" in row.next.refused_by]

    assert bool(row.next.refused_by) == bool(told), found


@settings(max_examples=examples(50))
@given(desks())
def test_the_report_tells_the_sentence_of_status(desks: dict[float, Desk]) -> None:
    """One sentence for status, page, plan and report."""
    for desk in desks.values():
        done = desk.plan()
        seen = inventory(done.observation, done.decisions, done.reviews, desk.rulebook)
        assert [each.why for each in seen.machines.idle] == [row_of(done, desk).why]


@settings(max_examples=examples(30))
@given(desks())
def test_what_refuses_now_and_has_no_end_of_its_own_refuses_later(desks: dict[float, Desk]) -> None:
    """Only rules that know when their objection ends are asked about later."""
    desk = desks[WAITING]
    done = desk.plan()
    ((node, step),) = [(desk.fleet.nodes_[each.node_id], each) for each in done.decisions[0].steps]
    case = guard.case_of(
        replace(step, verb=Verb.STOP), done.observation, node.pool, desk.rulebook, frozen=guard.Bursts(by_group={})
    )
    later = replace(case, observation=replace(done.observation, now=NOW + timedelta(hours=1)))
    for name in outlook.LASTS:
        now, then = (guard.RULES[name].answer(each) for each in (case, later))
        if now is not None and now[0] and name not in outlook.MAY_END:
            assert then is not None
            assert then[0], name
