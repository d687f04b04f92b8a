"""Answers in odd forms that nobody has recorded: no machine is lost, and what lacks its parts is no answer.

Those of AWS and Alibaba Cloud are from the clouds' own pages, which each of them names.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.alibaba.client import of_pair
from gpuwatch.clouds.alibaba.cloud import AlibabaCloud
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.aws.recorded import REGION as AWS_REGION
from tests.support.clouds.aws.recorded import Aws, aws
from tests.support.clouds.azure.recorded import OWN, VMS, Arm, a_machine, azure
from tests.support.clouds.gcp.recorded import Compute, an_instance, compute_engine
from tests.support.clouds.recorded import answering
from tests.support.clouds.server import Request, Response
from tests.support.clouds.tencent.recorded import Tencent, tencent
from tests.support.fakes.cloud_worlds import FLEET

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
# Pages of docs.aws.amazon.com/AWSEC2/latest/APIReference.
AWS: Mapping[str, Mapping[str, Any]] = {
    "a state with a high byte, which is to be ignored (API_InstanceState)": {"State": {"Code": 272, "Name": "running"}},
    "no tags (API_Instance)": {"Tags": []},
    "an address of IPv6 alone (API_Instance)": {"PrivateIpAddress": None, "Ipv6Address": "2001:db8::1"},
    "a scheduled one (API_Instance, InstanceLifecycle)": {"InstanceLifecycle": "scheduled"},
    "an interruptible reservation (API_Instance, InstanceLifecycle)": {
        "InstanceLifecycle": "interruptible-capacity-reservation"
    },
    "a Capacity Block (API_Instance, InstanceLifecycle)": {"InstanceLifecycle": "capacity-block"},
    "no operator (API_OperatorResponse)": {"Operator": {"Managed": False}},
    "a service's own (API_OperatorResponse)": {"Operator": {"Managed": True, "Principal": "eks.amazonaws.com"}},
    "a reason without a code (API_StateReason)": {"StateReason": {"Message": ""}, "StateTransitionReason": ""},
    "no volumes, as with a root in the instance store (RootDeviceStorage)": {
        "RootDeviceType": "instance-store",
        "BlockDeviceMappings": [],
    },
}
# Pages of alibabacloud.com/help/en/ecs/developer-reference.
ALIBABA: Mapping[str, Mapping[str, Any]] = {
    "no tags (api-describeinstances)": {},
    "a tag without a value (api-tagresources)": {"Tags": {"Tag": [{"TagKey": "team", "TagValue": ""}]}},
    "a lock for security (api-stopinstance)": {"OperationLocks": {"LockReason": [{"LockReason": "security"}]}},
    "a lock of a spot machine (api-describeinstances)": {
        "SpotStrategy": "SpotAsPriceGo",
        "OperationLocks": {"LockReason": [{"LockReason": "Recycling"}]},
    },
    "a lock with a message (api-describeinstances)": {
        "OperationLocks": {"LockReason": [{"LockReason": "financial", "LockMsg": "overdue"}]}
    },
    "stopped in no mode (api-describeinstances)": {"Status": "Stopped", "StoppedMode": "Not-applicable"},
    "a classic network (api-describeinstances)": {
        "InstanceNetworkType": "classic",
        "InnerIpAddress": {"IpAddress": ["10.1.2.3"]},
        "VpcAttributes": {"PrivateIpAddress": {"IpAddress": []}, "VpcId": "", "VSwitchId": "", "NatIpAddress": ""},
    },
    "being made (api-describeinstances)": {"Status": "Pending", "StartTime": ""},
    "a time to be released (api-describeinstances)": {"AutoReleaseTime": "2026-12-10T04:04Z"},
    "an old cluster (api-describeinstanceattribute)": {"ClusterId": "cls-bp67acfmxazb4p"},
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


@pytest.mark.parametrize("odd", AWS)
def test_an_odd_machine_of_aws_is_seen(odd: str) -> None:
    """Whatever its page allows."""
    machine = {
        "InstanceId": "i-0a",
        "InstanceType": "g6.xlarge",
        "State": {"Code": 16, "Name": "running"},
        "LaunchTime": datetime(2026, 1, 1, tzinfo=UTC),
        "Placement": {"AvailabilityZone": f"{AWS_REGION}a"},
        "PrivateIpAddress": "10.0.0.1",
        "RootDeviceType": "ebs",
        **AWS[odd],
    }
    told = {key: value for key, value in machine.items() if value is not None}
    reservation = {"ReservationId": "r-1", "OwnerId": "123456789012", "Instances": [told]}
    with aws(Aws(data={"DescribeInstances": lambda _: {"Reservations": [reservation]}})) as cloud:
        assert looked(cloud) == 1


def alibaba(machine: Mapping[str, Any]) -> Callable[[Request], Response]:
    """Alibaba Cloud with nothing but this machine."""

    def answer(request: Request) -> Response:
        call = request.headers["x-acs-action"]
        whole: dict[str, Any] = {"RequestId": "r", "NextToken": "", "TotalCount": 0, "PageNumber": 0, "PageSize": 0}
        if call == "DescribeInstances":
            return Response(body={**whole, "Instances": {"Instance": [machine]}})
        if call == "DescribeScalingGroups":
            return Response(body={**whole, "ScalingGroups": [], "PageNumber": 1, "PageSize": 50})
        if call == "GetCallerIdentity":
            return Response(body={"RequestId": "r", "AccountId": "1234567890123456", "Arn": "acs:ram::1:user/a"})
        return Response(status=403, body={"RequestId": "r", "Code": "Forbidden.RAM", "Message": "no"})

    return answer


@pytest.mark.parametrize("odd", ALIBABA)
def test_an_odd_machine_of_alibaba_cloud_is_seen(odd: str) -> None:
    """Whatever its page allows; a time has no seconds there."""
    machine = {
        "InstanceId": "i-0a",
        "InstanceName": "a",
        "InstanceType": "ecs.gn7i-c16g1.4xlarge",
        "RegionId": "cn-hangzhou",
        "ZoneId": "cn-hangzhou-b",
        "Status": "Running",
        "GPUAmount": 1,
        "GPUSpec": "NVIDIA A10",
        "InstanceChargeType": "PostPaid",
        "CreationTime": "2017-12-10T04:04Z",
        **ALIBABA[odd],
    }
    provider = of_pair("LTAIexample", "notarealsecret")
    with answering(alibaba(machine)):
        assert looked(AlibabaCloud(fleet=FLEET, clock=ManualClock(), regions=["cn-hangzhou"], provider=provider)) == 1


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
