"""agent/evidence/visits.py: who came over the network and left may come back."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.evidence.sessions import People
from gpuwatch.agent.evidence.settings import SessionSettings
from gpuwatch.agent.evidence.visits import Visits
from gpuwatch.agent.processes.process import ProcessView
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.host import FolderHost

HOUR = 3600.0


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host where nobody is logged in."""
    return FolderHost(tmp_path)


def a_session(user: str = "alice", *, tty: str, kind: str = "tty", remote: bool = True) -> str:
    """A file of /run/systemd/sessions, as logind writes it."""
    shown = f"TTY={tty}\n" if tty else ""
    told = f"UID=1000\nUSER={user}\nSTATE=active\nTYPE={kind}\nCLASS=user\nLEADER=4242\nREMOTE={int(remote)}\n"
    return f"# This is private data. Do not parse.\n{told}{shown}"


def seen(host: FolderHost, signal: People) -> Evidence:
    """Its one finding where all processes are seen, and nobody's program runs."""
    now = host.moment()
    view = ProcessView(monotonic_seconds=now.monotonic_seconds, processes={})
    (found,) = signal.find_evidence(replace(now, processes=view))
    return found


def came(visits: Visits, at: float, *, user: str = "deploy", program: bool = True) -> None:
    """A visit that one look saw."""
    visits.note({user: program}, at)


def is_expected(visits: Visits, at: float) -> bool:
    """Whether somebody may come back, after a look without anybody."""
    visits.note({}, at)
    return visits.find_expected(at) is not None


def test_a_copy_or_a_command_is_expected_again_for_an_hour() -> None:
    """A login without a terminal is a program's: nobody knows its rhythm after the first."""
    visits = Visits()
    came(visits, 0.0)

    assert is_expected(visits, HOUR - 1.0)
    assert not is_expected(visits, HOUR)


def test_a_person_who_leaves_once_has_left() -> None:
    """Who closes a terminal leaves on purpose: the machine is empty at once."""
    visits = Visits()
    came(visits, 0.0, program=False)

    assert not is_expected(visits, 1.0)


@given(gap=st.floats(600.0, 3 * HOUR), turns=st.integers(2, 12), late=st.floats(0.0, 0.9))
def test_what_has_come_in_a_rhythm_is_expected_until_its_next_visit(gap: float, turns: int, late: float) -> None:
    """From the second visit on a program is expected until the next, also if that is late or was not seen."""
    visits = Visits()
    for turn in range(turns):
        came(visits, turn * gap)
        visits.note({}, turn * gap + 10.0)

    assert is_expected(visits, (turns - 1) * gap + min(gap * (1.0 + late), 4 * HOUR - 1.0))


@given(began=st.lists(st.floats(0.0, 20 * HOUR), min_size=1, max_size=30), program=st.booleans())
def test_nobody_is_expected_for_longer_than_four_hours(began: list[float], program: bool) -> None:
    """Whatever came, and however often: four hours after the last visit nobody is, and after an hour no person."""
    visits = Visits()
    for at in sorted(began):
        came(visits, at, program=program)

    assert not is_expected(visits, max(began) + 1.0 + (4 * HOUR if program else HOUR))


def test_logins_within_minutes_are_one_visit() -> None:
    """A tool that opens ten connections in a minute has no rhythm of six seconds: it is expected for an hour."""
    visits = Visits()
    for turn in range(10):
        came(visits, turn * 6.0)

    assert is_expected(visits, HOUR)
    assert not is_expected(visits, 60.0 + HOUR)


def test_a_visit_that_lasts_is_one() -> None:
    """Who stays for hours is here, and is expected from the end on."""
    visits = Visits()
    for minute in range(300):
        came(visits, minute * 60.0)

    assert is_expected(visits, 300 * 60.0 + 3000.0)
    assert not is_expected(visits, 300 * 60.0 + HOUR)


def test_thousands_of_users_are_not_remembered() -> None:
    """What is kept is bounded, and the newest are kept."""
    visits = Visits()
    for number in range(2000):
        came(visits, number / 1000.0, user=f"user{number}")

    assert len(visits._visitors) <= 64
    last = visits.find_expected(3.0)
    assert last is not None
    assert last.user == "user1999"


def logs_out(host: FolderHost, name: str = "3") -> None:
    """The session's file goes, as logind's does."""
    (host.root / f"run/systemd/sessions/{name}").unlink()


def test_a_copy_or_command_over_ssh_is_expected_again_for_an_hour(host: FolderHost) -> None:
    """A scheduler elsewhere begins each of its jobs by SSH: between two of them the machine is occupied."""
    signal = People(SessionSettings(), host.roots)
    host.write("run/systemd/sessions/3", a_session("deploy", tty="", kind="unspecified"))
    seen(host, signal)
    logs_out(host)
    host.pass_time(1200)
    soon = seen(host, signal)
    host.pass_time(3000)

    assert soon.says is State.OCCUPIED
    note = "deploy was here by SSH without a terminal 20m ago, and may come again within 40m"
    assert (soon.note, soon.owner and soon.owner.user) == (note, "deploy")
    assert seen(host, signal).says is State.IDLE


def test_a_rhythm_of_three_hours_is_kept(host: FolderHost) -> None:
    """What came twice is expected for twice the time between."""
    signal = People(SessionSettings(), host.roots)
    for _ in range(2):
        host.write("run/systemd/sessions/3", a_session("deploy", tty="", kind="unspecified"))
        seen(host, signal)
        logs_out(host)
        host.pass_time(10800)

    assert seen(host, signal).says is State.OCCUPIED


@pytest.mark.parametrize("login", [a_session(tty="pts/0"), a_session(tty="", kind="x11", remote=False)])
def test_who_closes_a_terminal_or_leaves_a_desktop_has_left(host: FolderHost, login: str) -> None:
    """A person leaves on purpose: nobody is expected."""
    signal = People(SessionSettings(), host.roots)
    host.terminal("pts/0", silent_seconds=5)
    host.write("run/systemd/sessions/3", login)
    seen(host, signal)
    logs_out(host)
    (host.root / "dev/pts/0").unlink()
    host.pass_time(60)

    assert seen(host, signal).says is State.IDLE


@pytest.mark.parametrize(
    ("uid", "told", "says"),
    [
        ("1001", "NAME=deploy\nSTATE=closing\nSESSIONS=\n", State.OCCUPIED),
        ("1001", "NAME=deploy\nSTATE=closing\nSESSIONS=7\n", State.IDLE),  # something is left of it, for days perhaps
        ("1001", "NAME=deploy\nSTATE=lingering\n", State.IDLE),
        ("0", "NAME=root\nSTATE=closing\n", State.IDLE),  # by cron, on some distributions
        ("998", "NAME=sysstat\nSTATE=closing\n", State.IDLE),
    ],
)
def test_a_command_shorter_than_the_time_between_two_looks(host: FolderHost, uid: str, told: str, says: State) -> None:
    """A user is kept by logind for ten seconds after the last session: a command of one second is not missed."""
    signal = People(SessionSettings(), host.roots)
    seen(host, signal)
    host.write(f"run/systemd/users/{uid}", told)
    seen(host, signal)
    host.pass_time(1200)

    (host.root / f"run/systemd/users/{uid}").unlink()

    assert seen(host, signal).says is says
