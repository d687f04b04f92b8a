"""agent/evidence/logins.py: for how long nobody has been logged in for certain. What is not sure is never a week."""

from pathlib import Path

import pytest

from gpuwatch.agent.evidence.base import UnseenError
from gpuwatch.agent.evidence.logins import LONGEST_SECONDS, Logins, in_verdict
from gpuwatch.agent.evidence.sessions import People
from gpuwatch.agent.evidence.settings import SessionSettings
from tests.support.fakes.host import FolderHost, utmp_record

DAY = 86400.0


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host where nobody is logged in, a quarter of an hour and some after its boot."""
    return FolderHost(tmp_path)


def logins(host: FolderHost) -> Logins:
    """The look, of an agent that begins now."""
    return Logins(People(SessionSettings(), host.roots), host.roots)


def from_boot(host: FolderHost) -> Logins:
    """The look of an agent that began with the machine."""
    found = logins(host)
    found._began = 20.0
    return found


def days_free(host: FolderHost, seen: Logins) -> float | None:
    """What a verdict has, in days."""
    seconds = in_verdict(seen.find_evidence(host.moment()))
    return None if seconds is None else round(seconds / DAY, 3)


def record(host: FolderHost, days_ago: float, *, kind: int = 7, line: str = "pts/0") -> bytes:
    """A record of wtmp, so many days old."""
    return utmp_record("alice", line, kind=kind, at=host.clock.now().timestamp() - days_ago * DAY)


def boot(host: FolderHost, days_ago: float = 30.0) -> bytes:
    """The record of a boot."""
    return record(host, days_ago, kind=2, line="~")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], 7.0),
        ([(20.0, 7)], 7.0),
        ([(2.0, 7)], 2.0),
        ([(20.0, 7), (3.0, 8)], 3.0),  # a session of 17 days ended
        ([(20.0, 7), (19.0, 8), (3.0, 2)], 7.0),
        ([(20.0, 7), (3.0, 2)], 3.0),  # it was open until the machine was started again
        ([(-1.0, 7)], 0.0),  # by a clock that was ahead
    ],
)
def test_the_last_login_of_wtmp_counts(host: FolderHost, records: list[tuple[float, int]], expected: float) -> None:
    """A week at most, and the end of a session rather than its begin."""
    written = [record(host, days, kind=kind, line="~" if kind == 2 else "pts/0") for days, kind in records]
    host.write("var/log/wtmp", b"".join([boot(host), *written]))
    assert days_free(host, from_boot(host)) == expected


def test_a_file_that_was_rotated_counts_too(host: FolderHost) -> None:
    """The login is in the older one; one that is packed may hold a login until where the others begin."""
    host.write("var/log/wtmp", boot(host, 1.0))
    host.write("var/log/wtmp.1", boot(host, 30.0) + record(host, 4.0) + record(host, 3.5, kind=8))
    assert days_free(host, from_boot(host)) == 3.5
    (host.root / "var/log/wtmp.1").unlink()
    host.write("var/log/wtmp-20260201.gz", b"packed")
    assert days_free(host, from_boot(host)) == 1.0


@pytest.mark.parametrize("content", [b"", b"abc", None])
def test_without_records_nothing_is_known(host: FolderHost, content: bytes | None) -> None:
    """Debian 13 has no wtmp, a container an empty one, a damaged one no whole records."""
    host.write("var/log/btmp", b"")
    if content is not None:
        host.write("var/log/wtmp", content)
    with pytest.raises(UnseenError):
        from_boot(host).find_evidence(host.moment())


def test_an_agent_that_began_later_says_no_more_than_it_has_watched(host: FolderHost) -> None:
    """A remote editor's login is in no wtmp."""
    host.write("var/log/wtmp", boot(host))
    seen = logins(host)
    assert days_free(host, seen) == 0.0
    host.clock.advance(2 * DAY)
    assert days_free(host, seen) == 2.0
    host.clock.advance(9 * DAY)
    assert days_free(host, seen) == LONGEST_SECONDS / DAY


def test_whoever_is_logged_in_now_is_somebody_for_a_week(host: FolderHost) -> None:
    """Though wtmp does not know of it."""
    host.write("var/log/wtmp", boot(host))
    host.write("run/utmp", utmp_record("alice", "pts/0"))
    seen = from_boot(host)
    assert days_free(host, seen) == 0.0
    host.write("run/utmp", b"")
    host.clock.advance(3 * DAY)
    assert days_free(host, seen) == 3.0
