"""What the doctor says of keys: their age against the setting, their end, and what is not known."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.cli.doctor import keys
from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.cli.doctor.report import Finding, Severity
from gpuwatch.clouds import CloudError, CloudUnavailableError
from gpuwatch.clouds.keys import AccessKey, Credentials, DiskKey
from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.simulate.cloud import SimulatedCloud
from tests.support.builders.doctor_findings import a_controller, codes
from tests.support.builders.fleet import NOW

DAY = timedelta(days=1)


class Keyed(SimulatedCloud):
    """A cloud that knows us by these credentials, and whose disks have these keys."""

    def __init__(self, known: Credentials | CloudError, disks: Sequence[DiskKey] | CloudError = ()) -> None:
        super().__init__(fleet="lab", clock=ManualClock(wall=NOW))
        self.known, self.of_disks = known, disks

    def credentials(self) -> Credentials:
        """As it was told."""
        if isinstance(self.known, CloudError):
            raise self.known
        return self.known

    def disk_keys(self, node_ids: Sequence[str]) -> Sequence[DiskKey]:
        """Likewise."""
        del node_ids
        if isinstance(self.of_disks, CloudError):
            raise self.of_disks
        return self.of_disks


def a_case(cloud: SimulatedCloud, most: int = 90) -> ControllerCase:
    """A controller of it, with so many days for a key."""
    return a_controller(cloud, ManualClock(wall=NOW), {"cloud": CloudSettings(max_key_age=most * 86400.0)})


def a_key(age: timedelta | None, **more: timedelta | bool | None) -> Credentials:
    """Credentials with one key of that age."""
    ends, ours = more.get("ends"), more.get("ours", True)
    key = AccessKey(
        id="AK1",
        made=None if age is None else NOW - age,
        ends=NOW + ends if isinstance(ends, timedelta) else None,
        ours=ours if isinstance(ours, bool) else None,
    )
    return Credentials(name="user/gpuwatch", lasting=True, keys=(key,))


def judged(known: Credentials | CloudError, most: int = 90) -> Finding:
    """The one finding about it."""
    (found,) = keys.access_keys(a_case(Keyed(known), most))
    return found


@given(days=st.integers(0, 4000), most=st.integers(1, 4000))
def test_a_key_is_old_from_the_age_that_the_setting_says(days: int, most: int) -> None:
    """And at no other."""
    found = judged(a_key(DAY * days), most)

    assert found.code == ("keys.old" if days > most else "keys")
    assert f"{days} days old" in found.seen


def test_90_days_are_the_longest_without_a_setting() -> None:
    """As most rules of audits have it."""
    assert CloudSettings().max_key_age == 90 * 86400.0
    assert (judged(a_key(90 * DAY)).code, judged(a_key(91 * DAY)).code) == ("keys", "keys.old")


@pytest.mark.parametrize(("left", "code"), [(29, "keys.ends"), (30, "keys")])
def test_a_secret_that_ends_soon_is_told_in_time(left: int, code: str) -> None:
    """After its end the cloud refuses every call."""
    found = judged(a_key(DAY, ends=DAY * left))

    assert found.code == code
    assert f"ends {NOW + DAY * left:%Y-%m-%d}" in found.seen


@pytest.mark.parametrize(
    ("known", "seen"),
    [
        (a_key(None), "the cloud does not say when it was made; gpuwatch uses it"),
        (Credentials(name="me", lasting=True), "me: no key of it was listed"),
        (Credentials(name="me", lasting=True, unknown="x:List is not allowed"), "me: x:List is not allowed"),
        (Credentials(name="me", lasting=None, unknown="no profile"), "me: no profile"),
        (CloudUnavailableError("no answer"), "no answer"),
    ],
)
def test_what_is_not_known_is_never_fine(known: Credentials | CloudError, seen: str) -> None:
    """Each with what is missing."""
    found = judged(known)

    assert (found.code, found.severity, found.seen) == ("keys.unknown", Severity.WARNING, seen)


def test_credentials_without_a_long_lived_key_are_fine() -> None:
    """And said to be such."""
    found = judged(Credentials(name="role/gpuwatch", lasting=False))

    assert (found.severity, found.seen) == (Severity.FINE, "no long-lived key: role/gpuwatch")


def test_whether_gpuwatch_uses_a_key_is_said_as_far_as_it_is_known() -> None:
    """An application's secrets do not tell which one was shown."""
    said = [judged(a_key(DAY, ours=ours)).seen.rpartition("; ")[2] for ours in (True, False, None)]

    assert said == ["gpuwatch uses it", "gpuwatch does not use it", "gpuwatch may use it"]


@pytest.mark.parametrize(
    ("key", "code", "seen"),
    [
        (DiskKey(id="k", rotates=True, says="every 365 days"), "keys", "rotated every 365 days"),
        (DiskKey(id="k", rotates=True), "keys", "it is rotated"),
        (DiskKey(id="k", rotates=False), "keys.unrotated", "it is not rotated"),
        (DiskKey(id="k", rotates=None, says="not allowed"), "keys.rotation_unknown", "not allowed"),
    ],
)
def test_the_rotation_of_each_key_of_disks_is_told(key: DiskKey, code: str, seen: str) -> None:
    """What is not known is not fine."""
    (found,) = keys.disk_keys(a_case(Keyed(a_key(DAY), [key])))

    assert (found.code, found.seen) == (code, seen)


def test_disks_that_cannot_be_listed_are_not_fine() -> None:
    """The error says why."""
    assert codes(keys.disk_keys(a_case(Keyed(a_key(DAY), CloudUnavailableError("no answer"))))) == [
        "keys.rotation_unknown"
    ]


def test_a_cloud_without_keys_is_left_out() -> None:
    """The simulated one."""
    case = a_case(SimulatedCloud(fleet="lab", clock=ManualClock(wall=NOW)))

    assert (list(keys.access_keys(case)), list(keys.disk_keys(case))) == ([], [])


@pytest.mark.parametrize("error", [CloudError("no region is known"), ImportError("no boto3")])
def test_a_cloud_that_cannot_be_set_up_is_told_as_skipped(error: Exception) -> None:
    """Another finding says why."""
    case = a_controller(error)

    assert codes([*keys.access_keys(case), *keys.disk_keys(case)]) == ["cloud.skipped", "cloud.skipped"]
