"""Workloads as status, plan, explain, page and API show them: what becomes of each, when, why, and who objects."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from gpuwatch.cli import explain
from gpuwatch.cli.render import plan_text
from gpuwatch.cli.status_pods import workloads_table
from gpuwatch.controller.explain import UnknownNodeError
from gpuwatch.controller.node_row import nodes_page
from gpuwatch.controller.plan_page import plan_page
from gpuwatch.controller.web import fleet_view
from gpuwatch.controller.workload_rows import explain_workload, workload_rows
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.nodes_page import WorkloadRow
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from tests.support.builders.clusters import ClusterDesk
from tests.support.builders.workload_desk import PODS, a_workload_desk
from tests.support.builders.workloads import ALICE, a_notebook, its_pod


def the_row(desk: ClusterDesk) -> WorkloadRow:
    """Of the one workload, after another round."""
    (found,) = workload_rows(desk.round(), desk.rulebook)
    return found


def test_a_notice_says_what_is_to_come_and_when() -> None:
    """In the round of the notice, and in each one after it: the same time."""
    desk = a_workload_desk()
    first = the_row(desk)
    given = desk.clock.now() - timedelta(minutes=1)
    second = the_row(desk)

    assert (first.id, str(first), first.how, first.pods, first.gpus) == (ALICE, "Notebook team-a/alice", "stop", 1, 1.0)
    assert (first.action, first.usd_per_hour, first.owner) == (Verb.NOTICE, Decimal("4.10"), "alice")
    assert first.ends_at == given + timedelta(minutes=10)
    assert (second.action, second.notified_at, second.ends_at) == (Verb.HOLD, given, first.ends_at)
    assert second.why.startswith("Its GPU pod has been idle for")


def test_who_objects_is_named() -> None:
    """The guard's rules, and their sentences with the reason."""
    desk = a_workload_desk()
    desk.enforce = False
    row = the_row(desk)

    assert (row.action, row.refused_by) == (Verb.HOLD, ("observe_only",))
    assert "This controller only observes." in row.why


def test_a_snooze_shows_who_keeps_it() -> None:
    """It has no notice, and its row says until when."""
    desk = a_workload_desk()
    now = desk.clock.now()
    desk.ledger.snooze(ALICE, "ann", "a demo on Friday", now, now + timedelta(hours=4))
    row = the_row(desk)

    assert (row.action, row.ends_at) == (Verb.HOLD, None)
    assert "snoozed until" in row.why
    assert "by ann" in row.why
    assert row.snooze is not None
    assert (row.snooze.who, row.snooze.reason) == ("ann", "a demo on Friday")


def test_status_and_explain_say_who_keeps_it_how_long_and_how_that_is_taken_back() -> None:
    """Also of one that works: otherwise nobody would see that an order keeps it."""
    desk = a_workload_desk(state=State.BUSY)
    now = desk.clock.now()
    desk.ledger.snooze(ALICE, "ann", "a demo on Friday", now, now + timedelta(hours=4))
    done = desk.plan()
    lines = [line.plain for line in workloads_table(nodes_page(done, desk.rulebook), None)]
    text, _ = explain.found_now(desk.parts, done, "team-a/notebook/alice")

    assert "kept for 4h" in lines[2]
    assert "Kept until 2026-03-02 16:00 UTC by ann: a demo on Friday" in text
    assert "Take that back: gpuwatch snooze team-a/notebook/alice --end" in text


def test_without_consent_it_is_shown_and_nothing_more() -> None:
    """Its people have said nothing; the row says what they would write."""
    desk = a_workload_desk(its_pod(workload=a_notebook(idle_action=None)))
    row = the_row(desk)

    assert (row.action, row.how, row.ends_at) == (Verb.HOLD, None, None)
    assert "gpuwatch.io/idle-action" in row.why


def test_a_pool_that_only_reports_has_no_rows() -> None:
    """The table of pods says all there is; nor has a workload that works."""
    assert workload_rows(a_workload_desk(rules=IdlePodRules()).round(), a_workload_desk().rulebook) != ()
    reporting, busy = a_workload_desk(rules=IdlePodRules()), a_workload_desk(state=State.BUSY)

    assert workload_rows(reporting.round(), reporting.rulebook) == ()
    assert workload_rows(busy.round(), busy.rulebook) == ()


