"""agent/evidence/sessions.py: who is at work on the machine, as utmp, logind and the terminals tell."""

import os
import tty
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.evidence.sessions import People
from gpuwatch.agent.evidence.settings import SessionSettings
from gpuwatch.agent.processes.process import Process, ProcessView
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.host import FolderHost, utmp_record

HALF_AN_HOUR = 1800.0


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host where nobody is logged in."""
    return FolderHost(tmp_path)


def people(host: FolderHost) -> People:
    """The signal at its defaults."""
    return People(SessionSettings(), host.roots)


def a_month_later(host: FolderHost) -> None:
    """The host's clock, so that what is typed by it comes after what the tests open."""
    opened = host.write("dev/tty", "").stat()
    host.clock.wall = datetime.fromtimestamp(opened.st_ctime, UTC) + timedelta(days=30)
    host.login_written()


def a_session(user: str = "alice", *, tty: str = "pts/0", kind: str = "tty", **more: str) -> str:
    """A file of /run/systemd/sessions, as logind writes it."""
    known = {"UID": "1000", "USER": user, "STATE": "active", "TYPE": kind, "CLASS": "user", "LEADER": "4242"}
    known |= {"TTY": tty} if tty else {}
    return "# This is private data. Do not parse.\n" + "".join(f"{k}={v}\n" for k, v in {**known, **more}.items())


def seen(host: FolderHost, signal: People) -> Evidence:
    """Its one finding where all processes are seen, and nobody's program runs."""
    now = host.moment()
    view = ProcessView(monotonic_seconds=now.monotonic_seconds, processes={})
    (found,) = signal.find_evidence(replace(now, processes=view))
    return found


def test_nobody_is_idle(host: FolderHost) -> None:
    """Nobody logged in says idle, with or without a utmp."""
    without = host.tells(people(host))
    host.write("run/utmp", utmp_record("reboot", "~", kind=2) + utmp_record("LOGIN", "tty1", kind=6))

    assert (without.says, without.note) == (State.IDLE, "no user is logged in")
    assert host.tells(people(host)).says is State.IDLE


@pytest.mark.parametrize(
    ("silent_seconds", "says"),
    [
        (0.0, State.BUSY),
        (1799.0, State.BUSY),
        (1800.0, State.OCCUPIED),
        (14399.0, State.OCCUPIED),
        (14400.0, State.IDLE),
    ],
)
@pytest.mark.parametrize("source", ["utmp", "logind"])
def test_a_session_counts_until_it_is_silent(host: FolderHost, source: str, silent_seconds: float, says: State) -> None:
    """Whoever typed within half an hour is at work, whichever of the two lists them; within four hours, there."""
    host.terminal("pts/0", silent_seconds=silent_seconds)
    if source == "utmp":
        host.write("run/utmp", utmp_record("alice", "pts/0"))
    else:
        host.write("run/systemd/sessions/3", a_session())
    found = host.tells(people(host))

    assert (found.says, found.limit) == (says, HALF_AN_HOUR)
    assert found.observed == pytest.approx(silent_seconds)
    before = {State.BUSY: "", State.OCCUPIED: "logged in: ", State.IDLE: "silent: "}
    assert found.note == f"{before[says]}alice on pts/0"


def test_a_note_names_who_is_at_work_and_nobody_else(host: FolderHost) -> None:
    """User and terminal, and neither the address they come from nor those who are silent."""
    host.terminal("pts/0", silent_seconds=60)
    host.terminal("pts/1", silent_seconds=90_000)
    host.write("run/utmp", utmp_record("alice", "pts/0") + utmp_record("bob", "pts/1"))

    assert host.tells(people(host)).note == "alice on pts/0"


