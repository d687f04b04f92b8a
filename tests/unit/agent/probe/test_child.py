"""agent/probe/child.py: lines of a probe that the agent has not taken yet."""

import threading

from gpuwatch.agent.probe.child import ProbeChild
from tests.support.real.agents import eventually

MANY = 2_000  # lines of a hundred bytes: more than a pipe holds


def drains() -> int:
    """Threads that read a probe's output."""
    return sum(thread.name == "probe-stdout" for thread in threading.enumerate())


def test_a_probe_waits_for_an_agent_that_is_behind() -> None:
    """Few of its lines are kept; none is lost, and all are in order once the agent takes them."""
    child = ProbeChild(["seq", "-f", "%0100g", str(MANY)])
    eventually(lambda: child.lines.qsize() >= 100)

    assert (child.process.poll(), child.lines.qsize() < MANY / 2) == (None, True)
    taken = [child.lines.get(timeout=60) for _ in range(MANY)]
    assert taken == [b"%0100d\n" % number for number in range(1, MANY + 1)]
    assert child.lines.get(timeout=60) is None
    child.end()


def test_a_probe_that_is_ended_leaves_no_thread_behind() -> None:
    """Also where the agent has not taken its lines."""
    before = drains()
    child = ProbeChild(["yes"])
    eventually(lambda: child.lines.qsize() >= 100)
    kept = child.lines.qsize()

    assert kept < 1000
    assert child.end()
    eventually(lambda: drains() == before)
