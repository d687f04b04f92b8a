"""Pods with claims of devices are sure to run elsewhere only where as many such devices are surely free."""

import copy
import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kubernetes.claims import Disks
from gpuwatch.kubernetes.device_facts import claim_facts, class_facts, slice_facts, taint_rule_facts
from gpuwatch.kubernetes.device_objects import ClaimObject, ClassObject, SliceObject, TaintRuleObject
from gpuwatch.kubernetes.devices import Devices
from gpuwatch.kubernetes.facts import node_facts, pod_facts
from gpuwatch.kubernetes.objects import NodeObject, PodObject
from gpuwatch.kubernetes.room import room_of
from gpuwatch.policies.kubernetes.elsewhere import why_stranded
from tests.support.builders.kubernetes import node_object, pod_object
from tests.support.builders.resource_claims import (
    allocated,
    claim_object,
    class_object,
    exactly,
    first_available,
    gpu_devices,
    mig_devices,
    slice_object,
)

Object = dict[str, Any]
_T = TypeVar("_T")
NVIDIA = "gpu.nvidia.com"
_TYPE = f"device.attributes['{NVIDIA}'].type"
GPUS = class_object(NVIDIA, f"device.driver == '{NVIDIA}' && {_TYPE} == 'gpu'")
MIG = class_object("mig.nvidia.com", f"device.driver == '{NVIDIA}' && {_TYPE} == 'mig'")
NICS = class_object("rdma", "device.driver == 'dra.net'")


def read(made: Object, kind: type[_T]) -> _T:
    """As the API server's words are decoded."""
    return msgspec.json.decode(json.dumps(made), type=kind)


class World:
    """Two nodes: `gpu-1`, which goes, and `gpu-2`, with so many GPUs of NVIDIA's driver each."""

    def __init__(self, there: int = 8) -> None:
        """A pod `train` with two GPUs of gpu-1 by its own claim."""
        self.nodes = [node_object("gpu-1", gpus=0), node_object("gpu-2", gpus=0)]
        self.classes = [copy.deepcopy(each) for each in (GPUS, MIG, NICS)]
        self.slices = [
            slice_object("gpu-1", NVIDIA, gpu_devices(8)),
            slice_object("gpu-2", NVIDIA, gpu_devices(there, "gpu-2")),
        ]
        self.claims: list[Object] = []
        self.pods: list[Object] = []
        self.doubt: str | None = None
        self.rules: list[Object] = []
        self.add("train", exactly(NVIDIA, 2), node="gpu-1", given=allocated(NVIDIA, 0, 1))

    def add(self, name: str, *requests: Object, node: str | None, given: list[Object] | None = None) -> Object:
        """One more pod with its own claim; gives the claim."""
        claims = [{"name": "devices", "resourceClaimName": name}]
        pod = pod_object("team", name, node=node, resourceClaims=claims)
        pod["metadata"]["uid"] = name
        self.pods.append(pod)
        users = () if given is None else (name,)
        self.claims.append(claim_object(name, *requests, given=given, users=users))
        return self.claims[-1]

    def why(self, name: str = "train") -> str | None:
        """Why that pod of gpu-1 is not sure to run elsewhere."""
        made = (slice_facts(read(each, SliceObject)) for each in self.slices)
        devices = Devices.from_facts(
            [claim_facts(read(each, ClaimObject)) for each in self.claims],
            [class_facts(read(each, ClassObject)) for each in self.classes],
            [each for each in made if each is not None],
            self.doubt,
            [rule for each in self.rules if (rule := taint_rule_facts(read(each, TaintRuleObject))) is not None],
        )
        nodes = [node_facts(read(each, NodeObject), ("nvidia.com/gpu",)) for each in self.nodes]
        pods = [facts for each in self.pods if (facts := pod_facts(read(each, PodObject), ())) is not None]
        room = room_of(nodes, pods, Disks(), None, devices)
        going = frozenset(pod.uid for pod in room.pods if pod.node == "gpu-1")
        return why_stranded(room, [], [("gpu-1", going)], ()).get(name)


def test_a_pod_with_a_claim_fits_where_so_many_devices_are_free() -> None:
    """Two of two; of one it is said how many are short."""
    assert World(2).why() is None
    assert World(1).why() == f"2 devices of {NVIDIA} are asked for, and the largest free place has 1"


