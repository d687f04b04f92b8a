"""The drivers for Runpod and Lambda: the whole contract, and each refusal of their API descriptions."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.driver import line
from gpuwatch.clouds.driver.cloud import DriverCloud
from gpuwatch.clouds.driver.process import run
from gpuwatch.clouds.driver.settings import DriverSettings
from gpuwatch.clouds.driver.suite import BROKE, NOT_TESTED, Suite, SuiteDocument
from gpuwatch.clouds.drivers import lambda_cloud, runpod
from gpuwatch.clouds.errors import (
    AuthFailedError,
    BusyError,
    CloudUnavailableError,
    InsufficientCapacityError,
    NotFoundError,
    NotSentError,
    QuotaExceededError,
    ThrottledError,
)
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.drivers.here import run_main
from tests.support.clouds.drivers.rented import KEY, Lambda, Rented, Runpod
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.server import CloudServer, serving
from tests.support.paths import ROOT

FLEET = "lab"
MAINS: Mapping[str, Callable[[], None]] = {"runpod": runpod.main, "lambda_cloud": lambda_cloud.main}


@dataclass(slots=True)
class World:
    """One driver with its cloud behind HTTP."""

    clock: ManualClock
    fake: Any
    server: CloudServer
    path: Path
    options: dict[str, str]
    arguments: Mapping[str, str]
    tags: Mapping[str, str]  # as the machine is made with
    module: str

    @property
    def settings(self) -> DriverSettings:
        """With its key."""
        return DriverSettings(
            executable=str(self.path), secrets={"api_key": str(self.path.with_name("key"))}, options=self.options
        )

    def cloud(self) -> DriverCloud:
        """The adapter."""
        return DriverCloud(
            fleet=FLEET, clock=self.clock, driver=self.settings, endpoint_url=self.server.url + self.base
        )

    @property
    def base(self) -> str:
        """What the API's paths begin with."""
        return "/v2" if isinstance(self.fake, Runpod) else ""

    def tried(self, **more: Any) -> SuiteDocument:  # noqa: ANN401  of the suite
        """The contract suite."""
        endpoint = self.server.url + self.base
        return Suite(self.settings, clock=self.clock, endpoint=endpoint, kill_after=0.05, **more).run()


