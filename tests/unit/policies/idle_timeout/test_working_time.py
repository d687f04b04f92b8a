"""A grace that asks somebody waits for a working day: weekends and holidays are not half of one."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation, Step, Verb
from gpuwatch.model.fleet import Node
from gpuwatch.model.measurement import Answers
from gpuwatch.policies import PoolRules, idle
from gpuwatch.policies.idle_settings import resolve_rules
from gpuwatch.policies.idle_timeout.working_time import ANYWHERE, Office, grace_at_work, office_of
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import HOUR, a_node, a_notice, an_observation

FRIDAY = datetime(2026, 3, 6, 18, 0, tzinfo=UTC)
DAY = timedelta(days=1)
BALANCED = resolve_rules(idle.IdleRules(), "balanced")
MOMENTS = st.integers(0, 2 * 365 * 24 * 60).map(lambda minutes: FRIDAY + timedelta(minutes=minutes))
GRACES = st.sampled_from([0.0, 60.0, 1800.0, 4 * HOUR, 10 * HOUR, 24 * HOUR, 90 * HOUR])
OFFICES = st.builds(
    Office,
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kolkata", "Pacific/Auckland"]),
    days_off=st.sampled_from(
        [(), ("2026-12-24/2027-01-03",), ("2026-05-01", "2026-10-03"), ("2020-01-01/2040-01-01",)]
    ),
)


def left_since_friday(at: datetime, state: State = State.OCCUPIED) -> Node:
    """A machine that somebody left on Friday at 18:00."""
    return a_node(state=state, held=(at - FRIDAY).total_seconds())


def the_step(observation: Observation, office: Office = ANYWHERE) -> Step:
    """What the policy says of the first node."""
    return idle.propose(observation, "default", BALANCED, office=office).steps[0]


@pytest.mark.parametrize(
    ("given_at", "until"),
    [
        ("2026-03-06T10:00", "2026-03-06T14:00"),  # Friday: half a working day
        ("2026-03-06T22:00", "2026-03-09T12:00"),  # it would end on Saturday at 02:00
        ("2026-03-07T10:00", "2026-03-09T12:00"),  # on Saturday, as that of a machine left on Friday at 18:00
        ("2026-03-08T22:00", "2026-03-09T12:00"),  # begun on Sunday, over before anybody is there
        ("2026-03-09T10:00", "2026-03-09T14:00"),
    ],
)
def test_a_grace_at_a_weekend_lasts_until_mondays_noon(given_at: str, until: str) -> None:
    """What begins or ends on a Saturday or a Sunday ends on Monday at noon; other graces are as they were."""
    at, end = (datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (given_at, until))
    assert at + timedelta(seconds=grace_at_work(4 * HOUR, at, ANYWHERE)) == end


def test_a_machine_left_on_friday_evening_is_there_on_monday_morning() -> None:
    """Round by round: its notice comes on Saturday, says why it lasts, and runs out on Monday at noon."""
    saturday = FRIDAY + timedelta(hours=16)
    said = the_step(an_observation(left_since_friday(saturday), now=saturday))
    grace = float(said.arguments["grace_seconds"])
    notice = replace(a_notice(age=0.0, grace=grace), at=saturday)
    promise = notice.promise
    assert promise is not None
    notice = replace(
        notice, promise=replace(promise, stop_at=saturday + timedelta(seconds=grace), idle_seconds=16 * HOUR)
    )
    verbs = {
        hours: the_step(
            an_observation(
                left_since_friday(saturday + timedelta(hours=hours)),
                now=saturday + timedelta(hours=hours),
                notices=(notice,),
            )
        ).verb
        for hours in range(1, 54)
    }
    assert said.verb is Verb.NOTICE
    assert "until people are at work again" in said.reason.sentence
    assert {hours for hours, verb in verbs.items() if verb is not Verb.HOLD} == set(range(50, 54))


def test_the_first_notice_of_an_empty_machine_waits_for_monday_too() -> None:
    """It is a question to its owner; where no question is asked, a weekend changes nothing."""
    saturday = FRIDAY + timedelta(hours=16)
    node = replace(left_since_friday(saturday, State.IDLE), owner="alice")
    asked = replace(an_observation(node, now=saturday), answers={"default": Answers()})
    graces = [float(the_step(each).arguments["grace_seconds"]) for each in (asked, an_observation(node, now=saturday))]
    assert graces == [50 * HOUR, BALANCED.grace_period]


def test_calendar_and_zone_come_from_the_pools_schedule() -> None:
    """The dates on which its windows do not begin are days off, in the zone of the first that names one."""
    office = office_of(
        {
            "nights": Window(max_nodes=3),
            "days": Window(zone="Europe/Berlin", except_on=("2026-05-01", "2026-12-24/2027-01-01"), min_nodes=1),
        }
    )
    assert office == Office(zone="Europe/Berlin", days_off=("2026-05-01", "2026-12-24/2027-01-01"))
    assert PoolRules().office == ANYWHERE
    thursday = datetime(2026, 4, 30, 21, 0, tzinfo=UTC)  # 23:00 in Berlin; the first of May is a Friday
    noon = datetime(2026, 5, 4, 12, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    assert thursday + timedelta(seconds=grace_at_work(4 * HOUR, thursday, office)) == noon


@given(seconds=GRACES, at=MOMENTS, office=OFFICES)
def test_days_off_only_lengthen_a_grace(seconds: float, at: datetime, office: Office) -> None:
    """Never shorter than set, never longer by more than a fortnight; and not at all where nobody is asked for long."""
    found = grace_at_work(seconds, at, office)
    assert seconds <= found <= seconds + 15 * 24 * HOUR
    if seconds < 4 * HOUR:
        assert found == seconds


@given(at=MOMENTS, seconds=st.sampled_from([4 * HOUR, 10 * HOUR]), zone=st.sampled_from(["UTC", "Asia/Kolkata"]))
def test_whoever_is_asked_has_the_morning_of_a_working_day(at: datetime, seconds: float, zone: str) -> None:
    """No grace that begins or ends on a day off is over before noon of a working day."""
    office = Office(zone=zone)
    end = (at + timedelta(seconds=grace_at_work(seconds, at, office))).astimezone(ZoneInfo(zone))
    begin = at.astimezone(ZoneInfo(zone))
    assert end.weekday() < 5
    if begin.weekday() >= 5:
        assert end.hour >= 12 or end.date() > begin.date() + 2 * DAY


@given(at=MOMENTS, age=st.floats(0.0, 80 * HOUR))
def test_the_grace_of_a_notice_does_not_change_while_it_waits(at: datetime, age: float) -> None:
    """It counts from the notice: a Friday's grace grows no longer because Saturday has come since."""
    at = at.replace(second=0, microsecond=0)
    notice = replace(a_notice(age=0.0), at=at)
    now = at + timedelta(seconds=age)
    seen = an_observation(a_node(state=State.PARKED), now=now, notices=(notice,))
    assert idle.grace_seconds(seen.fleet.nodes[0], seen, BALANCED) == grace_at_work(4 * HOUR, at, ANYWHERE)


def test_a_date_is_a_working_day_or_not() -> None:
    """Mondays to Fridays but for the dates that are named."""
    office = Office(days_off=("2026-03-05",))
    assert [office.works_on(date(2026, 3, day)) for day in range(2, 9)] == [True, True, True, False, True, False, False]
