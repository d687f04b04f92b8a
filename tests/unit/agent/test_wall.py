"""agent/wall.py: what people read on their terminals, when, and that nothing there holds anything up."""

import os
import termios
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.agent import wall as module
from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.sessions import People
from gpuwatch.agent.evidence.settings import SessionSettings
from gpuwatch.agent.wall import NotNowError, Terminals, Written, reminders, write
from gpuwatch.model.fleet import State
from tests.support.fakes.fake_ttys import Seat, at
from tests.support.fakes.host import FolderHost, utmp_record
from tests.support.real.agents import eventually

HALF_AN_HOUR = 1800.0
NOTICE = (
    b"\x07\r\ngpuwatch: box is to be stopped at 2026-01-05 00:46 UTC, in 30 minutes.\r\n"
    b"To keep it, on this machine:     gpuwatch keep 4h\r\n"
    b"Why, where the controller runs:  gpuwatch explain i-1\r\n"
)
STAYS = b"\x07\r\ngpuwatch: box stays on; what was said of its end no longer holds.\r\n"


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host where nobody is logged in."""
    return FolderHost(tmp_path)


@pytest.fixture
def seat() -> Iterator[Seat]:
    """Somebody at a terminal."""
    with Seat() as taken:
        yield taken


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whoever repeats looks at the clock often, for the tests' clock jumps; no test leaves one behind."""
    monkeypatch.setattr(module, "_LONGEST_WAIT", 0.01)
    yield
    becomes_quiet()


def of(host: FolderHost, roots: Roots) -> Terminals:
    """Its terminals."""
    return Terminals(host.clock, roots, "box", lambda: "i-1")


def watched(host: FolderHost, seat: Seat) -> People:
    """What looks for people, on a host that has this one terminal alone."""
    (host.root / "dev" / seat.name).symlink_to(seat.path)
    return People(SessionSettings(), host.roots)


def tell(terminals: Terminals, host: FolderHost, seconds: float = HALF_AN_HOUR, key: str = "n1") -> Written:
    """A notice of a stop in so many seconds."""
    return terminals.tell(key, "stop", host.clock.now() + timedelta(seconds=seconds))


def repeaters() -> int:
    """Threads that repeat notices."""
    return sum(thread.name == "terminals" for thread in threading.enumerate())


def becomes_quiet() -> None:
    """Wait until nobody repeats anything any more."""
    eventually(lambda: repeaters() == 0, threading.enumerate)


def test_a_notice_says_what_when_and_how_to_keep_it(host: FolderHost, seat: Seat) -> None:
    """In plain ASCII, with a bell, on lines of its own."""
    terminals = of(host, at(host, seat))
    told = tell(terminals, host)
    terminals.stop()

    assert (told, seat.shown()) == (Written(reached=1), NOTICE)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "less than a minute"),
        (59, "less than a minute"),
        (60, "1 minute."),
        (7199, "120 minutes"),
        (9000, "2 hours"),
    ],
)
def test_how_long_it_is_until_then(host: FolderHost, seat: Seat, seconds: float, words: str) -> None:
    """To the minute, from two hours on to the hour."""
    terminals = of(host, at(host, seat))
    terminals.tell("n1", "terminate", host.clock.now() + timedelta(seconds=seconds))
    terminals.stop()
    shown = seat.shown().decode()

    assert "be terminated, for good" in shown
    assert f"in {words}" in shown


def test_people_are_told_again_at_five_minutes_and_at_one(host: FolderHost, seat: Seat) -> None:
    """On the monotonic clock, whatever the wall clock does; and then no more."""
    terminals = of(host, at(host, seat))
    tell(terminals, host)
    seen = [seat.shown()]
    host.clock.jump(86_400)
    for seconds, words in ((1500, b"in 5 minutes"), (240, b"in 1 minute.")):
        host.clock.advance(seconds - 1)
        seen.append(seat.shown())
        host.clock.advance(1)
        eventually(lambda words=words: words in seat.shown(), lambda: seen)  # type: ignore[misc]  # a default of its own
    becomes_quiet()
    host.clock.advance(3600)

    assert [seat.shown(), *seen] == [b"", NOTICE, b"", b""]


def test_a_reminder_missed_is_not_made_up_for_twice(host: FolderHost, seat: Seat) -> None:
    """Both were due while nobody could write: one text, with what is left now; none after the end."""
    terminals = of(host, at(host, seat))
    tell(terminals, host)
    seat.shown()
    host.clock.advance(1770)
    becomes_quiet()

    assert seat.shown().count(b"gpuwatch: ") == 1

    tell(terminals, host, key="n2")
    seat.shown()
    host.clock.advance(1801)
    becomes_quiet()

    assert seat.shown() == b""


