"""What runs on a host before its stop: once, bounded in time, begun by the controller alone; and what it lets go."""

import math
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.before_stop import QUIET_SECONDS, BeforeStops, ask_runner, orders
from gpuwatch.agent.before_stop_runs import ADMINISTRATOR, BeforeStopSettings, Ran, Runs, StopRequest, answer
from gpuwatch.agent.evidence.base import Moment, Roots
from gpuwatch.agent.evidence.host_load import Disk
from gpuwatch.agent.evidence.rate import Rate
from gpuwatch.agent.evidence.settings import DiskSettings
from gpuwatch.model.activity import Evidence, Preparing, State
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import NOW
from tests.support.real.agents import eventually

WANTED = BeforeStopSettings(command=("/usr/local/bin/save",), timeout=300.0)
WELL = Ran(whose=ADMINISTRATOR, status=0, seconds=12.04, says="pushed 3 commits.")
ASKED = StopRequest(verb="stop", node_id="i-1")


class Host:
    """A host whose commands end when the test says so."""

    def __init__(self, settings: BeforeStopSettings = WANTED, state: State = State.IDLE) -> None:
        self.clock = ManualClock(wall=NOW)
        self.state, self.rested = state, math.inf
        self.asked: list[StopRequest] = []
        self.answers: list[Runs | Exception] = []
        self._may_end = threading.Semaphore(0)
        self.stops = BeforeStops(settings, self.clock, lambda: ("i-1", self.state, self.rested), self._ask)

    def _ask(self, request: StopRequest, seconds: float) -> Runs:
        assert seconds == WANTED.timeout
        self.asked.append(request)
        if not self._may_end.acquire(timeout=10.0):
            return Runs(ran=())  # the test is over
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def begin(self) -> Preparing | None:
        """What the controller is told that asks for it."""
        found = self.stops.begin("stop")
        return None if found is None else found.state

    @property
    def told(self) -> str:
        """What the agent says of it now."""
        found = self.stops.now()
        assert found is not None
        return f"{found.state}: {found.sentence}"

    def end(self, *ran: Ran, error: Exception | None = None) -> None:
        """The run that is under way ends so."""
        self.answers.append(Runs(ran=ran) if error is None else error)
        self._may_end.release()
        eventually(lambda: "have been running" not in self.told, lambda: self.told)


def a_load(name: str, unit: str = "bytes per second", says: State = State.BUSY) -> Evidence:
    """A finding of a signal about the whole host."""
    return Evidence(name=name, says=says, observed=9.0, limit=1.0, unit=unit, source="a counter")


def test_nothing_runs_where_nothing_is_wanted() -> None:
    """No settings, no run, and a verdict without a word of it, as of an agent that knows of none."""
    host = Host(BeforeStopSettings())

    assert (host.stops.now(), host.begin(), host.asked) == (None, None, [])


def test_it_runs_once_and_lets_the_machine_go_when_its_load_is_over() -> None:
    """However often the controller asks; the last question comes when the host's load is no longer the commands'."""
    host = Host()
    assert host.told == "ready: The commands before its stop have not run yet."
    assert [host.begin(), host.begin()] == [Preparing.RUNNING, Preparing.RUNNING]
    host.clock.advance(30.0)
    assert host.told == "running: The commands before its stop have been running for 30s, of 5m at most."
    host.end(WELL)
    assert host.told.startswith(
        "running: The administrator's command before its stop ended well after 12s: pushed 3 commits. Its load"
    )
    host.clock.advance(QUIET_SECONDS)
    assert host.told == "done: The administrator's command before its stop ended well after 12s: pushed 3 commits."
    assert host.begin() is Preparing.DONE
    host.clock.advance(1800.0)

    assert host.told == "ready: The commands before its stop are due to run again."
    assert host.asked == [ASKED]


@pytest.mark.parametrize(
    ("ran", "error", "said"),
    [
        (
            Ran(whose="alice", status=75, seconds=3.0, says="uploading 2 of 9"),
            None,
            "alice's command before its stop said not now, with status 75 after 3s: uploading 2 of 9.",
        ),
        (
            Ran(whose="alice", status=None, seconds=0.0, says="it did not end within 5m"),
            None,
            "alice's command before its stop failed: it did not end within 5m.",
        ),
        (
            WELL,
            FileNotFoundError(2, "No such file"),
            "The commands before a stop could not be run: No such file; is gpuwatch-before-stop.socket enabled?",
        ),
        (WELL, ValueError("not JSON"), "The commands before a stop could not be run: not JSON;"),
    ],
)
def test_what_does_not_end_well_keeps_the_machine_and_is_tried_ever_more_seldom(
    ran: Ran, error: Exception | None, said: str
) -> None:
    """A word of a command, a failure, or a unit that is not there: 10 minutes, 20, 40, and an hour at most."""
    host = Host()
    for rest in (600.0, 1200.0, 2400.0, 3600.0, 3600.0):
        assert host.begin() is Preparing.RUNNING
        host.end(WELL, ran, error=error)
        assert host.told.startswith(f"refused: {said}")
        host.clock.advance(rest - 1.0)
        assert host.begin() is Preparing.REFUSED
        host.clock.advance(1.0)
    assert host.begin() is Preparing.RUNNING
    host.end(WELL)
    host.clock.advance(QUIET_SECONDS)

    assert host.told.startswith("done: ")