def test_status_lists_them_below_the_pods() -> None:
    """Who, what is held, what comes next, and why."""
    desk = a_workload_desk()
    desk.round()
    done = desk.round()
    lines = [line.plain.rstrip() for line in workloads_table(nodes_page(done, desk.rulebook), None)]

    assert lines[0] == "Workloads that may lose their pods:"
    assert lines[1] == "WORKLOAD               OWNER  PODS  GPUS  USE    FOR  NEXT        WHY"
    assert lines[2].startswith("Notebook team-a/alice  alice     1     1  idle  2h1m  stop in 9m")
    assert "Its stop follows in 9m unless a pod of it works." in lines[2]


def test_plan_names_it_as_a_machine() -> None:
    """With what refuses it; as JSON with its row."""
    desk = a_workload_desk()
    desk.enforce = False
    done = desk.plan()

    assert f"may not notice {ALICE}: Its GPU pod has been idle" in plan_text(done)
    assert "    observe_only: This controller only observes." in plan_text(done)
    assert [row.id for row in plan_page(done, desk.rulebook).workloads] == [ALICE]


@pytest.mark.parametrize(
    "name", [ALICE, "team-a/Notebook/alice", "team-a/notebook/alice", "Notebook team-a/alice", "alice"]
)
def test_explain_takes_every_name_that_people_have_for_it(name: str) -> None:
    """Its id of the ledger, kubectl's form, and its own name where that is one workload's alone."""
    desk = a_workload_desk()
    text, _ = explain.found_now(desk.parts, desk.plan(), name)

    assert text.startswith("Notebook team-a/alice (kube:prod/team-a/Notebook/alice): 1 pod with 1 GPU, pool default")


def test_explain_says_what_why_how_to_keep_it_and_how_it_comes_back() -> None:
    """And each objection of the guard, had it been ended in this round."""
    desk = a_workload_desk()
    desk.round()
    text, _ = explain.found_now(desk.parts, desk.plan(), "team-a/notebook/alice")

    assert "To be stopped at 2026-03-02 12:10 UTC; it is idle for" in text
    assert "    team-a/alice-0 on i-1: idle" in text
    assert "Keep it: kubectl -n team-a annotate notebook/alice --overwrite gpuwatch.io/snooze-until=2026-03-03T" in text
    assert "gpuwatch snooze team-a/notebook/alice 1d --reason WHY" in text
    assert "Back afterwards: kubectl -n team-a annotate notebook/alice kubeflow-resource-stopped-" in text
    assert "Guard, if its pods were ended now:\n    refuses  no_notice" in text
    assert "notice: Its GPU pod has been idle for" in text


def test_a_past_round_is_explained_as_it_was(tmp_path: Path) -> None:
    """From the ledger alone, also after its pods were ended."""
    desk = a_workload_desk()
    desk.ledger = Ledger.open(tmp_path / "ledger.db")
    for _ in range(14):
        desk.round()
    settings, third = LedgerSettings(path=str(tmp_path / "ledger.db")), desk.ledger.rounds(100)[-3].id
    text, page = explain.found_past(settings, "team-a/notebook/alice", number=third, when=None)
    desk.ledger.close()

    assert page is None
    assert text.startswith(f"Round {third} of ")
    assert "To be stopped at 2026-03-02 12:10 UTC; it is idle for" in text


def test_a_name_of_two_workloads_is_nobodys() -> None:
    """Then the sentence says how to name one."""
    other = replace(a_notebook(), namespace="team-b", uid="uid-b")
    desk = a_workload_desk(its_pod(), its_pod("alice-1", other, namespace="team-b"))
    done = desk.plan()

    assert explain_workload(done, desk.rulebook, desk.ledger, "alice") is None
    with pytest.raises(UnknownNodeError, match="NAMESPACE/KIND/NAME"):
        explain.found_now(desk.parts, done, "alice")
    assert explain.found_now(desk.parts, done, "team-b/notebook/alice")[0].startswith("Notebook team-b/alice")


def test_the_page_lists_its_notice_and_its_end_among_the_actions() -> None:
    """With who, why and what came of it, as those of machines."""
    desk = a_workload_desk(rules=replace(PODS, grace_period=300.0))
    for _ in range(8):
        desk.round()
    done = desk.plan()
    acts = [(each.verb, each.target) for each in fleet_view.actions(done)]

    assert (Verb.RELEASE, ALICE) in acts
