"""The pretended Azure is held to Microsoft's own description: what does not fit it fails the test that made it."""

from typing import Any

import pytest

from tests.support.clouds.azure.described import UndescribedError, check, check_network, check_route

PATH = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v"


def a_machine(**properties: object) -> dict[str, Any]:
    """What Azure could answer."""
    return {"id": PATH, "location": "eastus", "tags": {"a": "b"}, "properties": {"vmId": "x", **properties}}


def test_what_azure_could_answer_fits() -> None:
    """A machine with a state, and an interface."""
    status = {"code": "PowerState/running", "level": "Info", "time": "2024-11-01T21:30:12.8051917+00:00"}
    check(a_machine(priority="Spot", instanceView={"statuses": [status]}), "VirtualMachine")
    check_network({"id": "x", "location": "eastus", "properties": {"primary": True}}, "NetworkInterface")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (a_machine(vmID="x"), "VirtualMachineProperties has no vmID"),
        (a_machine(priority="spot"), "is not of VirtualMachinePriorityTypes"),
        (a_machine(timeCreated=5), "5 is not a time"),
        (a_machine(instanceView={"statuses": {}}), "is not a list"),
        ({**a_machine(), "tags": {"a": 1}}, "1 is not str"),
        ({"id": PATH}, "VirtualMachine requires it"),
    ],
    ids=["key", "word", "time", "list", "tag", "missing"],
)
def test_what_azure_would_never_answer_is_refused(answer: dict[str, Any], why: str) -> None:
    """With the place in the answer."""
    with pytest.raises(UndescribedError, match=why):
        check(answer, "VirtualMachine")


def test_only_operations_that_azure_has_can_be_asked_for() -> None:
    """By method and path of every operation of the SDK."""
    check_route("POST", f"{PATH}/deallocate")

    for method, path in (("POST", f"{PATH}/stop"), ("GET", f"{PATH}/deallocate"), ("PUT", f"{PATH}/x/y")):
        with pytest.raises(UndescribedError, match="azure-mgmt-compute has no"):
            check_route(method, path)