def test_a_real_terminal_is_silent_until_somebody_types(host: FolderHost) -> None:
    """Output does not count as presence; a key does."""
    master, slave = os.openpty()
    try:
        tty.setraw(slave)
        terminal = Path(os.ttyname(slave))
        name = terminal.relative_to("/dev")
        (host.root / "dev" / name).symlink_to(terminal)  # alone: what else is typed on this machine is another matter
        host.write("run/utmp", utmp_record("alice", str(name)))
        host.clock.wall = type(host.clock.wall).fromtimestamp(terminal.stat().st_ctime, host.clock.wall.tzinfo)
        host.login_written()
        long_ago = host.clock.wall.timestamp() - 5 * 3600
        os.utime(terminal, (long_ago, long_ago))
        signal = people(host)
        silent = host.tells(signal)
        os.write(slave, b"step 1000 loss 0.1\r\n")
        after_output = host.tells(signal)
        os.write(master, b"x")
        os.read(slave, 1)
        after_a_key = host.tells(signal)
    finally:
        os.close(master)
        os.close(slave)

    assert [each.says for each in (silent, after_output, after_a_key)] == [State.IDLE, State.IDLE, State.BUSY]


def test_a_wall_clock_that_leaps_makes_nobody_silent(host: FolderHost) -> None:
    """After the first look silence is counted on the monotonic clock."""
    host.terminal("pts/0", silent_seconds=60)
    host.write("run/utmp", utmp_record("alice", "pts/0"))
    signal = people(host)
    host.tells(signal)
    host.clock.jump(86_400)
    leapt = host.tells(signal)
    host.pass_time(1800)

    assert leapt.says is State.BUSY
    assert leapt.observed == pytest.approx(60)
    assert host.tells(signal).says is State.OCCUPIED


def test_a_stamp_in_the_future_is_presence(host: FolderHost) -> None:
    """A clock that went back leaves terminals that were used later than now."""
    host.terminal("pts/0", silent_seconds=-3600)
    host.write("run/utmp", utmp_record("alice", "pts/0"))

    assert host.tells(people(host)).says is State.BUSY


@pytest.mark.parametrize(("silent_seconds", "says"), [(60.0, State.BUSY), (90_000.0, State.IDLE)])
def test_an_ssh_login_has_its_terminal_in_utmp_alone(host: FolderHost, silent_seconds: float, says: State) -> None:
    """systemd-logind learns of it later and does not write it into the session's file; the leader is the same."""
    host.terminal("pts/0", silent_seconds=silent_seconds)
    host.process(4242)
    host.process(4300)
    host.write("run/utmp", utmp_record("alice", "pts/0", pid=4242))
    host.write("run/systemd/sessions/3", a_session(tty=""))
    found = seen(host, people(host))
    host.write("run/systemd/sessions/4", a_session(tty="", LEADER="4300"))

    assert found.says is says
    assert seen(host, people(host)).says is (State.BUSY if says is State.BUSY else State.OCCUPIED)


def view(*processes: Process) -> ProcessView:
    """All processes of a host."""
    return ProcessView(monotonic_seconds=0.0, processes={each.pid: each for each in processes})


def process(pid: int, name: str, parent: int, terminal: int | None = None) -> Process:
    """A process of a login, on a pseudo terminal or on none."""
    tty = 0 if terminal is None else 136 << 8 | terminal
    about = {"pid": pid, "name": name, "parent": parent, "tty": tty, "group": pid, "session": pid, "uid": 1000}
    return Process(started_ticks=1, state="S", executable=name, **about)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("silent_seconds", "says"), [(60.0, State.BUSY), (3 * 3600.0, State.OCCUPIED), (90_000.0, State.IDLE)]
)
@pytest.mark.parametrize("daemon", ["sshd", "sshd-session", "dropbear"])
def test_without_utmp_an_ssh_login_is_timed_by_the_terminal_of_its_shell(
    host: FolderHost, daemon: str, silent_seconds: float, says: State
) -> None:
    """Debian 13 has no utmp, and logind does not know the terminal; what runs in tmux has terminals of its own."""
    host.terminal("pts/0", silent_seconds=silent_seconds)
    host.terminal("pts/1", silent_seconds=90_000)
    host.process(4242)
    host.write("run/systemd/sessions/3", a_session(tty="", kind="unspecified", REMOTE="1"))
    shell, vim = process(4301, "bash", 4300, 0), process(4302, "vim", 4301, 0)
    tmux, pane = process(4303, "tmux: server", 1), process(4304, "bash", 4303, 1)
    login = view(process(4242, daemon, 1), process(4300, daemon, 4242), shell, vim, tmux, pane)
    (found,) = people(host).find_evidence(replace(host.moment(), processes=login))

    assert found.says is says
    assert "alice on pts/0" in (found.note or "")


