"""The driver over apache-libcloud: OpenStack behind real HTTP, and what libcloud's own dummy cloud can."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.driver import line
from gpuwatch.clouds.driver.cloud import DriverCloud
from gpuwatch.clouds.driver.settings import DriverSettings
from gpuwatch.clouds.driver.suite import BROKE, NOT_TESTED, Suite
from gpuwatch.clouds.drivers import libcloud_compute
from gpuwatch.clouds.errors import AuthFailedError, BusyError, CloudUnavailableError, NotFoundError, ThrottledError
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.drivers.here import run_main
from tests.support.clouds.drivers.openstack import FLAVOR, PASSWORD, REGION, USER, OpenStack
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.server import CloudServer, serving

MINE = {"gpuwatch:fleet": "lab", "gpuwatch:pool": "train"}
OPTIONS = {"provider": "openstack", "key": USER, "ex_tenant_name": "p", "gpus": f"{FLAVOR}=4 other=8"}


class Desk:
    """The driver, and five servers in three pages."""

    def __init__(self, folder: Path, fake: OpenStack, server: CloudServer) -> None:
        """One runs."""
        self.fake, self.server, self.clock = fake, server, ManualClock()
        path = folder / "driver"
        path.write_text(f"#!{sys.executable}\n", encoding="utf-8")
        path.chmod(0o755)
        (folder / "password").write_text(PASSWORD, encoding="utf-8")
        self.settings = DriverSettings(
            executable=str(path), secrets={"secret": str(folder / "password")}, options=OPTIONS
        )
        self.ids = [fake.add(MINE) for _ in range(5)]

    @property
    def cloud(self) -> DriverCloud:
        """The adapter."""
        return DriverCloud(
            fleet="lab", clock=self.clock, driver=self.settings, regions=(REGION,), endpoint_url=self.server.url
        )


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """The driver's own code, without a process."""
    fake = OpenStack(ManualClock())
    monkeypatch.setattr(line, "run", run_main(libcloud_compute.main))
    with serving(fake) as server:
        yield Desk(tmp_path, fake, server)


def test_the_driver_keeps_each_sentence_of_the_contract_on_openstack(desk: Desk) -> None:
    """It launches nothing."""
    suite = Suite(
        desk.settings,
        clock=desk.clock,
        endpoint=desk.server.url,
        region=REGION,
        machine=desk.ids[-1],
        kill_after=0.05,
    )
    found = suite.run()
    assert [each for each in found.sentences if each.result == BROKE] == []
    assert {each.why for each in found.sentences if each.result == NOT_TESTED} == {
        "the driver does not offer find",
        "the driver does not offer prices",
        "the driver does not offer launch",
    }


def test_openstack_shows_all_pages_with_tags_and_gpus(desk: Desk) -> None:
    """GPUs are those that the options name for the flavor; other flavors have none."""
    other = desk.fake.add({}, flavor={"id": "small", "links": []})
    odd = desk.fake.add({}, status="PAUSED")
    nodes = {node.id: node for node in desk.cloud.nodes()}
    assert set(nodes) == {*desk.ids, odd}
    assert other not in nodes
    first = nodes[desk.ids[0]]
    assert (first.enrolled, first.pool, first.gpu_count, first.zone, first.address) == (
        True,
        "train",
        4,
        "nova",
        "10.0.0.7",
    )
    assert nodes[odd].state is NodeState.UNKNOWN


def test_a_tag_leaves_what_somebody_sets_meanwhile(desk: Desk) -> None:
    """It is added, and nothing is replaced."""
    desk.cloud.tag(desk.ids[0], {"gpuwatch:stop-at": "then"}, "k")
    assert desk.fake.servers[desk.ids[0]]["metadata"] == {**MINE, "gpuwatch:stop-at": "then"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, AuthFailedError),
        (403, AuthFailedError),
        (404, NotFoundError),
        (409, BusyError),
        (429, ThrottledError),
        (500, CloudUnavailableError),
        (503, CloudUnavailableError),
    ],
)
def test_refusals_of_openstack(status: int, expected: type[CloudError], desk: Desk) -> None:
    """A refusal is certain, anything else is a doubt, and a change is sent once."""
    desk.fake.refusals["os-stop"] = [status]
    with pytest.raises(CloudError) as caught:
        desk.cloud.stop(desk.ids[0], "k", permit=a_permit())
    assert type(caught.value) is expected
    assert desk.server.count("os-stop") == 1
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("fault", [Fault.RESET_AFTER, Fault.RESET_BEFORE, Fault.GATEWAY, Fault.ERROR_AFTER])
def test_a_stop_without_an_answer_is_a_doubt(fault: Fault, desk: Desk) -> None:
    """And it is not sent again."""
    desk.server.plan.strike(fault, when(operation="os-stop"))
    with pytest.raises(CloudUnavailableError):
        desk.cloud.stop(desk.ids[0], "k", permit=a_permit())
    assert desk.server.count("os-stop") == 1


def test_another_cloud_of_libcloud_is_shown_stopped_and_ended(desk: Desk) -> None:
    """The dummy has machines in its memory; without a list of GPUs nobody knows how many they have."""
    desk.settings = DriverSettings(executable=desk.settings.executable, options={"provider": "dummy", "creds": "any"})
    cloud = DriverCloud(fleet="lab", clock=desk.clock, driver=desk.settings)
    nodes = cloud.nodes()
    assert len(nodes) == 2
    assert {node.state for node in nodes} == {NodeState.RUNNING}
    assert {node.gpu_count for node in nodes} == {None}
    cloud.terminate(nodes[0].id, "k", permit=a_permit())
    assert desk.server.log == []
