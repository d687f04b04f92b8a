"""agent/evidence/scheduled: when a line of a crontab and a calendar expression of systemd are due."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuwatch.agent.evidence.scheduled.crontab_lines import BadLine, CronLine, parse, parse_times
from gpuwatch.agent.evidence.scheduled.planned import Horizons, Keeps, Planned
from gpuwatch.agent.evidence.scheduled.recurrence import next_run
from gpuwatch.agent.evidence.scheduled.systemd_times import parse_calendar, parse_span

HOUR = 3600.0
DAY = 24 * HOUR
MINUTE = timedelta(minutes=1)
HORIZONS = Horizons(recurring_seconds=12 * HOUR, once_seconds=7 * DAY, min_period_seconds=6 * HOUR)
MONDAY = datetime(2026, 1, 5, 18, 10, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    """One field of a crontab, in all its forms."""
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    stepped = st.tuples(st.one_of(st.just("*"), span), st.integers(1, high)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    some = st.lists(st.one_of(number.map(str), span, stepped), min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), some)


lines = st.tuples(fields(0, 59), fields(0, 23), fields(1, 31), fields(1, 12), fields(0, 7)).map(" ".join)
moments = st.datetimes(datetime(2026, 1, 1), datetime(2028, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001  it gets one


def numbers(field: str, low: int, high: int) -> set[int]:
    """Every number that a field allows, one after the other, as crontab(5) tells it."""
    allowed = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        allowed |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return allowed


def runs_at(line: str, at: datetime) -> bool:
    """Whether crontab(5) has the job run in that minute."""
    minute, hour, day, month, weekday = line.split()
    days = numbers(day, 1, 31)
    weekdays = {each % 7 for each in numbers(weekday, 0, 7)}
    of_month, of_week = at.day in days, (at.weekday() + 1) % 7 in weekdays
    one_is_free = day.startswith("*") or weekday.startswith("*")
    return (
        at.minute in numbers(minute, 0, 59)
        and at.hour in numbers(hour, 0, 23)
        and at.month in numbers(month, 1, 12)
        and ((of_month and of_week) if one_is_free else (of_month or of_week))
    )


@given(line=lines, now=moments)
def test_a_rare_job_that_is_due_soon_is_never_idle(line: str, now: datetime) -> None:
    """Any line, minute by minute: due within the horizon, and not again within the least period, it keeps the node."""
    start = now.replace(second=0, microsecond=0)
    due = [at for at in (start + n * MINUTE for n in range(1, 18 * 60 + 1)) if runs_at(line, at)]
    soon = next((at for at in due if at <= now + timedelta(hours=12)), None)
    try:
        run, period = next_run(parse_times(line), now, UTC, timedelta(0))
    except LookupError:
        assert soon is None
        return
    keeps = Planned(what="x", user="alice", due=run, period_seconds=period).keeps(now, HORIZONS)

    assert soon is None or run == soon
    if soon is not None and not any(soon < at < soon + timedelta(hours=6) for at in due):
        assert keeps is Keeps.NODE
    if soon is None:
        assert keeps is not Keeps.NODE


@given(line=lines, now=moments)
def test_it_agrees_with_another_reading_of_crontabs(line: str, now: datetime) -> None:
    """An independent one, written for a service that watches cron jobs, after Debian's cron."""
    cronsim = pytest.importorskip("cronsim")
    assume(not re.search(r"\b(\d+)-\1/", line))  # it takes 5-5/2 for 5/2
    try:
        expected = next(cronsim.CronSim(line, now), None)
    except cronsim.CronSimError:
        expected = None  # it refuses the 30th of February
    try:
        ours = next_run(parse_times(line), now, UTC, timedelta(0))[0]
    except LookupError:
        assert expected is None or expected > now + timedelta(days=400)
    else:
        assert ours == expected


@pytest.mark.parametrize(
    ("line", "due", "hours"),
    [
        ("0 2 * * *", "2026-01-06 02:00", 24),
        ("@daily", "2026-01-06 00:00", 24),
        ("@WEEKLY", "2026-01-11 00:00", 7 * 24),
        ("30 22 * * mon", "2026-01-05 22:30", 7 * 24),
        ("30 22 * JAN Mon-fri", "2026-01-05 22:30", 24),
        ("0 0 7 * 2", "2026-01-06 00:00", 24),
        ("0 0 29 2 *", None, None),
        ("0 0 31 4 *", None, None),
        ("0 2,3 * * *", "2026-01-06 02:00", 12),
        ("0 */6 * * *", "2026-01-06 00:00", 6),
        ("5/20 * * * *", "2026-01-05 18:25", 0.5),
    ],
)
def test_lines(line: str, due: str | None, hours: float | None) -> None:
    """Next time and period; two runs a night count by their mean; what no year near has is due at no time."""
    if due is None or hours is None:
        with pytest.raises(LookupError):
            next_run(parse_times(line), MONDAY, UTC)
        return
    run, period = next_run(parse_times(line), MONDAY, UTC)

    assert f"{run:%Y-%m-%d %H:%M}" == due
    assert period == pytest.approx(hours * HOUR, rel=0.03)