@pytest.mark.parametrize("keeper", ["tmux: server", "screen", "zellij"])
def test_a_window_that_utmp_lists_is_no_login(host: FolderHost, keeper: str) -> None:
    """A record for each is from tmux or screen; the person sits at the terminal from which they look at it."""
    host.terminal("pts/0", silent_seconds=7200)
    host.write("run/utmp", utmp_record("alice", "pts/0", pid=4242))
    host.process(4242)
    window = view(process(4242, keeper, 1), process(4301, "bash", 4242, 0))
    login = view(process(4242, "sshd", 1), process(4301, "bash", 4242, 0))

    assert [people(host).find_evidence(replace(host.moment(), processes=each))[0].says for each in (window, login)] == [
        State.IDLE,
        State.OCCUPIED,
    ]


def test_without_utmp_an_editor_beside_a_terminal_is_not_timed(host: FolderHost) -> None:
    """One connection carries a shell and a remote editor: the terminal says nothing of the editor."""
    host.terminal("pts/0", silent_seconds=90_000)
    host.process(4242)
    host.write("run/systemd/sessions/3", a_session(tty="", kind="unspecified", REMOTE="1"))
    both = view(process(4242, "sshd", 1), process(4301, "bash", 4242, 0), process(4302, "node", 4242))
    (found,) = people(host).find_evidence(replace(host.moment(), processes=both))

    assert (found.says, found.note) == (State.OCCUPIED, "logged in: alice without a terminal")


@pytest.mark.parametrize(
    "session",
    [
        a_session(tty="tty2", kind="wayland"),
        a_session(tty="", kind="x11", DISPLAY=":0"),
        a_session(tty="", kind="unspecified", REMOTE="1"),
        a_session(tty="../../etc/passwd"),
    ],
    ids=["a desktop", "X", "VS Code over SSH", "nonsense"],
)
def test_who_has_no_terminal_cannot_be_timed(host: FolderHost, session: str) -> None:
    """Somebody is there, working or not: unknown, with the name."""
    host.terminal("tty2", silent_seconds=90_000)
    host.process(4242)
    host.write("run/systemd/sessions/3", session)
    found = host.tells(people(host))

    assert found.says is State.UNKNOWN
    assert "alice without a terminal" in (found.note or "")


@pytest.mark.parametrize(
    "more", [{"CLASS": "greeter"}, {"CLASS": "background"}, {"CLASS": "manager"}, {"STATE": "closing"}]
)
def test_what_is_no_person_does_not_count(host: FolderHost, more: dict[str, str]) -> None:
    """A login screen, cron, a user's service manager, and what a person who left has left running."""
    host.terminal("tty1", silent_seconds=0)
    host.write("run/systemd/sessions/3", a_session(tty="tty1", **more))

    assert host.tells(people(host)).says is State.IDLE


def test_a_session_whose_end_nobody_wrote_down(host: FolderHost) -> None:
    """Terminal and process gone: it is over. Where /proc hides processes that is no proof, nor within a container."""
    host.write("run/utmp", utmp_record("alice", "pts/9"))
    on_the_host = host.tells(people(host))
    host.hide_processes()
    hidden = host.tells(people(host))
    host.namespace("pid:[4026532177]")
    in_a_container = host.tells(people(host))

    assert [on_the_host.says, hidden.says] == [State.IDLE, State.UNKNOWN]
    assert (in_a_container.says, in_a_container.note) == (
        State.UNKNOWN,
        "alice on pts/9, silent for an unknown time (No such file or directory)",
    )


@pytest.mark.parametrize(
    ("silent_seconds", "says"), [(1799.0, State.BUSY), (1800.0, State.OCCUPIED), (4 * 3600.0, State.IDLE)]
)
def test_who_types_needs_no_login(host: FolderHost, silent_seconds: float, says: State) -> None:
    """Session Manager of AWS, mosh, a shell of a remote editor: a terminal is open that no list of logins has.

    Somebody who has typed within hours may sit there and read, as at one with a login.
    """
    a_month_later(host)
    host.terminal("pts/0", silent_seconds=90_000)
    host.write("run/utmp", utmp_record("alice", "pts/0"))
    host.terminal("pts/4", silent_seconds=silent_seconds)
    found = host.tells(people(host))

    assert found.says is says
    assert "on pts/4" in (found.note or "")


