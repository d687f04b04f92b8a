"""What people write on pods, owners and namespaces, and what of it holds for a pod."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kubernetes.facts import NodeFacts, OwnerFacts, PodFacts
from gpuwatch.kubernetes.marks import kept_by, node_owner, protection
from gpuwatch.kubernetes.objects import OwnerReference
from gpuwatch.kubernetes.picture import Picture, pending
from gpuwatch.model.kubernetes import (
    ANNOTATIONS,
    CORDONED_BY,
    IDLE_ACTION,
    IDLE_TIMEOUT,
    INTERRUPTIBLE,
    LOSES_LOCAL_DATA,
    OWNER,
    PROTECT,
    SNOOZE_UNTIL,
    Pod,
    PodPhase,
    slip,
)
from gpuwatch.model.placing import Taint
from gpuwatch.model.workload_kinds import BY_LABEL, QUEUE_LABEL

_LAST_YEAR = 9999
_NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def refers(uid: str, kind: str = "Job") -> OwnerReference:
    """To an owner named as its uid."""
    group = BY_LABEL[kind].group if kind in BY_LABEL else "batch"
    return OwnerReference(api_version=f"{group}/v1", kind=kind, name=uid, uid=uid, controller=True)


def an_owner(uid: str, above: OwnerReference | None = None, **annotations: str) -> OwnerFacts:
    """A workload, or a namespace."""
    return OwnerFacts("team", uid, uid, 1, above, annotations)


def a_pod(owner: OwnerReference | None = None, **annotations: str) -> PodFacts:
    """A running one with a GPU."""
    facts = ("team", "p", "uid-p", 1, PodPhase.RUNNING, "n", 1.0, None, None, owner, False, None, None, None)
    return PodFacts(*facts, annotations)


def seen(pod: PodFacts, *owners: OwnerFacts | str, namespace: OwnerFacts | None = None) -> Pod:
    """The pod with these owners; a sentence is why the owner of uid `job` cannot be read."""
    known = {each.uid: each for each in owners if isinstance(each, OwnerFacts)}
    refusal = next((each for each in owners if isinstance(each, str)), None)
    picture = Picture(
        now=_NOW,
        owners=lambda reference, _: known.get(reference.uid) or refusal,
        namespaces={"team": namespace or an_owner("team")},
        system_namespaces={"kube-system"},
        cluster="k",
    )
    return picture.pod(pod)


_LEVELS = st.lists(st.sampled_from([None, "true", "false"]), min_size=4, max_size=4)


@given(_LEVELS)
def test_what_stands_nearest_to_a_pod_comes_first(levels: list[str | None]) -> None:
    """On the pod, its Job, the CronJob above it, the namespace."""

    def said(value: str | None) -> dict[str, str]:
        return {} if value is None else {INTERRUPTIBLE: value, LOSES_LOCAL_DATA: value, OWNER: f"who said {value}"}

    own, job, cron, namespace = map(said, levels)
    pod = seen(
        a_pod(refers("job"), **own),
        an_owner("job", refers("cron", "CronJob"), **job),
        an_owner("cron", None, **cron),
        namespace=an_owner("team", None, **namespace),
    )

    nearest = next((each for each in levels if each is not None), None)
    assert pod.interruptible == pod.loses_local_data == (nearest == "true")
    assert pod.workload.owner == (None if nearest is None else f"who said {nearest}")
    assert str(pod.workload) == "CronJob team/cron"


@given(_LEVELS)
def test_a_protection_counts_wherever_it_stands(levels: list[str | None]) -> None:
    """One that is false takes no other away."""
    own, job, cron, namespace = ({} if each is None else {PROTECT: each} for each in levels)
    pod = seen(
        a_pod(refers("job"), **own),
        an_owner("job", refers("cron", "CronJob"), **job),
        an_owner("cron", None, **cron),
        namespace=an_owner("team", None, **namespace),
    )

    assert (pod.protected is not None) == ("true" in levels)


@pytest.mark.parametrize(
    ("value", "protects"),
    [
        ("true", True),
        ("until the demo", True),
        ("", True),
        ("false", False),
        ("2026-11-23T12:00:01Z", True),
        ("2026-11-23T11:59:59Z", False),
        ("2026-11-24", True),
    ],
)
def test_anything_but_false_protects_and_a_time_until_then(value: str, *, protects: bool) -> None:
    """What is no time with a zone protects for good."""
    assert (protection({PROTECT: value}, "it", _NOW) is not None) == protects


@pytest.mark.parametrize("key", ["gpuwatch.io/protekt", "gpuwatch.io/Protect", "gpuwatch/protect", "gpuwatch-protect"])
@pytest.mark.parametrize("place", ["pod", "owner", "namespace", "node"])
def test_a_slip_of_a_key_protects_and_is_named(key: str, place: str) -> None:
    """Whoever wrote it meant something by it, and a protection that is not seen is the worst that it can be."""
    written = {where: {key: "true"} if where == place else {} for where in ("pod", "owner", "namespace", "node")}
    owner = replace(an_owner("job"), annotations=written["owner"])
    namespace = replace(an_owner("team"), annotations=written["namespace"])
    pod = seen(replace(a_pod(refers("job")), annotations=written["pod"]), owner, namespace=namespace)
    why = pod.protected or kept_by(replace(a_node(), annotations=written["node"]), _NOW)

    assert why is not None
    assert key in why


def test_each_word_of_ours_is_no_slip() -> None:
    """Neither one that people write nor one of gpuwatch's own."""
    assert slip(ANNOTATIONS) is None


