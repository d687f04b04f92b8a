"""Answers in odd forms that nobody has recorded: no machine is lost, and what lacks its parts is no answer."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from gpuwatch.clouds import CloudError
from tests.support.clouds.azure.recorded import OWN, VMS, Arm, a_machine, azure
from tests.support.clouds.gcp.recorded import Compute, an_instance, compute_engine
from tests.support.clouds.tencent.recorded import Tencent, tencent

AZURE: Mapping[str, Mapping[str, Any]] = {
    "no view": {},
    "an empty view": {"instanceView": {}},
    "a view with null": {"instanceView": {"statuses": None}},
    "a status without a code": {"instanceView": {"statuses": [{"level": "Info"}]}},
    "a scheduled event profile": {"scheduledEventsProfile": {"terminateNotificationProfile": {"enable": True}}},
    "no storage": {"storageProfile": None},
    "no network": {"networkProfile": None},
    "an interface without an id": {"networkProfile": {"networkInterfaces": [{}]}},
    "an unheard-of priority": {"priority": "Low"},
    "a host": {"host": {"id": "/subscriptions/s/hostGroups/g/hosts/h"}},
    "no license": {"licenseType": None, "evictionPolicy": None},
    "an ephemeral disk": {"storageProfile": {"osDisk": {"diffDiskSettings": {"option": "Local"}}}},
}
GCP: Mapping[str, Mapping[str, Any]] = {
    "no scheduling": {"scheduling": {}},
    "no disks": {"disks": []},
    "an interface by IPv6 alone": {"networkInterfaces": [{"ipv6Address": "2001:db8::1", "stackType": "IPV6_ONLY"}]},
    "metadata without items": {"metadata": {"kind": "compute#metadata"}},
    "accelerators without a count": {"guestAccelerators": [{"acceleratorType": "zones/z/acceleratorTypes/nvidia-l4"}]},
    "labels that are empty": {"labels": {}},
    "a run time": {"scheduling": {"maxRunDuration": {"seconds": "3600"}, "instanceTerminationAction": "DELETE"}},
    "a repair": {"status": "REPAIRING"},
    "an end that is pending": {"status": "PENDING_STOP"},
    "a status of tomorrow": {"status": "DREAMING"},
}
TENCENT: Mapping[str, Mapping[str, Any]] = {
    "null tags": {"Tags": None},
    "no tags": {},
    "null disks": {"DataDisks": None, "SystemDisk": None},
    "null GPUs": {"GPUInfo": None},
    "null place for projects": {"Placement": {"Zone": "ap-singapore-4", "ProjectId": None, "HostIds": None}},
    "no operation": {"LatestOperation": None, "LatestOperationState": None},
    "a rescue": {"InstanceState": "ENTER_RESCUE_MODE", "RescueMode": None},
    "null addresses": {"PrivateIpAddresses": None, "PublicIpAddresses": None},
    "an isolated one": {"RestrictState": "EXPIRED", "IsolatedSource": "ARREAR"},
    "a failed launch": {"InstanceState": "LAUNCH_FAILED"},
}


def looked(cloud: Any) -> int:  # noqa: ANN401  an adapter
    """How many machines are seen; an adapter may refuse, but it does not break."""
    seen = len(cloud.nodes())
    for look in (cloud.groups, cloud.leftovers):
        with suppress(CloudError):
            look()
    return seen


@pytest.mark.parametrize("odd", AZURE)
def test_an_odd_machine_of_azure_is_seen(odd: str) -> None:
    """Whatever is missing or null in it."""
    with azure(Arm(lists={VMS: {"value": [a_machine(OWN, **AZURE[odd])]}})) as cloud:
        assert looked(cloud) == 1


@pytest.mark.parametrize("odd", GCP)
def test_an_odd_machine_of_google_is_seen(odd: str) -> None:
    """Whatever is missing or new in it."""
    with compute_engine(Compute(things={"instances": [an_instance(**GCP[odd])]})) as cloud:
        assert looked(cloud) == 1


@pytest.mark.parametrize("odd", TENCENT)
def test_an_odd_machine_of_tencent_is_seen(odd: str) -> None:
    """Whatever is null in it."""
    machine = {
        "InstanceId": "ins-0a",
        "InstanceType": "GN10X.2XLARGE40",
        "InstanceState": "RUNNING",
        "InstanceChargeType": "POSTPAID_BY_HOUR",
        "CreatedTime": "2026-01-01T00:00:00Z",
        "Placement": {"Zone": "ap-singapore-4"},
    }
    with tencent(Tencent(things={"DescribeInstances": [{**machine, **TENCENT[odd]}]})) as cloud:
        assert looked(cloud) == 1


@pytest.mark.parametrize(
    "action",
    ["DescribeInstances", "DescribeAutoScalingGroups", "DescribeRegions", "DescribeDisks", "DescribeAccountQuota"],
)
def test_an_answer_of_tencent_without_its_parts_is_no_answer(action: str) -> None:
    """Never an error of Python's, which would end more than the question."""
    with tencent(Tencent(answers={action: {}})) as cloud:
        asked: tuple[Callable[[], object], ...] = (
            *(cloud.nodes, cloud.groups, cloud.elsewhere, cloud.quotas),
            lambda: list(cloud.leftovers()),
        )
        refused = 0
        for ask in asked:
            try:
                ask()
            except CloudError:
                refused += 1

    assert refused >= 1, "an answer without its parts was believed"
