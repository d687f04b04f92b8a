"""How people bring a workload back: commands for kubectl that need nothing of gpuwatch."""

from datetime import UTC, datetime

import pytest

from gpuwatch.model.kubernetes import Target
from gpuwatch.policies.kubernetes.workload_words import (
    back,
    ended_note,
    id_of,
    keep_command,
    kept_note,
    notice_note,
    workload_of_id,
)


@pytest.mark.parametrize(
    ("kind", "how", "command"),
    [
        ("Deployment", "scale-to-zero", "kubectl -n team-a scale deployment/work --replicas=3"),
        ("StatefulSet", "scale-to-zero", "kubectl -n team-a scale statefulset/work --replicas=3"),
        ("Notebook", "stop", "kubectl -n team-a annotate notebook/work kubeflow-resource-stopped-"),
        ("Job", "stop", """kubectl -n team-a patch job/work --type=merge -p '{"spec":{"suspend":false}}'"""),
        ("Job", "delete", None),
        ("Pod", "delete", None),
    ],
)
def test_what_was_ended_comes_back_by_one_command(kind: str, how: str, command: str | None) -> None:
    """A deleted pod comes back by its own controller, or not at all."""
    assert back(Target(namespace="team-a", kind=kind, name="work", uid="u"), how, 3) == command


ALICE = Target(namespace="team-a", kind="Notebook", name="alice", uid="u")
DUE = datetime(2026, 3, 2, 14, 20, tzinfo=UTC)


def test_an_id_of_the_ledger_names_its_workload() -> None:
    """The cluster's own name may have slashes; ids of machines name none."""
    name = workload_of_id("kube:eu/prod/team-a/Notebook/alice")

    assert name is not None
    assert (name.cluster, name.namespace, name.kind, name.name) == ("eu/prod", "team-a", "Notebook", "alice")
    assert str(name) == "Notebook team-a/alice"
    assert workload_of_id("i-0cafe") is workload_of_id("kube:half") is None


def test_the_event_of_a_notice_has_all_that_its_owner_needs() -> None:
    """When, why, how to keep it for a day beyond that time, and how it comes back; within the size of an Event."""
    note = notice_note(ALICE, "stop", DUE, "Its GPU pod has been idle for 2h.", 1)

    assert note == (
        "gpuwatch: to be stopped at 2026-03-02 14:20 UTC unless it is used. Its GPU pod has been idle for 2h. "
        "Keep it: kubectl -n team-a annotate notebook/alice --overwrite gpuwatch.io/snooze-until=2026-03-03T14:00:00Z. "
        "Back afterwards: kubectl -n team-a annotate notebook/alice kubeflow-resource-stopped-."
    )
    assert len(note.encode()) < 1024
    assert keep_command(ALICE, DUE) in note.replace("03-03T14", "03-02T14")


def test_the_events_of_its_end_and_of_its_rescue() -> None:
    """The one with the way back, the other with the reason."""
    job = Target(namespace="team-a", kind="Job", name="train", uid="u")

    assert ended_note(job, "delete", 1) == (
        "gpuwatch: without pods, as its notice said: its GPUs had no use. Back: its Job makes new pods by itself."
    )
    assert kept_note("It works: team-a/alice-0.") == (
        "gpuwatch: it stays, the notice is withdrawn. It works: team-a/alice-0."
    )


IDS = ("kube:prod/team-a/Notebook/alice", "kube:prod/team-b/Notebook/alice", "kube:arn:aws:eks/c/team-a/Job/train")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kube:prod/team-a/Notebook/alice", IDS[0]),
        ("team-b/notebook/alice", IDS[1]),
        ("team-a/Notebook/alice", IDS[0]),
        ("Job team-a/train", IDS[2]),
        ("train", IDS[2]),
        ("alice", None),
        ("bob", None),
        ("i-1", None),
    ],
)
def test_a_workload_is_found_by_each_name_that_is_its_alone(text: str, found: str | None) -> None:
    """A name of several is nobody's, and a machine is no workload."""
    assert id_of(text, (*IDS, "i-1")) == found


def test_a_name_that_a_shell_would_read_is_quoted() -> None:
    """Kubernetes allows none, and the ledger may have been written by others."""
    odd = Target(namespace="a b", kind="Notebook", name="$(x)", uid="u")

    assert back(odd, "stop", None) == "kubectl -n 'a b' annotate 'notebook/$(x)' kubeflow-resource-stopped-"
