"""The daily report goes out by itself: once a day to each destination, whatever fails in between, from the leader."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from apscheduler.schedulers.background import BackgroundScheduler

from gpuwatch.cli.controller import schedule_deliveries
from gpuwatch.cli.deliveries import make_reports
from gpuwatch.clouds import CloudUnavailableError, Leftover, LeftoverKind
from gpuwatch.config.settings import Settings
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.web.serve import Discovery, Observers
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.money.report.history import ActionHistory
from gpuwatch.notify.delivery import DeliveryJob
from gpuwatch.notify.reports import due_day
from gpuwatch.notify.settings import ReportSettings
from gpuwatch.notify.transports.file import FileSettings
from gpuwatch.notify.transports.registry import ReportTransports
from gpuwatch.notify.transports.web import WebhookSettings
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.ledger_fixture import BERLIN, KNOBS, a_fortnight, at
from tests.support.fakes.http_sink import Answer, serving
from tests.support.real.postgresql import Place

FIRST = date(2026, 3, 14)
MORNING = at(date(2026, 3, 15), 7)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of a day and a half."""
    path = tmp_path_factory.mktemp("story") / "ledger.db"
    place = Place(LedgerSettings(path=str(path)))
    a_fortnight(place.open(), until=at(date(2026, 3, 15), 6))
    place.close()
    return path


@dataclass(slots=True, kw_only=True)
class Office:
    """A controller's reports, which can be restarted with nothing but the ledger."""

    settings: Settings
    clock: ManualClock = field(default_factory=lambda: ManualClock(wall=MORNING.astimezone(UTC)))
    leads: bool = True
    left: Sequence[Leftover] | Exception = ()

    def job(self) -> DeliveryJob:
        """After a start."""
        reports = make_reports(self.settings, self.clock, self._left)
        return DeliveryJob(ledger=self.settings.ledger, leads=lambda: self.leads, sources=[reports])

    def _left(self) -> Sequence[Leftover]:
        if isinstance(self.left, Exception):
            raise self.left
        return self.left


def an_office(story: Path, folder: Path, *more: tuple[str, ReportTransports]) -> Office:
    """With a file beside other destinations."""
    path = folder / "ledger.db"
    path.write_bytes(story.read_bytes())
    to = {"file": ReportTransports(file=FileSettings(path=str(folder / "%Y-%m-%d.json"))), **dict(more)}
    settings = Settings(
        ledger=LedgerSettings(path=str(path)), cost=KNOBS, interval=3600.0, report=ReportSettings(receivers=to)
    )
    return Office(settings=settings)


def files(folder: Path) -> list[str]:
    """The reports that went to the file."""
    return sorted(path.name for path in folder.glob("*.json"))


