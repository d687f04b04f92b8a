"""agent/evidence/inhibitors.py: programs that asked systemd to leave the machine up."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.evidence.inhibitors import Inhibitors
from gpuwatch.agent.evidence.settings import InhibitorSettings
from gpuwatch.model.activity import State
from tests.support.fakes.host import DEAD_PID, FolderHost


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host with systemd, on which process 42 runs."""
    made = FolderHost(tmp_path)
    made.process(42)
    return made


def inhibitors(host: FolderHost) -> Inhibitors:
    """The signal."""
    return Inhibitors(InhibitorSettings(), host.roots)


def a_lock(what: str = "shutdown:sleep", mode: str = "block", who: str = "backup", pid: int = 42) -> str:
    """A file of /run/systemd/inhibit, as logind writes it."""
    return (
        "# This is private data. Do not parse.\n"
        f"WHAT={what}\nMODE={mode}\nUID=0\nPID={pid}\nWHO={who}\n"
        "WHY=password is hunter2\nFIFO=/run/systemd/inhibit/1.ref\n"
    )


@pytest.mark.parametrize(
    ("lock", "says"),
    [
        (a_lock(), State.BUSY),
        (a_lock("idle"), State.BUSY),
        (a_lock("sleep"), State.BUSY),
        (a_lock(mode="delay"), State.IDLE),
        (a_lock("handle-power-key:handle-lid-switch"), State.IDLE),
        (a_lock(mode="block-weak"), State.BUSY),
        (a_lock(mode="of times to come"), State.BUSY),
        (a_lock(mode="delay", pid=DEAD_PID), State.IDLE),
        (a_lock(pid=DEAD_PID), State.UNKNOWN),
    ],
    ids=[
        "shutdown",
        "idle",
        "sleep",
        "delay only",
        "a key",
        "systemd 257",
        "another mode",
        "old",
        "who took it is gone",
    ],
)
def test_one_lock(host: FolderHost, lock: str, says: State) -> None:
    """A lock that blocks shutdown, sleep or idleness is busy; whoever took it may have handed it to another process."""
    host.write("run/systemd/inhibit/1", lock)

    assert host.tells(inhibitors(host)).says is says


def test_a_holder_that_proc_hides_lives(host: FolderHost) -> None:
    """With hidepid=2 no process of anybody else is to be seen: the lock counts."""
    host.write("run/systemd/inhibit/1", a_lock())
    host.hide_processes()

    assert host.tells(inhibitors(host)).says is State.BUSY


def test_the_note_says_who_and_not_why(host: FolderHost) -> None:
    """The reason is a program's own text and may hold anything."""
    os.mkfifo(host.root / "run/systemd/inhibit/1.ref")
    host.write("run/systemd/inhibit/1", a_lock(who="back\x1bup"))
    host.write("run/systemd/inhibit/2", a_lock(who="apt"))

    assert host.tells(inhibitors(host)).note == r"back\x1bup, apt"


def test_nothing_held(host: FolderHost) -> None:
    """The folder comes with the first lock: without it, nothing is held; without systemd, nothing is said."""
    empty = host.tells(inhibitors(host))
    (host.root / "run/systemd/inhibit").rmdir()
    never = host.tells(inhibitors(host))
    (host.root / "run/systemd/sessions").rmdir()
    shutil.rmtree(host.root / "run/systemd")

    assert (empty.says, never.says) == (State.IDLE, State.IDLE)
    assert host.told(inhibitors(host)) == ()


@pytest.mark.parametrize("broken", ["", "WHAT=shutdown\nMODE=block\n", a_lock().replace("PID=42", "PID=x")])
def test_half_a_lock_is_unknown(host: FolderHost, broken: str) -> None:
    """Unless another one is busy."""
    host.write("run/systemd/inhibit/1", broken)
    alone = host.tells(inhibitors(host)).says
    host.write("run/systemd/inhibit/2", a_lock())

    assert (alone, host.tells(inhibitors(host)).says) == (State.UNKNOWN, State.BUSY)


@given(data=st.binary(max_size=300))
def test_garbage_is_never_idle(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever bytes a lock holds."""
    host = FolderHost(tmp_path_factory.mktemp("host"))
    host.write("run/systemd/inhibit/1", data)

    assert host.tells(inhibitors(host)).says is not State.IDLE