@pytest.mark.parametrize(
    ("left", "after"), [(1800, (1500, 1740)), (360, (60, 300)), (330, (270,)), (119, ()), (0, ()), (-1e9, ())]
)
def test_a_reminder_right_after_the_notice_is_left_out(left: float, after: tuple[float, ...]) -> None:
    """Nothing within the first minute."""
    assert reminders(left) == after


def test_one_notice_is_written_once(host: FolderHost, seat: Seat) -> None:
    """Asked again, the answer is what it was, nothing is written, and one thread repeats it at most."""
    terminals = of(host, at(host, seat))
    tell(terminals, host)
    seat.shown()
    again = [tell(terminals, host) for _ in range(20)]
    threads = repeaters()
    terminals.stop()

    assert set(map(repr, again)) == {repr(Written(reached=1, repeated=True))}
    assert (seat.shown(), threads) == (b"", 1)


def test_nothing_comes_after_a_withdrawal(host: FolderHost, seat: Seat) -> None:
    """It is said once; no reminder follows, and a late copy of the notice is not written any more."""
    terminals = of(host, at(host, seat))
    tell(terminals, host)
    first = seat.shown()
    withdrawn = [terminals.withdraw("n1"), terminals.withdraw("n1")]
    second = seat.shown()
    becomes_quiet()
    host.clock.advance(1600)
    late = tell(terminals, host)

    assert withdrawn == [Written(reached=1), Written(reached=1, repeated=True)]
    assert (first, second, seat.shown()) == (NOTICE, STAYS, b"")
    assert (late.repeated, repeaters()) == (True, 0)


def test_what_nobody_read_is_withdrawn_in_silence(host: FolderHost, seat: Seat) -> None:
    """A key that was never heard of here, and a notice while nobody was there."""
    terminals = of(host, at(host))
    nobody = tell(terminals, host)
    at(host, seat)

    assert (nobody, terminals.withdraw("other"), terminals.withdraw("n1")) == (Written(), Written(), Written())
    becomes_quiet()
    assert seat.shown() == b""


def test_whoever_comes_later_is_told(host: FolderHost, seat: Seat) -> None:
    """A notice that reached nobody is written when it is asked again; the reminder comes in any case."""
    terminals = of(host, at(host))
    tell(terminals, host)
    at(host, seat)
    again = terminals.tell("n1", "stop", host.clock.now() + timedelta(seconds=HALF_AN_HOUR))

    terminals.stop()

    assert (again, seat.shown()) == (Written(reached=1), NOTICE)


def test_a_reminder_that_reaches_somebody_is_the_answer_from_then_on(host: FolderHost, seat: Seat) -> None:
    """The notice itself came while nobody was there; asked again, it was said, and is said no more."""
    terminals = of(host, at(host))
    tell(terminals, host)
    at(host, seat)
    host.clock.advance(1500)
    eventually(seat.shown, threading.enumerate)
    again = tell(terminals, host, seconds=300)

    assert (again, terminals.withdraw("n1").reached) == (Written(reached=1, repeated=True), 1)
    assert seat.shown() == STAYS


def test_at_most_one_text_of_a_kind_in_a_minute(host: FolderHost, seat: Seat) -> None:
    """Whoever asks, with whatever keys; the notice in force stays as it is."""
    terminals = of(host, at(host, seat))
    tell(terminals, host)
    host.clock.advance(59.9)
    with pytest.raises(NotNowError, match="another notice was written less than a minute ago"):
        tell(terminals, host, key="n2")
    seat.shown()
    terminals.withdraw("n1")
    host.clock.advance(0.1)
    tell(terminals, host, key="n3")
    seat.shown()
    with pytest.raises(NotNowError, match="another withdrawal"):
        terminals.withdraw("n3")
    becomes_quiet()
    host.clock.advance(60)

    assert terminals.withdraw("n3").reached == 1
    assert seat.shown() == STAYS


def test_who_wants_no_messages_gets_none(host: FolderHost, seat: Seat) -> None:
    """After `mesg n` a terminal is left alone, by root too; the others are written on."""
    with Seat(messages=False) as closed:
        terminals = of(host, at(host, closed, seat))
        told = tell(terminals, host)
        terminals.stop()

        assert (told.reached, told.refused) == (1, {closed.name: "its owner wants no messages (mesg n)"})
        assert (closed.shown(), seat.shown()) == (b"", NOTICE)


