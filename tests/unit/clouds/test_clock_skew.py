"""A refusal that is about our clock is told as that: nobody is sent to look for wrong credentials."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import AuthFailedError, ClockSkewError, CloudError, NotFoundError, ThrottledError
from gpuwatch.clouds.errors import explain_error

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
REFUSED = AuthFailedError("EC2 StopInstances: not validated (AuthFailure)", code="AuthFailure")


def date(seconds: float) -> str:
    """The Date of an answer whose clock is that much ahead of ours."""
    return format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(("seconds", "words"), [(3600, "60 min behind"), (-600, "10 min ahead of")])
def test_refused_credentials_with_clocks_apart_are_about_the_clock(seconds: float, words: str) -> None:
    """The sentence keeps the cloud's own words and code, and says what to set."""
    error = explain_error(REFUSED, date(seconds), NOW)

    assert type(error) is ClockSkewError
    assert (str(REFUSED) in str(error), words in str(error), error.code) == (True, True, "AuthFailure")


@given(seconds=st.floats(-240, 240))
def test_clocks_that_are_close_explain_nothing(seconds: float) -> None:
    """Then the credentials are what is wrong."""
    assert explain_error(REFUSED, date(int(seconds)), NOW) is REFUSED


@pytest.mark.parametrize("text", ["", "yesterday", "Mon, 05 Jan 2026 12:00:00 -0000"])
def test_an_answer_without_a_usable_date_explains_nothing(text: str) -> None:
    """What cannot be read is no proof."""
    assert explain_error(REFUSED, text, NOW) is REFUSED


@pytest.mark.parametrize("kind", [CloudError, NotFoundError, ThrottledError, ClockSkewError])
def test_other_refusals_stay_what_they_are(kind: type[CloudError]) -> None:
    """A machine that is not there is not there, whatever the time is."""
    error = kind("no")
    assert explain_error(error, date(3600), NOW) is error
