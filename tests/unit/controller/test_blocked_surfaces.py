"""What holds money back, where people and programs look: the API, the metrics, and the log while it observes."""

import json
import logging
from dataclasses import replace
from decimal import Decimal

import msgspec
import pytest

from gpuwatch.cli.controller import one_round
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.web.serve import Discovery, Observers
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport
from tests.support.builders.blocked import a_priced_desk, blocked_of
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.served_page import PRICE, a_site


def a_desk(*, enforce: bool = True) -> Desk:
    """A busy machine, one that goes, one that waits, a silent one, and three that are held, one without a price."""
    return a_priced_desk(
        a_node("i-busy", State.BUSY, 60.0),
        a_node("i-due"),
        a_node("i-waits", held=60.0, protected="a tag"),
        a_node("i-silent", signal=NodeReport(failure="its agent did not answer within 5s")),
        a_node("i-disk", instance_store=True),
        a_node("i-disk-2", instance_store=True, instance_type="x9.large", pool="training"),
        a_node("i-protected", protected="a tag"),
        enforce=enforce,
    )


def test_the_api_answers_what_the_round_says() -> None:
    """The whole of it, or one pool; an unknown pool is refused with those that exist."""
    desk = a_desk()
    with a_site(desk) as site:
        site.round()
        done = site.web.state.last()

        assert site.ask("/api/v1/blocked").json == json.loads(msgspec.json.encode(blocked_of(done, desk)))
        [group] = site.ask("/api/v1/blocked?pool=training").json["groups"]
        assert [node["id"] for node in group["nodes"]] == ["i-disk-2"]
        refused = site.ask("/api/v1/blocked?pool=trainin")
        assert (refused.status, refused.json["error"]) == (
            404,
            "there is no pool 'trainin'; there are: default, training",
        )


def test_metrics_have_a_series_for_each_pool_and_reason_that_holds() -> None:
    """Machines that wait, that go, or that may be in use are in none; one without a price counts as a machine."""
    desk = a_desk()
    metrics = ControllerMetrics("enforce", "test", desk.clock, rules=desk.rulebook)
    seen = Observers(discovery=Discovery(signals=ObserveSettings()), metrics=metrics)
    one_round(desk.parts, seen)
    page = metrics.page().body.decode()
    lines = sorted(line for line in page.splitlines() if line.startswith("gpuwatch_fleet_blocked"))

    assert lines == [
        'gpuwatch_fleet_blocked_nodes{fleet="test",pool="default",reason="local_disks"} 1.0',
        'gpuwatch_fleet_blocked_nodes{fleet="test",pool="default",reason="protected"} 1.0',
        'gpuwatch_fleet_blocked_nodes{fleet="test",pool="training",reason="local_disks"} 1.0',
        f'gpuwatch_fleet_blocked_usd_per_hour{{fleet="test",pool="default",reason="local_disks"}} {PRICE.usd_per_hour}',
        f'gpuwatch_fleet_blocked_usd_per_hour{{fleet="test",pool="default",reason="protected"}} {PRICE.usd_per_hour}',
    ]


@pytest.mark.parametrize("enforce", [True, False])
def test_an_observing_controller_says_once_what_it_would_save(
    caplog: pytest.LogCaptureFixture, *, enforce: bool
) -> None:
    """With the obstacle that holds most of the rest and the setting for it; one that enforces says nothing."""
    desk = a_desk(enforce=enforce)
    seen = Observers(
        discovery=Discovery(signals=ObserveSettings()), metrics=ControllerMetrics("observe", "test", desk.clock)
    )
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            one_round(desk.parts, seen)
            desk.rest(60.0)
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Observed:")]
    day = 24 * PRICE.usd_per_hour

    assert len(told) == (0 if enforce else 1)
    if told:
        assert f"`mode: enforce` alone would save ${day:,.2f} a day of it." in told[0]
        assert "`gpuwatch blocked` has all of it." in told[0]


def test_local_disks_are_named_in_the_first_round() -> None:
    """Also while the machine has not been idle for long enough: a new user should not wait for half an hour."""
    desk = a_priced_desk(a_node(held=60.0, instance_store=True), enforce=False)
    found = blocked_of(desk.plan(), desk)

    assert found.blocked.nodes == 0
    assert [(group.reason.value, group.money.usd_per_day) for group in found.groups_soon] == [
        ("local_disks", Decimal(24) * PRICE.usd_per_hour)
    ]


def test_a_price_below_a_cent_is_no_lack_of_a_price() -> None:
    """A sum of zero dollars is a sum."""
    desk = a_desk()
    desk.prices["g6.xlarge"] = replace(PRICE, usd_per_hour=Decimal(0))
    found = blocked_of(desk.plan(), desk)

    assert (found.blocked.usd_per_day, found.blocked.unpriced) == (Decimal(0), 1)