def test_what_was_saved_before_somebody_worked_again_is_not_enough() -> None:
    """The commands run again before the next stop, though the last run ended well ten minutes ago."""
    host = Host()
    host.begin()
    host.end(WELL)
    host.clock.advance(600.0)
    assert host.told.startswith("done: ")
    host.rested = 300.0
    assert host.told == "ready: The commands before its stop are due to run again."

    assert host.begin() is Preparing.RUNNING


@pytest.mark.parametrize("state", [State.BUSY, State.UNKNOWN])
def test_nothing_runs_on_a_machine_that_works_or_is_in_doubt(state: State) -> None:
    """Whoever may ask: what is at work is not to be disturbed."""
    host = Host(state=state)

    assert host.begin() is Preparing.REFUSED
    assert host.asked == []


def test_the_load_of_the_commands_is_no_work_and_all_else_is() -> None:
    """Before, during and after a run. What the host forwards for others, and every other signal, stays busy."""
    host = Host()
    load = (a_load("cpu", "cores"), a_load("disk"), a_load("network"))
    others = (a_load("network", "packets per second"), a_load("people", ""), a_load("processes", "cores"))
    unknown = a_load("disk", says=State.UNKNOWN)
    found = (*load, *others, unknown)

    def busy() -> list[Evidence]:
        kept = host.stops.without_own_load(found, host.clock.monotonic())
        assert kept[-1] == unknown
        return [each for each in kept if each.says is State.BUSY]

    assert busy() == [*load, *others]
    host.begin()
    assert busy() == list(others)
    host.end(WELL)
    host.clock.advance(QUIET_SECONDS - 1.0)
    assert busy() == list(others)
    host.clock.advance(1.0)

    assert busy() == [*load, *others]


def test_units_of_the_hosts_load_are_those_that_are_left_out() -> None:
    """Else the commands' own upload would keep each machine that runs one."""
    assert (
        Rate(1.0).judge(Disk(DiskSettings(), Roots()), {"a": 1}, Moment(at=NOW, monotonic_seconds=1.0)).unit
        == "bytes per second"
    )


@given(st.binary(max_size=200))
def test_a_body_that_is_no_order_runs_nothing(body: bytes) -> None:
    """Whatever is sent to /v1/before-stop."""
    host = Host()
    try:
        orders(host.stops)(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        assert host.asked == []
    else:
        raise AssertionError(body)


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Path]:
    """A socket that answers as root's unit does, with a command that is there."""
    script = tmp_path / "save"
    script.write_text("#!/bin/sh\necho $GPUWATCH_STOP_ACTION $GPUWATCH_STOP_NODE; echo kept; exit 3\n", "utf-8")
    script.chmod(0o755)
    path = tmp_path / "runner.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen(1)

        def serve() -> None:
            asked, _ = server.accept()
            with asked:
                asked.settimeout(10.0)
                body = b"".join(iter(lambda: asked.recv(4096), b""))
                asked.sendall(answer(BeforeStopSettings(command=(str(script),)), body, SystemClock()))

        threading.Thread(target=serve, daemon=True).start()
        yield path


def test_the_agent_hears_of_its_runner_how_each_command_ended(runner: Path) -> None:
    """Over a real socket; the last line is what the command says."""
    (ran,) = ask_runner(ASKED, 10.0, runner).ran

    assert replace_seconds(ran) == Ran(whose=ADMINISTRATOR, status=3, seconds=0.0, says="kept")


def replace_seconds(ran: Ran) -> Ran:
    """Without the time that it took."""
    return msgspec.structs.replace(ran, seconds=0.0)


def test_settings_with_either_are_wanted() -> None:
    """The administrator's command or people's own."""
    nothing = BeforeStopSettings()

    assert [each.wanted for each in (nothing, replace(nothing, owners=True), WANTED)] == [False, True, True]
