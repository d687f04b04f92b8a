"""What a pod needs of its node, counted as the scheduler does, and what of it nobody can foretell."""

import json
from typing import Any

import msgspec
import pytest

from gpuwatch.kubernetes.needs import needs_of, offers_of
from gpuwatch.kubernetes.objects import PodObject
from gpuwatch.model.placing import HOSTNAME, NODE_NAME, Needs, PodTerm, Requirement, Selector, Spread, Toleration
from tests.support.builders.kubernetes import pod_object


def needs(status: dict[str, Any] | None = None, **spec: object) -> Needs:
    """Of a pod in the form of the API."""
    made = pod_object("team", "p", labels={"app": "web", "pod-template-hash": "7d9"})
    made["spec"] |= spec
    made["status"] |= status or {}
    return needs_of(msgspec.json.decode(json.dumps(made), type=PodObject))


def container(name: str = "c", **requests: str) -> dict[str, Any]:
    """One that asks for this."""
    return {"name": name, "resources": {"requests": requests}}


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        *(
            ("100m", 100),
            ("0.1", 100),
            ("2", 2000),
            ("1e1", 10_000),
            ("1500u", 2),
            ("1n", 1),
            (".5", 500),
            ("1.", 1000),
        ),
    ],
)
def test_cores_are_counted_in_thousandths_and_rounded_up(text: str, amount: int) -> None:
    """A request is never less than what is asked for."""
    assert needs(containers=[container(cpu=text)]).requests == (("cpu", amount),)


@pytest.mark.parametrize(
    ("text", "amount"), [("1Gi", 2**30), ("1G", 10**9), ("128974848", 128974848), ("1.5Ki", 1536), ("400m", 1)]
)
def test_bytes_have_both_kinds_of_suffixes(text: str, amount: int) -> None:
    """Of memory, disks, and whatever else a node offers."""
    assert needs(containers=[container(memory=text)]).requests == (("memory", amount),)


@pytest.mark.parametrize("text", ["what?", "", "1 Gi", "--1", "1e999", "m"])
def test_an_amount_that_cannot_be_read_is_a_doubt_and_no_offer(text: str) -> None:
    """It fits nowhere, and nothing fits it."""
    assert "cannot be read" in str(needs(containers=[container(cpu=text)]).doubt)
    assert offers_of({"cpu": text, "pods": "110"}) == {"cpu": 0, "pods": 110}


def test_what_starts_before_the_containers_counts_with_the_sidecars_before_it() -> None:
    """2 cores and a sidecar of 4 run; 7 start beside the sidecar; the runtime takes half a core."""
    begins = [{**container("side", cpu="4"), "restartPolicy": "Always"}, container("init", cpu="7")]
    found = needs(containers=[container(cpu="2")], initContainers=begins, overhead={"cpu": "500m", "memory": "2Gi"})

    assert found.requests == (("cpu", 11_500), ("memory", 2 * 2**30))


def test_what_is_set_for_the_whole_pod_counts_in_place_of_its_containers() -> None:
    """Of processors and memory; GPUs are of containers."""
    found = needs(
        containers=[container(cpu="1", **{"nvidia.com/gpu": "2"})], resources={"requests": {"cpu": "12"}, "limits": {}}
    )

    assert found.requests == (("cpu", 12_000), ("nvidia.com/gpu", 2))


def test_a_limit_without_a_request_is_one_and_a_resized_container_counts_with_what_it_has() -> None:
    """A shrink that the kubelet has not made yet frees nothing."""
    limited = {"name": "c", "resources": {"limits": {"cpu": "3"}}}
    assert needs(containers=[limited]).requests == (("cpu", 3000),)

    has = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "6"}}]}
    assert needs(has, containers=[container(cpu="1")]).requests == (("cpu", 6000),)
    still = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "5"}}}]}
    assert needs(still, containers=[container(cpu="1")]).requests == (("cpu", 5000),)


def test_a_sidecar_and_a_pod_that_were_resized_count_with_what_they_have() -> None:
    """Of init containers only those that run on; a pod as a whole since Kubernetes 1.35."""
    sidecar = {**container("s", cpu="1"), "restartPolicy": "Always"}
    has = {"initContainerStatuses": [{"name": each, "allocatedResources": {"cpu": "6"}} for each in ("s", "i")]}
    begins = [sidecar, container("i", cpu="1")]
    assert needs(has, containers=[container(cpu="1")], initContainers=begins).requests == (("cpu", 7000),)

    whole = {"resources": {"requests": {"cpu": "8"}}}
    assert needs(has, containers=[container()], initContainers=begins, **whole).requests == (("cpu", 8000),)
    was = {"allocatedResources": {"cpu": "10"}}
    assert needs(was, containers=[container()], **whole).requests == (("cpu", 10_000),)


