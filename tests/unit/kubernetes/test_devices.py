"""GPUs by Dynamic Resource Allocation: claims count by their devices, and what may be a GPU is never taken for none."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kubernetes.device_facts import claim_facts, class_facts, is_gpu_driver, slice_facts
from gpuwatch.kubernetes.device_objects import ClaimObject, ClassObject, SliceObject
from gpuwatch.kubernetes.devices import Devices
from gpuwatch.kubernetes.facts import pod_facts
from gpuwatch.kubernetes.objects import PodObject
from gpuwatch.kubernetes.settings import GPU_RESOURCES
from gpuwatch.model.placing import Wanted
from tests.support.builders.kubernetes import pod_object
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
NVIDIA = "gpu.nvidia.com"
CLASSES = (
    class_object(NVIDIA, f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == 'gpu'"),
    class_object("mig-1g.10gb", f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == 'mig'"),
    class_object("rdma", 'device.driver == "dra.net"'),
    class_object("unknown.example.com", "true"),
)
SLICES = (
    slice_object("gpu-1", NVIDIA, gpu_devices(8)),
    slice_object("gpu-2", NVIDIA, mig_devices(7)),
    slice_object("gpu-1", "dra.net", [{"name": "eth2", "attributes": {"dra.net/rdma": {"bool": True}}}]),
)


def the_devices(*claims: Object, slices: tuple[Object, ...] = SLICES, doubt: str | None = None) -> Devices:
    """All of these in a cluster."""
    made = (slice_facts(msgspec.json.decode(json.dumps(each), type=SliceObject)) for each in slices)
    return Devices.from_facts(
        [claim_facts(msgspec.json.decode(json.dumps(each), type=ClaimObject)) for each in claims],
        [class_facts(msgspec.json.decode(json.dumps(each), type=ClassObject)) for each in CLASSES],
        [each for each in made if each is not None],
        doubt,
    )


CASES = {
    "eight GPUs in one claim": (claim_object("c", exactly(NVIDIA, 8), given=allocated(NVIDIA, *range(8))), 8.0),
    "a claim that waits for two": (claim_object("c", exactly(NVIDIA, 2)), 2.0),
    "one that waits for all of a node": (claim_object("c", exactly(NVIDIA, mode="All")), 8.0),
    "a NIC": (
        claim_object("c", exactly("rdma", 1), given=[{"driver": "dra.net", "pool": "gpu-1", "device": "eth2"}]),
        0.0,
    ),
    "a NIC that is waited for": (claim_object("c", exactly("rdma", 1)), 0.0),
    "a channel of a compute domain": (
        claim_object("c", exactly("compute-domain-default-channel.nvidia.com", 1)),
        0.0,
    ),
    "a driver that nobody knows": (claim_object("c", exactly("unknown.example.com", 3)), 3.0),
    "two MIG devices": (
        claim_object(
            "c",
            first_available((NVIDIA, 1), ("mig-1g.10gb", 2)),
            given=[{"driver": NVIDIA, "pool": "gpu-2", "device": f"mig-{n}", "request": "r/b"} for n in (0, 1)],
        ),
        2 / 7,
    ),
    "alternatives, of which the fewest are sure": (claim_object("c", first_available((NVIDIA, 4), (NVIDIA, 2))), 2.0),
    "access for administrators": (
        claim_object("c", exactly(NVIDIA, mode="All", admin=True), given=allocated(NVIDIA, *range(8), admin=True)),
        0.0,
    ),
    "access for administrators, of an older version": (
        claim_object("c", exactly(NVIDIA, mode="All", admin=True), given=allocated(NVIDIA, 0, 1)),
        0.0,
    ),
    "v1beta1 has no `exactly`": (claim_object("c", {"name": "r", "deviceClassName": NVIDIA, "count": 3}), 3.0),
    "a device of a pool that is gone": (
        claim_object("c", exactly(NVIDIA, 1), given=allocated(NVIDIA, 1, pool="old")),
        1.0,
    ),
    "no request": (claim_object("c"), 0.0),
}


@pytest.mark.parametrize("case", CASES)
def test_a_claim_is_as_many_gpus_as_its_devices(case: str) -> None:
    """Of NICs, channels and administrators' access it is none."""
    claim, gpus = CASES[case]

    assert the_devices(claim).of_pod("team", "u", ["c"]).gpus == pytest.approx(gpus)