def test_an_owner_that_cannot_be_read_protects() -> None:
    """It may be protected."""
    pod = seen(a_pod(refers("job")), "its owner Job job cannot be read")

    assert pod.protected == "its owner Job job cannot be read"
    assert (str(pod.workload), pod.bare) == ("Job team/job", False)


def test_a_pod_whose_owner_is_gone_is_bare() -> None:
    """Nothing would make it again, as with a pod that never had one."""
    assert seen(a_pod(refers("job"))).bare
    assert seen(a_pod()).bare
    assert not seen(a_pod(refers("job")), an_owner("job")).bare


def test_what_people_write_on_a_pod_that_nothing_owns_says_what_may_become_of_it() -> None:
    """As on any other workload, before the word of its namespace; on a pod of a Job only the Job's word counts."""
    said = {IDLE_ACTION: "delete", IDLE_TIMEOUT: "12h"}
    above = replace(an_owner("team"), annotations={IDLE_ACTION: "stop"})
    alone = seen(replace(a_pod(), annotations=said), namespace=above).workload
    owned = seen(replace(a_pod(refers("job")), annotations=said), an_owner("job"), namespace=above).workload

    assert (alone.idle_action, alone.idle_timeout) == ("delete", 43_200.0)
    assert (owned.idle_action, owned.idle_timeout) == ("stop", None)


@pytest.mark.parametrize(
    ("version", "kind", "named"),
    [
        ("batch/v1", "Job", "Job"),
        ("batch.volcano.sh/v1alpha1", "Job", "Job.batch.volcano.sh"),
        ("kubeflow.org/v1beta1", "Notebook", "Notebook"),
        ("ray.io/v1", "RayCluster", "RayCluster"),
        ("v1", "ReplicationController", "ReplicationController"),
    ],
)
def test_a_kind_of_another_group_has_its_group_in_its_name(version: str, kind: str, named: str) -> None:
    """What ends Kubernetes' Jobs must not be asked of Volcano's."""
    owner = OwnerReference(api_version=version, kind=kind, name="job", uid="job", controller=True)

    assert seen(a_pod(owner), an_owner("job")).workload.kind == named


def test_a_pod_is_bare_where_its_job_makes_no_other() -> None:
    """The Job's own last chance; of what stands above it nothing is said by that."""
    job = replace(an_owner("job", refers("cron", "CronJob")), once=True)
    again = replace(an_owner("job", refers("cron", "CronJob")), once=False)

    assert seen(a_pod(refers("job")), job, an_owner("cron")).bare
    assert not seen(a_pod(refers("job")), again, replace(an_owner("cron"), once=True)).bare


def test_owners_that_own_each_other_end() -> None:
    """Somebody wrote it by hand."""
    pod = seen(a_pod(refers("a")), an_owner("a", refers("b")), an_owner("b", refers("a")))

    assert pod.workload.kind == "Job"
    assert "owners" in (pod.protected or "")


@pytest.mark.parametrize(
    ("kind", "version", "stays"),
    [
        ("DaemonSet", "apps/v1", True),
        ("DaemonSet", "apps.kruise.io/v1alpha1", True),
        ("Node", "v1", True),
        ("Node", "chain.example.com/v1", False),
        ("DaemonSet", "example.com/v1", False),
    ],
)
def test_a_daemon_s_pods_stay(kind: str, version: str, *, stays: bool) -> None:
    """A drain leaves those of a DaemonSet, and static pods; somebody's own kind of that name has pods like others."""
    pod = seen(a_pod(OwnerReference(api_version=version, kind=kind, name="d", uid="d", controller=True)))

    assert (pod.daemon, pod.drained, pod.bare, pod.static) == (stays, not stays, not stays, False)