def test_alike_pods_share_what_they_need() -> None:
    """There are ten times as many pods as kinds of them."""
    assert needs(containers=[container(cpu="1")]) is needs(containers=[container(cpu="1")])


@pytest.mark.parametrize(
    ("spec", "doubt"),
    [
        ({"schedulerName": "default-scheduler"}, None),
        ({"schedulerName": "volcano"}, "its scheduler is volcano"),
        ({"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "x"}}]}, "its volume v"),
        ({"volumes": [{"name": "v", "nfs": {"server": "x"}}]}, None),
    ],
)
def test_what_gpuwatch_cannot_play_through_is_a_doubt(spec: dict[str, object], doubt: str | None) -> None:
    """And a doubt keeps the node."""
    found = needs(None, **spec).doubt

    assert found is None if doubt is None else doubt in str(found)


def test_where_it_may_go_is_read_whole() -> None:
    """Selector, affinity to nodes by label and name, tolerations, ports of the host."""
    expressions = [{"key": "disk", "operator": "NotIn", "values": ["hdd"]}]
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n"]}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions, "matchFields": fields}]}
    found = needs(
        nodeSelector={"a": "b"},
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        tolerations=[{"operator": "Exists"}],
        containers=[{"name": "c", "ports": [{"containerPort": 80}, {"containerPort": 443, "hostPort": 443}]}],
    )

    disk = Requirement(key="disk", operator="NotIn", values=("hdd",))
    assert found.alternatives == ((disk, Requirement(key=NODE_NAME, operator="In", values=("n",))),)
    assert (found.selector, found.tolerations) == ((("a", "b"),), (Toleration(operator="Exists"),))
    assert found.ports == (("TCP", 443),)


_APP = {"matchLabels": {"app": "web"}}


def test_whom_it_may_be_beside_is_read_whole() -> None:
    """Only what is required: a wish never keeps a node."""
    term = {"topologyKey": HOSTNAME, "labelSelector": _APP}
    wish = [{"weight": 1, "podAffinityTerm": term}]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    anywhere = {**term, "namespaceSelector": {}}
    found = needs(
        affinity={
            "podAffinity": {required: [term], "preferredDuringSchedulingIgnoredDuringExecution": wish},
            "podAntiAffinity": {required: [{**term, "namespaces": ["b", "a"]}, anywhere]},
        }
    )

    web = Selector(exact=(("app", "web"),))
    assert found.near == (PodTerm(topology=HOSTNAME, selector=web),)
    assert found.apart == (
        PodTerm(topology=HOSTNAME, selector=web, namespaces=("a", "b")),
        PodTerm(topology=HOSTNAME, selector=web, namespaces=None),
    )
    chosen = {**term, "namespaceSelector": _APP}
    assert "namespaces" in str(needs(affinity={"podAffinity": {required: [chosen]}}).doubt)


def test_a_spread_that_is_required_is_read_with_the_labels_of_its_revision() -> None:
    """`ScheduleAnyway` is a wish."""
    base = {"topologyKey": "zone", "maxSkew": 1, "labelSelector": _APP}
    strict = {
        **base,
        "whenUnsatisfiable": "DoNotSchedule",
        "minDomains": 3,
        "matchLabelKeys": ["pod-template-hash", "missing"],
        "nodeTaintsPolicy": "Honor",
    }
    found = needs(topologySpreadConstraints=[{**base, "whenUnsatisfiable": "ScheduleAnyway"}, strict])

    selector = Selector(exact=(("app", "web"), ("pod-template-hash", "7d9")))
    assert found.spread == (Spread(topology="zone", most_skew=1, selector=selector, least_domains=3, by_taints=True),)


@pytest.mark.parametrize(("labels", "waits"), [({}, True), ({"kueue.x-k8s.io/pod-group-name": "gang"}, False)])
def test_kueue_may_put_a_pod_back_into_its_queue(labels: dict[str, str], *, waits: bool) -> None:
    """What replaces a pod that Kueue admits by itself may wait for days; one of a group takes its place."""
    made = pod_object("team", "p", labels={"kueue.x-k8s.io/managed": "true", **labels})
    doubt = needs_of(msgspec.json.decode(json.dumps(made), type=PodObject)).doubt

    assert doubt == ("Kueue puts the pod that replaces it back into its queue" if waits else None)