def test_a_pod_has_the_gpus_that_its_claim_names() -> None:
    """By their uuids; the number in a device's name is the driver's, and no index."""
    devices = the_devices(claim_object("c", exactly(NVIDIA, 2), given=allocated(NVIDIA, 2, 5)))

    assert devices.of_pod("team", "u", ["c"]).uuids == ("GPU-gpu-1-2", "GPU-gpu-1-5")


def test_a_part_of_a_gpu_is_named_by_its_gpu() -> None:
    """MIG: the agent knows the use of the whole."""
    given = [{"driver": NVIDIA, "pool": "gpu-2", "device": "mig-0"}]
    devices = the_devices(claim_object("c", exactly("mig-1g.10gb", 1), given=given))

    assert devices.of_pod("team", "u", ["c"]).uuids == ("GPU-parent",)


@given(st.integers(1, 5), st.integers(1, 8))
def test_pods_that_share_a_claim_hold_its_gpus_once(pods: int, gpus: int) -> None:
    """Together as many as the claim, each an equal part."""
    users = [f"u-{number}" for number in range(pods)]
    devices = the_devices(claim_object("c", exactly(NVIDIA, gpus), given=allocated(NVIDIA, *range(gpus)), users=users))

    assert sum(devices.of_pod("team", uid, ["c"]).gpus for uid in users) == pytest.approx(gpus)
    assert all(devices.of_pod("team", uid, ["c"]).gpus > 0 for uid in users)


def test_claims_that_share_a_device_hold_it_once() -> None:
    """Consumable capacity: each has a part of its memory."""
    claims = [claim_object(name, exactly(NVIDIA, 1), given=allocated(NVIDIA, 0), users=[name]) for name in ("a", "b")]
    devices = the_devices(*claims)

    assert [devices.of_pod("team", name, [name]).gpus for name in ("a", "b")] == [0.5, 0.5]


def test_a_claim_that_is_not_known_may_be_a_gpu() -> None:
    """It was not made yet, or may not be read."""
    known = claim_object("c", exactly("rdma", 1))

    assert the_devices().of_pod("team", "u", [None]).gpus == 1.0
    assert the_devices().of_pod("team", "u", ["gone"]).gpus == 1.0
    assert the_devices(known, doubt="forbidden").of_pod("team", "u", ["c"]).gpus == 1.0
    assert the_devices(known, doubt="forbidden").of_pod("team", "u", ["c"]).uuids is None


def test_an_extended_resource_is_counted_once() -> None:
    """The scheduler makes a claim for it, which names the devices."""
    claim = claim_object("extended", exactly(NVIDIA, 2), given=allocated(NVIDIA, 0, 1), users=["u"])
    found = the_devices(claim).with_requests("team", "u", 2.0, (), "extended")

    assert found.gpus == 2.0
    assert found.uuids == ("GPU-gpu-1-0", "GPU-gpu-1-1")
    assert the_devices(claim).with_requests("team", "u", 0.0, (), "extended").gpus == 2.0
    assert the_devices(doubt="forbidden").with_requests("team", "u", 2.0, (), "extended").gpus == 2.0
    assert the_devices(claim).with_requests("team", "u", 2.0, (), None).uuids is None


