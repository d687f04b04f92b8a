"""What people's tags claim for a machine, and that any doubt about them protects it."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import FLEET_TAG, OWNER_TAG, POOL_TAG, PROTECT_TAG, SNOOZE_TAG, WRITABLE_TAGS
from gpuwatch.clouds.tags import claims
from tests.support.fakes.cloud_worlds import FLEET

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


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("gpuwatch:Protect", PROTECT_TAG),
        ("gpuwatch:protected", PROTECT_TAG),
        ("gpuwatch:protection", PROTECT_TAG),
        ("GPUWATCH:PROTECT", PROTECT_TAG),
        ("gpuwatch-protect", PROTECT_TAG),
        ("gpuwatch/protect", PROTECT_TAG),
        ("gpuwatch_protect", PROTECT_TAG),
        ("gpuwatchprotect", PROTECT_TAG),
        ("gpu-watch:protect", PROTECT_TAG),
        ("GPU Watch: protect", PROTECT_TAG),
        (" gpuwatch:protect ", PROTECT_TAG),
        ("gpuwatch\uff1aprotect", PROTECT_TAG),  # the full-width colon of Chinese and Japanese keyboards
        ("gpu\u200bwatch:protect", PROTECT_TAG),
        ("gpuw\u0430tch:protect", PROTECT_TAG),  # a Cyrillic letter
        ("gpuwatch:prot\u0435ct", PROTECT_TAG),
        ("user:gpuwatch:protect", PROTECT_TAG),
        ("gpuwach:protect", PROTECT_TAG),
        ("gpuwtach:do-not-stop", PROTECT_TAG),
        ("gpuwatch:keep", PROTECT_TAG),
        ("gpuwatch:do-not-stop", PROTECT_TAG),
        ("gpuwatch:team", PROTECT_TAG),
        ("gpuwatch:", PROTECT_TAG),
        ("gpuwatch", PROTECT_TAG),
        ("gpuwatch:snooze_until", SNOOZE_TAG),
        ("gpuwatch:snooze", SNOOZE_TAG),
        ("gpuwatch:Snooze-Until", SNOOZE_TAG),
        ("gpuwatch:pools", POOL_TAG),
        ("gpuwach:pool", POOL_TAG),
        ("gpuwatch:Owner", OWNER_TAG),
        ("gpuwatch:Fleet", FLEET_TAG),
    ],
)
def test_a_key_that_is_almost_ours_protects(key: str, right: str) -> None:
    """A slip in the key of a tag protects, whatever its value says, and the sentence names both keys."""
    values = ("", "true", "false", "2020-01-01T00:00Z", "prod")
    texts = {claims({FLEET_TAG: FLEET, key: value}, fleet=FLEET, now=NOW)["protected"] for value in values}

    assert texts == {f"tag {key!r} is no tag of gpuwatch, {right} is: it protects until it is corrected"}


@pytest.mark.parametrize(
    "key",
    [
        *sorted(WRITABLE_TAGS),
        FLEET_TAG,
        POOL_TAG,
        OWNER_TAG,
        "Name",
        "protect",
        "gpu-type",
        "gpu:protect",
        "watchdog",
        "aws:autoscaling:groupName",
        "kubernetes.io/cluster/train",
        "monitoring:gpuwatch-version",
    ],
)
def test_other_keys_protect_nothing(key: str) -> None:
    """Keys of ours with a meaning of their own, those that gpuwatch writes, and keys of other people."""
    claimed = claims({key: "2020-01-01T00:00Z"}, fleet=FLEET, now=NOW)

    assert (claimed["protected"], claimed["snoozed"]) == (None, None)


_ANY = st.characters(codec="utf-8")


@st.composite
def _one_edit(draw: st.DrawFn, key: str) -> str:
    """A key with one character put in, left out, replaced, or swapped with the next."""
    place = draw(st.integers(0, len(key) - 1))
    before, here, after = key[:place], key[place], key[place + 1 :]
    swapped = before + after[:1] + here + after[1:]
    edited = st.sampled_from((before + after, swapped)) | _ANY.map(lambda new: before + new + here + after)
    return draw(edited | _ANY.map(lambda new: before + new + after))


@given(
    key=st.sampled_from([PROTECT_TAG, SNOOZE_TAG, POOL_TAG]).flatmap(_one_edit),
    case=st.sampled_from([str, str.upper, str.title, str.swapcase]),
)
def test_one_slip_in_a_key_protects_or_changes_nothing(key: str, case: type[str]) -> None:
    """P8: what is one edit and any spelling of the letters away from a key means that key, or protects."""
    written, until = case(key), "2100-01-01T00:00Z"
    claimed = claims({written: until}, fleet=FLEET, now=NOW)

    assert claimed["protected"] is not None or written in {PROTECT_TAG, SNOOZE_TAG, POOL_TAG}


@given(tags=st.dictionaries(st.text() | st.sampled_from([PROTECT_TAG, SNOOZE_TAG]).flatmap(_one_edit), st.text()))
def test_no_key_takes_protection_away(tags: Mapping[str, str]) -> None:
    """P8: whatever other tags a machine has, its protection stays."""
    tags = {**tags, PROTECT_TAG: "true"}

    assert claims(tags, fleet=FLEET, now=NOW)["protected"] == "tag gpuwatch:protect protects it"
