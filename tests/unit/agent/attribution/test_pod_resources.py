"""agent/attribution: what the kubelet's list says of devices, those of plugins and those claimed through DRA."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.attribution.pod_resources import parse_list
from tests.support.fakes.kubelet import a_claimed_device, a_list, field

UID = "dab5ab50-d59a-42a6-af16-cfd4628c0f7a"


def test_the_last_of_a_repeated_name_counts() -> None:
    """As protobuf demands; and names that were not sent are none that Kubernetes allows."""
    body = field(1, "old") + field(1, "new") + field(2, "ns") + field(3, field(1, "c") + field(2, field(2, "GPU-0")))

    assert [entry.pod for entry in parse_list(field(1, body))] == ["new"]
    with pytest.raises(ValueError, match="it has a name"):
        parse_list(field(1, field(3, field(1, "c") + field(2, field(2, "GPU-0")))))


@given(st.binary())
def test_any_bytes_are_a_list_or_no_list(message: bytes) -> None:
    """No other error, and names only of Kubernetes's alphabet."""
    with contextlib.suppress(ValueError):
        parse_list(message)


@given(st.data())
def test_a_list_cut_short_is_no_longer_list(data: st.DataObject) -> None:
    """What is cut off cannot add or change an allocation."""
    pods = {("ns", f"pod-{number}"): {"main": [f"GPU-{number}"]} for number in range(3)}
    whole = a_list(pods)
    cut = data.draw(st.integers(0, len(whole)))
    with contextlib.suppress(ValueError):
        assert set(parse_list(whole[:cut])) <= set(parse_list(whole))


def devices(*claimed: bytes) -> list[str]:
    """What is told of a container with these claims."""
    return [entry.device for entry in parse_list(a_list({("ns", "a"): {"main": list(claimed)}}))]


def test_a_claimed_device_is_told_after_its_driver() -> None:
    """By the name that the driver gave it, so that no plugin's device can be taken for it."""
    assert devices(a_claimed_device("gpu-0"), a_claimed_device("gpu-1-mig-1g18gb-19-0")) == [
        "gpu.nvidia.com/gpu-0",
        "gpu.nvidia.com/gpu-1-mig-1g18gb-19-0",
    ]


def test_claims_on_other_drivers_are_passed_over() -> None:
    """An IMEX channel or a network card is no GPU, whatever it is called."""
    others = ("compute-domain.nvidia.com", "dra.example", "gpu.nvidia.com.example", "")

    assert devices(*(a_claimed_device("gpu-0", driver=driver) for driver in others)) == []


def test_before_the_name_was_told_the_cdi_device_tells_it() -> None:
    """Kubernetes 1.27 to 1.30 list CDI devices alone: the driver's own, of a claim or of the whole node."""
    cdi = (
        f"k8s.gpu.nvidia.com/claim={UID}-gpu-0",
        f"k8s.gpu.nvidia.com/claim={UID}-gpu-1-mig-1g18gb-19-0",
        "k8s.gpu.nvidia.com/device=gpu-2",
        f"k8s.gpu.nvidia.com/claim={UID}",
        "k8s.gpu.nvidia.com/claim=../gpu-3",
        "nvidia.com/gpu=all",
        "",
    )

    assert devices(a_claimed_device("", cdi=cdi)) == [
        "gpu.nvidia.com/gpu-0",
        "gpu.nvidia.com/gpu-1-mig-1g18gb-19-0",
        "gpu.nvidia.com/gpu-2",
    ]


def test_a_device_that_is_told_twice_counts_by_its_name() -> None:
    """Newer kubelets send the CDI devices as well."""
    both = a_claimed_device("gpu-0", cdi=[f"k8s.gpu.nvidia.com/claim={UID}-gpu-0"])

    assert devices(both) == ["gpu.nvidia.com/gpu-0"]