def test_a_node_offers_what_its_slices_have() -> None:
    """Of the newest generation; parts of a GPU that is a device itself are other ways to give it away."""
    older = slice_object("gpu-1", NVIDIA, gpu_devices(4), generation=1)
    newer = slice_object("gpu-1", NVIDIA, gpu_devices(8), generation=2)
    both = [*gpu_devices(1), {**mig_devices(1)[0], "attributes": {**mig_devices(1)[0]["attributes"]}}]
    both[1]["attributes"]["parentUUID"] = both[0]["attributes"]["uuid"]

    assert the_devices(slices=(older, newer)).gpus_on("gpu-1") == 8.0
    assert the_devices().gpus_on("gpu-2") == pytest.approx(1.0)
    assert the_devices(slices=(slice_object("gpu-3", NVIDIA, both),)).gpus_on("gpu-3") == 1.0
    assert the_devices().gpus_on("cpu-1") is None
    assert the_devices(slices=(SLICES[2],)).gpus_on("gpu-1") is None
    assert the_devices().on_node("gpu-1") == {NVIDIA: 8.0, "dra.net": 1.0}


def test_v1beta1_has_its_attributes_one_level_lower() -> None:
    """In `basic`."""
    devices = [{"name": each["name"], "basic": {"attributes": each["attributes"]}} for each in gpu_devices(2)]
    found = the_devices(
        claim_object("c", exactly(NVIDIA, 1), given=allocated(NVIDIA, 1)),
        slices=(slice_object("gpu-1", NVIDIA, devices),),
    )

    assert found.of_pod("team", "u", ["c"]).uuids == ("GPU-gpu-1-1",)


def test_a_pending_claim_says_which_devices_it_takes() -> None:
    """By driver, and each of its alternatives."""
    claim = claim_object("c", first_available((NVIDIA, 2), ("mig-1g.10gb", 1)), exactly("rdma", mode="All"))

    assert the_devices(claim).of_pod("team", "u", ["c"]).wanted == (
        (Wanted(driver=NVIDIA, count=2.0), Wanted(driver=NVIDIA, count=1.0)),
        (Wanted(driver="dra.net", count=0.0),),
    )


@pytest.mark.parametrize(
    ("driver", "gpu"),
    [
        (NVIDIA, True),
        ("gpu.amd.com", True),
        ("gpu.intel.com", True),
        ("gpu.example.com", True),
        ("dra.net", False),
        ("compute-domain.nvidia.com", False),
        ("dra.cpu", False),
        ("sriovnetwork.k8snetworkplumbingwg.io", False),
        ("neuron.aws.com", False),
        ("tpu.google.com", False),
        ("accelerator.unicorn.example.net", None),
        ("devices.example.com", None),
    ],
)
def test_a_driver_says_by_its_name_what_its_devices_are(driver: str, gpu: bool | None) -> None:
    """Of most; a name that says nothing is a doubt."""
    assert is_gpu_driver(driver) is gpu


def test_an_unknown_drivers_devices_say_what_they_are() -> None:
    """By the type that it gives them, or by what only networks have."""
    devices: list[Object] = [
        {"name": "a", "attributes": {"type": {"string": "gpu"}}},
        {"name": "b", "attributes": {"example.com/type": {"string": "fpga"}}},
        {"name": "c", "attributes": {"example.com/ifName": {"string": "eth2"}}},
        {"name": "d"},
    ]
    found = the_devices(slices=(slice_object("gpu-1", "devices.example.com", devices),))

    assert found.gpus_on("gpu-1") == 2.0


def test_the_names_of_a_pods_claims_stand_in_its_status() -> None:
    """Of those that are made for it; one by name stands in the pod itself."""
    pod = pod_object(
        "team",
        "p",
        resourceClaims=[
            {"name": "gpu", "resourceClaimTemplateName": "t"},
            {"name": "nic", "resourceClaimName": "shared"},
            {"name": "new", "resourceClaimTemplateName": "t"},
        ],
    )
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "p-gpu-x8k"}]
    pod["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "p-extended-x", "requestMappings": []}
    facts = pod_facts(msgspec.json.decode(json.dumps(pod), type=PodObject), GPU_RESOURCES)

    assert facts is not None
    assert facts.device_claims == ("p-gpu-x8k", "shared", None)
    assert facts.extended_claim == "p-extended-x"
    assert facts.gpus == 3.0