def test_devices_that_others_have_are_not_free() -> None:
    """By claims of pods, and by claims that nobody uses at the moment."""
    world = World(4)
    world.add("busy", exactly(NVIDIA, 2), node="gpu-2", given=allocated(NVIDIA, 0, 1, pool="gpu-2"))
    assert world.why() is None
    world.claims.append(claim_object("kept", exactly(NVIDIA, 1), given=allocated(NVIDIA, 2, pool="gpu-2")))
    assert "largest free place has 1" in str(world.why())


def test_a_device_is_promised_once() -> None:
    """To pods of the same node, and where a pod that waits may take it."""
    world = World(3)
    world.add("serve", exactly(NVIDIA, 2), node="gpu-1", given=allocated(NVIDIA, 2, 3))
    assert [world.why(), world.why("serve")].count(None) < 2
    world = World(3)
    world.add("waits", exactly(NVIDIA, 2), node=None)
    assert "may take" in str(world.why())
    world = World(4)
    world.add("waits", exactly(NVIDIA, 2), node=None)
    assert world.why() is None


def test_a_network_card_is_needed_as_a_gpu_is() -> None:
    """All devices of a pod have to be on one node."""
    world = World()
    world.claims[0]["spec"]["devices"]["requests"].append({"name": "nic", **exactly("rdma", 1)})
    assert world.why() == "1 devices of rdma are asked for, and the largest free place has 0"
    world.slices.append(slice_object("gpu-2", "dra.net", [{"name": "eth2"}]))
    assert world.why() is None


def test_a_part_of_mig_is_no_whole_gpu() -> None:
    """Classes of one driver that select by type have nothing in common."""
    world = World()
    world.slices[1] = slice_object("gpu-2", NVIDIA, mig_devices(7))
    assert "largest free place has 0" in str(world.why())


def narrowed(world: World, expression: str) -> None:
    """The request has a selector."""
    world.claims[0]["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": expression}}]


def test_a_selector_of_a_request_counts() -> None:
    """One that fits some devices, and one by the uuid of the device that stays behind."""
    world = World(4)
    for number, each in enumerate(world.slices[1]["spec"]["devices"]):
        each["attributes"]["fast"] = {"bool": number < 1}
    for each in world.slices[0]["spec"]["devices"]:
        each["attributes"]["fast"] = {"bool": True}
    assert world.why() is None
    narrowed(world, f'device.attributes["{NVIDIA}"].fast == true')
    assert "largest free place has 1" in str(world.why())
    narrowed(world, f'device.attributes["{NVIDIA}"].uuid == "GPU-gpu-1-0"')
    assert "largest free place has 0" in str(world.why())


def change(part: str, value: object) -> Callable[["World"], None]:
    """Write something on each device of gpu-2."""

    def changed(world: World) -> None:
        for each in world.slices[1]["spec"]["devices"]:
            each[part] = value

    return changed


def constrained(world: World) -> None:
    """Devices of one NUMA node."""
    world.claims[0]["spec"]["devices"]["constraints"] = [{"matchAttribute": f"{NVIDIA}/numa"}]


def asking(*requests: Object) -> Callable[["World"], None]:
    """Another request than for two GPUs."""

    def changed(world: World) -> None:
        named = [{"name": f"r{number}", **each} for number, each in enumerate(requests)]
        world.claims[0]["spec"]["devices"]["requests"] = named

    return changed


def shared(world: World) -> None:
    """A pod of another node uses the claim as well."""
    consumer = {"resource": "pods", "name": "other", "uid": "other"}
    world.claims[0]["status"]["reservedFor"].append(consumer)


def named_by_two(world: World) -> None:
    """Another pod waits for the claim."""
    pod = copy.deepcopy(world.pods[0])
    pod["metadata"].update(name="second", uid="second")
    world.pods.append(pod)


def mixed_up(world: World) -> None:
    """A claim that waits is of a class whose devices are partly the same."""
    world.classes.append(class_object("all", f"device.driver == '{NVIDIA}'"))
    world.slices.append(slice_object("gpu-3", NVIDIA, mig_devices(2)))
    world.add("waits", exactly("all", 1), node=None)


def missing_slice(world: World) -> None:
    """The pool says that it has two slices, and one is shown."""
    world.slices[1]["spec"]["pool"]["resourceSliceCount"] = 2


def waiting_oddly(world: World) -> None:
    """A pod waits for whatever there is first."""
    world.add("waits", first_available((NVIDIA, 8), ("mig.nvidia.com", 1)), node=None)


