"""agent/wall.py: what people read on their terminals, when, and that nothing there holds anything up."""

import os
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.agent import wall as module
from gpuwatch.agent.command import CommandResult, run
from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.sessions import People
from gpuwatch.agent.evidence.settings import SessionSettings
from gpuwatch.agent.posted import RetryLaterError
from gpuwatch.agent.wall import NoticeResult, Terminals, reminders
from gpuwatch.model.activity import State
from tests.support.fakes.fake_ttys import Seat, at
from tests.support.fakes.host import FolderHost, utmp_record
from tests.support.real.agents import eventually

HALF_AN_HOUR = 1800.0
NOTICE = (
    b"gpuwatch: box is to be stopped at 2026-01-05 00:46 UTC, in 30 minutes.\n"
    b"To keep it, on this machine:     gpuwatch snooze 4h\n"
    b"Why, where the controller runs:  gpuwatch explain i-1\n"
)
STAYS = b"gpuwatch: box stays on; the notice of its stop is withdrawn.\n"


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host where nobody is logged in."""
    return FolderHost(tmp_path)


@pytest.fixture
def seat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seat]:
    """Somebody at a terminal, and a stand-in for wall(1) that writes there."""
    with Seat() as taken:
        monkeypatch.setattr(module, "_WALL", ("tee", str(taken.path)))
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


def announce(terminals: Terminals, host: FolderHost, seconds: float = HALF_AN_HOUR, key: str = "n1") -> NoticeResult:
    """A notice of a stop in so many seconds."""
    return terminals.announce(key, "stop", host.clock.now() + timedelta(seconds=seconds))


def repeaters() -> int:
    """Threads that repeat notices."""
    return sum(thread.name == "terminals" for thread in threading.enumerate())


def becomes_quiet() -> None:
    """Wait until nobody repeats anything any more."""
    eventually(lambda: repeaters() == 0, threading.enumerate)


def test_a_notice_says_what_when_and_how_to_keep_it(host: FolderHost, seat: Seat) -> None:
    """In plain ASCII, with a bell, on lines of its own."""
    terminals = of(host, at(host, seat))
    result = announce(terminals, host)
    terminals.stop()

    assert (result, seat.shown()) == (NoticeResult(reached=1), NOTICE)


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
    terminals.announce("n1", "terminate", host.clock.now() + timedelta(seconds=seconds))
    terminals.stop()
    shown = seat.shown().decode()

    assert "be terminated, for good" in shown
    assert f"in {words}" in shown


def test_people_are_told_again_at_five_minutes_and_at_one(host: FolderHost, seat: Seat) -> None:
    """On the monotonic clock, whatever the wall clock does; and then no more."""
    terminals = of(host, at(host, seat))
    announce(terminals, host)
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
    announce(terminals, host)
    seat.shown()
    host.clock.advance(1770)
    becomes_quiet()

    assert seat.shown().count(b"gpuwatch: ") == 1

    announce(terminals, host, key="n2")
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
    announce(terminals, host)
    seat.shown()
    again = [announce(terminals, host) for _ in range(20)]
    threads = repeaters()
    terminals.stop()

    assert set(map(repr, again)) == {repr(NoticeResult(reached=1, repeated=True))}
    assert (seat.shown(), threads) == (b"", 1)


def test_nothing_comes_after_a_withdrawal(host: FolderHost, seat: Seat) -> None:
    """It is said once; no reminder follows, and a late copy of the notice is not written any more."""
    terminals = of(host, at(host, seat))
    announce(terminals, host)
    first = seat.shown()
    withdrawn = [terminals.withdraw("n1"), terminals.withdraw("n1")]
    second = seat.shown()
    becomes_quiet()
    host.clock.advance(1600)
    late = announce(terminals, host)

    assert withdrawn == [NoticeResult(reached=1), NoticeResult(reached=1, repeated=True)]
    assert (first, second, seat.shown()) == (NOTICE, STAYS, b"")
    assert (late.repeated, repeaters()) == (True, 0)


def test_what_nobody_read_is_withdrawn_in_silence(host: FolderHost, seat: Seat) -> None:
    """A key that was never heard of here, and a notice while nobody was there."""
    terminals = of(host, at(host))
    nobody = announce(terminals, host)
    at(host, seat)

    assert (nobody, terminals.withdraw("other"), terminals.withdraw("n1")) == (
        NoticeResult(),
        NoticeResult(),
        NoticeResult(),
    )
    becomes_quiet()
    assert seat.shown() == b""


def test_whoever_comes_later_is_told(host: FolderHost, seat: Seat) -> None:
    """A notice that reached nobody is written when it is asked again; the reminder comes in any case."""
    terminals = of(host, at(host))
    announce(terminals, host)
    at(host, seat)
    again = terminals.announce("n1", "stop", host.clock.now() + timedelta(seconds=HALF_AN_HOUR))

    terminals.stop()

    assert (again, seat.shown()) == (NoticeResult(reached=1), NOTICE)


def test_a_reminder_that_reaches_somebody_is_the_answer_from_then_on(host: FolderHost, seat: Seat) -> None:
    """The notice itself came while nobody was there; asked again, it was said, and is said no more."""
    terminals = of(host, at(host))
    announce(terminals, host)
    at(host, seat)
    host.clock.advance(1500)
    eventually(seat.shown, threading.enumerate)
    again = announce(terminals, host, seconds=300)

    assert (again, terminals.withdraw("n1").reached) == (NoticeResult(reached=1, repeated=True), 1)
    assert seat.shown() == STAYS


def test_at_most_one_text_of_a_kind_in_a_minute(host: FolderHost, seat: Seat) -> None:
    """Whoever asks, with whatever keys; the notice in force stays as it is."""
    terminals = of(host, at(host, seat))
    announce(terminals, host)
    host.clock.advance(59.9)
    with pytest.raises(RetryLaterError, match="another notice was written less than a minute ago"):
        announce(terminals, host, key="n2")
    seat.shown()
    terminals.withdraw("n1")
    host.clock.advance(0.1)
    announce(terminals, host, key="n3")
    seat.shown()
    with pytest.raises(RetryLaterError, match="another withdrawal"):
        terminals.withdraw("n3")
    becomes_quiet()
    host.clock.advance(60)

    assert terminals.withdraw("n3").reached == 1
    assert seat.shown() == STAYS


def test_who_wants_no_messages_gets_none(host: FolderHost, seat: Seat) -> None:
    """After `mesg n` a terminal does not count as reached; where all are like that, wall(1) is not run."""
    with Seat(messages=False) as closed:
        terminals = of(host, at(host, closed, seat))
        result = announce(terminals, host)
        at(host, closed)
        host.clock.advance(60)
        nobody = announce(terminals, host, key="n2")
        terminals.stop()

    refused = {closed.name: "its owner wants no messages (mesg n)"}
    assert (result, seat.shown()) == (NoticeResult(reached=1, refused=refused), NOTICE)
    assert nobody == NoticeResult(refused=refused)


@pytest.mark.parametrize(
    ("wall", "why"),
    [
        ("no-such-program", "no-such-program could not be started: No such file or directory"),
        ("false", "wall ended with status 1"),
        ("yes", "yes did not end within 0.1s"),
    ],
)
def test_a_wall_that_fails_reaches_nobody(
    host: FolderHost, seat: Seat, monkeypatch: pytest.MonkeyPatch, wall: str, why: str
) -> None:
    """It is missing, fails, or hangs: each terminal has the reason, and the next attempt need not wait a minute."""
    monkeypatch.setattr(module, "_WALL", (wall,))
    monkeypatch.setattr(module, "_WALL_SECONDS", 0.1 if wall == "yes" else 30.0)
    terminals = of(host, at(host, seat))
    results = [announce(terminals, host), announce(terminals, host)]
    terminals.stop()

    assert results == [NoticeResult(refused={seat.name: why})] * 2


def test_a_text_that_is_being_written_holds_nobody_up(
    host: FolderHost, seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other clients are turned away in time, and an end of the agent does not wait."""
    held, go = threading.Event(), threading.Event()

    def hang(argv: Sequence[str], deadline_seconds: float, text: bytes) -> CommandResult:
        held.set()
        go.wait(20)
        return run(argv, deadline_seconds, text)

    monkeypatch.setattr(module, "run", hang)
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.05)
    terminals = of(host, at(host, seat))
    writer = threading.Thread(target=announce, args=(terminals, host))
    writer.start()
    held.wait(20)
    with pytest.raises(RetryLaterError, match="still being written"):
        announce(terminals, host)
    with pytest.raises(RetryLaterError, match="still being written"):
        terminals.withdraw("n1")
    terminals.stop()
    go.set()
    writer.join(20)
    terminals.stop()

    assert seat.shown() == NOTICE


