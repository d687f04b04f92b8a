"""agent/evidence/own_past.py: a package's service is judged by what it has used since it began."""

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.evidence.own_past import OwnPast
from gpuwatch.agent.processes.kinds import PACKAGED
from gpuwatch.agent.processes.process import Kind, Process, ProcessView
from gpuwatch.model.activity import State

TICKS = os.sysconf("SC_CLK_TCK")
LOOK_SECONDS = 10.0
HOUR = 3600.0


class Signal:
    """Whatever says it."""

    name = "processes"
    source = "/proc"


def process(pid: int, begun: float, used: float) -> Process:
    """One of the distribution's PostgreSQL."""
    placement = Placement(systemd_unit="postgresql@15-main.service")
    return Process(
        pid=pid, started_ticks=round(begun * TICKS), parent=1, group=pid, session=pid, tty=0, state="S",
        name="postgres", executable="postgres", uid=105, placement=placement, cpu_seconds=used, kind=Kind.SERVICE,
        rule=PACKAGED,
    )  # fmt: skip


def says(before: float, now: float, minutes: float, *, age: float = 10 * HOUR, rule: str = PACKAGED) -> list[bool]:
    """Whether each look finds more than usual: a service of that age, which now has a second process, an index."""
    past, found = OwnPast(), []
    for look in range(round(60 * minutes / LOOK_SECONDS) + 1):
        passed = look * LOOK_SECONDS
        main = replace(process(900, 0.0, before * (age + passed)), rule=rule)
        index = replace(process(901, age, (now - before) * passed), rule=rule)
        view = ProcessView(
            monotonic_seconds=passed, processes={900: main, 901: index}, cores={900: before, 901: now - before}
        )
        evidence = past.find_unusual(Signal(), view, age + passed)
        assert evidence is None or (evidence.says is State.BUSY and evidence.owner is not None)
        found.append(evidence is not None)
    return found


@pytest.mark.parametrize(
    ("before", "now", "minutes", "busy"),
    [
        (0.001, 0.6, 20, True),  # a database builds an index
        (0.05, 0.2, 20, True),
        (0.5, 0.6, 20, False),  # a poller
        (0.3, 0.3, 20, False),
        (0.3, 0.75, 20, False),
        (0.001, 0.6, 4, False),  # its own short tasks
        (0.001, 0.09, 20, False),
    ],
)
def test_a_service_that_works_more_than_it_has_since_it_began_works_for_somebody(
    before: float, now: float, minutes: float, *, busy: bool
) -> None:
    """For five minutes, and above a tenth of a core."""
    assert says(before, now, minutes)[-1] is busy


def test_a_service_without_a_past_and_one_that_a_list_names_say_nothing() -> None:
    """What has just begun starts up; what is the machine's own by a list is judged by nothing of this."""
    assert not any(says(0.001, 0.9, 20, age=60.0))
    assert not any(says(0.001, 0.9, 20, rule="unit of the machine's own"))


def test_work_that_ends_is_found_no_longer() -> None:
    """And what begins again must last for five minutes again."""
    past = OwnPast()
    seen = []
    for minute, cores in enumerate([0.6] * 7 + [0.0] + [0.6] * 3):
        view = ProcessView(
            monotonic_seconds=60.0 * minute, processes={900: process(900, 0.0, 10.0)}, cores={900: cores}
        )
        seen.append(past.find_unusual(Signal(), view, 10 * HOUR + 60.0 * minute) is not None)
    assert seen == [False] * 5 + [True] * 2 + [False] * 4


@given(cores=st.floats(0.0, 4.0), minutes=st.floats(1.0, 30.0), age=st.floats(0.0, 100 * HOUR))
def test_what_is_even_is_never_unusual(cores: float, minutes: float, age: float) -> None:
    """However much it is."""
    assert not any(says(cores, cores, minutes, age=age))
