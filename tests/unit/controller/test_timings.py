"""controller/timings.py: what the controller asks of others is counted with the time that it took."""

from decimal import Decimal
from inspect import getattr_static
from typing import Any

import pytest

from gpuwatch.clouds import Cloud, CloudUnavailableError
from gpuwatch.clouds.permissions import Diagnosable, Quotas
from gpuwatch.clouds.survey import Searchable
from gpuwatch.controller.timings import OPERATIONS, Timings, time_calls
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.runtime.metrics.family import Histogram
from gpuwatch.simulate.cloud import SimulatedCloud
from tests.support.fakes.several_clouds import Region


class SlowCloud:
    """Takes five seconds for its list, and fails after three at a stop."""

    prices = Decimal(3)

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def nodes(self) -> tuple[()]:
        """Nobody."""
        self._clock.advance(5.0)
        return ()

    def stop(self, node_id: str, key: str, *, permit: object) -> None:
        """No answer."""
        self._clock.advance(3.0)
        raise CloudUnavailableError(f"{node_id} {key} {permit}")

    def leftovers_of(self, region: str) -> str:
        """No operation of `Cloud`."""
        return region


def sums(histogram: Histogram) -> dict[tuple[str, ...], tuple[float, float]]:
    """The count and the sum of each series."""
    found = {(name, labels): value for name, labels, value in histogram.samples("x")}
    return {labels: (value, found["x_sum", labels]) for (name, labels), value in found.items() if name == "x_count"}


def test_each_operation_of_a_cloud_is_timed_also_if_it_fails() -> None:
    """By the cloud's name and the operation's; arguments, answers and errors pass unchanged."""
    clock, timings = ManualClock(), Timings()
    cloud: Any = time_calls(SlowCloud(clock), "aws", clock, timings.cloud_calls)  # type: ignore[arg-type]  # a part of one
    with pytest.raises(CloudUnavailableError, match="i-1 k permit"):
        cloud.stop("i-1", "k", permit="permit")

    assert cloud.nodes() == cloud.nodes() == ()
    assert sums(timings.cloud_calls) == {("aws", "stop"): (1, 3.0), ("aws", "nodes"): (2, 10.0)}


def test_what_is_no_operation_is_not_timed() -> None:
    """What a cloud has beside the protocol is there as it was."""
    clock, timings = ManualClock(), Timings()
    cloud: Any = time_calls(SlowCloud(clock), "aws", clock, timings.cloud_calls)  # type: ignore[arg-type]  # a part of one

    assert (cloud.prices, cloud.leftovers_of("eu")) == (3, "eu")
    assert sums(timings.cloud_calls) == {}
    with pytest.raises(AttributeError, match="groups"):
        cloud.groups()


def test_the_operations_are_those_of_the_protocol() -> None:
    """A new one is timed without a change here."""
    assert {"nodes", "node", "stop", "terminate", "launch", "groups", "tag"} <= OPERATIONS
    assert all(callable(getattr(Cloud, name)) for name in OPERATIONS)


def test_a_timed_cloud_can_do_what_the_cloud_can() -> None:
    """Also by the attributes themselves: from Python 3.12 on isinstance() asks no `__getattr__`."""
    timings, plain = Timings(), SimulatedCloud(fleet="lab", clock=ManualClock())
    for protocol, method in ((Diagnosable, "may"), (Searchable, "elsewhere"), (Quotas, "quotas")):
        able = time_calls(Region("bj"), "bj", ManualClock(), timings.cloud_calls)
        assert isinstance(able, protocol)
        assert getattr_static(able, method, None) is not None
        assert not isinstance(time_calls(plain, "bj", ManualClock(), timings.cloud_calls), protocol)
