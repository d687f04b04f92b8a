"""The last moment before a change leaves for Alibaba Cloud: whatever took long, an old permit sends nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.clouds import STOP_AT, Cloud, CloudUnavailableError, PermitExpiredError
from gpuwatch.clouds.alibaba.client import of_pair
from gpuwatch.clouds.permit import in_force
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.alibaba.fake import CHANGES as ACTIONS
from tests.support.clouds.alibaba.fake import KEY_ID, SECRET
from tests.support.clouds.alibaba.world import AlibabaWorld, a_world
from tests.support.clouds.faults import Fault, when
from tests.support.fakes.cloud_worlds import MINE, TEMPLATE

SLOW = 18.0


@pytest.fixture
def world() -> Iterator[AlibabaWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


class SlowKeys:
    """A chain of credentials that takes its time now and then, as one that assumes a role."""

    def __init__(self, clock: ManualClock) -> None:
        """At once."""
        self.clock, self.seconds, self.own = clock, 0.0, of_pair(KEY_ID, SECRET)

    def get_credentials(self) -> Any:  # noqa: ANN401  as the SDK's
        """After the wait."""
        self.clock.advance(self.seconds)
        return self.own.get_credentials()


CHANGES: dict[str, Callable[[Cloud, str, str], object]] = {
    "StartInstance": lambda cloud, node_id, _: cloud.start(node_id, "key"),
    "TagResources": lambda cloud, node_id, _: cloud.tag(node_id, {STOP_AT: "then"}, "key"),
    "RunInstances": lambda cloud, _, __: cloud.launch({"template": TEMPLATE}, "key"),
    "ScaleWithAdjustment": lambda cloud, _, group_id: cloud.grow(group_id, 3, "key"),
    "SetInstancesProtection": lambda cloud, _, group_id: cloud.protect(
        next(node.id for node in cloud.nodes() if node.group), group_id, "key", on=True
    ),
}
REMOVALS: dict[str, Callable[[Cloud, str, str, Any], object]] = {
    "StopInstance": lambda cloud, node_id, _, permit: cloud.stop(node_id, "key", permit=permit),
    "DeleteInstance": lambda cloud, node_id, _, permit: cloud.terminate(node_id, "key", permit=permit),
    "RemoveInstances": lambda cloud, _, group_id, permit: cloud.terminate(
        next(node.id for node in cloud.nodes() if node.group), "key", group=group_id, permit=permit
    ),
}


def test_every_change_is_in_the_tables() -> None:
    """A new one would be tried by no test."""
    assert {*CHANGES, *REMOVALS} == ACTIONS


@pytest.mark.parametrize("action", REMOVALS)
def test_credentials_that_come_slowly_remove_nothing(world: AlibabaWorld, action: str) -> None:
    """They are fetched before the permit is looked at."""
    keys = SlowKeys(world.clock)
    cloud = world.another(provider=keys)
    node_id, group_id = world.launch(MINE), world.add_group("train", MINE, size=2)
    cloud.nodes()
    keys.seconds = SLOW

    with pytest.raises(PermitExpiredError, match=r"was \d+s old|was \d+m"):
        REMOVALS[action](cloud, node_id, group_id, a_permit(world.clock))

    assert world.server.changes() == []
    keys.seconds = 0.0
    REMOVALS[action](cloud, node_id, group_id, a_permit(world.clock))
    assert [entry.asked.operation for entry in world.server.changes()] == [action]


@pytest.mark.parametrize("action", CHANGES)
def test_what_needs_no_confirmation_is_held_to_the_permit_in_force(world: AlibabaWorld, action: str) -> None:
    """A controller that does not lead any more changes nothing."""
    node_id, group_id = world.launch(MINE), world.add_group("train", MINE, size=2)
    world.cloud.nodes()

    with in_force(a_permit(world.clock, leads=lambda: False)), pytest.raises(PermitExpiredError, match="does not lead"):
        CHANGES[action](world.cloud, node_id, group_id)

    assert world.server.changes() == []


def test_a_call_that_waited_for_its_turn_is_not_sent_late(world: AlibabaWorld) -> None:
    """Our own pace makes calls wait before they are signed."""
    cloud, node_id = world.another(), world.launch(MINE)
    cloud.nodes()
    pace = cloud._places.all[0].acting._pace
    for _ in range(20):
        pace.slow_down()

    with pytest.raises(PermitExpiredError):
        cloud.stop(node_id, "key", permit=a_permit(world.clock))

    assert world.server.changes() == []


def test_a_connection_that_takes_long_sends_nothing(world: AlibabaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The permit is looked at again when it is open."""
    import urllib3.connection  # noqa: PLC0415  where it is patched

    opened = urllib3.connection.HTTPConnection.connect

    def slowly(self: urllib3.connection.HTTPConnection) -> None:
        world.clock.advance(SLOW)
        opened(self)

    cloud, node_id = world.another(), world.launch(MINE)
    monkeypatch.setattr(urllib3.connection.HTTPConnection, "connect", slowly)

    with pytest.raises(PermitExpiredError):
        cloud.stop(node_id, "key", permit=a_permit(world.clock))

    assert world.server.changes() == []


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.RESET_BEFORE, Fault.RESET_AFTER, Fault.ERROR_AFTER])
def test_a_change_is_sent_once_whatever_comes_back(world: AlibabaWorld, fault: Fault) -> None:
    """Neither the SDK nor the connection tries it again."""
    node_id = world.launch(MINE)
    world.cloud.nodes()
    world.server.plan.strike(fault, when(operation="StopInstance"), times=None)

    with pytest.raises(Exception) as caught:  # noqa: PT011  one of two types
        world.cloud.stop(node_id, "key", permit=a_permit(world.clock))

    assert world.server.count("StopInstance") == 1
    assert isinstance(caught.value, CloudUnavailableError) is (fault is not Fault.THROTTLED)


