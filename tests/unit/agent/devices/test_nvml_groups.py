"""What the NVML source reads for which groups of metrics: nothing that is neither shown nor judged by."""

import ast
import ctypes
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager

import pytest

from gpuwatch.agent.devices.nvml.rows import Tables
from gpuwatch.agent.devices.nvml.source import NvmlSource
from gpuwatch.model.gpu import metrics
from gpuwatch.model.metric import DEFAULT_GROUPS, GROUP_NAMES, GroupName, chosen_groups
from gpuwatch.model.mig import mig_metrics
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.nvml import NOT_SUPPORTED, TIMEOUT, StubDriver, reading
from tests.support.paths import ROOT

# Where verdicts are made of readings.
JUDGES = ("activity", "health", "usage.py", "state.py", "last_busy.py", "evidence", "attribution")


def calls(driver: StubDriver) -> int:
    """How many NVML calls this process has made so far."""
    return int(ctypes.CDLL(str(driver.library / "libnvidia-ml.so.1")).stub_calls())


@contextmanager
def opened(source: NvmlSource, hand: ManualClock, groups: Iterable[GroupName]) -> Iterator[NvmlSource]:
    """Another source on the same driver; `source` has made the library known."""
    source.close()
    with closing(NvmlSource(hand, frozenset(groups))) as other:
        yield other


def names_in(judge: str) -> Iterator[str]:
    """Every attribute and every string of a file or folder of the agent."""
    path = ROOT / "gpuwatch" / "agent" / judge
    for file in path.rglob("*.py") if path.is_dir() else [path]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


@pytest.mark.parametrize("judge", JUDGES)
def test_what_verdicts_are_made_of_is_read_whatever_is_exported(judge: str) -> None:
    """Each field that the code of activity, health or the tally of use names is `judged`."""
    judged = {name for name, metric in (*metrics(), *mig_metrics()) if metric.judged}
    measured = {name for name, _ in (*metrics(), *mig_metrics())}

    assert set(names_in(judge)) & measured - judged == set()


@pytest.mark.parametrize("group", GROUP_NAMES)
def test_a_group_is_read_where_it_is_exported(source: NvmlSource, hand: ManualClock, group: GroupName) -> None:
    """With `core` and one group, that group's fields are what they are with all; those of no group are not known."""
    everything, groups = reading(source), chosen_groups([group])
    with opened(source, hand, groups) as other:
        seen = reading(other)

    for name, metric in metrics():
        value = getattr(seen, name)
        if metric.judged or metric.group in groups:
            assert value == getattr(everything, name), name
        else:
            assert value is None, name
    assert seen.processes == everything.processes
    assert seen.clock_events == everything.clock_events


def test_the_default_groups_take_fewer_calls_and_fields(
    driver: StubDriver, source: NvmlSource, hand: ManualClock
) -> None:
    """A first reading of the default groups asks the driver for less than one of all groups."""
    counted = []
    for groups in (GROUP_NAMES, DEFAULT_GROUPS):
        with opened(source, hand, groups) as asked:
            asked.gpus()
            begin = calls(driver)
            reading(asked)
            counted.append(calls(driver) - begin)
    tables = [Tables.for_groups(groups) for groups in (GROUP_NAMES, DEFAULT_GROUPS)]
    fields = [len(table.fast.fields) + len(table.slow.fields) for table in tables]

    assert counted[1] <= counted[0] - 10
    assert fields[1] < fields[0] / 2


def test_links_that_a_gpu_does_not_have_are_not_asked_for(driver: StubDriver, source: NvmlSource) -> None:
    """The GPU's own count of links is the limit, whatever the driver would answer beyond it."""
    driver.gpu(0).field(91, 4).field(138, 7, scope=3).field(138, 9, scope=4)

    assert reading(source).nvlink_link_tx_bytes_total == {"0": 0, "1": 0, "2": 0, "3": 7 * 1024}


def test_a_gpu_that_does_not_count_its_links_is_asked_for_all(driver: StubDriver, source: NvmlSource) -> None:
    """As before drivers had that field."""
    driver.gpu(0).error("field.91", NOT_SUPPORTED)

    assert len(reading(source).nvlink_link_tx_bytes_total or ()) == 18


def test_errors_of_all_links_are_one_number_of_each_kind(driver: StubDriver, source: NvmlSource) -> None:
    """The sum over the links; a link that fails to answer makes the sum unknown, so that no counter falls."""
    driver.gpu(0).field(161, 2, scope=0).field(161, 3, scope=17).field(163, 1, scope=5)
    assert reading(source).nvlink_errors_total == {"replay": 5, "recovery": 0, "crc": 1}

    driver.gpu(0).error("field.161", TIMEOUT)
    source.close()
    assert reading(source).nvlink_errors_total == {"recovery": 0, "crc": 1}


def test_an_older_driver_has_its_own_sum_of_errors(driver: StubDriver, source: NvmlSource) -> None:
    """Where links cannot be asked one by one."""
    for field in (161, 162, 163):
        driver.gpu(0).error(f"field.{field}", NOT_SUPPORTED)
    driver.gpu(0).field(45, 6).field(38, 2)

    assert reading(source).nvlink_errors_total == {"replay": 6, "crc": 2}
