"""Every reading, field by field and generation by generation, on drivers written from the header alone."""

import json
from collections.abc import Iterator
from typing import Any

import pynvml
import pytest

from gpuwatch.agent.devices.nvml.source import NvmlSource
from gpuwatch.model.gpu import GpuReading, metrics
from gpuwatch.model.metric import SLOW_SECONDS
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.nvml_generations import GENERATIONS as DRIVERS
from tests.support.fakes.nvml_generations import RAW, Library
from tests.support.paths import ROOT
from tools.docs.generations import FACTORS, GENERATIONS, NO, YES, support, unit

_STATE = {"fabric_state": pynvml.NVML_GPU_FABRIC_STATE_COMPLETED}


@pytest.fixture
def read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuReading]:
    """The second reading of one generation's GPU: activity is a difference of two."""
    monkeypatch.setattr(pynvml, "nvmlLib", Library(DRIVERS[request.param]))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)
    clock = ManualClock()
    source = NvmlSource(clock)
    for _ in range(3):
        (gpu,) = source.gpus()
        reading = source.read(gpu)
        clock.advance(SLOW_SECONDS)
    assert isinstance(reading, GpuReading)
    yield reading
    source.close()


def expected(field: str, generation: str) -> Any:  # noqa: ANN401  a number, or one for each label
    """The figure that the driver gives, in the base unit."""
    kind, links = unit(field), DRIVERS[generation].links
    if kind.startswith("KiB, "):
        kind = "bytes" if support("nvlink_receive_errors_total")[generation] == YES else "KiB"
    if field == "nvlink_errors_total":
        return {RAW["count"], RAW["count"] * links}
    return {_STATE.get(field, RAW[kind] * FACTORS.get(kind, 1))}


@pytest.mark.parametrize(("read", "generation"), [(name, name) for name in GENERATIONS], indirect=["read"])
def test_each_reading_of_each_generation(read: GpuReading, generation: str) -> None:
    """In base units where the generation has it, and not there at all, never zero, where it does not."""
    wrong = {}
    for field, _ in metrics():
        value, has = getattr(read, field), support(field)[generation]
        figures = [] if value is None else value.values() if isinstance(value, dict) else [value]
        right = [any(figure == pytest.approx(each) for each in expected(field, generation)) for figure in figures]
        if (has == NO and value is not None) or (has == YES and not right) or not all(right):
            wrong[field] = value
    assert wrong == {}


def test_the_table_is_what_an_h200_gave() -> None:
    """A recording, made before the fabric and on-chip memory were read, on a machine without NVLinks."""
    lines = (ROOT / "tests/captures/nvidia_h200_work.jsonl").read_text(encoding="utf-8").splitlines()
    readings = [found for line in lines if (found := json.loads(line).get("reading"))]
    given = {name for reading in readings for name, value in reading.items() if value is not None}
    for field, _ in metrics():
        if not field.startswith(("nvlink_", "fabric_", "sram_")):
            assert (field in given) == (support(field)["H100"] == YES), field


@pytest.mark.parametrize(("read", "generation"), [(name, name) for name in GENERATIONS], indirect=["read"])
def test_the_fabric_of_each_generation(read: GpuReading, generation: str) -> None:
    """The mask is read as the header has it; a GPU without a fabric has no faults, and not none of them."""
    assert read.fabric_faults == (("degraded_bandwidth",) if DRIVERS[generation].fabric else None)
