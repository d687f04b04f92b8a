"""A pool's settings change while nobody knows whether its launches happened: these count all the same."""

from dataclasses import replace

import pytest

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES
from tests.support.builders.light_desk import LightDesk

POOL = replace(RULES, schedule={"always": Window(min_nodes=2)})


@pytest.mark.parametrize("most", [2, None])
@pytest.mark.parametrize("key", ["version", "subnets"])
def test_launches_without_an_answer_count_whatever_the_settings_say_by_now(key: str, most: int | None) -> None:
    """Two answers are lost, no list shows the machines for five minutes, and the template is edited three times."""
    desk = LightDesk(rules=replace(POOL, max_nodes=most))
    desk.fleet.lose = lambda call, _: CloudUnavailableError("no answer") if call == "launch" else None
    desk.fleet.listed = desk.fleet.found = lambda _node: desk.clock.monotonic() >= 300.0
    for minute in range(20):
        edits = min(minute, 3)
        value = str(edits + 1) if key == "version" else (f"subnet-{edits}",)
        launch = replace(LaunchRules(template="lt-1"), **{key: value})  # type: ignore[arg-type]  # one of its fields
        desk.pools = {"default": replace(POOL, max_nodes=most, launch=launch)}
        desk.round()

    assert len(desk.fleet.nodes_) == 2
