"""The last moment before a change leaves for Tencent Cloud: an old permit sends nothing, and nothing is sent twice."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuwatch.clouds import CloudUnavailableError, PermitExpiredError
from gpuwatch.clouds.permit import Permit, in_force
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.clouds.tencent.cloud import TencentCloud
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.server import Response
from tests.support.clouds.tencent.world import REGION, TencentWorld, a_world
from tests.support.fakes.cloud_worlds import FLEET, MINE, TEMPLATE

ROLE = AccountSettings(role_arn="qcs::cam::uin/100000000009:roleName/gpuwatch")
CHANGES: dict[str, Callable[[TencentCloud, str, str, Permit], object]] = {
    "StopInstances": lambda cloud, node_id, _, permit: cloud.stop(node_id, "key", permit=permit),
    "StartInstances": lambda cloud, node_id, _, __: cloud.start(node_id, "key"),
    "TerminateInstances": lambda cloud, node_id, _, permit: cloud.terminate(node_id, "key", permit=permit),
    "RemoveInstances": lambda cloud, node_id, group, permit: cloud.terminate(
        node_id, "key", group=group, permit=permit
    ),
    "RunInstances": lambda cloud, *_: cloud.launch({"template": TEMPLATE}, "key"),
    "ModifyDesiredCapacity": lambda cloud, _, group, __: cloud.grow(group, 5, "key"),
    "SetInstancesProtection": lambda cloud, node_id, group, _: cloud.protect(node_id, group, "key", on=True),
    "TagResources": lambda cloud, node_id, _, __: cloud.tag(node_id, {"gpuwatch:stop-at": "then"}, "key"),
}


@pytest.fixture
def world() -> Iterator[TencentWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


def the_cloud(world: TencentWorld) -> TencentCloud:
    """The world's provider."""
    assert isinstance(world.cloud, TencentCloud)
    return world.cloud


@pytest.mark.parametrize("action", CHANGES)
def test_no_change_leaves_with_a_permit_that_has_grown_old(world: TencentWorld, action: str) -> None:
    """Whatever is asked right before it took its time; with a fresh permit it goes out once."""
    group = world.add_group("train", MINE, size=2)
    member = next(iter(world.fake.state.groups[group].members))
    node_id = member if "Remove" in action or "Protection" in action else world.launch(MINE)
    cloud, now = the_cloud(world), world.clock
    cloud.nodes()
    old = a_permit(now)
    now.advance(18.0)

    with in_force(old), pytest.raises(PermitExpiredError, match="was 18s old"):
        CHANGES[action](cloud, node_id, group, old)

    assert world.server.count(action) == 0
    fresh = a_permit(now)
    with in_force(fresh):
        CHANGES[action](cloud, node_id, group, fresh)
    assert world.server.count(action) == 1


def test_credentials_that_are_fetched_slowly_on_the_way_stop_nothing(
    world: TencentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role's credentials end between confirmation and call; STS takes 18 s."""
    node_id = world.launch(MINE)
    cloud = TencentCloud(
        fleet=FLEET,
        clock=world.clock,
        regions=[REGION],
        accounts={"prod": ROLE},
        key_file=str(world.folder / "key"),
        endpoint_url=world.server.url,
    )
    cloud.nodes()
    world.clock.advance(7000)
    real = world.fake.answer

    def slowly(request: Any) -> Response:  # noqa: ANN401  the server's
        if request.headers["x-tc-action"] == "AssumeRole":
            world.clock.advance(18.0)
        return real(request)

    monkeypatch.setattr(world.fake, "answer", slowly)

    with pytest.raises(PermitExpiredError):
        cloud.stop(node_id, "key", permit=a_permit(world.clock))

    assert (world.server.count("AssumeRole"), world.server.count("StopInstances")) == (2, 0)


def test_a_call_that_waited_for_its_turn_is_not_sent_late(world: TencentWorld) -> None:
    """Our own pace makes calls wait before they are signed."""
    node_id = world.launch(MINE)
    cloud = the_cloud(world)
    cloud.nodes()
    pace = cloud._places.all[0].acting.pace
    for _ in range(40):
        pace.slow_down()

    with pytest.raises(PermitExpiredError):
        cloud.stop(node_id, "key", permit=a_permit(world.clock))

    assert world.server.count("StopInstances") == 0


def test_a_permit_that_ends_while_the_connection_opens_sends_nothing(
    world: TencentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check at the open connection is the last."""
    node_id = world.launch(MINE)
    cloud = the_cloud(world)
    cloud.nodes()
    opened: list[str] = []

    def slowly(self: Any) -> None:  # noqa: ANN401  a connection
        opened.append(self.host)
        world.clock.advance(18.0)
        real(self)

    from urllib3.connection import HTTPConnection  # noqa: PLC0415  only this test looks so deep

    real = HTTPConnection.connect
    monkeypatch.setattr(HTTPConnection, "connect", slowly)
    cloud._places.all[0].acting._clients.clear()

    with pytest.raises(PermitExpiredError):
        cloud.stop(node_id, "key", permit=a_permit(world.clock))

    assert (len(opened), world.server.count("StopInstances")) == (1, 0)


def test_a_redirect_is_not_followed(world: TencentWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """`requests` would send the change again, to wherever the answer says."""
    node_id = world.launch(MINE)
    cloud = the_cloud(world)
    cloud.nodes()
    answers: list[str] = []

    def elsewhere(request: Any) -> Response:  # noqa: ANN401  the server's
        answers.append(request.headers["x-tc-action"])
        return Response(status=307, headers={"Location": f"{world.server.url}/again"})

    monkeypatch.setattr(world.fake, "answer", elsewhere)

    with pytest.raises(CloudUnavailableError):
        cloud.stop(node_id, "key", permit=a_permit(world.clock))

    assert answers == ["StopInstances"]


def test_too_many_calls_halve_the_pace(world: TencentWorld) -> None:
    """Of the line that was refused alone; reads are tried again, later."""
    cloud = the_cloud(world)
    place = cloud._places.all[0]
    before = place.reading.pace.per_second, place.acting.pace.per_second
    started = world.clock.monotonic()
    world.server.plan.strike(Fault.THROTTLED, when(operation="DescribeInstances"), times=2)

    assert cloud.nodes() == ()

    assert place.reading.pace.per_second < before[0]
    assert place.acting.pace.per_second == before[1]
    assert world.clock.monotonic() - started >= 3.0
