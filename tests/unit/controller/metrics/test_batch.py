"""What the controller's metrics tell of pools whose work has a deadline."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from prometheus_client.parser import text_string_to_metric_families as parse

from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.round import step
from gpuwatch.model.measurement import BatchPast
from gpuwatch.policies.spot.batch import BatchRules
from tests.support.builders.fleet import NOW, Desk, a_node

HOUR = 3600.0
# Ten hours of work in twenty; a start takes a quarter of an hour.
JOB = BatchRules(work=10 * HOUR, since=NOW.isoformat(), by=(NOW + timedelta(hours=20)).isoformat())


def told(batches: Mapping[str, BatchPast], *, hours: float = 0, rules: bool = True) -> dict[str, float]:
    """The values of the page so many hours after the begin, by the families' names without their prefix."""
    desk = Desk()
    desk.fleet.put(a_node("i-1"))
    book = desk.parts.rules
    book = replace(book, pools={**book.pools, "train": replace(book.pool("train"), batch=JOB)})
    metrics = ControllerMetrics("enforce", "ml", desk.clock, rules=book if rules else None)
    done = step(desk.parts)
    seen = replace(done.observation, now=NOW + timedelta(hours=hours), batches=batches)
    metrics.round(replace(done, observation=seen), 0.1)
    found = {}
    for family in parse(metrics.page().body.decode()):
        for sample in family.samples:
            if sample.name.startswith("gpuwatch_batch_"):
                assert sample.labels == {"fleet": "ml", "pool": "train"}
                found[sample.name.removeprefix("gpuwatch_batch_")] = sample.value
    return found


SETTINGS = {"work_seconds": 10 * HOUR, "deadline_timestamp_seconds": JOB.ends.timestamp()}


def test_a_pool_with_a_deadline_has_its_work_what_is_done_and_its_slack() -> None:
    """After eight hours with six done, four are left of twelve: the slack is eight without one start."""
    known = {"train": BatchPast(done_seconds=6 * HOUR)}

    assert told(known, hours=8) == {**SETTINGS, "done_seconds": 6 * HOUR, "slack_seconds": 8 * HOUR - 900}


def test_a_work_that_is_late_has_a_negative_slack_also_after_its_deadline() -> None:
    """It is what the alert asks for: a start no longer fits."""
    known = {"train": BatchPast(done_seconds=6 * HOUR)}

    assert told(known, hours=16)["slack_seconds"] == -900
    assert told(known, hours=21)["slack_seconds"] == -5 * HOUR - 900


def test_a_work_that_is_done_has_no_slack() -> None:
    """However late it is by then, nothing can make it late; more than all of it is not done."""
    known = {"train": BatchPast(done_seconds=11 * HOUR)}

    assert told(known, hours=30) == {**SETTINGS, "done_seconds": 10 * HOUR}


def test_what_is_not_known_is_absent() -> None:
    """Before the begin, and in a round whose ledger could not be read, the settings alone are known."""
    assert told({}, hours=8) == SETTINGS
    assert told({"train": BatchPast()}, hours=-1) == {**SETTINGS, "done_seconds": 0.0}


def test_a_pool_without_a_deadline_has_none_of_them() -> None:
    """Nor has any pool where the rules are not known."""
    assert told({"default": BatchPast(done_seconds=5.0)}) == SETTINGS
    assert told({"train": BatchPast()}, rules=False) == {}
