"""A driver of its own process, with Little Cloud behind it: for the contract suite and for the fault matrix."""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import format_exc
from types import CodeType, SimpleNamespace
from typing import Any, ClassVar, Never

import pytest

from gpuwatch.clouds import (
    AuthFailedError,
    Cloud,
    CloudError,
    InsufficientCapacityError,
    ProtectedError,
    QuotaExceededError,
    ThrottledError,
)
from gpuwatch.clouds.driver import line
from gpuwatch.clouds.driver.cloud import DriverCloud
from gpuwatch.clouds.driver.process import Ended, check_executable, run
from gpuwatch.clouds.driver.settings import DriverSettings
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.driver.little_cloud import ACCOUNT, CPU_SIZE, GPU_SIZE, PAGE, TOKEN, LittleCloud
from tests.support.clouds.fault_worlds import CANNOT
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.server import CloudServer, serving
from tests.support.fakes.cloud_worlds import CPU_TEMPLATE, FLEET, SPOT_TEMPLATE, TEMPLATE, Words
from tests.support.paths import ROOT

EXAMPLE = ROOT / "docs/examples/little_cloud_driver.py"
REGION, OTHER = "north", "south"
_PATIENCE_SECONDS = 60.0  # for a process on a busy machine; `test_driver.py` is about deadlines
_REFUSALS: Mapping[type[CloudError], tuple[int, str]] = {
    ProtectedError: (400, "locked"),
    InsufficientCapacityError: (400, "sold-out"),
    QuotaExceededError: (400, "quota"),
    ThrottledError: (429, "too-many"),
    AuthFailedError: (403, "forbidden"),
}
WORDS = Words(
    provider="driver",
    region=REGION,
    zone=f"{REGION}-a",
    account=ACCOUNT,
    machine_type=GPU_SIZE,
    larger_type="gpu-8",
    no_template="nothing",
    reserved_template=None,
    nowhere="m-nowhere",
    no_group="nobody",
    unknown_id="no-such-machine",
    wrong_state=frozenset({"is-booting", "is-going-down", "is-deleting"}),
    key_of_another_launch=None,
    refusals={kind: code for kind, (_, code) in _REFUSALS.items()},
)
_STATES = {
    "booting": NodeState.PENDING,
    "on": NodeState.RUNNING,
    "going-down": NodeState.STOPPING,
    "off": NodeState.STOPPED,
    "deleting": NodeState.TERMINATING,
    "deleted": NodeState.TERMINATED,
}


def installed(folder: Path, source: Path = EXAMPLE) -> Path:
    """The driver where nobody else can write it, run by the Python of the tests."""
    path = folder / source.stem
    lines = source.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([f"#!{sys.executable} -IS", *lines[1:]]), encoding="utf-8")
    path.chmod(0o755)
    return path


def run_patiently(path: Path, request: bytes, *, seconds: float, **options: Any) -> Ended:  # noqa: ANN401  those of `run`
    """A test's clock stands still while the process runs."""
    return run(path, request, seconds=max(seconds, _PATIENCE_SECONDS), **options)


@cache
def _code(path: Path, _changed: int) -> CodeType:
    """A driver's code without its last line, which calls main()."""
    return compile(path.read_text(encoding="utf-8").rstrip().removesuffix("main()"), str(path), "exec")


def _run_here(
    path: Path, request: bytes, *, environment: Mapping[str, str], seconds: float, before: Callable[[], None]
) -> Ended:
    """A run of the same code without a process of its own: the suites have thousands of them."""
    del environment, seconds
    check_executable(path)
    before()
    names: dict[str, Any] = {}
    exec(_code(path, path.stat().st_mtime_ns), names)  # noqa: S102  the example of the documentation
    names["sys"] = SimpleNamespace(stdin=StringIO(request.decode()), stdout=StringIO())
    try:
        names["main"]()
    except Exception:  # noqa: BLE001  what ends a process
        return Ended(status=1, output=b"", complaints=format_exc().encode())
    return Ended(status=0, output=names["sys"].stdout.getvalue().encode(), complaints=b"")


