"""agent/devices/both.py: the GPUs of two drivers on one host."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpuwatch.agent.devices import SourceUnavailableError
from gpuwatch.agent.devices.both import BothSources
from gpuwatch.model.gpu import DownCause, GpuDown, GpuInfo, GpuReading
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.nvml import cycle


class Listed:
    """A source of GPUs that are read or not, as the test says."""

    def __init__(self, clock: ManualClock, *names: str) -> None:
        self.infos = tuple(GpuInfo(uuid=name, index=index) for index, name in enumerate(names))
        self.failing: SourceUnavailableError | None = None
        self.failing_reads = False
        self.whole = True
        self.hurried = self.closed = 0
        self.asked: list[GpuInfo] = []
        self._clock = clock

    def gpus(self) -> tuple[GpuInfo, ...]:
        """Its own, unless it fails."""
        if self.failing is not None and not self.failing_reads:
            raise self.failing
        return self.infos

    def read(self, gpu: GpuInfo) -> GpuReading | GpuDown:
        """Notes who was asked for."""
        if self.failing is not None:
            raise self.failing
        self.asked.append(gpu)
        return GpuReading(info=gpu, at=self._clock.now())

    def hurry(self) -> None:
        """Count it."""
        self.hurried += 1

    def events(self) -> Sequence[tuple[str, int]]:
        """One of each GPU."""
        return [(info.uuid, 79) for info in self.infos]

    def close(self) -> None:
        """Count it."""
        self.closed += 1


GONE = SourceUnavailableError("driver_not_loaded", "it is not loaded", "load it")


@pytest.fixture
def parts(hand: ManualClock) -> tuple[Listed, Listed]:
    """Two sources, of two GPUs and of one."""
    return Listed(hand, "a0", "a1"), Listed(hand, "b0")


@pytest.fixture
def both(parts: tuple[Listed, Listed], hand: ManualClock) -> BothSources:
    """Both as one."""
    return BothSources(parts, hand)


def test_one_count(both: BothSources, parts: tuple[Listed, Listed]) -> None:
    """The second's GPUs are counted after the first's; each source knows its own by its own count."""
    results = cycle(both)

    assert [(result.info.uuid, result.info.index) for result in results] == [("a0", 0), ("a1", 1), ("b0", 2)]
    assert [info.index for info in parts[1].asked] == [0]
    assert both.events() == (("a0", 79), ("a1", 79), ("b0", 79))


@pytest.mark.parametrize("reads", [False, True], ids=["at the listing", "at a reading"])
def test_a_driver_that_fails_hides_nobody(both: BothSources, parts: tuple[Listed, Listed], *, reads: bool) -> None:
    """Its GPUs are down with its words, the others are read."""
    cycle(both)
    parts[0].failing, parts[0].failing_reads = GONE, reads
    results = cycle(both)
    parts[0].failing = None

    assert [isinstance(result, GpuReading) for result in results] == [False, False, True]
    assert {result.cause for result in results if isinstance(result, GpuDown)} == {DownCause.DRIVER}
    assert all("load it" in result.detail for result in results if isinstance(result, GpuDown))
    assert all(isinstance(result, GpuReading) for result in cycle(both))


def test_a_driver_that_never_showed_a_gpu(both: BothSources, parts: tuple[Listed, Listed]) -> None:
    """Nobody knows what is there: nothing is called complete."""
    parts[1].failing = GONE
    with pytest.raises(SourceUnavailableError):
        both.gpus()


def test_only_a_fresh_process_helps(both: BothSources, parts: tuple[Listed, Listed]) -> None:
    """Then the probe must hear it, to end."""
    cycle(both)
    parts[0].failing = SourceUnavailableError("version_mismatch", "other", "reload")
    with pytest.raises(SourceUnavailableError):
        both.gpus()


def test_everything_is_passed_on(both: BothSources, parts: tuple[Listed, Listed]) -> None:
    """Hurry, close, and whether a cycle was whole; a GPU without an index keeps none."""
    parts[0].infos = (replace(parts[0].infos[0], index=None), parts[0].infos[1])
    both.hurry()
    both.close()
    whole = both.whole
    parts[1].whole = False

    assert (whole, both.whole) == (True, False)
    assert [(part.hurried, part.closed) for part in parts] == [(1, 1), (1, 1)]
    assert both.gpus()[0].index is None
