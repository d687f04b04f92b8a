"""Fixtures that several files share, and the `component` marker."""

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from gpuwatch.agent.devices import pid_namespace
from gpuwatch.agent.devices.nvml.source import NvmlSource
from gpuwatch.model.currency import DOLLARS, show_in
from gpuwatch.money.accounting.scope import count_in
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import DAYS_LIVED
from tests.support.builders.sick_gpus import Patient
from tests.support.components import require
from tests.support.fakes.nvml import StubDriver, build
from tests.support.nightly import examples
from tests.support.pairwise import left_out
from tests.support.paths import TESTS
from tests.support.real.kubernetes import ControlPlane, control_plane, end_control_plane
from tests.support.real.postgresql import end_postgresql
from tests.support.slow_tests import SLOW

# Minutes each: what runs longest begins first, so that no worker is left alone with it at the end.
_LONGEST = (
    *("test_quickstart", "test_real_lives", "test_cheap_additions", "test_crash_growth", "test_groups_without_stock"),
    *("test_matrix", "test_join", "test_properties_growth", "test_properties_launch", "test_soak", "test_readme"),
)
_SLOW = {TESTS / "unit" / f"{name}.py" for name in SLOW}

# GNU readline, once something loads it, hands a size of the terminal to every process that is started from then on.
for _size in ("COLUMNS", "LINES"):
    os.environ.pop(_size, None)

# Without bytecode each of the thousands of processes that tests start compiles gpuwatch anew: a third of their time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A folder for the tests alone: the programs that they start take no variable of this name for anything but a setting.
if "GPUWATCH_RECORDED" in os.environ:
    os.environ["RECORDED_ANSWERS"] = os.environ.pop("GPUWATCH_RECORDED")

# Folders of a provider's own tests, below tests/unit/clouds and tests/integration/clouds, and its SDK's module.
_SDKS = {
    "alibaba": "alibabacloud_ecs20140526",
    "azure": "azure",
    "gcp": "googleapiclient",
    "tencent": "tencentcloud",
}

# In a container, as in many a CI, the tests' own machines are to be hosts all the same; so are their processes'.
if not pid_namespace.in_host_pids():
    _AS_A_HOST = str(TESTS / "support/as_host")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_AS_A_HOST, os.environ.get("PYTHONPATH")]))
    pid_namespace._HOST_PIDS = str(Path("/proc/self/ns/pid").readlink())

# How long an example takes says how busy the machine is, and nothing about the code: benchmarks measure that.
# Every failure says how to play it again (`@reproduce_failure`). CI searches the same examples in each run, so that a
# red is its commit's own and stays red when it is run again; `make test` elsewhere and `make nightly` search new ones.
settings.register_profile(
    "gpuwatch",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    max_examples=examples(100),
    derandomize=os.environ.get("CI") == "true" and "NIGHTLY_LIVES" not in os.environ,
)
settings.register_profile("quick", parent=settings.get_profile("gpuwatch"), max_examples=10)
settings.load_profile("gpuwatch")

# Thousands of tests leave much that lives on, and looking through it at every turn takes a tenth of the time.
gc.set_threshold(50_000, 20, 50)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """The tests of a cloud whose SDK is not installed are left out, but never where CI=true."""
    module = _SDKS.get(collection_path.name) if collection_path.parent.name == "clouds" else None
    lacking = module is not None and find_spec(module) is None and os.environ.get("CI") != "true"
    return True if lacking else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest first, all else in its order; slow files of the unit tests have the mark `slow`."""
    if spared := left_out(items, config.args):
        config.hook.pytest_deselected(items=spared)
        ids = {id(item) for item in spared}
        items[:] = [item for item in items if id(item) not in ids]
    items.sort(key=lambda item: item.path.stem not in _LONGEST)
    for item in items:
        if item.path in _SLOW:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: no collection of garbage looks at them, which took a second each time."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked `component(name)` needs that program."""
    for marker in item.iter_markers("component"):
        require(*marker.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How long the generated fleets lived, for `make nightly`."""
    if "NIGHTLY_LIVES" in os.environ:
        terminalreporter.write_line(f"Generated fleets lived {DAYS_LIVED[0]:,.0f} days in this process.")


def pytest_sessionfinish() -> None:
    """Servers that tests share end with their worker."""
    end_postgresql()
    end_control_plane()


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stand-in libnvidia-ml.so.1, compiled once a session."""
    require("cc")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(nvml_library: Path, tmp_path: Path) -> StubDriver:
    """A stand-in driver with one idle GPU; `driver.environment` makes a child process use it."""
    return StubDriver(tmp_path / "driver", nvml_library)


@pytest.fixture(autouse=True)
def dollars() -> Iterator[None]:
    """A command that showed another currency, or counted an account, leaves the next test as a process begins."""
    yield
    show_in(DOLLARS)
    count_in("fleet")


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


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """A real API server of Kubernetes, without a node; what a test leaves there is taken away."""
    running = control_plane()
    yield running
    running.empty()


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
