"""Pods that wait for GPUs are demand of the pools that they could run in, by the scheduler's own rules."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.fleet import Fleet
from gpuwatch.model.placing import HOSTNAME, NODE_NAME, Placement, Requirement, Taint, Toleration, Wanted
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.idle_timeout.demand import demand_of
from gpuwatch.policies.kubernetes import pending_pods
from gpuwatch.policies.scaling import ScalingRules
from tests.support.builders.fleet import NOW, a_node, an_observation
from tests.support.builders.kubernetes_views import shown_cluster, shown_node, shown_pod

NODE = shown_node("gpu-1", labels={"zone": "a", "generation": "9", "pool": "train"})
GPU_TAINT = Taint(key="nvidia.com/gpu", effect="NoSchedule")


def wants(gpus: float = 1.0, **placement: object) -> bool:
    """Whether a pod that asks for this fits the node."""
    return pending_pods.fits(shown_pod("p", gpus=gpus, placement=Placement(**placement)), NODE)  # type: ignore[arg-type]


def test_a_selector_must_be_met_whole() -> None:
    """Each label with its value."""
    assert wants(selector={"zone": "a", "pool": "train"})
    assert not wants(selector={"zone": "a", "pool": "serve"})
    assert not wants(selector={"disk": "fast"})


@pytest.mark.parametrize(
    ("operator", "values", "met"),
    [
        ("In", ("8", "9"), True),
        ("In", ("8",), False),
        ("NotIn", ("8",), True),
        ("NotIn", ("9",), False),
        ("Exists", (), True),
        ("DoesNotExist", (), False),
        ("Gt", ("8",), True),
        ("Gt", ("9",), False),
        ("Lt", ("10",), True),
        ("Lt", ("x",), False),
        ("SomethingNew", ("9",), False),
    ],
)
def test_a_requirement_is_read_as_kubernetes_reads_it(operator: str, values: tuple[str, ...], *, met: bool) -> None:
    """An operator that is not known is not met: no demand is made up."""
    assert wants(alternatives=((Requirement(key="generation", operator=operator, values=values),),)) == met


def test_one_alternative_is_enough_and_an_empty_one_is_none() -> None:
    """All requirements of that one hold."""
    here, there = (Requirement(key="zone", operator="In", values=(zone,)) for zone in "ab")

    assert wants(alternatives=((there,), (here,)))
    assert not wants(alternatives=((there, here),))
    assert not wants(alternatives=((),))


def test_a_pod_that_wants_more_than_a_node_has_does_not_fit() -> None:
    """Nor on one that offers none."""
    assert wants(8.0)
    assert not wants(9.0)
    assert not pending_pods.fits(shown_pod("p", gpus=1.0), replace(NODE, gpus=None))


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (Toleration(key="nvidia.com/gpu", operator="Exists"), True),
        (Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoExecute"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(key="nvidia.com/gpu", value="present"), False),
        (Toleration(key="other", operator="Exists"), False),
        (None, False),
    ],
)
def test_a_taint_keeps_away_who_does_not_bear_it(toleration: Toleration | None, *, fits: bool) -> None:
    """Those of Kubernetes itself, and those that only prefer, keep nobody away."""
    harmless = (
        Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),
        Taint(key="slow", effect="PreferNoSchedule"),
    )
    pod = shown_pod("p", gpus=1.0, placement=Placement(tolerations=() if toleration is None else (toleration,)))

    assert pending_pods.fits(pod, replace(NODE, taints=harmless))
    assert pending_pods.fits(pod, replace(NODE, taints=(GPU_TAINT, *harmless))) == fits


def a_fleet(*pending: float, trouble: str | None = None) -> Fleet:
    """Pool `default` with two nodes, pool `other` without any node object, and pods that want so many GPUs."""
    pods = tuple(shown_pod(f"p{number}", gpus=gpus) for number, gpus in enumerate(pending))
    nodes = [shown_node(f"gpu-{number}", f"i-{number}", shown_pod("w", f"gpu-{number}", gpus=2.0)) for number in (1, 2)]
    machines = [replace(a_node(f"i-{number}"), kubernetes=node) for number, node in zip((1, 2), nodes, strict=True)]
    cluster = shown_cluster(*nodes, pending=pods, trouble=trouble)
    return Fleet(observed_at=NOW, nodes=(*machines, a_node("i-3", pool="other")), cluster=cluster)


@given(st.lists(st.sampled_from([1.0, 4.0, 8.0, 16.0]), max_size=5))
def test_a_pool_s_demand_is_what_fits_it(pending: list[float]) -> None:
    """What no node of it could ever take is none."""
    fleet = a_fleet(*pending)
    fitting = [each for each in pending if each <= 8.0]

    assert [pod.gpus for pod in pending_pods.waiting(fleet, "default")] == fitting
    assert pending_pods.waiting(fleet, "other") == ()
    assert pending_pods.requested_gpus(fleet, "default") == 4.0 + sum(fitting)


@pytest.mark.parametrize(
    ("pending", "trouble", "queued"),
    [
        ((1.0,), None, True),
        ((), None, False),
        ((16.0,), None, False),
        ((), "It is silent.", None),
        ((1.0,), "It is silent.", None),
    ],
)
def test_a_pod_that_waits_is_work_that_waits(
    pending: tuple[float, ...], trouble: str | None, queued: bool | None
) -> None:
    """A silent API server says neither."""
    observation = replace(an_observation(), fleet=a_fleet(*pending, trouble=trouble))

    assert demand_of(observation, "default", IdleRules(), ScalingRules()) is queued
    assert demand_of(observation, "other", IdleRules(), ScalingRules()) is None


def test_nodes_that_differ_in_their_name_alone_are_one_kind() -> None:
    """The host name is a label, and is no reason to look at each of hundreds."""
    nodes = [replace(NODE, labels={**NODE.labels, "kubernetes.io/hostname": f"host-{number}"}) for number in range(9)]

    assert len({pending_pods._kind(node) for node in nodes}) == 1


def test_a_claim_fits_where_its_devices_are() -> None:
    """Of each request one of its alternatives, NICs as well as GPUs; all of a node is at least one."""
    node = shown_node("gpu-1", gpus=8.0, devices={"gpu.nvidia.com": 8.0, "dra.net": 1.0})

    def fits(*devices: tuple[Wanted, ...], gpus: float = 1.0) -> bool:
        return pending_pods.fits(shown_pod("p", gpus=gpus, placement=Placement(devices=devices)), node)

    gpu, nic = Wanted(driver="gpu.nvidia.com", count=8.0), Wanted(driver="dra.net", count=0.0)
    assert fits((gpu,), gpus=8.0)
    assert fits((gpu,), (nic,), gpus=8.0)
    assert fits((Wanted(driver="gpu.amd.com", count=1.0), gpu), gpus=8.0)
    assert not fits((replace(gpu, count=9.0),), gpus=8.0)
    assert not fits((gpu,), (replace(nic, driver="rdma.example.com"),), gpus=8.0)
    assert fits(gpus=8.0)


BY_SELECTOR = Placement(selector={HOSTNAME: "gpu-1"})
BY_LABEL = Placement(alternatives=((Requirement(key=HOSTNAME, operator="In", values=("gpu-1",)),),))
BY_NAME = Placement(alternatives=((Requirement(key=NODE_NAME, operator="In", values=("gpu-1",)),),))
BUT_TWO = Placement(alternatives=((Requirement(key=HOSTNAME, operator="NotIn", values=("gpu-2",)),),))


@pytest.mark.parametrize("placement", [BY_SELECTOR, BY_LABEL, BY_NAME, BUT_TWO])
def test_a_pod_that_names_its_host_is_demand_whichever_of_its_pool_s_nodes_that_is(placement: Placement) -> None:
    """Nodes that are alike but for their names were asked as one, and its name was that of another."""
    fleet = a_fleet()
    nodes = tuple(
        replace(node, kubernetes=replace(node.kubernetes, labels={HOSTNAME: node.kubernetes.name}))
        for node in fleet.nodes
        if node.kubernetes is not None
    )
    pod = shown_pod("p", gpus=6.0, placement=placement)

    for order in (nodes, nodes[::-1]):
        views = [node.kubernetes for node in order if node.kubernetes is not None]
        told = Fleet(observed_at=NOW, nodes=order, cluster=shown_cluster(*views, pending=(pod,)))
        assert pending_pods.waiting(told, "default") == (pod,)
        assert [node.name for node in views if pending_pods.fits(pod, node)] == ["gpu-1"]
