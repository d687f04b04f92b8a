"""A machine's power state is found by its name, or not known: Azure leaves it out at times, and keeps no order."""

from typing import Any

import pytest

from gpuwatch.clouds.azure.instances import Machine
from gpuwatch.model.fleet import NodeState

DESCRIBED: dict[str, Any] = {
    "id": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a",
    "location": "eastus",
    "properties": {
        "vmId": "1",
        "hardwareProfile": {"vmSize": "Standard_NC24ads_A100_v4"},
        "provisioningState": "Failed",
    },
}


@pytest.mark.parametrize(
    ("codes", "state"),
    [
        ([], NodeState.UNKNOWN),
        (["ProvisioningState/updating"], NodeState.UNKNOWN),
        (["ProvisioningState/succeeded", "PowerState/unknown"], NodeState.UNKNOWN),
        (["PowerState/running", "ProvisioningState/updating"], NodeState.RUNNING),
        (["ProvisioningState/failed/VMExtensionProvisioningError", "PowerState/running"], NodeState.RUNNING),
        (["ProvisioningState/failed/AllocationFailed", "PowerState/running"], NodeState.RUNNING),
        (["OSState/generalized", "PowerState/deallocated"], NodeState.STOPPED),
    ],
)
def test_a_power_state_is_found_by_its_name_or_not_known(codes: list[str], state: NodeState) -> None:
    """What failed of a machine that runs is no end of it, and what is not said is a doubt about it alone."""
    view = {"statuses": [{"code": code, "time": "2026-01-05T00:00:00Z"} for code in codes]}

    machine = Machine(path=DESCRIBED["id"], described=DESCRIBED, view=view)

    assert (machine.state, machine.never_made) == (state, False)
