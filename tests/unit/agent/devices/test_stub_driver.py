"""The stand-in driver of tests and benchmarks: how long its calls take, and what it answers other exporters."""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import pynvml as nvml
import pytest

from gpuwatch.agent.devices.nvml.source import NvmlSource
from tests.support.fakes.nvml import NOT_SUPPORTED, REAL_LATENCIES, StubDriver

INIT = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).nvmlInitWithFlags(0)"
LINKS = 18


def opened(driver: StubDriver, table: Path) -> subprocess.CompletedProcess[str]:
    """A process that initialises the driver with that table of latencies."""
    command = [sys.executable, "-c", INIT, str(driver.library / "libnvidia-ml.so.1")]
    environment = StubDriver(table.parent / "its", driver.library, latencies=table).environment
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=False)


def test_each_function_of_the_table_exists(driver: StubDriver) -> None:
    """A row that names no function of the driver would never take effect."""
    library = ctypes.CDLL(str(driver.library / "libnvidia-ml.so.1"))
    rows = [line.split() for line in REAL_LATENCIES.read_text(encoding="ascii").splitlines()]
    functions = [row[0] for row in rows if row and row[0] not in ("#", "*") and not row[0].startswith("field.")]

    assert len(functions) == len(set(functions)) > 30
    # The stand-in lacks two ways to a handle that others may take.
    others = {"nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByUUID"}
    assert {function for function in functions if not hasattr(library, function)} <= others


@pytest.mark.parametrize("columns", ["0 30000", "30000 0"])
def test_a_call_takes_as_long_as_the_table_says(driver: StubDriver, tmp_path: Path, columns: str) -> None:
    """It takes its time busy or waiting, and never less of it."""
    table = tmp_path / "table"
    table.write_text(f"# function busy wait\nnvmlInitWithFlags {columns}\n", encoding="ascii")

    began = time.perf_counter()
    done = opened(driver, table)

    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - began >= 0.03
    assert StubDriver(tmp_path / "its", driver.library).busy_seconds() == float(columns.split(maxsplit=1)[0]) / 1e6


@pytest.mark.parametrize("text", ["nvmlInitWithFlags 12\n", "nvmlInitWithFlags fast 0\n", None])
def test_a_table_that_cannot_be_read_ends_the_process(driver: StubDriver, tmp_path: Path, text: str | None) -> None:
    """A benchmark must not go on with a driver that costs nothing."""
    table = tmp_path / "table"
    if text is not None:
        table.write_text(text, encoding="ascii")

    done = opened(driver, table)

    assert done.returncode == 2
    assert str(table) in done.stderr


def test_other_exporters_read_it_all(driver: StubDriver, source: NvmlSource) -> None:
    """The limit, the throughput of PCIe and of each NVLink, and what a process uses, are numbers for them too."""
    driver.gpu(0).set(pcie_throughput=1_234, utilization=87, nvlink_grows=1_000).processes({os.getpid(): 1 << 30})
    source.gpus()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)

    count, link = nvml.nvmlDeviceGetFieldValues(gpu, [91, (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 3)])
    (used,) = nvml.nvmlDeviceGetProcessUtilization(gpu, 0)

    assert nvml.nvmlDeviceGetPowerManagementLimit(gpu) == 700_000
    assert nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_TX_BYTES) == 1_234
    assert (count.value.uiVal, count.nvmlReturn) == (LINKS, 0)
    assert link.value.ullVal > 0
    assert 0 < count.timestamp <= link.timestamp
    assert (used.pid, used.smUtil) == (os.getpid(), 87)


def test_a_process_of_an_idle_gpu_has_no_utilization(driver: StubDriver, source: NvmlSource) -> None:
    """The driver lists only processes that use the GPU, and says that it found none."""
    driver.gpu(0).processes({os.getpid(): 1 << 30})
    source.gpus()

    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetProcessUtilization(nvml.nvmlDeviceGetHandleByIndex(0), 0)


def test_other_exporters_meet_its_errors(driver: StubDriver, source: NvmlSource) -> None:
    """What fails for the agent fails for them."""
    driver.gpu(0).error("nvmlDeviceGetPcieThroughput", NOT_SUPPORTED)
    source.gpus()

    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetPcieThroughput(nvml.nvmlDeviceGetHandleByIndex(0), nvml.NVML_PCIE_UTIL_TX_BYTES)
