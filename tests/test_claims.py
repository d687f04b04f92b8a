"""What people's tags claim for a machine, and that any doubt about them protects it."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import (
    PROTECT_TAG,
    SNOOZE_TAG,
)
from gpuwatch.clouds.claims import claims
from tests.cloud_worlds import FLEET

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ({}, None),
        ({PROTECT_TAG: "true"}, "tag gpuwatch:protect protects it"),
        ({PROTECT_TAG: " TRUE "}, "tag gpuwatch:protect protects it"),
        ({PROTECT_TAG: "2026-01-05T13:00Z"}, "tag gpuwatch:protect protects it until 2026-01-05T13:00Z"),
        ({PROTECT_TAG: "2026-01-05T14:30+02:00"}, "tag gpuwatch:protect protects it until 2026-01-05T14:30+02:00"),
        ({PROTECT_TAG: "2026-01-05T11:00Z"}, None),
        ({PROTECT_TAG: "2026-01-05T13:30+02:00"}, None),
        ({PROTECT_TAG: "2026-01-05T12:00Z"}, None),
        (
            {PROTECT_TAG: "for Anna"},
            "tag gpuwatch:protect is 'for Anna', which is no ISO 8601 time: it protects until the tag is removed",
        ),
        (
            {PROTECT_TAG: ""},
            "tag gpuwatch:protect is '', which is no ISO 8601 time: it protects until the tag is removed",
        ),
        (
            {PROTECT_TAG: "false"},
            "tag gpuwatch:protect is 'false', which is no ISO 8601 time: it protects until the tag is removed",
        ),
        (
            {PROTECT_TAG: "2020-01-01"},
            "tag gpuwatch:protect is '2020-01-01', which has no time zone: it protects until the tag is removed",
        ),
        ({SNOOZE_TAG: "2026-01-05T13:00Z"}, None),
        (
            {SNOOZE_TAG: "tomorrow"},
            (
                "tag gpuwatch:snooze-until is 'tomorrow', which is no ISO 8601 time "
                "(write for example 2026-01-31T18:00Z): it postpones until the tag is mended"
            ),
        ),
    ],
)
def test_tags_protect_in_a_sentence(tags: Mapping[str, str], says: str | None) -> None:
    """A protecting tag holds for good, or until its time; one that cannot be read holds and says so."""
    assert claims(tags, fleet=FLEET, now=NOW)["protected"] == says


@pytest.mark.parametrize(
    ("value", "until"),
    [
        ("2026-01-05T13:00Z", "2026-01-05T13:00Z"),
        ("2026-01-05T14:30+02:00", "2026-01-05T14:30+02:00"),
        ("2026-01-05T11:59Z", None),
        ("tomorrow", None),
    ],
)
def test_a_snooze_postpones_until_its_time(value: str, until: str | None) -> None:
    """A snooze that can be read is told apart from protection, because it holds up to a cap only."""
    assert claims({SNOOZE_TAG: value}, fleet=FLEET, now=NOW)["snoozed"] == until


@given(key=st.sampled_from([PROTECT_TAG, SNOOZE_TAG]), value=st.text())
def test_no_value_of_a_tag_breaks_the_reading_or_lifts_protection(key: str, value: str) -> None:
    """Whatever people write, only a time that is past leaves a machine unprotected (P3)."""
    claimed = claims({key: value}, fleet=FLEET, now=NOW)

    if claimed["protected"] is None and claimed["snoozed"] is None:
        assert datetime.fromisoformat(value.strip()) <= NOW


@given(until=st.datetimes(timezones=st.timezones()), key=st.sampled_from([PROTECT_TAG, SNOOZE_TAG]))
def test_a_time_protects_exactly_until_it_comes(until: datetime, key: str) -> None:
    """A time in any zone protects while it lies ahead and not after."""
    claimed = claims({key: until.isoformat()}, fleet=FLEET, now=NOW)
    protected = claimed["protected" if key == PROTECT_TAG else "snoozed"]

    assert (protected is not None) == (datetime.fromisoformat(until.isoformat()) > NOW)
