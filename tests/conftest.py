"""Fixtures that several files share, and the `component` marker."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.clock import ManualClock
from gpuwatch.devices.nvml import NvmlSource
from tests.components import require
from tests.nvml import StubDriver, build


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked `component(name)` needs that program."""
    for marker in item.iter_markers("component"):
        require(*marker.args)


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