def a_node(labels: dict[str, str] | None = None, taint: str = "", **annotations: str) -> NodeFacts:
    """One that is cordoned."""
    taints = (Taint(key=taint, effect="NoSchedule"),) if taint else ()
    return NodeFacts(
        name="n",
        uid="uid-n",
        version=1,
        provider_id="",
        system_uuid="",
        addresses=(),
        ready=True,
        unschedulable=True,
        gpus=8.0,
        labels=labels or {},
        taints=taints,
        annotations=annotations,
    )


def test_whose_a_node_is() -> None:
    """By the marks of Karpenter, of the cluster autoscaler, and of who makes another machine for one that is gone."""
    for mark in ("machine", "cluster-name"):
        assert node_owner(a_node(None, "", **{f"cluster.x-k8s.io/{mark}": "gpu-7"})) == "Cluster API"
    assert node_owner(a_node(None, "", **{"machine.openshift.io/machine": "m/gpu-7"})) == "OpenShift's Machine API"
    assert node_owner(a_node({"karpenter.sh/nodepool": "gpu"})) == "karpenter"
    assert node_owner(a_node(taint="ToBeDeletedByClusterAutoscaler")) == "cluster-autoscaler"
    for label, who in (
        ("worker.gardener.cloud/pool", "Gardener"),
        ("machine-controller/owned-by", "Kubermatic's machine-controller"),
        ("provisioner.cast.ai/managed-by", "CAST AI"),
        ("spotinst.io/node-lifecycle", "Spot Ocean"),
    ):
        assert node_owner(a_node({label: "x"})) == who
    assert node_owner(a_node({"team": "a", "karpenter.sh/do-not-disrupt": "true"})) is None


@pytest.mark.parametrize(
    ("annotation", "value", "keeps"),
    [
        ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "true", True),
        ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "false", False),
        ("karpenter.sh/do-not-disrupt", "true", True),
        ("karpenter.sh/do-not-disrupt", "30m", True),
        (PROTECT, "true", True),
        (SNOOZE_UNTIL, "2026-11-23T12:00:01Z", True),
        (SNOOZE_UNTIL, "2026-11-23T11:59:59Z", False),
        (SNOOZE_UNTIL, "tomorrow", True),
        (CORDONED_BY, "key", False),
    ],
)
def test_what_keeps_a_node(annotation: str, value: str, *, keeps: bool) -> None:
    """Its own marks, whoever set them."""
    assert (kept_by(a_node(None, "", **{annotation: value}), _NOW) is not None) == keeps


def test_a_cordon_that_was_undone_by_hand_is_ours_no_more() -> None:
    """The annotation is left over, and pods come onto the node again."""
    picture = Picture(now=_NOW, owners=lambda *_: None, namespaces={}, system_namespaces=(), cluster="k")
    facts = a_node(None, "", **{CORDONED_BY: "key"})
    open_again = replace(facts, unschedulable=False)

    assert picture.node(facts, (), ()).cordoned_by == "key"
    assert picture.node(open_again, (), ()).cordoned_by is None


def test_a_pod_is_no_older_than_by_our_own_clock() -> None:
    """The API server's clock is behind: what it made a minute ago looks an hour old."""
    picture = Picture(
        now=_NOW,
        owners=lambda *_: None,
        namespaces={},
        system_namespaces=(),
        cluster="k",
        behind=timedelta(hours=1),
    )
    made = _NOW - timedelta(minutes=61)

    assert picture.pod(replace(a_pod(), created_at=made)).created_at == _NOW - timedelta(minutes=1)
    assert picture.pod(a_pod()).created_at is None


def test_demand_is_what_waits_for_gpus() -> None:
    """Not a pod of the system, and not one that is ending."""
    waits = Pod(namespace="team", name="p", uid="u", phase=PodPhase.PENDING, workload=seen(a_pod()).workload, gpus=1.0)

    assert list(pending([waits])) == [waits]
    for other in ({"gpus": 0.0}, {"node": "n"}, {"system": True}, {"ends_at": _NOW}):
        assert list(pending([replace(waits, **other)])) == []