def test_each_destination_gets_each_day_once_over_restarts_and_failures(
    story: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that fails is tried again, later each time, while the others have theirs; a restart sends nothing twice."""
    caplog.set_level(logging.INFO)
    broken = True
    with serving(lambda _: Answer(body="", status=503 if broken else 200)) as server:
        office = an_office(story, tmp_path, ("hook", ReportTransports(webhook=WebhookSettings(url=server.url))))
        job = office.job()
        for _ in range(30):  # minutes
            job.tick()
            office.clock.advance(60)
        tries, (name,) = len(server.asked), files(tmp_path)
        (tmp_path / name).unlink()
        broken, job = False, office.job()
        job.tick()
        for _ in range(3):
            office.job().tick()
            job.tick()
        keys = {asked.headers["idempotency-key"] for asked in server.asked}

    assert name == "2026-03-14.json"
    assert files(tmp_path) == []  # it was sent before the restart, and not again
    assert tries == 5  # after 0, 1, 3, 7 and 15 minutes
    assert len(server.asked) == tries + 1
    assert len(keys) == 1
    assert "The report for 2026-03-14 did not reach hook: the server answered HTTP 503. Next try in 1m." in caplog.text
    assert caplog.text.count("The report for 2026-03-14 went to hook") == 1


def test_the_next_day_has_its_own(story: Path, tmp_path: Path) -> None:
    """A day later the next report goes out; one whose time has passed while nothing ran is sent afterwards."""
    office = an_office(story, tmp_path)
    office.job().tick()
    office.clock.advance(DAY.total_seconds() - 60)
    office.job().tick()
    before = files(tmp_path)
    office.clock.advance(5 * 3600)
    office.job().tick()

    assert before == ["2026-03-14.json"]
    assert files(tmp_path) == ["2026-03-14.json", "2026-03-15.json"]


def test_only_the_leader_sends(story: Path, tmp_path: Path) -> None:
    """A controller that waits sends nothing, and does so once it leads."""
    office = an_office(story, tmp_path)
    office.leads = False
    job = office.job()
    job.tick()
    waiting = files(tmp_path)
    office.leads = True
    job.tick()

    assert waiting == []
    assert files(tmp_path) == ["2026-03-14.json"]


def test_before_metering_began_there_is_nothing_to_send(tmp_path: Path, story: Path) -> None:
    """A controller that begins today sends no report on yesterday, and a missing ledger is a line in the log."""
    office = an_office(story, tmp_path)
    ledger = office.settings.ledger.file
    assert ledger is not None
    ledger.unlink()
    office.job().tick()
    Ledger.connect(office.settings.ledger).close()
    office.job().tick()

    assert files(tmp_path) == []


def test_the_controller_goes_on_writing_beside_it(story: Path, tmp_path: Path) -> None:
    """The job's connection is its own: it sends while the controller holds the ledger, whose chain stays whole."""
    office = an_office(story, tmp_path)
    ledger = Ledger.connect(office.settings.ledger)
    try:
        office.job().tick()
        kept = ActionHistory(ledger).last_delivered("file")
        broken = ledger.audit().broken
    finally:
        ledger.close()

    assert (kept, broken) == ("2026-03-14", None)
    assert files(tmp_path) == ["2026-03-14.json"]


@pytest.mark.parametrize("wanted", [False, True])
def test_the_controller_looks_whether_a_report_is_due(story: Path, tmp_path: Path, *, wanted: bool) -> None:
    """Where report.receivers names somebody, a job of its own asks the job, who sends once the controller has led."""
    office = an_office(story, tmp_path)
    settings = office.settings if wanted else replace(office.settings, report=ReportSettings())
    seen = Observers(
        discovery=Discovery(signals=settings.signals), metrics=ControllerMetrics("observe", "default", office.clock)
    )
    scheduler = BackgroundScheduler(timezone=UTC)
    schedule_deliveries(scheduler, settings, office.clock, seen)
    jobs = scheduler.get_jobs()
    for job in jobs:
        job.func()
    before = files(tmp_path)
    seen.update(None, 1.0, leading=True)
    for job in jobs:
        job.func()

    assert [job.max_instances for job in jobs] == [1] * wanted
    assert before == []
    assert files(tmp_path) == ["2026-03-14.json"] * wanted


@pytest.mark.parametrize("fails", [False, True])
def test_what_stopped_machines_cost_is_asked_where_that_is_wanted(story: Path, tmp_path: Path, *, fails: bool) -> None:
    """With report.unused the cloud is asked; should it not answer, the report goes out without it."""
    office = an_office(story, tmp_path)
    report = replace(office.settings.report, unused=True)
    office.settings = replace(office.settings, report=report)
    volume = Leftover(
        kind=LeftoverKind.STOPPED_VOLUME,
        id="v",
        name="",
        type="gp3",
        region="r",
        account=None,
        node_id="i-train-1",
        size_bytes=1,
    )
    office.left = CloudUnavailableError("no answer") if fails else (volume,)
    office.job().tick()

    assert f'"still_cost_known": {"false" if fails else "true"}' in (tmp_path / "2026-03-14.json").read_text()


@pytest.mark.parametrize(
    ("now", "day"),
    [
        (datetime(2026, 3, 28, 5, 59, tzinfo=UTC), date(2026, 3, 26)),  # 6:59 in Berlin
        (datetime(2026, 3, 28, 6, 0, tzinfo=UTC), date(2026, 3, 27)),
        (datetime(2026, 3, 29, 5, 0, tzinfo=UTC), date(2026, 3, 28)),  # by summer's clocks
        (datetime(2026, 3, 28, 23, 30, tzinfo=UTC), date(2026, 3, 27)),  # the 29th has begun in Berlin
    ],
)
def test_it_is_due_by_the_clocks_of_the_place(now: datetime, day: date) -> None:
    """From report.at on, the day before is due."""
    assert due_day(now, BERLIN, "07:00") == day
