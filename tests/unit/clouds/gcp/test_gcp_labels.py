"""Labels of Google Cloud: what gpuwatch writes is read back as it was, and people's labels are read as meant."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import FLEET_TAG, OWNER_TAG, POOL_TAG, PROTECT_TAG, SNOOZE_TAG, STOP_AT, CloudError
from gpuwatch.clouds.gcp.owners import MOST_CHARACTERS, labels_of, tags_of, text_of, value_of
from gpuwatch.clouds.tags import KNOWN, claims
from gpuwatch.model.decision import DECISION_TAG, NOTIFIED_TAG

KEY, VALUE = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")
KEYS = st.sampled_from(sorted(KNOWN))
# From 2001 on, times have ten digits; what lies before is text like any other.
MOMENTS = st.datetimes(min_value=datetime(1990, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
WRITTEN = MOMENTS.map("{:%Y-%m-%dT%H:%M:%SZ}".format)
NOW = datetime(2026, 1, 5, tzinfo=UTC)


@given(tags=st.dictionaries(KEYS, st.text(max_size=5) | st.text(st.characters(codec="ascii"), max_size=20)))
def test_any_short_text_comes_back_as_it_was(tags: dict[str, str]) -> None:
    """Capitals, colons, Chinese and emoji are escaped; keys and values keep to Google's rules."""
    labels = labels_of(tags)

    assert all(KEY.fullmatch(key) and VALUE.fullmatch(value) for key, value in labels.items())
    assert tags_of(labels) == tags


@given(moment=WRITTEN, key=st.sampled_from([NOTIFIED_TAG, STOP_AT, PROTECT_TAG, SNOOZE_TAG]), word=st.booleans())
def test_times_as_gpuwatch_writes_them_come_back_to_the_letter(moment: str, key: str, word: bool) -> None:
    """With the word of a withdrawn notice, and without; as a label they are seconds since 1970."""
    text = f"withdrawn {moment}" if word else moment

    value = value_of(key, text)

    assert text_of(key, value) == text
    if moment >= "2001-09-09T01:46:40Z":
        assert value.removeprefix("withdrawn-").isdigit()


@given(moment=MOMENTS.filter(lambda moment: moment.year > 2001), zone=st.integers(-12, 12))
def test_a_time_in_another_form_is_the_same_moment_or_up_to_a_second_later(moment: datetime, zone: int) -> None:
    """A protection never ends before the time that its author wrote."""
    text = (moment + timedelta(hours=zone)).replace(tzinfo=None).isoformat() + f"{zone:+03d}:00"

    read = datetime.fromisoformat(text_of(PROTECT_TAG, value_of(PROTECT_TAG, text)))

    assert timedelta(0) <= read - moment < timedelta(seconds=1)


@pytest.mark.parametrize("value", ["x--_ed_a0_bd", "x--a_ed_bf_bf"])
def test_a_label_that_is_half_a_character_is_somebody_s_own(value: str) -> None:
    """Whoever may label a machine could end each round with it: no database takes such a text."""
    assert text_of(OWNER_TAG, value) == value


@given(key=KEYS, value=st.from_regex(r"[a-z0-9_-]{0,19}", fullmatch=True))
def test_whatever_people_write_as_a_label_is_read_and_means_itself_again(key: str, value: str) -> None:
    """Reading and writing a label gives a label that is read as the same."""
    text = text_of(key, value)
    assert text_of(key, value_of(key, text)) == text


def test_the_keys_are_those_of_the_docs() -> None:
    """docs/clouds/gcp.md names them so."""
    tags = {FLEET_TAG: "lab", POOL_TAG: "train", OWNER_TAG: "anna", DECISION_TAG: "gpuwatch-7f-12-ab", STOP_AT: ""}

    assert labels_of(tags) == {
        "gpuwatch-fleet": "lab",
        "gpuwatch-pool": "train",
        "gpuwatch-owner": "anna",
        "gpuwatch-decision-id": "gpuwatch-7f-12-ab",
        "gpuwatch-stop-at": "",
    }


def test_other_labels_keep_their_keys_so_that_a_slip_is_seen_and_protects() -> None:
    """`gpuwatch-protct` is not a label of gpuwatch: the machine is left alone until it is corrected."""
    tags = tags_of({"team": "vision", "gpuwatch-protct": "true"})

    assert tags == {"team": "vision", "gpuwatch-protct": "true"}
    assert claims(tags, fleet="lab", now=NOW)["protected"] is not None


@pytest.mark.parametrize("value", ["true", "anna-needs-it", "20270131", "1767225600000", "never"])
def test_a_protection_that_is_no_time_protects_for_good(value: str) -> None:
    """Numbers that are not seconds, milliseconds too, are a doubt."""
    assert claims(tags_of({"gpuwatch-protect": value}), fleet="lab", now=NOW)["protected"] is not None


def test_a_protection_in_seconds_ends_with_its_time() -> None:
    """What `date -d tomorrow +%s` prints is a time."""
    until = int((NOW + timedelta(hours=1)).timestamp())
    tags = tags_of({"gpuwatch-protect": str(until), "gpuwatch-snooze-until": str(until)})

    told = claims(tags, fleet="lab", now=NOW)
    assert told["protected"] == "tag gpuwatch:protect protects it until 2026-01-05T01:00:00Z"
    assert told["snoozed"] == "2026-01-05T01:00:00Z"
    later = claims(tags, fleet="lab", now=NOW + timedelta(hours=2))
    assert (later["protected"], later["snoozed"]) == (None, None)


def test_a_value_without_a_form_that_fits_is_refused_by_name() -> None:
    """The sentence says which tag, how long, and what to write."""
    with pytest.raises(CloudError, match=f"gpuwatch:pool needs .* takes {MOST_CHARACTERS}: shorten it") as caught:
        labels_of({POOL_TAG: "Большой пул для обучения моделей"})

    assert caught.value.code == "LabelTooLong"