def test_the_latest_snooze_counts_wherever_it_stands() -> None:
    """Nobody shortens what somebody else has asked for, and what cannot be read has no end."""
    own, job, namespace = "2026-11-23T14:00:00Z", "2026-11-23T16:00:00Z", "2026-11-23T15:00:00Z"
    pod = seen(
        a_pod(refers("job"), **{SNOOZE_UNTIL: own}),
        an_owner("job", None, **{SNOOZE_UNTIL: job}),
        namespace=an_owner("team", None, **{SNOOZE_UNTIL: namespace}),
    )
    unread = seen(a_pod(refers("job"), **{SNOOZE_UNTIL: "tomorrow"}), an_owner("job"))

    assert pod.workload.snoozed_until == datetime(2026, 11, 23, 16, tzinfo=UTC)
    assert unread.workload.snoozed_until is not None
    assert unread.workload.snoozed_until.year == _LAST_YEAR
    assert seen(a_pod(refers("job")), an_owner("job")).workload.snoozed_until is None


@pytest.mark.parametrize(
    ("value", "hours"),
    [("8h", 8.0), ("2h", 4.0), ("90", None), ("long", None), ("-1h", None), ("inf", None), ("1e400", None)],
)
def test_the_longest_wait_counts_that_somebody_asks_for(value: str, hours: float | None) -> None:
    """The namespace asks for four hours; what cannot be read is longer than any wait."""
    asked, team = {IDLE_TIMEOUT: value}, {IDLE_TIMEOUT: "4h"}
    pod = seen(a_pod(refers("job")), an_owner("job", None, **asked), namespace=an_owner("team", None, **team))

    assert pod.workload.idle_timeout is not None
    assert isfinite(pod.workload.idle_timeout)
    assert pod.workload.idle_timeout == hours * 3600 if hours else pod.workload.idle_timeout > 365 * 86400


def test_a_run_of_a_cron_job_is_a_workload_of_its_own_where_its_people_let_it_end() -> None:
    """On the Job, above it, or on the namespace; without their word it is shown as its CronJob's."""
    owner, cron = refers("job"), refers("cron", "CronJob")
    on_job = seen(a_pod(owner), an_owner("job", cron, **{IDLE_ACTION: "stop"}), an_owner("cron"))
    on_cron = seen(a_pod(owner), an_owner("job", cron), an_owner("cron", None, **{IDLE_ACTION: "stop"}))
    on_namespace = seen(
        a_pod(owner), an_owner("job", cron), an_owner("cron"), namespace=an_owner("team", None, **{IDLE_ACTION: "stop"})
    )

    for pod in (on_job, on_cron, on_namespace):
        assert (str(pod.workload), pod.workload.uid, pod.workload.idle_action) == ("Job team/job", "job", "stop")
    assert str(seen(a_pod(owner), an_owner("job", cron), an_owner("cron")).workload) == "CronJob team/cron"


@pytest.mark.parametrize("above", ["JobSet", "RayJob", "TrainJob", "SomethingElse"])
def test_a_part_that_its_owner_would_make_again_is_not_ended_by_itself(above: str) -> None:
    """It would be back in a second, and ended again an hour later."""
    pod = seen(a_pod(refers("job")), an_owner("job", refers("top", above), **{IDLE_ACTION: "stop"}), an_owner("top"))
    assert (str(pod.workload), pod.workload.idle_action) == (f"{above} team/top", "stop")


@pytest.mark.parametrize(("kind", "bare"), [("Workflow", True), ("PyTorchJob", True), ("RayCluster", False)])
def test_a_pod_that_its_owner_does_not_make_again_is_bare(kind: str, *, bare: bool) -> None:
    """A step of a workflow fails with its pod."""
    assert seen(a_pod(refers("own", kind)), an_owner("own")).bare == bare


def test_a_job_of_kueue_is_known_by_its_label_or_by_its_workload() -> None:
    """Kueue owns its suspension; why gpuwatch cannot stop it is asked of the namespace."""
    marked = an_owner("job", None, **{QUEUE_LABEL: "gpus", IDLE_ACTION: "stop"})
    plain = an_owner("job", None, **{IDLE_ACTION: "stop"})
    assert seen(a_pod(refers("job")), marked).workload.queued
    assert not seen(a_pod(refers("job")), plain).workload.queued
    picture = Picture(
        now=_NOW,
        owners=lambda _reference, _namespace: plain,
        namespaces={"team": an_owner("team")},
        system_namespaces=(),
        cluster="k",
        queued={"job"},
        why_not_stopped=lambda namespace: f"no right in {namespace}",
    )
    its = picture.pod(a_pod(refers("job"))).workload
    assert (its.queued, its.unstoppable) == (True, "no right in team")


def test_a_pod_of_jupyterhub_is_its_users() -> None:
    """No object owns it; what people write comes first."""
    label = {"hub.jupyter.org/username": "alice"}
    assert seen(replace(a_pod(), labels=label)).workload.owner == "alice"
    assert seen(replace(a_pod(None, **{OWNER: "bob"}), labels=label)).workload.owner == "bob"
