"""Fixtures that several files share, and the `component` marker."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.clock import ManualClock
from gpuwatch.devices.nvml import NvmlSource
from tests.components import require
from tests.fleets import DAYS_LIVED
from tests.nvml import StubDriver, build
from tests.patients import Patient


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked `component(name)` needs that program."""
    for marker in item.iter_markers("component"):
        require(*marker.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How long the generated fleets lived, for `make nightly`."""
    if "GPUWATCH_LIVES" in os.environ:
        terminalreporter.write_line(f"Generated fleets lived {DAYS_LIVED[0]:,.0f} days in this process.")


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stand-in libnvidia-ml.so.1, compiled once a session."""
    require("cc")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(nvml_library: Path, tmp_path: Path) -> StubDriver:
    """A stand-in driver with one idle GPU; `driver.environment` makes a child process use it."""
    return StubDriver(tmp_path / "driver", nvml_library)


@pytest.fixture
def hand() -> ManualClock:
    """The clock of `source`, moved by hand."""
    return ManualClock()


@pytest.fixture
def source(driver: StubDriver, hand: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[NvmlSource]:
    """The real NVML source on the stand-in driver, in this process."""
    ctypes.CDLL(str(driver.library / "libnvidia-ml.so.1"))  # pynvml's own dlopen finds it by its soname
    monkeypatch.setenv("NVML_STUB_STATE", str(driver.state_file))
    opened = NvmlSource(hand)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file to write configurations to."""
    path = tmp_path_factory.mktemp("configuration") / "gpuwatch.yaml"
    path.touch()
    return path


@pytest.fixture
def patient() -> Patient:
    """A GPU of which nothing is known."""
    return Patient()
