"""What a group's record of its tries says, and who is asked for it."""

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError
from gpuwatch.clouds.groups import Attempt, Refusals, refusal_of
from gpuwatch.model.fleet import GroupRefusal, NodeGroup
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.past_steps import a_group

NOW = datetime(2026, 11, 27, 12, 0, 30, tzinfo=UTC)
SHORT = replace(a_group(), desired=5)


def an_attempt(*, minutes_ago: float = 1.0, refused: str | None = "NoStock: none") -> Attempt:
    """One that took no time."""
    at = NOW - timedelta(minutes=minutes_ago)
    return Attempt(began=at, ended=at, refused=refused)


attempts = st.lists(
    st.builds(
        an_attempt,
        minutes_ago=st.floats(-600.0, 6000.0),
        refused=st.sampled_from([None, "NoStock: none", "Quota: full"]),
    )
)


@given(attempts)
def test_the_newest_try_decides_and_never_one_from_the_future(tried: list[Attempt]) -> None:
    """A refusal is that of the newest, is no later than now, and is none where clocks do not fit."""
    found = refusal_of(tried, NOW)
    newest = max(tried, key=lambda each: each.began, default=None)
    if newest is None or newest.refused is None or newest.ended > NOW + timedelta(minutes=5):
        assert found is None
    else:
        assert found == GroupRefusal(at=min(newest.ended, NOW), why=newest.refused)


@given(attempts, st.floats(0.0, 5999.0))
def test_a_success_ends_what_was_said_before(tried: list[Attempt], minutes_ago: float) -> None:
    """Whatever failed until then."""
    older = [each for each in tried if each.began <= NOW - timedelta(minutes=minutes_ago)]
    assert refusal_of([an_attempt(minutes_ago=minutes_ago, refused=None), *older], NOW) is None


def test_of_equal_times_the_first_counts() -> None:
    """Clouds list the newest first, and some write no seconds."""
    tries = [an_attempt(refused=None), an_attempt()]
    assert refusal_of(tries, NOW) is None
    assert refusal_of(tries[::-1], NOW) is not None


def test_a_reason_is_one_short_line() -> None:
    """It goes into sentences."""
    found = refusal_of([an_attempt(refused="NoStock: sold out.\nRequestId: 1" + "x" * 999)], NOW)
    assert found is not None
    assert found.why == "NoStock: sold out"


@pytest.mark.parametrize(
    "group", [replace(SHORT, desired=3), replace(SHORT, enrolled=False)], ids=["has all", "of others"]
)
def test_nobody_asks_about_a_group_that_lacks_nothing_or_is_not_ours(group: NodeGroup) -> None:
    """It would cost a call in each round."""

    def ask() -> list[Attempt]:
        raise AssertionError

    assert Refusals(ManualClock(NOW)).with_refusal(group, "here", ask) == group


def test_a_missing_right_is_said_once_and_the_group_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """For each place, and once more after it was there for a time."""
    refusals = Refusals(ManualClock(NOW))
    answers: list[CloudError | Attempt] = [
        *(AuthFailedError("not allowed", code="Forbidden") for _ in range(3)),
        an_attempt(),
        AuthFailedError("not allowed", code="Forbidden"),
        CloudUnavailableError("silent", code="HTTP500"),
    ]

    def ask() -> list[Attempt]:
        answer = answers.pop(0)
        if isinstance(answer, CloudError):
            raise answer
        return [answer]

    with caplog.at_level(logging.WARNING):
        found = [refusals.with_refusal(SHORT, where, ask).refused for where in ("a", "a", "b", "a", "a", "a")]

    assert [each is not None for each in found] == [False, False, False, True, False, False]
    assert caplog.messages == ["not allowed; groups without stock there are waited for"] * 3