def test_a_read_waits_as_long_as_the_cloud_asks(world: AlibabaWorld) -> None:
    """Retry-After; our own pace slows down besides."""
    world.launch(MINE)
    world.server.plan.strike(Fault.THROTTLED_FOR, when(operation="DescribeInstances"))
    before = world.clock.monotonic()

    assert len(world.cloud.nodes()) == 1
    assert world.clock.monotonic() - before >= 1.0


def test_each_request_has_its_own_signature_and_none_repeats_a_secret(world: AlibabaWorld) -> None:
    """The fake recomputes each by the official signer, and refuses a nonce that it has seen."""
    world.launch(MINE)
    world.cloud.nodes()
    world.cloud.nodes()

    headers = [entry.request.headers for entry in world.server.log]
    assert len({each["x-acs-signature-nonce"] for each in headers}) == len(headers)
    assert all(SECRET not in str(each) for each in headers)


def test_a_session_token_goes_with_the_request(world: AlibabaWorld) -> None:
    """As for a role of the machine."""

    class Session:
        """Temporary credentials."""

        def get_credentials(self) -> Any:  # noqa: ANN401  as the SDK's
            """With a token."""
            from alibabacloud_credentials.provider import StaticSTSCredentialsProvider  # noqa: PLC0415  the SDK

            return StaticSTSCredentialsProvider(
                access_key_id=KEY_ID,
                access_key_secret=SECRET,
                security_token="a-token",  # noqa: S106  no secret
            ).get_credentials()

    world.another(provider=Session()).nodes()

    assert {entry.request.headers.get("x-acs-security-token") for entry in world.server.log} == {"a-token"}


def test_a_netrc_replaces_no_signature(
    world: AlibabaWorld,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests would put a password for the host in place of the signature."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login x password y\n")
    monkeypatch.setenv("NETRC", str(netrc))

    assert list(world.cloud.nodes()) == []
