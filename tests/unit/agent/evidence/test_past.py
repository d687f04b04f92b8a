"""agent/evidence/past.py: what an earlier agent saw in use stays so for the next one."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity.days import EMPTY
from gpuwatch.agent.evidence.habits_file import HabitsFile
from gpuwatch.agent.evidence.past import Past, Seen
from gpuwatch.agent.evidence.sessions import People
from gpuwatch.agent.evidence.settings import SessionSettings
from gpuwatch.agent.evidence.visits import MOST_USERS
from gpuwatch.agent.processes.process import ProcessView
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.host import FolderHost

HOUR, UP = 3600.0, 3 * 86400.0
BOOTED = "proc/sys/kernel/random/boot_id"


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host that is up for three days, on which nobody has logged in since."""
    host = FolderHost(tmp_path)
    host.pass_time(UP)
    return host


def entry(name: str, says: State) -> Evidence:
    """What a signal says."""
    return Evidence(name=name, says=says, observed=None, limit=None, unit="", source="/proc")


def restarted(host: FolderHost, past: Past, at: float, *, begin: float | None = None) -> Past:
    """The next agent, which begins at `begin`, with what the file has after the one before."""
    file = HabitsFile(host.root / "state/days.json")
    file.save(EMPTY, past.keep(at))
    kept, later = file.load(), Past(host.roots)
    assert kept.is_there
    later.take_up(kept.seen, at if begin is None else begin)
    return later


def is_expected(past: Past, at: float) -> bool:
    """Whether somebody may come back, after a look at which nobody is there."""
    past.visits.note({}, at)
    return past.visits.find_expected(at) is not None