@pytest.mark.parametrize(
    "line",
    [
        "61 * * * *",
        "* * * *",
        "@sometimes",
        "a * * * *",
        "*/0 * * * *",
        "5-1 * * * *",
        "0~30 2 * * *",
        "1,,2 * * * *",
        "-1 * * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "* * * * funday",
        "9999999999999 * * * *",
        "٣ * * * *",
    ],
)
def test_what_is_no_time_of_a_crontab(line: str) -> None:
    """With cronie's random times: nobody but cronie knows them."""
    with pytest.raises(ValueError, match=r"\w"):
        parse_times(line)


def test_the_lines_of_a_crontab() -> None:
    """Comments, variables, time zones, boot; the line's number and nothing of its command is kept."""
    variables = 'MAILTO=""\nPATH = /bin\n"A"=b\nCRON_TZ=Europe/Berlin\n'
    text = f"# m h\n\n{variables}@reboot x\n 0 2 * * * x %in\n-5 3 * * * x\nno\n0 4 * * *\n"
    read = list(parse(text, with_user=False))

    assert [(line.number, type(line)) for line in read] == [(8, CronLine), (9, CronLine), (10, BadLine), (11, BadLine)]
    assert isinstance(read[0], CronLine)
    assert read[0].zone == "Europe/Berlin"
    (of_users,) = parse("0 2 * * * alice x\n", with_user=True)
    assert of_users.user == "alice"


@given(text=st.text(max_size=200))
def test_garbage_is_no_failure(text: str) -> None:
    """Whatever a crontab or a timer holds is read, or refused with a ValueError."""
    list(parse(text, with_user=True))
    for read in (parse_times, parse_calendar, parse_span):
        try:
            read(text)
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-03-28 12:00", "2026-03-29 01:30"),  # 02:30 does not exist there: it is 03:30 summer time
        ("2026-10-24 12:00", "2026-10-25 00:30"),  # it exists twice: the first one
        ("2026-10-25 12:00", "2026-10-26 01:30"),
    ],
)
def test_changes_of_the_clock(now: str, expected: str) -> None:
    """02:30 in Berlin, in UTC."""
    at = datetime.strptime(now, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)

    assert f"{next_run(parse_times('30 2 * * *'), at, BERLIN)[0]:%Y-%m-%d %H:%M}" == expected


@pytest.mark.parametrize(
    ("text", "due", "hours"),
    [
        ("daily", "2026-01-06 00:00", 24),
        ("Mon..Fri *-*-* 02:00:00", "2026-01-06 02:00", 24),
        ("Tue 02:00", "2026-01-06 02:00", 7 * 24),
        ("Sat,Sun 2:00", "2026-01-10 02:00", 24),
        ("Fri..Mon 20:00", "2026-01-05 20:00", 4 * 24),
        ("*-*-* 06,18:00:00", "2026-01-06 06:00", 12),
        ("*:0/15", "2026-01-05 18:15", 0.5),
        ("minutely", "2026-01-05 18:10", 0.5),
        ("2026-01-06 02:00:00 UTC", "2026-01-06 02:00", float("inf")),
        ("2026-01-06", "2026-01-06 00:00", float("inf")),
        ("*-*-1..7 04:00:30", "2026-01-06 04:00", 24),
        ("01-06 02:00", "2026-01-06 02:00", 365 * 24),
        ("quarterly", "2026-04-01 00:00", 91 * 24),
        ("Mon, 22:00", "2026-01-05 22:00", 7 * 24),
        ("2020..2030/2-*-* 02:00", "2026-01-06 02:00", 24),
        ("*-*-* 02:00:00..30/10", "2026-01-06 02:00", 24),
    ],
)
def test_calendar_expressions(text: str, due: str, hours: float) -> None:
    """As systemd.time(7) has them, to the minute."""
    run, period = next_run(parse_calendar(text)[0], MONDAY, UTC)

    assert f"{run:%Y-%m-%d %H:%M}" == due
    assert period == pytest.approx(hours * HOUR, rel=0.03)


@pytest.mark.parametrize(
    "text", ["", "sometimes", "*-*~01 02:00", "25:00", "*-*-* 02:60", "Mon 02:00 03:00", "a b c d", "02", "2:00:99"]
)
def test_what_is_no_calendar_expression(text: str) -> None:
    """It is refused, not guessed."""
    with pytest.raises(ValueError, match=r"\w"):
        parse_calendar(text)


def test_a_calendar_expression_may_name_its_zone() -> None:
    """The last word."""
    assert parse_calendar("Mon 02:00 Europe/Berlin")[1] == "Europe/Berlin"
    assert parse_calendar("*-*-* 02:00 UTC")[1] == "UTC"
    assert parse_calendar("Mon 02:00")[1] is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("8h", 28800),
        ("90", 90),
        ("1h 30min", 5400),
        ("1.5h", 5400),
        ("2d1s", 172801),
        ("500ms", 0.5),
        ("1w", 604800),
        ("1M", 2629800),
        ("3d 27min 23.919323s", 3 * DAY + 27 * 60 + 23.919323),
        ("infinity", float("inf")),
    ],
)
def test_time_spans(text: str, seconds: float) -> None:
    """As systemd.time(7) has them."""
    assert parse_span(text) == pytest.approx(seconds)