def test_at_a_window_without_a_login_nobody_sits_and_one_in_a_container_hides_no_other(host: FolderHost) -> None:
    """The first terminal of a container has the number of the host's first, which is another one."""
    a_month_later(host)
    host.terminal("pts/0", silent_seconds=7200)
    tmux, pane = process(4242, "tmux: server", 1), process(4301, "bash", 4242, 0)
    inside = [replace(each, placement=Placement(container_id="0123456789ab")) for each in (tmux, pane)]

    seen = [replace(host.moment(), processes=view(*each)) for each in ((tmux, pane), inside)]
    assert [people(host).find_evidence(each)[0].says for each in seen] == [State.IDLE, State.OCCUPIED]


def test_a_terminal_that_was_only_opened_is_nobody(host: FolderHost) -> None:
    """A program opens one for another all the time; until something is typed there, nobody is."""
    opened = host.write("dev/pts/4", "").stat()
    host.clock.wall = datetime.fromtimestamp(opened.st_ctime, UTC)
    host.login_written()

    assert host.tells(people(host)).note == "no user is logged in"


def test_a_terminal_that_nobody_logged_in_on_ages_on_the_monotonic_clock(host: FolderHost) -> None:
    """As any other: a leap of the wall clock makes nobody silent, time does, and one that is closed is nobody's."""
    a_month_later(host)
    terminal = host.terminal("pts/4", silent_seconds=60)
    signal = people(host)
    host.tells(signal)
    host.clock.jump(86_400)
    leapt = host.tells(signal)
    host.pass_time(1800)
    later = host.tells(signal)
    host.pass_time(4 * 3600)
    much_later = host.tells(signal)
    terminal.unlink()

    assert [leapt.says, later.says, much_later.says] == [State.BUSY, State.OCCUPIED, State.IDLE]
    assert host.tells(signal).note == "no user is logged in"


def test_terminals_that_cannot_be_listed_are_unknown(host: FolderHost) -> None:
    """Somebody may type there."""
    (host.root / "dev/pts").rmdir()
    host.write("dev/pts", "no folder")

    assert host.tells(people(host)).says is State.UNKNOWN


def test_one_at_work_is_enough(host: FolderHost) -> None:
    """Busy wins over what cannot be told of another, and over a file that cannot be read."""
    host.terminal("pts/0", silent_seconds=5)
    host.write("run/systemd/sessions/1", "garbage")
    host.process(7)
    host.write("run/utmp", utmp_record("alice", "pts/0") + utmp_record("bob", "pts/1", pid=7))

    assert host.tells(people(host)).says is State.BUSY


def test_a_machine_that_shows_neither_utmp_nor_logind(host: FolderHost) -> None:
    """As from within a container without the host's /run: unknown, and what to do."""
    (host.root / "run/systemd/sessions").rmdir()
    found = host.tells(people(host))

    assert found.says is State.UNKNOWN
    assert "let the agent see the host's /run" in (found.note or "")


@pytest.mark.parametrize(
    "broken",
    [
        ("run/utmp", utmp_record("alice", "pts/0")[:-1]),
        ("run/utmp", b"\xff" * len(utmp_record("alice", "pts/0"))),
        ("run/systemd/sessions/3", b""),
        ("run/systemd/sessions/3", b"USER=alice\n"),
    ],
    ids=["half a record", "no records", "an empty session", "half a session"],
)
def test_broken_files_are_unknown(host: FolderHost, broken: tuple[str, bytes]) -> None:
    """What cannot be understood says nothing about people."""
    host.write(*broken)

    assert host.tells(people(host)).says is State.UNKNOWN


@given(data=st.binary(min_size=1, max_size=2000))
def test_garbage_is_never_idle(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever bytes a session file holds, they are somebody or a doubt."""
    host = FolderHost(tmp_path_factory.mktemp("host"))
    host.write("run/systemd/sessions/1", data)

    assert host.tells(people(host)).says is not State.IDLE
