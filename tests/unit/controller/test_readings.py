"""Weeks compared and savings as metrics: read in turn, by the leader, and equal to the report's."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from prometheus_client.parser import text_string_to_metric_families as parse

from gpuwatch.cli.controller import schedule_readings
from gpuwatch.config.settings import Settings
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.readings import Reading, compared_weeks
from gpuwatch.controller.web.serve import Discovery, Observers
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.report.gather import since_began
from gpuwatch.money.report.period import period_of
from gpuwatch.money.report.progress import ComparedEnds, Progress
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.ledger_fixture import BERLIN, KNOBS, a_fortnight, at
from tests.support.real.postgresql import Place

MORNING = at(date(2026, 3, 29), 7)
HOUR = 3600.0


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of fifteen whole days, over a change of the clocks."""
    path = tmp_path_factory.mktemp("story") / "ledger.db"
    place = Place(LedgerSettings(path=str(path)))
    a_fortnight(place.open())
    place.close()
    return path


@dataclass(slots=True, kw_only=True)
class Office:
    """A controller's job, with what it told."""

    path: Path
    clock: ManualClock = field(default_factory=lambda: ManualClock(wall=MORNING.astimezone(UTC)))
    leads: bool = True
    told: list[ComparedEnds | None] = field(default_factory=list)

    def job(self) -> Reading[ComparedEnds | None]:
        """After a start."""
        return compared_weeks(
            ledger=LedgerSettings(path=str(self.path)),
            zone=BERLIN,
            clock=self.clock,
            leads=lambda: self.leads,
            tell=self.told.append,
        )


def gauges(found: ComparedEnds | None, clock: ManualClock) -> dict[str, dict[tuple[str, ...], float]]:
    """The series of the families, by weeks, pool and owner."""
    metrics = ControllerMetrics("observe", "lab", clock)
    metrics.compare(found)
    return {
        family.name.removeprefix("gpuwatch_waste_"): {
            tuple(sample.labels.get(name, "") for name in ("weeks", "pool", "owner")): sample.value
            for sample in family.samples
        }
        for family in parse(metrics.page().body.decode())
        if family.name.startswith("gpuwatch_waste_")
    }


def the_report(path: Path) -> Progress:
    """What the report says of the same ledger at that moment."""
    ledger = Ledger.open(path, read_only=True)
    began = datetime.fromtimestamp((SpendBook(ledger).began() or 0) / 1000, UTC)
    found = since_began(ledger, period_of(BERLIN, MORNING), MORNING, began)
    ledger.close()
    assert found is not None
    return found


def summed(series: dict[tuple[str, ...], float], weeks: str, place: int) -> dict[str, float]:
    """By pool (1) or owner (2)."""
    made: dict[str, float] = {}
    for labels, value in series.items():
        if labels[0] == weeks:
            made[labels[place]] = made.get(labels[place], 0.0) + value
    return made


@pytest.mark.parametrize(("by", "place"), [("pool", 1), ("owner", 2)])
def test_the_gauges_are_the_reports_own_figures(story: Path, by: str, place: int) -> None:
    """Waste in money and hours, and the whole cost, of each pool and owner at both ends: of one ledger, equal."""
    office = Office(path=story)
    office.job().tick()
    found, report = gauges(office.told[0], office.clock), the_report(story)
    values: dict[str, Callable[[Any], Any]] = {
        "usd_per_week": lambda total: total.usd_wasted,
        "billed_usd_per_week": lambda total: total.usd,
        "unproven_usd_per_week": lambda total: total.usd_unproven,
        "gpu_seconds_per_week": lambda total: total.wasted_ms / 1000,
        "unpriced_node_seconds_per_week": lambda total: total.unpriced_ms / 1000,
    }

    assert found["compared_seconds"] == {("", "", ""): report.count * 7 * 24 * HOUR}
    for name, value in values.items():
        for weeks in ("first", "last"):
            ends = {key: getattr(pair, weeks) for key, pair in report.by[by].items()}
            wanted = {
                "" if key == "(none)" else key: pytest.approx(float(value(total)) / report.count)
                for key, total in ends.items()
                if not ("usd" in name and total.unpriced_ms and total.unpriced_ms == total.node_ms)
            }
            assert summed(found[name], weeks, place) == wanted


