"""What hosts of one's own cost: their price for as long as they are named, whether they answer or not."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from gpuwatch.model.fleet import CapacityType, Node, NodeReport, NodeState
from gpuwatch.model.usage import GPU, USES, Use
from gpuwatch.money.accounting.metering import Marks, Metering, meter
from gpuwatch.money.accounting.slices import Calendar
from tests.support.builders.fleet import NOW, a_node, an_observation

RULES = Metering(zone=ZoneInfo("UTC"))
MINUTE = timedelta(minutes=1)
HOST = replace(a_node(), capacity_type=CapacityType.OWN, launched_at=None)
OFF = replace(HOST, state=NodeState.UNKNOWN, signal=NodeReport(failure="its agent was not reached"))


def gpu_seconds(*rounds: tuple[datetime, Node]) -> Counter[Use]:
    """What rounds add to the books, of one GPU, by its use."""
    marks: Marks | None = None
    found: Counter[Use] = Counter()
    for at, node in rounds:
        marks, added = meter(marks, an_observation(node, now=at), RULES, lambda _: 1, Calendar(RULES.zone))
        for row in added.values():
            found.update({use: row[GPU + place] // 1000 for place, use in enumerate(USES)})
    return +found


def test_a_host_that_is_off_costs_its_price_with_unknown_use() -> None:
    """Its purchase is paid at night, too, and silence is no idleness."""
    used = gpu_seconds((NOW, HOST), (NOW + MINUTE, OFF), (NOW + 2 * MINUTE, OFF), (NOW + 3 * MINUTE, HOST))

    assert sum(used.values()) == 180
    assert used[Use.UNKNOWN] >= 60
    assert used[Use.IDLE] <= 120


def test_an_hour_without_a_controller_is_silent_time_of_a_host_and_is_not_lost() -> None:
    """No cloud names its last start, and it was its owner's all the time."""
    assert gpu_seconds((NOW, HOST), (NOW + 60 * MINUTE, HOST)) == {Use.SILENT: 3600}