@pytest.fixture(params=["runpod", "lambda_cloud"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """An account with two machines of the fleet."""
    clock, stack = ManualClock(), ExitStack()
    monkeypatch.setattr(line, "run", run_main(MAINS[request.param]))
    fake: Rented = Runpod(clock) if request.param == "runpod" else Lambda(clock)
    path = tmp_path / request.param
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from gpuwatch.clouds.drivers.{request.param} import main\nmain()\n",
        encoding="utf-8",
    )
    path.chmod(0o755)
    path.with_name("key").write_text(KEY, encoding="utf-8")
    arguments = {"template": "tpl", "instance_type": "NVIDIA A40 x2 secure", "region": "EU-SE-1"}
    tags: Mapping[str, str] = {"GPUWATCH_FLEET": FLEET, "GPUWATCH_POOL": "train"}
    if request.param == "lambda_cloud":
        arguments = {"template": "lambda-stack-24-04", "instance_type": "gpu_8x_h100_sxm5", "region": "us-west-1"}
        tags = {"gpuwatch:fleet": FLEET, "gpuwatch:pool": "train"}
    options = {"tags": str(tmp_path / "tags.json"), "ssh_key": "ours"}
    with stack:
        server = stack.enter_context(serving(fake))
        made = World(clock, fake, server, path, options, arguments, tags, request.param)
        made.fake.add(tags)
        made.fake.add(tags)
        yield made


def test_the_driver_keeps_each_sentence_of_the_contract(world: World) -> None:
    """Also when it may change a machine, and launch one."""
    named = list(world.fake.machines)[-1]
    found = world.tried(machine=named, launch=world.arguments)
    left = {each.says for each in found.sentences if each.result == NOT_TESTED}
    assert [each for each in found.sentences if each.result == BROKE] == []
    assert left == (
        set() if "stop" in found.calls else {each for each in left if each.startswith(("A stop", "A start"))}
    )
    assert found.name is not None
    assert "not yet seen on the real cloud" in found.name


def test_without_permission_nothing_is_changed(world: World) -> None:
    """The cloud gets reads alone."""
    world.tried()
    assert {entry.request.method for entry in world.server.log} == {"GET"}


def test_a_machine_is_shown_with_what_the_guard_needs(world: World) -> None:
    """Fleet, pool, GPUs, disks that a stop or an end wipes; no secret of its environment."""
    node = world.cloud().nodes()[0]
    assert (node.enrolled, node.pool, node.state, node.instance_store) == (True, "train", NodeState.RUNNING, True)
    assert node.gpu_count in {2, 8}
    assert "theirs" not in repr(node)


@pytest.mark.parametrize("world", ["runpod"], indirect=True)
def test_what_runpod_locks_or_a_cluster_owns_is_left_alone(world: World) -> None:
    """And pods without GPUs are no machines of the fleet."""
    locked = world.fake.add({}, locked=True)
    member = world.fake.add({}, cluster={"id": "c-1", "rank": 0})
    world.fake.add({}, gpu=None, cpu={"id": "cpu5c", "vcpuCount": 2, "memory": 4})
    failed = world.fake.add({}, status="ERROR")
    nodes = {node.id: node for node in world.cloud().nodes()}
    assert nodes[locked].protected == "it is locked in Runpod"
    assert nodes[member].managed_by == "the Runpod cluster c-1"
    assert nodes[failed].state is NodeState.UNKNOWN
    assert len(nodes) == 5


@pytest.mark.parametrize("world", ["lambda_cloud"], indirect=True)
def test_lambda_has_no_stop_and_says_where_an_end_is_not_possible(world: World) -> None:
    """The guard hears both; what is unhealthy or preempted is unknown."""
    busy = {"available": False, "reason_code": "vm-action-in-progress", "reason_description": "it is rebuilt"}
    actions = {each: {"available": True} for each in ("migrate", "rebuild", "restart", "cold_reboot")}
    held = world.fake.add({}, actions=actions | {"terminate": busy})
    sick = world.fake.add({}, status="unhealthy")
    nodes = {node.id: node for node in world.cloud().nodes()}
    assert nodes[held].cannot_stop == "its driver lambda_cloud does not offer stop"
    assert nodes[held].cannot_terminate == "it is rebuilt"
    assert nodes[sick].state is NodeState.UNKNOWN


def test_tags_are_kept_in_the_file_that_the_options_name(world: World) -> None:
    """They outlive the driver; without the file it offers no tags."""
    node_id = next(iter(world.fake.machines))
    world.cloud().tag(node_id, {"gpuwatch:stop-at": "2026-01-05T10:00:00Z"}, "k")
    world.cloud().tag(node_id, {"gpuwatch:notified-at": "2026-01-05T09:00:00Z"}, "k")
    node = world.cloud().node(node_id)
    assert node is not None
    assert {"gpuwatch:stop-at", "gpuwatch:notified-at", "gpuwatch:fleet"} <= set(node.tags)
    world.options = {}
    assert "tag" not in world.tried().calls


def test_a_broken_file_of_tags_is_a_doubt(world: World) -> None:
    """Without its tags a machine would look as if nobody had protected it."""
    Path(world.options["tags"]).write_text("{", encoding="utf-8")
    with pytest.raises(CloudUnavailableError):
        world.cloud().nodes()


REFUSALS: list[tuple[str, int, str, type[CloudError]]] = [
    ("list", 401, "global/invalid-api-key", AuthFailedError),
    ("list", 403, "global/account-inactive", AuthFailedError),
    ("list", 429, "too many", ThrottledError),
    ("list", 500, "", CloudUnavailableError),
    ("terminate", 404, "global/object-does-not-exist", NotFoundError),
    ("terminate", 429, "too many", ThrottledError),
    ("terminate", 500, "", CloudUnavailableError),
]


def act(world: World, operation: str) -> Any:  # noqa: ANN401  what the call gives
    """The same by the adapter."""
    if operation == "list":
        return world.cloud().nodes()
    if operation == "launch":
        return world.cloud().launch({**world.arguments, "pool": "train", "version": "$Default"}, "key")
    node_id = next(iter(world.fake.machines))
    return getattr(world.cloud(), operation)(node_id, "key", permit=a_permit())


@pytest.mark.parametrize(("operation", "status", "code", "expected"), REFUSALS)
def test_each_refusal_of_both_is_of_its_kind(
    operation: str, status: int, code: str, expected: type[CloudError], world: World
) -> None:
    """A refusal is certain, whatever else is a doubt, and no change is sent a second time."""
    world.fake.refusals[operation] = [(status, code)]
    with pytest.raises(CloudError) as caught:
        act(world, operation)
    assert type(caught.value) is expected
    if expected is ThrottledError:
        assert "again after 7 s" in str(caught.value)
    assert world.server.count(operation) == 1
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("world", ["runpod"], indirect=True)
@pytest.mark.parametrize(
    ("operation", "status", "expected"),
    [
        ("launch", 400, InsufficientCapacityError),
        ("launch", 402, QuotaExceededError),
        ("launch", 422, CloudError),
        ("stop", 409, BusyError),
        ("stop", 400, CloudError),
    ],
)
def test_refusals_of_runpod(operation: str, status: int, expected: type[CloudError], world: World) -> None:
    """A pod that cannot be placed is a 400 without a code."""
    world.fake.refusals[operation] = [(status, "Title")]
    with pytest.raises(CloudError, match=r"it does not go; gpu\.count") as caught:
        act(world, operation)
    assert type(caught.value) is expected


@pytest.mark.parametrize("world", ["lambda_cloud"], indirect=True)
@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "instance-operations/launch/insufficient-capacity", InsufficientCapacityError),
        (400, "global/quota-exceeded", QuotaExceededError),
        (400, "instance-operations/launch/file-system-in-wrong-region", CloudError),
        (404, "global/object-does-not-exist", CloudError),
        (400, "provider/internal-unavailable", CloudUnavailableError),
    ],
)
def test_refusals_of_a_launch_on_lambda(status: int, code: str, expected: type[CloudError], world: World) -> None:
    """By their codes; an error of whoever is behind Lambda is a doubt."""
    world.fake.refusals["launch"] = [(status, code)]
    with pytest.raises(CloudError) as caught:
        act(world, "launch")
    assert type(caught.value) is expected