class DriverWorld:
    """`DriverCloud` in two regions, or in one of them."""

    words = WORDS
    regions = (REGION, OTHER)
    calls: ClassVar[Mapping[str, str]] = {
        **{verb: verb for verb in ("stop", "start", "terminate", "tag", "launch")},
        "nodes": "machines",
    }
    arguments: ClassVar[Mapping[str, str]] = {
        "template": TEMPLATE,
        "version": "$Default",
        "pool": "train",
        "region": REGION,
    }
    page = PAGE
    totals = True
    cannot: ClassVar[Mapping[str, str]] = CANNOT["driver"]

    def __init__(
        self, clock: ManualClock, server: CloudServer, fake: LittleCloud, path: Path, regions: tuple[str, ...]
    ) -> None:
        """An empty account with three templates."""
        self.clock, self.server, self.fake, self.path, self._regions = clock, server, fake, path, regions
        fake.templates = {TEMPLATE: GPU_SIZE, CPU_TEMPLATE: CPU_SIZE, SPOT_TEMPLATE: GPU_SIZE}
        fake.spot = {SPOT_TEMPLATE}
        self.cloud: Cloud = self.anew()

    def anew(self) -> DriverCloud:
        """A process that has just begun."""
        secrets = {"token": str(self.path.with_name("token"))}
        return DriverCloud(
            fleet=FLEET,
            clock=self.clock,
            regions=self._regions,
            driver=DriverSettings(executable=str(self.path), secrets=secrets),
            endpoint_url=self.server.url,
        )

    def launch(self, tags: Mapping[str, str], *, gpus: bool = True, region: str = REGION) -> str:
        """A machine that runs."""
        return self.fake.add(tags, region, size=GPU_SIZE if gpus else CPU_SIZE).id

    def terminate(self, node_id: str) -> None:
        """Somebody terminates it."""
        self.fake.become(self.fake.machines[node_id], "deleting")

    def never_made(self, node_id: str) -> None:
        """It ends where it was to begin."""
        self.terminate(node_id)

    def set_tags(self, node_id: str, tags: Mapping[str, str]) -> None:
        """Somebody tags it."""
        self.fake.machines[node_id].labels |= tags

    def settle(self, node_id: str) -> None:
        """A minute passes."""
        del node_id
        self.clock.advance(60)
        self.fake.pass_time()

    def add_group(self, *_: object, **__: object) -> Never:
        """There is none."""
        pytest.skip("drivers have no groups")

    def no_stock(self, group_id: str) -> None:
        """There is no group."""
        pytest.skip(f"drivers have no groups, so there is no {group_id}")

    def add_volume(self) -> Never:
        """There is none."""
        pytest.skip("drivers show no volumes")

    def refuse(self, call: str, kind: type[CloudError]) -> None:
        """The next such call has an error for an answer."""
        self.fake.refusals.setdefault(call, []).append(_REFUSALS[kind])

    def lose_response(self, call: str) -> None:
        """The connection breaks after the effect."""
        self.server.plan.strike(Fault.RESET_AFTER, when(operation=call))

    # For the fault matrix.

    def unreachable(self) -> None:
        """Nobody listens any more."""
        self.server.down()

    def state(self, node_id: str) -> NodeState | None:
        """As it is at this moment."""
        machine = self.fake.machines.get(node_id)
        return None if machine is None else _STATES[machine.status]

    def tags(self, node_id: str) -> Mapping[str, str]:
        """As they are."""
        return self.fake.machines[node_id].labels

    def ids(self) -> Collection[str]:
        """All of them."""
        return self.fake.machines


@contextmanager
def a_world(
    clock: ManualClock, *, regions: tuple[str, ...] = (REGION,), in_processes: bool = False
) -> Iterator[DriverWorld]:
    """An empty account behind HTTP, and the driver in a folder of its own."""
    fake = LittleCloud(clock)
    with TemporaryDirectory() as folder, serving(fake) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(line, "run", run_patiently if in_processes else _run_here)
        Path(folder, "token").write_text(f"{TOKEN}\n", encoding="utf-8")
        yield DriverWorld(clock, server, fake, installed(Path(folder)), regions)


@contextmanager
def fault_world(folder: Path) -> Iterator[DriverWorld]:
    """Both regions."""
    del folder
    with a_world(ManualClock(), regions=DriverWorld.regions) as world:
        yield world
