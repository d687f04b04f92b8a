"""What an instance's description says of its end."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuwatch.clouds.gcp.instances import announced_notices
from tests.support.builders.fleet import NOW

END, AT = "2026-03-02T05:00:00.000-08:00", datetime(2026, 3, 2, 13, tzinfo=UTC)
WINDOW = {"windowStartTime": END, "maintenanceStatus": "PENDING", "type": "SCHEDULED"}


@pytest.mark.parametrize(
    ("told", "wanted", "expected"),
    [
        ({}, {}, []),
        ({"scheduling": {"terminationTimestamp": END}}, {}, [("termination", "stop_at_end_of_run_time")]),
        (
            {},
            {"terminationTime": END, "instanceTerminationAction": "DELETE"},
            [("termination", "delete_at_end_of_run_time")],
        ),
        (
            {"upcomingMaintenance": WINDOW},
            {"onHostMaintenance": "TERMINATE"},
            [("maintenance", "terminate_on_host_maintenance")],
        ),
        ({"upcomingMaintenance": WINDOW}, {"onHostMaintenance": "MIGRATE"}, []),
        ({"upcomingMaintenance": {**WINDOW, "maintenanceStatus": "UNKNOWN"}}, {"onHostMaintenance": "TERMINATE"}, []),
        ({"upcomingMaintenance": {"windowStartTime": "soon"}}, {"onHostMaintenance": "TERMINATE"}, []),
    ],
    ids=["nothing", "run time", "run time asked for", "maintenance", "moved", "not known", "no time"],
)
def test_ends_are_notices(told: dict[str, Any], wanted: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """With the time in UTC; each of them takes the machine."""
    found = announced_notices({"resourceStatus": told, "scheduling": wanted}, NOW)

    assert [(each.kind, each.action) for each in found] == expected
    assert all(each.at == AT and each.ends for each in found)
