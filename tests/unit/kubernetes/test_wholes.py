"""Which pods belong together: by what owns them, and by the labels of those who run them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kubernetes.facts import GANG
from gpuwatch.kubernetes.wholes import Chain, together
from gpuwatch.model.kubernetes import Pod
from tests.support.builders.clusters import a_gpu_pod, a_pod

Told = tuple[Pod, Chain, Mapping[str, str]]
RAY = (("RayCluster", "ray"),)
REPLICA = (("ReplicaSet", "rs"), ("Deployment", "deployment"))


def a_head(name: str = "head", *chain: tuple[str, str], namespace: str = "team-a", **labels: str) -> Told:
    """A pod without GPUs."""
    return replace(a_pod(name), namespace=namespace), chain, labels


def a_worker(name: str, *chain: tuple[str, str], namespace: str = "team-a", **labels: str) -> Told:
    """A pod with a GPU."""
    return replace(a_gpu_pod(name), namespace=namespace), chain, labels


def are_bound(*told: Told) -> bool:
    """Whether all of them belong together."""
    groups = {pod.group for pod in together(told)}
    return len(groups) == 1 and None not in groups


WHOLES: dict[str, tuple[Told, ...]] = {
    "a Ray cluster": (a_head("head", *RAY), a_worker("w-1", *RAY), a_worker("w-2", *RAY)),
    "an MPI job's launcher, which is a Job's": (
        a_head("launcher", ("Job", "launcher"), ("MPIJob", "mpi")),
        a_worker("w", ("MPIJob", "mpi")),
    ),
    "Spark's driver, which owns its executors": (
        a_head("driver", ("SparkApplication", "app")),
        a_worker("executor", ("Pod", "uid-driver"), ("SparkApplication", "app")),
    ),
    "a driver without an owner": (a_head("driver"), a_worker("executor", ("Pod", "uid-driver"))),
    "a gang of two Jobs": (
        a_worker("a", ("Job", "a"), **{GANG: "train"}),
        a_worker("b", ("Job", "b"), **{GANG: "train"}),
    ),
    "two Jobs of a JobSet": (
        a_head("leader", ("Job", "a"), ("JobSet", "set")),
        a_worker("w", ("Job", "b"), ("JobSet", "set")),
    ),
    "a leader and its group": (
        a_head("leader", ("StatefulSet", "leaders"), ("LeaderWorkerSet", "lws")),
        a_worker(
            *("w", ("StatefulSet", "group"), ("Pod", "uid-leader"), ("StatefulSet", "leaders")),
            *(("LeaderWorkerSet", "lws"),),
        ),
    ),
    "pods of a kind of somebody's own": (a_head("h", ("Fancy", "x")), a_worker("w", ("Fancy", "x"))),
    "Deployments of an operator": (
        a_head("h", ("Deployment", "h"), ("Dask", "x")),
        a_worker("w", *REPLICA, ("Dask", "x")),
    ),
    "a Job of several pods": (a_worker("w-0", ("Job", "j")), a_worker("w-1", ("Job", "j"))),
    "a run of a CronJob": (
        a_worker("w-0", ("Job", "j"), ("CronJob", "c")),
        a_worker("w-1", ("Job", "j"), ("CronJob", "c")),
    ),
    "a StatefulSet": (a_worker("w-0", ("StatefulSet", "s")), a_worker("w-1", ("StatefulSet", "s"))),
    "labels of Ray on Deployments": (
        a_head("h", *REPLICA, **{"ray.io/cluster": "big"}),
        a_worker("w", ("ReplicaSet", "other"), **{"ray.io/cluster": "big"}),
    ),
    "Kubeflow's label, without an owner": (
        a_head("l", **{"training.kubeflow.org/job-name": "big"}),
        a_worker("w", **{"training.kubeflow.org/job-name": "big"}),
    ),
    "a group of a LeaderWorkerSet by its labels": (
        a_head("l", **{"leaderworkerset.sigs.k8s.io/name": "x", "leaderworkerset.sigs.k8s.io/group-index": "0"}),
        a_worker("w", **{"leaderworkerset.sigs.k8s.io/name": "x", "leaderworkerset.sigs.k8s.io/group-index": "0"}),
    ),
}
APART: dict[str, tuple[Told, ...]] = {
    "replicas": (a_worker("w-1", *REPLICA), a_worker("w-2", *REPLICA)),
    "replicas of two versions": (a_worker("w-1", ("ReplicaSet", "a"), REPLICA[1]), a_worker("w-2", *REPLICA)),
    "replicas of a service": (a_worker("w-1", *REPLICA, ("Fancy", "x")), a_worker("w-2", *REPLICA, ("Fancy", "x"))),
    "replicas of a rollout": (
        a_worker("w-1", ("ReplicaSet", "a"), ("Rollout", "x")),
        a_worker("w-2", ("ReplicaSet", "b"), ("Rollout", "x")),
    ),
    "two runs of a CronJob": (
        a_worker("w-1", ("Job", "a"), ("CronJob", "c")),
        a_worker("w-2", ("Job", "b"), ("CronJob", "c")),
    ),
    "two groups of a LeaderWorkerSet": (
        a_worker("l-0", ("StatefulSet", "leaders"), ("LeaderWorkerSet", "lws")),
        a_worker("l-1", ("StatefulSet", "leaders"), ("LeaderWorkerSet", "lws")),
    ),
    "two groups by their labels": (
        a_worker("w", **{"leaderworkerset.sigs.k8s.io/name": "x", "leaderworkerset.sigs.k8s.io/group-index": "0"}),
        a_worker("v", **{"leaderworkerset.sigs.k8s.io/name": "x", "leaderworkerset.sigs.k8s.io/group-index": "1"}),
    ),
    "one name in two namespaces": (
        a_head("h", **{"ray.io/cluster": "big"}),
        a_worker("w", namespace="team-b", **{"ray.io/cluster": "big"}),
    ),
    "bare pods": (a_head("h"), a_worker("w")),
}


@pytest.mark.parametrize("name", WHOLES)
def test_the_parts_of_one_work_belong_together(name: str) -> None:
    """Whatever kind owns them, and also where nothing that owns them can be read."""
    assert are_bound(*WHOLES[name])


@pytest.mark.parametrize("name", APART)
def test_what_goes_on_without_each_other_stands_alone(name: str) -> None:
    """One idle replica may go while another works."""
    assert {pod.group for pod in together(APART[name])} == {None}


@given(st.permutations(range(len(WHOLES))), st.randoms())
def test_the_order_of_pods_changes_nothing(order: list[int], random: object) -> None:
    """Groups have the same names in each round."""
    told = [replaced for place, name in enumerate(WHOLES) for replaced in _of_its_own(place, WHOLES[name])]
    mixed = list(told)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert order
    assert {pod.uid: pod.group for pod in together(told)} == {pod.uid: pod.group for pod in together(mixed)}
    assert len({pod.group for pod in together(told)}) == len(WHOLES)


def _of_its_own(place: int, told: tuple[Told, ...]) -> list[Told]:
    """The same pods in a namespace of their own."""
    found = []
    for pod, chain, labels in told:
        owners = tuple((kind, f"{place}-{uid}") for kind, uid in chain)
        found.append((replace(pod, uid=f"{place}-{pod.uid}", namespace=f"n-{place}"), owners, labels))
    return found


def test_pods_of_the_system_and_of_daemon_sets_belong_to_nobody() -> None:
    """They neither keep, nor are kept."""
    owner = ("ClusterPolicy", "x")
    pod, chain, labels = a_head("h", owner)
    found = together([(replace(pod, system=True), chain, labels), a_worker("w", owner)])
    assert [each.group for each in found] == [None, None]


def test_a_release_binds_only_where_it_has_pods_with_and_without_gpus() -> None:
    """`app.kubernetes.io/instance` is written on all that one chart installs."""
    label = {"app.kubernetes.io/instance": "dask"}
    both = together([a_head("scheduler", ("ReplicaSet", "a"), **label), a_worker("w", ("ReplicaSet", "b"), **label)])
    assert {each.release for each in both} == {"team-a/app.kubernetes.io/instance=dask"}
    assert {each.group for each in both} == {None}
    alone = together([a_head("a", **label), a_head("b", **label)])
    assert {each.release for each in alone} == {None}
