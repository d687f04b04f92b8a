"""How an instance of Alibaba Cloud is paid for, and whether a stop ends that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds.alibaba.instances import STOP_CHARGING, capacity_type, still_billed
from gpuwatch.model.fleet import CapacityType

RUNNING = {
    "Status": "Running",
    "StoppedMode": "Not-applicable",
    "InstanceChargeType": "PostPaid",
    "SpotStrategy": "NoSpot",
    "InstanceNetworkType": "vpc",
    "DedicatedHostAttribute": {"DedicatedHostId": ""},
    "EcsCapacityReservationAttr": {"CapacityReservationId": ""},
}
ON_HOST = {"DedicatedHostAttribute": {"DedicatedHostId": "dh-1"}}
RESERVED = {"EcsCapacityReservationAttr": {"CapacityReservationId": "crp-1"}}


@pytest.mark.parametrize(
    ("changed", "kind", "reason"),
    [
        ({}, CapacityType.ON_DEMAND, None),
        ({"SpotStrategy": "SpotAsPriceGo"}, CapacityType.SPOT, None),
        ({"SpotStrategy": "SpotWithPriceLimit"}, CapacityType.SPOT, None),
        (
            {"InstanceChargeType": "PrePaid", "ExpiredTime": "2027-01-31T16:00Z"},
            CapacityType.PREPAID,
            "it is prepaid until 2027-01-31T16:00Z",
        ),
        ({"InstanceChargeType": "PrePaid"}, CapacityType.PREPAID, "it is prepaid until the end of its term"),
        (ON_HOST, CapacityType.DEDICATED_HOST, "it is on the dedicated host dh-1"),
        (RESERVED, CapacityType.RESERVED, "it is in the capacity reservation crp-1"),
        (
            {"LocalStorageAmount": 1},
            CapacityType.ON_DEMAND,
            "it has local disks, and Alibaba Cloud goes on billing such a machine when it is stopped",
        ),
        (
            {"InstanceNetworkType": "classic"},
            CapacityType.ON_DEMAND,
            "it is in a classic network, where Alibaba Cloud goes on billing a stopped machine",
        ),
    ],
)
def test_how_it_was_bought_and_what_a_stop_would_leave_on_the_bill(
    changed: dict[str, object], kind: CapacityType, reason: str | None
) -> None:
    """Of a machine that runs."""
    described = {**RUNNING, **changed}

    assert (capacity_type(described), still_billed(described)) == (kind, reason)


@pytest.mark.parametrize("mode", ["KeepCharging", "Not-applicable", "", None])
def test_a_stopped_machine_is_off_the_bill_only_where_the_cloud_says_so(mode: str | None) -> None:
    """Any other word, and none at all, is a machine that may go on costing."""
    described = {**RUNNING, "Status": "Stopped", "StoppedMode": mode}

    assert still_billed(described) == f"it is stopped in the mode {mode or 'unknown'}, not StopCharging"
    assert still_billed({**described, "StoppedMode": STOP_CHARGING}) is None


WORDS = st.none() | st.text(max_size=20) | st.sampled_from(["Stopped", "PrePaid", "StopCharging", "classic", "vpc"])


@given(st.dictionaries(st.sampled_from(sorted(RUNNING)), WORDS | st.dictionaries(st.text(max_size=5), WORDS)))
def test_no_description_is_too_odd(described: dict[str, object]) -> None:
    """Whatever Alibaba adds or leaves out; and what is stopped in another mode always has a reason."""
    reason = still_billed(described)

    assert isinstance(capacity_type(described), CapacityType)
    if described.get("Status") == "Stopped" and described.get("StoppedMode") != STOP_CHARGING:
        assert reason