def test_what_is_no_open_terminal_does_not_count(host: FolderHost) -> None:
    """A terminal that is gone, a file that nobody else may write, names that utmp should not have."""
    (host.root / "dev/pts/2").write_text("mine", encoding="utf-8")
    (host.root / "dev/pts/2").chmod(0o644)
    lines = ["pts/2", "pts/4", "watchdog", "pts/../null", ":0", "pts/2"]
    host.write("run/utmp", b"".join(utmp_record("alice", line) for line in lines))
    terminals = of(host, host.roots)
    result = announce(terminals, host)
    terminals.stop()

    assert result.reached == 0
    assert result.refused == {
        "pts/2": "its owner wants no messages (mesg n)",
        "pts/4": "No such file or directory",
        "watchdog": "No such file or directory",
        "alice without a terminal": "it has no terminal that can be written to",
    }


def test_who_cannot_be_looked_for_is_told(host: FolderHost, seat: Seat) -> None:
    """A utmp that is none: the answer says so, and those that logind lists are result."""
    roots = at(host, seat)
    host.write("run/utmp", b"x")
    session = f"USER=alice\nLEADER=1\nTTY={seat.name}\nTYPE=tty\nCLASS=user\nSTATE=active\n"
    host.write("run/systemd/sessions/1", session)
    terminals = of(host, roots)
    result = announce(terminals, host)
    terminals.stop()

    assert (result.reached, len(result.doubts)) == (1, 1)
    assert "no multiple of a record" in result.doubts[0]


@pytest.mark.parametrize(
    ("silent_seconds", "says"), [(90_000.0, State.IDLE), (7200.0, State.OCCUPIED), (60.0, State.BUSY)]
)
def test_a_notice_is_nobodys_presence(host: FolderHost, seat: Seat, silent_seconds: float, says: State) -> None:
    """Who was silent is as silent after it, who was at work is at work: input alone moves what is looked at."""
    terminals, people = of(host, at(host, seat)), watched(host, seat)
    seat.silent_since(silent_seconds, host)
    before, stamp = host.tells(people), seat.path.stat()
    announce(terminals, host)
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
    announce(terminals, host)
    terminals.stop()
    os.write(seat.master, b"gpuwatch snooze 4h\n")
    os.read(seat.slave, 100)

    assert host.tells(people).says is State.BUSY