@pytest.mark.parametrize(
    "fault", [Fault.RESET_AFTER, Fault.RESET_BEFORE, Fault.GATEWAY, Fault.GARBLED, Fault.CUT, Fault.ERROR_AFTER]
)
def test_a_lost_answer_is_a_doubt_and_is_not_sent_again(fault: Fault, world: World) -> None:
    """Whether or not the cloud has done it."""
    world.server.plan.strike(fault, when(operation="terminate"))
    with pytest.raises(CloudUnavailableError) as caught:
        act(world, "terminate")
    assert type(caught.value) is CloudUnavailableError
    assert world.server.count("terminate") == 1


def test_no_connection_is_told_as_not_sent(world: World) -> None:
    """So a change has certainly not happened."""
    cloud = world.cloud()
    world.server.down()
    with pytest.raises(NotSentError):
        cloud.nodes()


@pytest.mark.parametrize(
    "endpoint",
    ["http://10.0.0.9/v2", "HTTP://api.example", "api.example/v2", "ftp://api.example", "http://localhost.x"],
)
def test_a_key_goes_to_nobody_without_encryption(endpoint: str, world: World) -> None:
    """Not even for `describe`: the error says what is wrong with the setting. Only loopback may be plain HTTP."""
    cloud = DriverCloud(fleet=FLEET, clock=world.clock, driver=world.settings, endpoint_url=endpoint)
    with pytest.raises(CloudError, match=r"cloud\.endpoint_url"):
        cloud.nodes()


@pytest.mark.parametrize("url", ["http://10.0.0.9/v3", " HTTP://10.0.0.9/v3", "\thttp://localhost.x"])
def test_no_option_names_an_address_without_encryption(url: str, world: World) -> None:
    """A driver of libcloud takes addresses as options, and does not count spaces before one."""
    world.options["ex_force_auth_url"] = url
    with pytest.raises(CloudError, match=r"cloud\.driver\.options\.ex_force_auth_url"):
        world.cloud().nodes()


def test_prices_are_of_the_types_in_the_fleet(world: World) -> None:
    """For whole machines; a type that the catalogue does not have is unpriced."""
    kind = next(iter(world.cloud().nodes())).instance_type
    rows = world.cloud().prices([kind, "NVIDIA B999 x8 secure", "odd"], None)
    assert rows == [{"type": kind, "usd_per_hour": 0.88 if world.module == "runpod" else 23.92}]


def test_a_launch_that_lacks_something_is_refused_before_it_is_sent(world: World) -> None:
    """The message says what it needs."""
    with pytest.raises(CloudError, match="instance_type"):
        world.cloud().launch({"template": "x", "pool": "train", "instance_type": ""}, "key")
    assert world.server.changes() == []


def test_the_driver_runs_as_a_process_of_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only test with a real one; its key is in its standard input alone."""
    monkeypatch.setattr(line, "run", lambda *args, **more: run(*args, **{**more, "seconds": 60.0}))
    (node, _) = world.cloud().nodes()
    assert node.enrolled
    assert KEY not in world.path.read_text(encoding="utf-8")
    assert json.loads(world.server.log[-1].request.body or b"null") is None
