"""agent/attribution: which GPU, or MIG instance, a device of the kubelet's list is; none where two could be meant."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.agent.attribution.devices import Node, Part, device_minors
from gpuwatch.model.mig import MigDevice, MigInstance
from tests.support.builders.gpu import a_gpu, a_reading

SMALL = MigInstance(id=3, devices=(MigDevice(uuid="MIG-aaaa", compute_instance=0, profile="1g.10gb"),))
MEDIA = MigInstance(id=5, devices=(MigDevice(uuid="MIG-bbbb", compute_instance=0, profile="1g.10gb+me"),))
TWINS = (
    MigInstance(id=1, devices=(MigDevice(uuid="MIG-cccc", compute_instance=0, profile="2g.20gb"),)),
    MigInstance(id=2, devices=(MigDevice(uuid="MIG-dddd", compute_instance=0, profile="2g.20gb"),)),
)
MINORS = {":01:00.0": 0, ":02:00.0": 1}


def a_node(minors: Mapping[str, int] = MINORS) -> Node:
    """Two GPUs; MIG splits the second."""
    return Node.from_cycle([a_gpu(0), a_gpu(1)], [a_reading(1, mig_instances=(SMALL, MEDIA, *TWINS))], minors)


def part(gpu: int, instance: int | None = None, compute: int | None = None) -> Part:
    """A GPU or a part of it."""
    return Part(gpu=f"GPU-{gpu}", gpu_instance=instance, compute_instance=compute)


DEVICES: dict[str, set[Part]] = {
    "GPU-0": {part(0)},
    "GPU-0::3": {part(0)},
    "MIG-aaaa": {part(1, 3, 0)},
    "MIG-aaaa::0": {part(1, 3, 0)},
    "MIG-GPU-1/3/0": {part(1, 3, 0)},
    "MIG-GPU-9/3/0": set(),
    "nvidia1": {part(1)},
    "nvidia1/gi3": {part(1, 3)},
    "nvidia0/vgpu2": {part(0)},
    "nvidia0/gi3/vgpu1": {part(0, 3)},
    "GPU-9": set(),
    "MIG-ffff": set(),
    "mlx5_0": set(),
    "nvidia7": set(),
    "gpu-0": set(),
    "": set(),
    "gpu.nvidia.com/gpu-0": {part(0)},
    "gpu.nvidia.com/GPU-0": {part(0)},
    "gpu.nvidia.com/gpu-9": set(),
    "gpu.nvidia.com/gpu-vfio-0": set(),
    "gpu.nvidia.com/gpu-1-mig-1g10gb-19-0": {part(1, 3, 0)},
    "gpu.nvidia.com/gpu-1-mig-1g10gb-me-20-2": {part(1, 5, 0)},
    "gpu.nvidia.com/gpu-1-mig-2g20gb-14-0": {part(1, 1, 0), part(1, 2, 0)},
    "gpu.nvidia.com/gpu-1-mig-7g80gb-0-0": {part(1)},
    "gpu.nvidia.com/gpu-1-mig-19-0-1": {part(1)},
    "gpu.nvidia.com/gpu-1-mig-": set(),
    "gpu.nvidia.com/gpu-1-mig-1g10gb": set(),
}


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_is_a_gpu_or_a_part_of_one(device: str) -> None:
    """By uuid, as a share of it, as a MIG device, as GKE's own plugin counts, and as a claim names it.

    A claim's MIG device is any of its size, and any of its GPU where none of that size is seen.
    """
    assert a_node().parts(device) == DEVICES[device]


@pytest.mark.parametrize(
    "device", ["nvidia0", "nvidia0/gi3", "gpu.nvidia.com/gpu-0", "gpu.nvidia.com/gpu-1-mig-19-0-1"]
)
def test_without_minor_numbers_a_number_may_be_any_gpu(device: str) -> None:
    """NVML's index would be a guess."""
    assert {found.gpu for found in a_node(minors={}).parts(device)} == {"GPU-0", "GPU-1"}


def test_a_number_that_no_gpu_has_may_be_that_of_one_whose_number_is_not_known() -> None:
    """Of no other."""
    half = a_node({":01:00.0": 0})

    assert half.parts("nvidia0") == {part(0)}
    assert half.parts("nvidia7") == half.parts("gpu.nvidia.com/gpu-7") == {part(1)}


def test_where_index_and_minor_number_differ_a_claims_number_may_be_either() -> None:
    """The driver has counted by either; /dev/nvidiaN has only the one."""
    crossed = a_node({":01:00.0": 1, ":02:00.0": 0})

    assert crossed.parts("gpu.nvidia.com/gpu-0") == crossed.parts("gpu.nvidia.com/gpu-1") == {part(0), part(1)}
    assert crossed.parts("nvidia0") == {part(1)}


def test_a_number_is_that_of_the_gpu_which_is_there() -> None:
    """A board that was exchanged may still be told as down, with the index and the place that its successor has."""
    old = replace(a_gpu(0), uuid="GPU-old")
    node = Node.from_cycle([a_gpu(0), old], [], MINORS)

    assert node.parts("nvidia0") == node.parts("gpu.nvidia.com/gpu-0") == {part(0)}
    assert node.parts("GPU-old") == {Part(gpu="GPU-old")}


def test_parts_that_may_be_one() -> None:
    """An instance that is not told may be any; one that is told is no other one."""
    assert part(1).may_be(part(1, 3, 0))
    assert part(1, 3, 0).may_be(part(1, 3))
    assert not part(1, 3, 0).may_be(part(1, 4, 0))
    assert not part(1, 3, 0).may_be(part(1, 3, 1))
    assert not part(0).may_be(part(1))


def proc_with(folder: Path, **gpus: str) -> Path:
    """A /proc of NVIDIA's driver; what stands in `information`, by PCI address with _ for : and ."""
    for place, information in gpus.items():
        domain, bus, device, function = place.removeprefix("at_").split("_")
        there = folder / "driver/nvidia/gpus" / f"{domain}:{bus}:{device}.{function}"
        there.mkdir(parents=True)
        (there / "information").write_text(information, encoding="utf-8")
    return folder


def test_minor_numbers_are_the_drivers_own(tmp_path: Path) -> None:
    """By PCI address, whose domain NVML writes with eight digits and the kernel with four or more."""
    proc = proc_with(
        tmp_path,
        at_0000_01_00_0="Model: \t\t NVIDIA A100\nIRQ:   \t\t 131\nDevice Minor: \t 1\nGPU UUID: \t GPU-????????\n",
        at_0000_02_00_0="Device Minor: 0\n",
        at_10000_03_00_0="Device Minor: 12\n",
        at_0000_04_00_0="Model: \t\t NVIDIA A100\n",
    )

    assert device_minors(proc) == {":01:00.0": 1, ":02:00.0": 0, "10000:03:00.0": 12}


def test_without_the_driver_there_are_no_minor_numbers(tmp_path: Path) -> None:
    """Nor one of a GPU whose file cannot be read."""
    proc = proc_with(tmp_path / "half", at_0000_01_00_0="Device Minor: 0\n")
    (proc / "driver/nvidia/gpus/0000:02:00.0/information").mkdir(parents=True)

    assert device_minors(tmp_path / "none") == {}
    assert device_minors(proc) == {":01:00.0": 0}
