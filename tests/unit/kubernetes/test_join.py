"""Which machine a node object is: never a guess, on five clouds and on none."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kubernetes.join import doubt, join_machines, machine_name
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode
from tests.support.builders.fleet import a_node

_SUBSCRIPTION = "0a1b2c3d-0000-4000-8000-000000000001"
_IN_AZURE = f"azure:///subscriptions/{_SUBSCRIPTION}/resourceGroups/mc_g/providers/Microsoft.Compute"
_VM_ID = "01234567-89ab-cdef-0123-456789abcdef"
_OLD_FIRMWARE = "67452301-ab89-efcd-0123-456789abcdef"  # the same, its first three groups in the other byte order


def a_machine(machine_id: str, **other: object) -> Node:
    """One whose name and address nobody else has."""
    return replace(a_node(machine_id), name=f"name-of-{machine_id}", address=None, **other)  # type: ignore[arg-type]


def a_node_object(name: str = "worker", provider_id: str = "", **other: object) -> KubernetesNode:
    """One of the cluster `k`."""
    return KubernetesNode(name=name, uid=f"uid-{name}", cluster="k", provider_id=provider_id, **other)  # type: ignore[arg-type]


def a_view(*nodes: KubernetesNode, **other: object) -> ClusterView:
    """Of the cluster `k`."""
    return ClusterView(name="k", nodes=nodes, **other)  # type: ignore[arg-type]


FITS = [
    ("aws:///us-east-1a/i-0abc123", a_machine("i-0abc123", zone="us-east-1a")),
    ("aws:///i-0abc123", a_machine("i-0abc123")),
    (f"{_IN_AZURE}/virtualMachines/gpu-7", a_machine(_VM_ID, account=_SUBSCRIPTION)),
    (f"{_IN_AZURE.lower()}/virtualmachines/GPU-7", a_machine(_VM_ID, account=_SUBSCRIPTION.upper())),
    (f"{_IN_AZURE}/virtualMachineScaleSets/pool/virtualMachines/3", a_machine(_VM_ID, account=_SUBSCRIPTION)),
    ("gce://a-project/us-central1-b/gpu-7", a_machine("123456789", account="a-project", zone="us-central1-b")),
    ("cn-hangzhou.i-bp1abc", a_machine("i-bp1abc")),
    ("alicloud://cn-hangzhou.i-bp1abc", a_machine("i-bp1abc")),
    ("qcloud:///800002/ins-abc123", a_machine("ins-abc123")),
    ("qcloud:///ap-beijing-5/ins-abc123", a_machine("ins-abc123")),
]


def named(provider_id: str, machine: Node) -> Node:
    """The machine with the name that its providerID has for it."""
    found = machine_name(provider_id)
    return machine if found is None or not found.name else replace(machine, name=found.name)


@pytest.mark.parametrize(("provider_id", "machine"), FITS, ids=[each for each, _ in FITS])
def test_a_provider_id_names_its_machine(provider_id: str, machine: Node) -> None:
    """On each of the five clouds, in every form that their cloud controllers write."""
    (found,), view = join_machines([named(provider_id, machine)], a_view(a_node_object("worker", provider_id)))

    assert found.kubernetes is not None
    assert found.kubernetes.name == "worker"
    assert view.notes == ()


def test_a_member_of_a_scale_set_has_the_name_of_its_set_and_its_number() -> None:
    """As Azure names it."""
    found = machine_name(f"{_IN_AZURE}/virtualMachineScaleSets/pool/virtualMachines/3")

    assert found is not None
    assert (found.name, found.account) == ("pool_3", _SUBSCRIPTION)


@pytest.mark.parametrize(
    ("provider_id", "machine"),
    [
        ("aws:///us-east-1b/i-0abc123", a_machine("i-0abc123", zone="us-east-1a")),
        ("gce://another/us-central1-b/gpu-7", replace(a_machine("1", account="a-project"), name="gpu-7", zone="")),
        ("gce://a-project/us-central1-c/gpu-7", replace(a_machine("1"), name="gpu-7", zone="us-central1-b")),
        (f"{_IN_AZURE}/virtualMachines/gpu-7", replace(a_machine("1", account="another"), name="gpu-7")),
    ],
)
def test_a_machine_elsewhere_is_another_one(provider_id: str, machine: Node) -> None:
    """Another zone, project or subscription: the names are the same by chance."""
    (found,), _ = join_machines([machine], a_view(a_node_object("gpu-7", provider_id)))

    assert found.kubernetes is None


def test_a_cloud_s_node_is_found_by_nothing_but_its_provider_id() -> None:
    """A machine that has its name or its address is another one, or an old object speaks."""
    machine = replace(a_machine("i-0fff"), name="worker", address="10.0.0.7")
    view = a_view(a_node_object("worker", "aws:///us-east-1a/i-0abc", addresses=("10.0.0.7",)))

    assert join_machines([machine], view)[0][0].kubernetes is None
    assert (
        join_machines([machine], a_view(a_node_object("worker", "aws:///a/form/of/tomorrow")))[0][0].kubernetes is None
    )


@pytest.mark.parametrize("uuid", [_VM_ID, _VM_ID.upper(), _OLD_FIRMWARE])
def test_without_a_provider_id_the_firmware_s_uuid_is_looked_at(uuid: str) -> None:
    """In both byte orders."""
    (found,), _ = join_machines([a_machine(_VM_ID)], a_view(a_node_object(system_uuid=uuid)))

    assert found.kubernetes is not None


@pytest.mark.parametrize("clues", [{"name": "10-0-0-7"}, {"addresses": ("10.0.0.7",)}, {"addresses": ("I-7",)}])
def test_names_and_addresses_come_last(clues: dict[str, Any]) -> None:
    """For clusters that nobody told which cloud they are on."""
    machine = replace(a_machine("i-7"), name="10-0-0-7", address="10.0.0.7")
    (found,), _ = join_machines([machine], a_view(replace(a_node_object("x"), **clues)))

    assert found.kubernetes is not None


def test_a_node_that_fits_two_machines_is_joined_to_none() -> None:
    """And that is said, and both are unknown."""
    machines = [replace(a_machine(each), address="10.0.0.7") for each in ("i-1", "i-2")]

    found, view = join_machines(machines, a_view(a_node_object("x", addresses=("10.0.0.7",))))

    assert [each.kubernetes for each in found] == [None, None]
    assert [each.activity.state for each in found] == [State.UNKNOWN, State.UNKNOWN]
    assert view.notes == ("The node x fits 2 machines (i-1, i-2), so that it is joined to none.",)


def test_two_nodes_that_fit_one_machine_are_joined_to_none() -> None:
    """The old object of a machine that was installed anew, for example."""
    view = a_view(*(a_node_object(each, "aws:///us-east-1a/i-0abc") for each in ("old", "new")))

    (found,), view = join_machines([a_machine("i-0abc")], view)

    assert found.kubernetes is None
    assert found.activity.doubt == "it and the nodes of the Kubernetes cluster k (new, old) do not fit one to one"
    assert view.notes == ("2 nodes (new, old) fit the machine i-0abc, so that it is joined to none.",)


def test_a_machine_that_is_said_to_be_a_node_and_is_not_is_unknown() -> None:
    """Its tags say that it is in a cluster, and the API server does not show it."""
    (found, free), _ = join_machines([a_machine("i-1", managed_by="EKS cluster prod"), a_machine("i-2")], a_view())

    assert found.activity.state is State.UNKNOWN
    assert found.activity.doubt == (
        "its tags say that it is a node (EKS cluster prod), and it is not among the nodes of the Kubernetes cluster k"
    )
    assert free.activity.state is State.IDLE


def test_a_silent_api_server_makes_its_nodes_unknown_and_no_other_machine() -> None:
    """A machine that is none of its nodes has nothing to do with it."""
    view = a_view(a_node_object("x", "aws:///i-0abc"), trouble="The API server of cluster k has been silent.")

    (node, free), _ = join_machines([a_machine("i-0abc"), a_machine("i-2")], view)

    assert node.activity.doubt == "its pods are not known: The API server of cluster k has been silent"
    assert free.activity.state is State.IDLE


@pytest.mark.parametrize(
    ("pools", "state"), [((), State.UNKNOWN), (("k8s",), State.IDLE), (("default",), State.UNKNOWN)]
)
def test_while_a_cluster_was_never_heard_any_machine_may_be_a_node(pools: tuple[str, ...], state: State) -> None:
    """But those of pools that are said to be none."""
    (found,), _ = join_machines([a_machine("i-1")], a_view(trouble="It has not shown its nodes yet.", pools=pools))

    assert found.activity.state is state


_MACHINES = st.builds(
    lambda number, name, address, state, owner: replace(
        a_node(f"i-{number}"), name=name, address=address, state=state, managed_by=owner
    ),
    st.integers(0, 3),
    st.sampled_from(["a", "b", "worker"]),
    st.sampled_from([None, "10.0.0.1", "10.0.0.2"]),
    st.sampled_from([NodeState.RUNNING, NodeState.STOPPED, NodeState.TERMINATED]),
    st.sampled_from([None, "EKS cluster prod", "Batch"]),
)
_NODES = st.builds(
    lambda number, name, provider, addresses: a_node_object(
        f"{name}-{number}" if number else name, provider, addresses=addresses
    ),
    st.integers(0, 4),
    st.sampled_from(["a", "b", "worker"]),
    st.sampled_from(["", "aws:///us-east-1a/i-0", "aws:///i-1", "cn-beijing.i-2", "qcloud:///1/ins-9", "kind://x/a"]),
    st.sampled_from([(), ("10.0.0.1",), ("10.0.0.1", "10.0.0.2")]),
)
_MANY_MACHINES = st.lists(_MACHINES, max_size=4, unique_by=lambda each: each.id)
_MANY_NODES = st.lists(_NODES, max_size=4, unique_by=lambda each: each.uid)


@given(_MANY_MACHINES, _MANY_NODES, st.randoms())
def test_joins_are_one_to_one_and_depend_on_no_order(
    machines: list[Node], nodes: list[KubernetesNode], random: object
) -> None:
    """No machine has two nodes and no node two machines, in whatever order both are told."""
    found, view = join_machines(machines, a_view(*nodes))
    shuffled = [*machines], [*nodes]
    for each in shuffled:
        random.shuffle(each)  # type: ignore[attr-defined]
    again, view_again = join_machines(shuffled[0], a_view(*shuffled[1]))

    uids = [each.kubernetes.uid for each in found if each.kubernetes is not None]
    assert len(uids) == len(set(uids))
    assert {each.id: each for each in found} == {each.id: each for each in again}
    assert view.notes == view_again.notes


@given(_MANY_MACHINES, _MANY_NODES, st.sampled_from([None, "It is silent."]))
def test_kubernetes_makes_no_machine_idle(
    machines: list[Node], nodes: list[KubernetesNode], trouble: str | None
) -> None:
    """What it says can only add a doubt: a verdict stays what it was, or becomes unknown."""
    found, view = join_machines(machines, a_view(*nodes, trouble=trouble))

    for before, after in zip(machines, found, strict=True):
        assert after.activity.state in {before.activity.state, State.UNKNOWN}
        if after.kubernetes is not None and trouble is not None and after.state is NodeState.RUNNING:
            assert after.activity.state is State.UNKNOWN
        if after.activity.state is not before.activity.state:
            assert after.activity.held_seconds == 0.0
            assert after.activity.doubt
    assert all(doubt(each, view) is None for each in found if each.state is not NodeState.RUNNING)