def waiting_for_a_resource(world: World) -> None:
    """A pod waits for a resource that the scheduler serves with devices."""
    world.classes[0]["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    world.pods.append(pod_object("team", "waits", gpus=8))


def offered_twice(world: World) -> None:
    """A device plugin gives the same GPUs away."""
    world.nodes[1] = node_object("gpu-2", gpus=8)


DOUBTS: dict[str, Callable[[World], None]] = {
    "devices with taints": change("taints", [{"key": "sick", "effect": "NoSchedule"}]),
    "devices that share counters": change("consumesCounters", [{"counterSet": "gpu-0"}]),
    "devices for many claims": change("allowMultipleAllocations", value=True),
    "devices with conditions": change("bindingConditions", ["attached"]),
    "constraints": constrained,
    "alternatives": asking(first_available((NVIDIA, 2), ("mig.nvidia.com", 2))),
    "all of a node": asking(exactly(NVIDIA, mode="All")),
    "access for administrators": asking(exactly(NVIDIA, 1, admin=True)),
    "a class that is not there": asking(exactly("gone", 1)),
    "a selector of another kind": lambda world: narrowed(world, f"{_TYPE}.startsWith('g')"),
    "either of two": lambda world: narrowed(world, f"{_TYPE} == 'gpu' || true"),
    "an attribute that nobody has": lambda world: narrowed(world, f"device.attributes['{NVIDIA}'].none == true"),
    "a shared claim": shared,
    "a claim that two pods name": named_by_two,
    "classes with common devices": mixed_up,
    "a slice that is not shown": missing_slice,
    "a pod that waits for one of several": waiting_oddly,
    "a pod that waits for a resource": waiting_for_a_resource,
    "a device plugin as well": offered_twice,
    "a claim that is gone": lambda world: world.claims.clear(),
    "slices that nobody may read": lambda world: setattr(world, "doubt", "403"),
}


@pytest.mark.parametrize("name", DOUBTS)
def test_what_gpuwatch_cannot_be_sure_of_fits_nowhere(name: str) -> None:
    """Eight devices are free there, and the reason is told."""
    world = World()
    assert world.why() is None
    DOUBTS[name](world)
    assert world.why() is not None


@given(st.sampled_from([None, *sorted(DOUBTS)]), st.integers(1, 4), st.integers(0, 8), st.integers(0, 8))
def test_it_fits_exactly_where_so_many_are_free_and_nothing_is_in_doubt(
    doubt: str | None, count: int, there: int, taken: int
) -> None:
    """However many devices there are, and however many of them others have."""
    world = World(there)
    world.claims[0]["spec"]["devices"]["requests"][0]["exactly"]["count"] = count
    taken = min(taken, there)
    if taken:
        world.add("busy", exactly(NVIDIA, taken), node="gpu-2", given=allocated(NVIDIA, *range(taken), pool="gpu-2"))
    assert (world.why() is None) == (there - taken >= count)
    if doubt is not None:
        DOUBTS[doubt](world)
        assert world.why() is not None


def test_what_is_not_known_of_devices_costs_pods_with_claims_alone() -> None:
    """A pod without a claim moves as before."""
    world = World()
    world.doubt = "403"
    world.pods.append(pod_object("team", "web", node="gpu-1"))
    world.pods[-1]["metadata"]["uid"] = "web"
    assert world.why("web") is None


@pytest.mark.parametrize(
    ("selector", "effect", "free"),
    [
        ({}, "NoSchedule", False),
        ({"driver": NVIDIA}, "NoExecute", False),
        ({"driver": NVIDIA, "pool": "gpu-2", "device": "gpu-1"}, "NoSchedule", False),
        ({"driver": "dra.net"}, "NoSchedule", True),
        ({"pool": "gpu-3"}, "NoSchedule", True),
        ({"pool": "gpu-2", "device": "gpu-7"}, "NoSchedule", True),
        ({}, "None", True),
        (None, "NoSchedule", True),
    ],
)
def test_a_device_that_a_rule_taints_is_not_free(selector: Object | None, effect: str, *, free: bool) -> None:
    """An administrator's rule, which no slice shows; one without a selector is for no device."""
    world = World(2)
    spec = {"taint": {"key": "example.com/broken", "effect": effect}}
    spec |= {} if selector is None else {"deviceSelector": selector}
    world.rules.append({"metadata": {"name": "broken", "uid": "rule", "resourceVersion": "1"}, "spec": spec})

    assert (world.why() is None) == free
