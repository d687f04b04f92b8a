"""agent/probe/child.py: lines of a probe that the agent has not taken yet."""

import os
import threading
from pathlib import Path

from gpuwatch.agent.probe.child import ProbeChild
from tests.support.real.agents import eventually

LINE = 101  # bytes
FEW = 5 * os.sysconf("SC_PAGE_SIZE") + 16_384  # bytes: some ten cycles of one GPU, and half of what a pipe holds
MANY = FEW // LINE


def drains() -> int:
    """Threads that read a probe's output."""
    return sum(thread.name == "probe-stdout" for thread in threading.enumerate())


def sleeps_or_has_ended(child: ProbeChild) -> bool:
    """Whether it has written all that there is room for."""
    if child.process.poll() is not None:
        return True
    return Path(f"/proc/{child.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_probe_waits_for_an_agent_that_is_behind() -> None:
    """Few of its lines are kept, also in the pipe; none is lost, and all are in order once the agent takes them."""
    child = ProbeChild(["sh", "-c", f"read asked; exec seq -f %0100g {MANY}"])
    child.ask()
    eventually(lambda: child.lines.qsize() >= 8 and sleeps_or_has_ended(child))

    assert (child.process.poll(), child.lines.qsize() < 16) == (None, True)
    taken = [child.lines.get(timeout=60) for _ in range(MANY)]
    assert taken == [b"%0100d\n" % number for number in range(1, MANY + 1)]
    assert child.lines.get(timeout=60) is None
    child.end()


def test_a_probe_that_is_ended_leaves_no_thread_behind() -> None:
    """Also where the agent has not taken its lines."""
    before = drains()
    child = ProbeChild(["yes"])
    eventually(lambda: child.lines.qsize() >= 8)
    kept = child.lines.qsize()

    assert kept < 100
    assert child.end()
    eventually(lambda: drains() == before)
