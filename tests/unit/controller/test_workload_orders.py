"""A workload that somebody keeps by an order: no notice, no end, no drain of its pods, until the time is over."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.controller.workload_orders import Kept, SnoozeTooLongError, UnknownWorkloadError, keep_workload, let_go
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.orders import Snooze
from gpuwatch.model.workload_snoozes import with_snoozes
from tests.support.builders.clusters import (
    ENDING,
    ClusterDesk,
    a_cluster_desk,
    a_gpu_pod,
    a_kubernetes_node,
    a_workload,
)
from tests.support.builders.fleet import NOW
from tests.support.builders.workload_desk import a_workload_desk
from tests.support.builders.workloads import ALICE, a_notebook, its_pod

HOUR = 3600.0
NAME = "team-a/notebook/alice"


def kept(desk: ClusterDesk, seconds: float = HOUR, name: str = NAME) -> Snooze:
    """Ann keeps it from now on, by what a round would see."""
    wish = Kept(who="ann@desk", reason="a demo", at=desk.clock.now(), seconds=seconds)
    return keep_workload(desk.ledger, desk.plan().observation, desk.rulebook, name, wish)


def verbs(desk: ClusterDesk, rounds: int) -> list[Verb]:
    """What is done in so many rounds of a minute."""
    return [act.review.step.verb for _ in range(rounds) for act in desk.round().acts]


def test_a_kept_workload_gets_no_notice_until_the_order_ends() -> None:
    """Then all goes its way: a notice first, and the grace after it."""
    desk = a_workload_desk()
    order = kept(desk)

    assert (order.node_id, order.until) == (ALICE, desk.clock.now() + timedelta(hours=1))
    assert verbs(desk, 60) == []
    assert verbs(desk, 13) == [Verb.NOTICE, Verb.RELEASE]


def test_a_notice_is_withdrawn_for_whom_somebody_keeps() -> None:
    """The annotation on the object goes with it; the order is on record with who and why."""
    desk = a_workload_desk()
    first = verbs(desk, 1)
    kept(desk)
    (act,) = desk.round().acts

    assert first == [Verb.NOTICE]
    assert (act.review.step.verb, act.outcome.status) == (Verb.WITHDRAW, Status.SETTLED)
    assert "by ann@desk" in act.review.step.reason.sentence
    assert desk.ledger.view(desk.clock.now()).notices == ()
    assert [call for call, _, _ in desk.cluster.workloads.calls] == ["announce", "announce"]
    assert verbs(desk, 58) == []


def test_an_order_between_the_decision_and_the_end_still_counts() -> None:
    """The ledger is read again with the last question."""
    desk = a_workload_desk()
    before = verbs(desk, 10)

    def meanwhile(call: str, _: str) -> None:
        if call == "workload":
            desk.ledger.snooze(ALICE, "ann@desk", "", desk.clock.now(), desk.clock.now() + timedelta(hours=1))

    desk.cluster.workloads.fault = meanwhile
    done = [act for _ in range(2) for act in desk.round().acts]

    assert before == [Verb.NOTICE]
    assert [(act.review.step.verb, act.outcome.status) for act in done] == [
        (Verb.RELEASE, Status.CANCELLED),
        (Verb.WITHDRAW, Status.SETTLED),
    ]
    assert "release" not in [call for call, _, _ in desk.cluster.workloads.calls]


def test_an_order_is_taken_back() -> None:
    """Whoever does it; its notice comes in the next round."""
    desk = a_workload_desk()
    kept(desk)
    before = verbs(desk, 2)
    ended = let_go(desk.ledger, desk.plan().observation, NAME, "bob@desk", desk.clock.now())

    assert (before, ended.until, ended.who) == ([], desk.clock.now(), "bob@desk")
    assert verbs(desk, 1) == [Verb.NOTICE]


def test_a_later_annotation_counts_and_an_earlier_one_does_not_shorten() -> None:
    """The later of both."""
    desk = a_workload_desk(its_pod(workload=a_notebook(snoozed_until=NOW + timedelta(hours=2))))
    kept(desk)

    assert verbs(desk, 119) == []
    assert verbs(desk, 3)[0] is Verb.NOTICE


def test_the_node_of_a_kept_workload_is_not_drained() -> None:
    """Its people let it go once it is idle, and somebody keeps it; after that time the node goes as before."""
    pod = a_gpu_pod(workload=a_workload("train", idle_action="delete"))
    desk, free = a_cluster_desk(ENDING, pod), a_cluster_desk(ENDING, pod)
    kept(desk, name="team-a/deployment/train")

    assert Verb.CORDON in verbs(free, 15)
    assert verbs(desk, 59) == []
    desk.rest(HOUR)
    assert Verb.CORDON in verbs(desk, 15)


def test_an_order_in_the_midst_of_a_drain_brings_the_node_back() -> None:
    """The cordon is undone, and no pod was asked to go."""
    pod = a_gpu_pod(workload=a_workload("train", idle_action="delete"))
    desk = a_cluster_desk(ENDING, pod)
    done: list[Verb] = []
    while Verb.CORDON not in done:
        done += verbs(desk, 1)
    kept(desk, name="team-a/deployment/train")
    after = verbs(desk, 5)

    assert Verb.UNCORDON in after
    assert Verb.DRAIN not in after


def test_a_name_that_is_unknown_is_answered_by_the_names_there_are() -> None:
    """The nearest, or all; nothing is written."""
    desk = a_workload_desk()
    with pytest.raises(UnknownWorkloadError, match="The nearest is 'team-a/notebook/alice'"):
        kept(desk, name="team-a/notebook/alic")
    with pytest.raises(UnknownWorkloadError, match="There are: team-a/notebook/alice"):
        kept(desk, name="i-1")
    with pytest.raises(UnknownWorkloadError, match="There are: none"):
        let_go(desk.ledger, a_cluster_desk().plan().observation, NAME, "ann", desk.clock.now())
    assert desk.ledger.view(desk.clock.now()).snoozes == ()


def test_it_is_kept_no_longer_than_its_pools_allow() -> None:
    """As a machine: max_snooze."""
    desk = a_workload_desk()
    with pytest.raises(SnoozeTooLongError, match="a workload in pool default is kept for 7d at most"):
        kept(desk, 8 * 24 * HOUR)
    assert kept(desk, 7 * 24 * HOUR).until == desk.clock.now() + timedelta(days=7)


def test_an_order_is_taken_back_also_of_what_holds_no_gpu_any_more() -> None:
    """Its owner has scaled it to zero meanwhile; it may come back."""
    desk = a_workload_desk()
    kept(desk)
    gone = a_cluster_desk().plan().observation

    assert let_go(desk.ledger, gone, NAME, "ann", desk.clock.now()).node_id == ALICE
    assert desk.ledger.view(desk.clock.now()).snoozes == ()


def test_a_workload_that_works_may_be_kept() -> None:
    """People say so before they go."""
    desk = a_workload_desk(state=State.BUSY)

    assert kept(desk).node_id == ALICE


@given(annotated=st.none() | st.integers(0, 100), hours=st.integers(0, 100))
def test_of_annotation_and_order_the_later_counts(annotated: int | None, hours: int) -> None:
    """For the pods of that workload alone."""
    own = None if annotated is None else at(annotated)
    other = its_pod("bob-0", replace(a_notebook(), name="bob", uid="uid-bob"))
    node = replace(a_kubernetes_node(), pods=(its_pod(workload=a_notebook(snoozed_until=own)), other))
    order = Snooze(node_id=ALICE, at=NOW, until=at(hours), who="ann", reason="")
    found = with_snoozes(node, [order])

    assert found.pods[0].workload.snoozed_until == max(at(annotated or 0), at(hours))
    assert found.pods[1] == other
    assert with_snoozes(node, [replace(order, node_id="i-1")]) is node


def at(hours: int) -> datetime:
    """So many hours from now."""
    return NOW + timedelta(hours=hours)
