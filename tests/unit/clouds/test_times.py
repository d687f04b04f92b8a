"""Times as clouds write them: what is no time of a cloud is not known."""

from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds.alibaba import instances as alibaba
from gpuwatch.clouds.azure import instances as azure
from gpuwatch.clouds.gcp import instances as gcp
from gpuwatch.clouds.gcp.client import Client
from gpuwatch.clouds.tencent import instances as tencent
from gpuwatch.clouds.times import is_old, need_time, read_time, time_made
from gpuwatch.runtime.clock import ManualClock

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
ZEROS = (
    "1969-12-31T16:00:00.000-08:00",
    "1970-01-01T00:00:00Z",
    "1970-01-01T00:00Z",
    "0001-01-01T00:00:00+00:00",
    "0001-01-01T00:00:00+14:00",
    "1900-01-01T00:00:00Z",
)
NO_TIMES = (*ZEROS, "2026-11-27T12:00:00", "yesterday", "", None, "9999-12-31T23:59:59-14:00", 1764244800)


@pytest.mark.parametrize("text", NO_TIMES)
def test_a_zero_and_a_time_without_a_zone_are_not_known(text: object) -> None:
    """The first would make a machine half a century old, the second could be hours off."""
    assert read_time(text) is None
    with pytest.raises(ValueError, match=r".*"):
        need_time(str(text))


def test_a_time_is_read_in_its_zone() -> None:
    """With or without seconds, in any zone, and as botocore has read it."""
    written = ("2026-11-27T20:00+08:00", "2026-11-27T12:00:00Z", "2026-11-27T12:00Z", "2026-11-27T04:00:00.000-08:00")
    assert {read_time(text) for text in written} == {NOW}
    assert read_time(NOW.astimezone(timezone(timedelta(hours=8)))) == need_time(written[0]) == NOW


@given(st.timedeltas(timedelta(days=-7000), timedelta(days=100_000)), st.integers(-14, 14))
def test_every_zone_gives_the_same_moment(since: timedelta, hours: int) -> None:
    """What is told is in UTC, to the microsecond."""
    moment = NOW + since
    told = read_time(moment.astimezone(timezone(timedelta(hours=hours))).isoformat())
    assert told == moment
    assert told.tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05.1234567+00:00", datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
        ("2026-01-02T03:04:05", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("1970-01-01T00:00:00Z", None),
        ("yesterday", None),
        ("", None),
        (None, None),
    ],
)
def test_a_time_that_cannot_be_read_is_not_known(text: str | None, at: datetime | None) -> None:
    """Never an error: the thing is listed all the same. A zero proves no age."""
    assert time_made(text) == at
    assert is_old(text, NOW) is (at is not None)


def test_what_is_younger_than_a_month_is_not_old() -> None:
    """To the second."""
    assert not is_old((NOW - timedelta(days=29, hours=23, minutes=59)).isoformat(), NOW)
    assert is_old((NOW - timedelta(days=30)).isoformat(), NOW)


@pytest.mark.parametrize("text", NO_TIMES)
def test_no_zero_makes_a_machine_old_on_any_cloud(text: object) -> None:
    """Its age is not known, and a machine of unknown age is not stopped."""
    view = {"statuses": [{"code": "ProvisioningState/succeeded", "time": text}]}
    machine = azure.Machine(path="/x", described={"properties": {"timeCreated": text}}, view=view)
    at_azure = azure.Machine.created_at.fget, azure.Machine.changed_at.fget  # type: ignore[attr-defined]  # properties
    assert [each(machine) for each in at_azure] == [None, None]
    assert alibaba.Instance(described={"StartTime": text, "CreationTime": text}).launched_at is None
    assert tencent.Instance(described={"CreatedTime": text}, id="ins-1").made_at is None
    described: Any = {"lastStartTimestamp": text, "creationTimestamp": text, "zone": "", "machineType": ""}
    client: Client = SimpleNamespace(project="p")  # type: ignore[assignment]  # nothing is asked
    translator = gcp.Translator(fleet="lab", clock=ManualClock())
    node = translator.node(client, gcp.Instance(described=described, project="p"), {}, leaving=False)
    assert node.launched_at is None


def test_a_start_that_is_not_known_is_not_the_making_before_it() -> None:
    """That would make the machine older than it is."""
    described = {"StartTime": ZEROS[1], "CreationTime": "2020-01-01T00:00Z"}
    assert alibaba.Instance(described=described).launched_at is None