def test_money_that_is_not_known_is_absent_and_hours_are_there(story: Path) -> None:
    """Nobody knows what odd-1 costs, the only machine of its pool."""
    office = Office(path=story)
    office.job().tick()
    found = gauges(office.told[0], office.clock)

    for end in (("first", "default", ""), ("last", "default", "")):
        assert end not in found["usd_per_week"]
        assert end not in found["billed_usd_per_week"]
        assert found["gpu_seconds_per_week"][end] >= 0
        assert found["unpriced_node_seconds_per_week"][end] > 0


def test_with_less_than_two_weeks_there_is_no_series(story: Path) -> None:
    """Nor before the ledger was read."""
    office = Office(path=story)
    office.clock.advance(-3 * 24 * HOUR)
    office.job().tick()

    assert office.told == [None]
    assert gauges(office.told[0], office.clock) == {}
    before = ControllerMetrics("observe", "lab", office.clock).page().body.decode()
    assert "gpuwatch_waste" not in before


def test_it_is_read_once_after_a_start_and_once_a_day_when_the_day_before_is_billed(story: Path) -> None:
    """An hour after midnight; each minute in between only looks at the clock."""
    office = Office(path=story)
    job = office.job()
    at_hours = []
    for minute in range(60 * 48):
        before = len(office.told)
        job.tick()
        if len(office.told) > before:
            at_hours.append(minute / 60)
        office.clock.advance(60)

    assert at_hours == [0, 18, 42]  # the start was at seven


def test_only_the_leader_reads(story: Path) -> None:
    """One that becomes the leader reads at its next look."""
    office = Office(path=story, leads=False)
    job = office.job()
    job.tick()
    before = len(office.told)
    office.leads = True
    job.tick()

    assert (before, len(office.told)) == (0, 1)


def test_a_ledger_that_fails_is_a_line_in_the_log_and_is_read_later(
    story: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After five minutes, then after longer; what was told before stands, since nothing new is told."""
    path = tmp_path / "ledger.db"
    office = Office(path=path)
    job = office.job()
    for _ in range(10):
        job.tick()
        office.clock.advance(60)
    failures = caplog.text.count("weeks of metering could not be read")
    path.write_bytes(story.read_bytes())
    for _ in range(10):
        job.tick()
        office.clock.advance(60)

    assert failures == 2
    assert "does not exist yet" in caplog.text
    assert "Next try in 5m." in caplog.text
    assert [type(each) for each in office.told] == [ComparedEnds]


def test_the_controller_holds_the_ledger_meanwhile(story: Path, tmp_path: Path) -> None:
    """The job's connection is its own, and only reads: the chain stays whole, and the controller leads on."""
    path = tmp_path / "ledger.db"
    path.write_bytes(story.read_bytes())
    ledger = Ledger.connect(LedgerSettings(path=str(path)))
    try:
        ledger.lead()
        office = Office(path=path)
        office.job().tick()
        ledger.pause("training", "ana", "a test", MORNING + timedelta(hours=1))
        leads, broken = ledger.leading(), ledger.audit().broken
    finally:
        ledger.close()

    assert (len(office.told), leads, broken) == (1, True, None)


@pytest.mark.parametrize("served", [False, True])
def test_the_controller_looks_whether_it_is_time_where_it_serves_metrics(story: Path, *, served: bool) -> None:
    """In jobs of their own, which begin once the controller has led."""
    clock = ManualClock(wall=MORNING.astimezone(UTC))
    settings = Settings(
        ledger=LedgerSettings(path=str(story)), cost=KNOBS, controller=ControllerSettings(metrics=served)
    )
    metrics = ControllerMetrics("observe", "lab", clock)
    seen = Observers(discovery=Discovery(signals=ObserveSettings()), metrics=metrics)
    scheduler = BackgroundScheduler(timezone=UTC)
    schedule_readings(scheduler, settings, clock, seen)
    pages = []
    for _ in range(2):
        for job in scheduler.get_jobs():
            job.func()
        pages.append("gpuwatch_waste_usd_per_week{" in metrics.page().body.decode())
        seen.update(None, 1.0, leading=True)

    assert [job.max_instances for job in scheduler.get_jobs()] == [1, 1] * served
    assert pages == [False, served]