def test_a_stuck_terminal_holds_nobody_up(host: FolderHost, seat: Seat) -> None:
    """One that nobody reads from, one stopped with Ctrl-S: they are told of, and the next one is written on."""
    with Seat() as full, Seat() as stopped:
        full.fill()
        termios.tcflow(stopped.slave, termios.TCOOFF)
        terminals = of(host, at(host, full, stopped, seat))
        told = tell(terminals, host)
        terminals.stop()

    assert (told.reached, sorted(told.refused)) == (1, sorted([full.name, stopped.name]))
    assert all("nobody reads it, or it is stopped" in why for why in told.refused.values())
    assert seat.shown() == NOTICE


def test_a_kernel_that_hangs_costs_one_thread(host: FolderHost, seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a write does not come back everybody else is turned away in time, and an end of the agent does not wait."""
    held, go = threading.Event(), threading.Event()

    def hang(path: Path, data: bytes) -> None:
        held.set()
        go.wait(20)
        write(path, data)

    monkeypatch.setattr(module, "write", hang)
    monkeypatch.setattr(module, "_TURN_SECONDS", 0.05)
    terminals = of(host, at(host, seat))
    writer = threading.Thread(target=tell, args=(terminals, host))
    writer.start()
    held.wait(20)
    with pytest.raises(NotNowError, match="holds up"):
        tell(terminals, host)
    with pytest.raises(NotNowError, match="holds up"):
        terminals.withdraw("n1")
    terminals.stop()
    go.set()
    writer.join(20)
    terminals.stop()

    assert seat.shown() == NOTICE


def test_only_terminals_are_written_on(host: FolderHost, seat: Seat) -> None:
    """Not through a link, not into a file, not to what utmp should not name; the reasons are told."""
    name = host.root / "dev/pts"
    (name / "1").symlink_to(seat.path)
    (name / "2").write_text("mine", encoding="utf-8")
    os.mkfifo(name / "3", 0o666)
    lines = ["pts/1", "pts/2", "pts/3", "pts/4", "watchdog", "pts/../null", ":0", "pts/1"]
    host.write("run/utmp", b"".join(utmp_record("alice", line) for line in lines))
    terminals = of(host, host.roots)
    told = tell(terminals, host)
    terminals.stop()

    assert told.reached == 0
    assert told.refused == {
        "pts/1": "it is no terminal",
        "pts/2": "it is no terminal",
        "pts/3": "it is no terminal",
        "pts/4": "No such file or directory",
        "watchdog": "it is none that is written on",
        "alice without a terminal": "its text cannot be seen",
    }
    assert (seat.shown(), (name / "2").read_text(encoding="utf-8")) == (b"", "mine")
    with pytest.raises(OSError, match="no terminal"):
        write(Path("/dev/null"), b"x")


def test_who_cannot_be_looked_for_is_told(host: FolderHost, seat: Seat) -> None:
    """A utmp that is none: the answer says so, and those that logind lists are told."""
    roots = at(host, seat)
    host.write("run/utmp", b"x")
    session = f"USER=alice\nLEADER=1\nTTY={seat.name}\nTYPE=tty\nCLASS=user\nSTATE=active\n"
    host.write("run/systemd/sessions/1", session)
    terminals = of(host, roots)
    told = tell(terminals, host)
    terminals.stop()

    assert (told.reached, len(told.doubts)) == (1, 1)
    assert "no multiple of a record" in told.doubts[0]


@pytest.mark.parametrize(("silent_seconds", "says"), [(7200.0, State.IDLE), (60.0, State.BUSY)])
def test_a_notice_is_nobodys_presence(host: FolderHost, seat: Seat, silent_seconds: float, says: State) -> None:
    """Who was silent is as silent after it, who was at work is at work: input alone moves what is looked at."""
    terminals, people = of(host, at(host, seat)), watched(host, seat)
    seat.silent_since(silent_seconds, host)
    before, stamp = host.tells(people), seat.path.stat()
    tell(terminals, host)
    terminals.withdraw("n1")
    after, later = host.tells(people), seat.path.stat()

    assert seat.shown() == NOTICE + STAYS
    assert (before.says, after.says, after.observed) == (says, says, before.observed)
    assert later.st_mtime_ns != stamp.st_mtime_ns, "nothing was written that a look could have seen"
    assert later.st_atime_ns == stamp.st_atime_ns


def test_a_key_after_a_notice_is_presence(host: FolderHost, seat: Seat) -> None:
    """Nor does a notice hide the person who answers it."""
    terminals, people = of(host, at(host, seat)), watched(host, seat)
    seat.silent_since(7200, host)
    host.tells(people)
    tell(terminals, host)
    terminals.stop()
    os.write(seat.master, b"gpuwatch keep 4h\n")
    os.read(seat.slave, 100)

    assert host.tells(people).says is State.BUSY
