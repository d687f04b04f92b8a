"""agent/metadata/hook_queue.py and hook.py: the program never overlaps itself, and no notice goes without its run."""

import itertools
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.agent.metadata.base import Notice
from gpuwatch.agent.metadata.hook import NoticeHook
from gpuwatch.agent.metadata.hook_queue import APART_SECONDS, Subject, Turns, subject
from gpuwatch.agent.metadata.settings import MetadataSettings
from gpuwatch.agent.metadata.state_file import Announced, NoticeMemory
from gpuwatch.model.cloud_notice import NoticeKind
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import START
from tests.support.real.agents import eventually

LEAD = timedelta(hours=1)
SPOT, MAINTENANCE = NoticeKind.SPOT_INTERRUPTION, NoticeKind.MAINTENANCE


def a_notice(kind: NoticeKind = SPOT, action: str = "terminate", seconds: float | None = 120.0) -> Announced:
    """One with a deadline so long after the beginning."""
    deadline = None if seconds is None else START + timedelta(seconds=seconds)
    key = f"{kind.value} {action} {seconds}"
    return Announced(kind=kind, action=action, deadline=deadline, key=key, seen_at=START)


class Play:
    """A program that runs until it is told to end, on a clock that moves when told to."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ran: list[str] = []
        self.began: list[tuple[Announced, float]] = []
        self.at_work: Announced | None = None
        self.turns = Turns(LEAD, lambda notice: notice.key in self.ran)

    def look(self, *notices: Announced, seconds: float = 0.0) -> None:
        """Time passes, and a look finds these."""
        self.clock.advance(seconds)
        self.turns.take_notices(notices, self.clock.now())
        self._advance()

    def end(self, seconds: float = 0.0) -> None:
        """The run at work ends by itself."""
        self.clock.advance(seconds)
        if self.at_work is not None:
            self.at_work = None
            self.turns.end(self.clock.monotonic())
            self._advance()

    def _advance(self) -> None:
        notice = self.turns.next(self.clock.now(), self.clock.monotonic())
        if notice is not None:
            assert self.at_work is None, "two runs at once"
            self.turns.begin(notice, self.clock.now())
            self.ran.append(notice.key)
            self.began.append((notice, self.clock.monotonic()))
            self.at_work = notice


def test_a_deadline_that_moves_with_each_look_runs_it_once_a_minute() -> None:
    """As a metadata mock does: no second run beside the first, nor within a minute of its end."""
    play = Play()
    for _ in range(40):
        play.look(a_notice(seconds=play.clock.monotonic() + 125), seconds=5.0)
        if play.at_work is not None and play.clock.monotonic() - play.began[-1][1] >= 10:
            play.end()
    begun = [at for _, at in play.began]

    assert len(begun) == 3
    assert all(after - before >= APART_SECONDS + 10 for before, after in itertools.pairwise(begun))


def test_another_kind_follows_the_run_at_work() -> None:
    """With what it says when its turn comes."""
    play = Play()
    play.look(a_notice(MAINTENANCE, "reboot", 3000))
    play.look(a_notice(MAINTENANCE, "reboot", 3000), a_notice(seconds=120), seconds=5)
    play.look(a_notice(MAINTENANCE, "reboot", 3000), a_notice(seconds=90), seconds=5)
    only = [each.key for each, _ in play.began]
    play.end()

    assert only == ["maintenance reboot 3000"]
    assert [each.key for each, _ in play.began] == ["maintenance reboot 3000", "spot_interruption terminate 90"]


def test_a_notice_that_went_away_and_came_again_is_new() -> None:
    """It runs at once, or right after the run at work."""
    play = Play()
    play.look(a_notice(seconds=500))
    play.end(10)
    play.look(seconds=5)
    play.look(a_notice(seconds=600), seconds=5)
    again = len(play.began)
    play.look(seconds=5)
    play.look(a_notice(seconds=700), seconds=5)
    play.end()

    assert again == 2
    assert len(play.began) == 3


def test_what_is_gone_when_its_turn_comes_gets_no_run() -> None:
    """It was called off."""
    play = Play()
    play.look(a_notice(MAINTENANCE, "reboot", 3000))
    play.look(a_notice(MAINTENANCE, "reboot", 3000), a_notice(seconds=120), seconds=5)
    play.look(a_notice(MAINTENANCE, "reboot", 3000), seconds=5)
    play.end()

    assert len(play.began) == 1


def test_the_soonest_of_several_goes_first() -> None:
    """One without a deadline last."""
    play = Play()
    waiting = [a_notice(NoticeKind.REBALANCE, "rebalance", None), a_notice(MAINTENANCE, "stop", 300), a_notice()]
    play.look(*waiting)
    play.end()
    play.end()

    assert [each.kind for each, _ in play.began] == [SPOT, MAINTENANCE, NoticeKind.REBALANCE]


@pytest.mark.parametrize(
    ("running", "waiting", "gives_way"),
    [
        (a_notice(NoticeKind.REBALANCE, "rebalance", None), a_notice(seconds=120), True),
        (a_notice(MAINTENANCE, "reboot", 3000), a_notice(seconds=120), True),
        (a_notice(seconds=100), a_notice(MAINTENANCE, "reboot", 3000), False),  # it ends before that one's deadline
        (a_notice(seconds=3000), a_notice(seconds=120), False),  # the same announcement, moved
        (a_notice(MAINTENANCE, "reboot", 3000), a_notice(NoticeKind.REBALANCE, "rebalance", None), False),
    ],
)
def test_a_long_run_gives_way_in_time(running: Announced, waiting: Announced, gives_way: bool) -> None:
    """When three quarters of the time of one with a nearer deadline are over, and not before."""
    play = Play()
    play.look(running)
    play.look(running, waiting)
    play.clock.advance(89)
    before = play.turns.must_end(play.clock.now())
    play.clock.advance(1)

    assert (before, play.turns.must_end(play.clock.now())) == (False, gives_way)


NOTICES = st.builds(
    a_notice,
    st.sampled_from([SPOT, MAINTENANCE]),
    st.sampled_from(["terminate", "reboot"]),
    st.one_of(st.none(), st.integers(0, 5000)),
)
STEPS = st.lists(
    st.tuples(st.floats(0.1, 120), st.lists(NOTICES, max_size=3, unique_by=lambda each: each.key), st.booleans()),
    max_size=40,
)


@settings(deadline=None)
@given(steps=STEPS)
def test_whatever_is_announced(steps: list[tuple[float, list[Announced], bool]]) -> None:
    """Never two at once or twice for one notice, a minute apart unless it was gone, and a run for each that stays."""
    play = Play()
    may_run_at: dict[Subject, float] = {}
    checked, gone = 0, False
    for seconds, notices, ends in steps:
        play.look(*notices, seconds=seconds)
        there = {subject(notice) for notice in notices}
        may_run_at = {of: at for of, at in may_run_at.items() if of in there}
        gone = gone or (play.at_work is not None and subject(play.at_work) not in there)
        for ending in (False, True):
            if ending and ends and play.at_work is not None:
                if not gone:
                    may_run_at[subject(play.at_work)] = play.clock.monotonic() + APART_SECONDS
                play.end()
            for notice, at in play.began[checked:]:
                assert notice in notices
                assert notice.deadline is None or play.clock.now() < notice.deadline <= play.clock.now() + LEAD
                assert at >= may_run_at.get(subject(notice), 0.0)
                gone = False
            checked = len(play.began)
    assert len(play.ran) == len(set(play.ran))

    staying = [a_notice(kind, "stop", play.clock.monotonic() + 3000 + n) for n, kind in enumerate([SPOT, MAINTENANCE])]
    for _ in range(100):
        play.look(*staying, seconds=5)
        play.end(1)
    assert {notice.key for notice in staying} <= set(play.ran)


# With real processes.

OVERLAPS = (
    "import os, sys, time; "
    "held = os.open(sys.argv[1], os.O_CREAT | os.O_EXCL); "
    "open(sys.argv[2], 'a').write(os.environ['GPUWATCH_NOTICE_KIND'] + '\\n'); "
    "time.sleep(0.3); os.unlink(sys.argv[1])"
)


def hooked(folder: Path, *argv: str) -> tuple[NoticeHook, NoticeMemory, ManualClock]:
    """A hook with a memory of its own."""
    settings = MetadataSettings(on_interruption=(sys.executable, "-c", *argv), state=str(folder / "notices.json"))
    memory, clock = NoticeMemory(Path(settings.state)), ManualClock()
    return NoticeHook(settings, memory, clock), memory, clock


def told(memory: NoticeMemory, now: datetime, *seconds: tuple[NoticeKind, float]) -> list[Announced]:
    """What a look found."""
    return [
        memory.with_deadline(Notice(kind=kind, action="x", deadline=START + timedelta(seconds=each)), now)
        for kind, each in seconds
    ]


def test_the_program_itself_never_overlaps(tmp_path: Path) -> None:
    """Twenty looks, each with a moved deadline, and another kind in between: two runs, one after the other."""
    hook, memory, clock = hooked(tmp_path, OVERLAPS, str(tmp_path / "lock"), str(tmp_path / "ran"))
    for moved in range(20):
        found = [(SPOT, 100.0 + moved)] + ([(MAINTENANCE, 3000.0)] if moved > 5 else [])
        hook.consider(told(memory, clock.now(), *found))
        clock.advance(1)
    eventually(lambda: len(hook.statuses) == 2, lambda: hook.statuses)

    assert (tmp_path / "ran").read_text().split() == ["spot_interruption", "maintenance"]
    assert hook.statuses == {"spot_interruption": 0, "maintenance": 0}


def test_a_run_that_does_not_end_is_killed_for_one_that_cannot_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """So that the notice with the nearer deadline has its run, too."""
    script = "import os, time; os.environ['GPUWATCH_NOTICE_KIND'] == 'maintenance' and time.sleep(60)"
    hook, memory, clock = hooked(tmp_path, script)
    hook.consider(told(memory, clock.now(), (MAINTENANCE, 3000.0)))
    hook.consider(told(memory, clock.now(), (MAINTENANCE, 3000.0), (SPOT, 120.0)))
    clock.advance(95)
    eventually(lambda: len(hook.statuses) == 2, lambda: hook.statuses)

    assert hook.statuses == {"maintenance": -9, "spot_interruption": 0}
    assert "a notice with a nearer deadline could wait no longer" in caplog.text


def test_an_agent_that_begins_again_waits_a_minute_for_a_moved_notice(tmp_path: Path) -> None:
    """The run of the agent before it may still be at work; another kind does not wait."""
    script = "import os, sys; open(sys.argv[1], 'a').write(os.environ['GPUWATCH_NOTICE_KIND'] + '\\n')"
    for moved in (0.0, 5.0):
        hook, memory, clock = hooked(tmp_path, script, str(tmp_path / "ran"))
        hook.consider(told(memory, clock.now(), (SPOT, 110.0 + moved)))
        if moved:
            clock.advance(30)
            hook.consider(told(memory, clock.now(), (SPOT, 120.0), (MAINTENANCE, 500.0)))
            eventually(lambda: "maintenance" in hook.statuses, lambda: hook.statuses)  # noqa: B023  called at once
            clock.advance(31)
            hook.consider(told(memory, clock.now(), (SPOT, 121.0)))
        eventually(lambda: "spot_interruption" in hook.statuses, lambda: hook.statuses)  # noqa: B023  likewise

    assert (tmp_path / "ran").read_text().split() == ["spot_interruption", "maintenance", "spot_interruption"]