visits = st.lists(
    st.tuples(st.integers(1, 4 * 3600), st.sampled_from(["deploy", "ci", "alice"]), st.booleans(), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(lived=visits, asked=st.lists(st.integers(1, 5 * 3600), min_size=1, max_size=6))
def test_a_restart_between_any_two_visits_changes_no_verdict(
    tmp_path_factory: pytest.TempPathFactory, lived: list[tuple[int, str, bool, bool]], asked: list[int]
) -> None:
    """Whoever came, and whenever the agent began anew: the same is expected, at each moment afterwards."""
    host = FolderHost(tmp_path_factory.mktemp("host"))
    one, other, at = Past(host.roots), Past(host.roots), UP
    for gap, user, program, restarts in lived:
        at += gap
        for each in (one, other):
            each.visits.note({user: program}, at)
        if restarts:
            other = restarted(host, other, at + 0.5)
        assert is_expected(other, at + 1.0) == is_expected(one, at + 1.0)
    for seconds in sorted(asked):
        assert is_expected(other, at + seconds + 1.5) == is_expected(one, at + seconds + 1.5)


@given(off=st.floats(-9e8, 9e8), up=st.floats(1.0, 800.0), passed=st.floats(0.0, 2 * HOUR))
def test_after_a_boot_nobody_is_expected_for_a_shorter_time(
    tmp_path_factory: pytest.TempPathFactory, off: float, up: float, passed: float
) -> None:
    """While the machine was off nobody could come; what the wall clock says of it counts for nothing."""
    host = FolderHost(tmp_path_factory.mktemp("host"))
    past = Past(host.roots)
    for turn in range(2):
        past.visits.note({"deploy": True}, UP + turn * 1.5 * HOUR)
    end = UP + 1.5 * HOUR + passed
    host.write(BOOTED, "another boot\n")
    host.clock.jump(off)
    later = restarted(host, past, end, begin=up)
    assert is_expected(later, 3 * HOUR - passed - 1.0)
    assert not is_expected(later, 3 * HOUR - passed + 1.0)


@pytest.mark.parametrize(
    ("signal", "hours"), [("connections", 4.0), ("processes", 1.0), ("model_servers", 1.0), ("a new one", 1.0)]
)
@pytest.mark.parametrize("says", [State.BUSY, State.OCCUPIED])
def test_what_the_earlier_agent_found_in_use_occupies_the_node(
    host: FolderHost, signal: str, hours: float, says: State
) -> None:
    """For as long as any signal remembers; then it is idle again, and what says more than that counts as it is."""
    past = Past(host.roots)
    past.judge((entry(signal, says),), UP)
    past.judge((entry(signal, State.IDLE),), UP + 600.0)
    later = restarted(host, past, UP + 700.0)

    (soon,) = later.judge((entry(signal, State.IDLE),), UP + hours * HOUR - 1.0)
    assert soon.says is State.OCCUPIED
    assert "an agent before this one found the node in use" in (soon.note or "")
    assert later.judge((entry(signal, State.BUSY),), UP + 800.0)[0].says is State.BUSY
    assert later.judge((entry(signal, State.UNKNOWN),), UP + 900.0)[0].says is State.UNKNOWN
    again = restarted(host, past, UP + 700.0)
    assert again.judge((entry(signal, State.IDLE),), UP + hours * HOUR)[0].says is State.IDLE


def test_a_third_agent_knows_what_the_first_saw(host: FolderHost) -> None:
    """Restarts in a row lose nothing."""
    past = Past(host.roots)
    past.judge((entry("connections", State.OCCUPIED),), UP)
    for turn in range(1, 4):
        past = restarted(host, past, UP + turn * HOUR)
        assert past.judge((entry("connections", State.IDLE),), UP + turn * HOUR + 1.0)[0].says is State.OCCUPIED
    past = restarted(host, past, UP + 4.1 * HOUR)
    assert past.judge((entry("connections", State.IDLE),), UP + 4.2 * HOUR)[0].says is State.IDLE


@pytest.mark.parametrize("why", ["an older agent's file", "a damaged file", "an agent that was away for an hour"])
def test_what_nobody_can_know_counts_as_use(host: FolderHost, why: str) -> None:
    """After an upgrade from a version that kept nothing of it the node is not idle for four hours."""
    past, at = Past(host.roots), UP
    if why.startswith("an agent"):
        past = restarted(host, past, UP - HOUR, begin=UP)
    else:
        past.take_up(None, UP)
    for hours, says in ((0.1, State.OCCUPIED), (3.9, State.OCCUPIED), (4.1, State.IDLE)):
        assert past.judge((entry("connections", State.IDLE),), at + hours * HOUR)[0].says is says
    assert past.judge((entry("processes", State.IDLE),), at + 4.2 * HOUR)[0].says is State.IDLE


def test_a_first_agent_and_a_machine_of_an_image_wait_for_nobody(host: FolderHost) -> None:
    """No agent has run there: a file that the image brought along is another machine's."""
    past = Past(host.roots)
    past.visits.note({"packer": True}, UP)
    past.judge((entry("connections", State.BUSY),), UP)
    for name, text in ((BOOTED, "another boot\n"), ("etc/machine-id", "another machine\n")):
        host.write(name, text)
    launched = restarted(host, past, UP, begin=60.0)

    for later in (launched, Past(host.roots)):
        assert not is_expected(later, 70.0)
        assert later.judge((entry("connections", State.IDLE),), 70.0)[0].says is State.IDLE


@pytest.mark.parametrize(
    "change",
    [
        {"in_use": {"connections": UP + 2.0}},
        {"in_use": {str(number): 1.0 for number in range(100)}},
        {"visitors": "later"},
        {"visitors": "many"},
    ],
)
def test_a_file_that_cannot_be_counts_as_unknown_and_keeps_its_days(
    host: FolderHost, change: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """What is damaged is refused by itself, with a warning, and its machine is in use for a while."""
    past = Past(host.roots)
    past.visits.note({"deploy": True}, UP)
    seen, week = past.keep(UP + 1.0), EMPTY.after_begins(UP, {"1001 python3 1": UP})
    (visitor,) = seen.visitors
    if change.get("visitors") == "later":
        change = {"visitors": (replace(visitor, seen_at=UP + 5.0),)}
    if change.get("visitors") == "many":
        change = {"visitors": (visitor,) * (MOST_USERS + 1)}
    file = HabitsFile(host.root / "days.json")
    file.save(week, replace(seen, **change))  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        kept = file.load()

    assert (kept.week, kept.seen, kept.is_there) == (week, None, True)
    assert "who came in the last hours is forgotten" in caplog.text


def test_what_other_threads_see_while_the_file_is_written_is_kept(host: FolderHost) -> None:
    """The looks at people and at programs are not at the same moment."""
    past = Past(host.roots)
    past.visits.note({"deploy": True}, UP + 2.0)
    past.judge((entry("processes", State.BUSY),), UP + 3.0)
    later = restarted(host, past, UP, begin=UP + 9.0)

    assert is_expected(later, UP + 10.0)
    assert later.judge((entry("processes", State.IDLE),), UP + 10.0)[0].says is State.OCCUPIED


def test_the_file_stays_small(host: FolderHost) -> None:
    """Thousands of users, each every five minutes, for a day."""
    past = Past(host.roots)
    for look in range(200):
        past.visits.note({f"user{number}": True for number in range(300)}, UP + look * 301.0)
        past.judge(tuple(entry(f"signal{number}", State.BUSY) for number in range(20)), UP + look * 301.0)
    file = HabitsFile(host.root / "days.json")
    file.save(EMPTY, past.keep(UP + 86400.0))
    past.judge((), UP)
    file.save(EMPTY, past.keep(UP + 200 * 301.0))

    assert (host.root / "days.json").stat().st_size < 40_000
    assert isinstance(file.load().seen, Seen)


def seen(host: FolderHost, signal: People) -> Evidence:
    """Its one finding where all processes are seen, and nobody's program runs."""
    now = host.moment()
    view = ProcessView(monotonic_seconds=now.monotonic_seconds, processes={})
    (found,) = signal.find_evidence(replace(now, processes=view))
    return found


def test_a_login_before_the_first_look_may_have_any_rhythm(host: FolderHost) -> None:
    """An agent that is installed between two copies by SSH: logind's folders tell when the last one was."""
    host.login_written(1800.0)
    signal = People(SessionSettings(), host.roots)
    found = seen(host, signal)
    host.pass_time(3.5 * HOUR)

    note = "somebody was here before this agent looked, 30m ago, and may come again within 3h30m"
    assert (found.says, found.note, found.owner) == (State.OCCUPIED, note, None)
    assert seen(host, signal).says is State.IDLE


@pytest.mark.parametrize(
    ("ago", "says"), [(4.1 * HOUR, State.IDLE), (UP - 40.0, State.IDLE), (9e7, State.IDLE), (-9e7, State.OCCUPIED)]
)
def test_an_old_login_and_logind_itself_are_no_visit_and_a_clock_that_was_set_back_makes_none_older(
    host: FolderHost, ago: float, says: State
) -> None:
    """Logind makes its folders within a minute of the boot; those of an image are older than the boot."""
    host.login_written(ago)
    assert seen(host, People(SessionSettings(), host.roots)).says is says


def test_an_agent_that_watched_until_just_now_has_missed_no_login(host: FolderHost) -> None:
    """A restart of seconds: the person who left half an hour ago was seen, and is not expected."""
    past = restarted(host, Past(host.roots), host.clock.monotonic() - 3.0, begin=host.clock.monotonic())
    host.login_written(1800.0)
    assert seen(host, People(SessionSettings(), host.roots, past)).says is State.IDLE


def test_a_login_while_no_agent_ran_is_not_missed(host: FolderHost) -> None:
    """The kernel killed it ten minutes after it had written its file."""
    past = restarted(host, Past(host.roots), host.clock.monotonic() - 600.0, begin=host.clock.monotonic())
    host.login_written(300.0)
    assert seen(host, People(SessionSettings(), host.roots, past)).says is State.OCCUPIED


@pytest.mark.parametrize(("ago", "says"), [(9.0, State.OCCUPIED), (14.0, State.IDLE)])
def test_a_login_between_the_last_look_at_people_and_the_end_of_the_agent_is_not_missed(
    host: FolderHost, ago: float, says: State
) -> None:
    """It wrote its file eight seconds after that look. logind keeps a user for ten: the next look comes too late."""
    at, earlier = host.clock.monotonic(), Past(host.roots)
    earlier.visits.note({}, at - 12.0)
    past = restarted(host, earlier, at - 4.0, begin=at)
    host.login_written(ago)
    assert seen(host, People(SessionSettings(), host.roots, past)).says is says
