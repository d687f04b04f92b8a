"""What Cloud Monitoring says of machines on Google Cloud, for people who look for forgotten ones."""

from collections.abc import Iterator

import pytest

from gpuwatch.clouds import AuthFailedError, CloudUnavailableError
from gpuwatch.clouds.gcp.client import Client
from gpuwatch.clouds.gcp.cloud import GcpCloud
from gpuwatch.clouds.survey import CloudUse, Monitored, survey_cloud
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.gcp.world import GcpWorld, a_world, run_machine
from tests.support.fakes.cloud_worlds import MINE

DAY = 86400.0
CALL = "monitoring.projects.timeSeries.list"
USED = CloudUse(
    cpu_mean_ratio=0.5,
    cpu_max_ratio=1.0,
    received_bytes_per_second=1000.0,
    sent_bytes_per_second=10.0,
    gpu_mean_ratio=0.25,
)


@pytest.fixture
def world() -> Iterator[GcpWorld]:
    """An empty project."""
    with a_world(ManualClock()) as world:
        yield world


def cloud_of(world: GcpWorld) -> GcpCloud:
    """The provider itself."""
    assert isinstance(world.cloud, GcpCloud)
    return world.cloud


def test_use_is_what_the_monitor_measured(world: GcpWorld) -> None:
    """Of five machines, over several pages; one that it does not know is left out."""
    ids = [world.launch(MINE) for _ in range(5)]
    cloud = cloud_of(world)
    assert isinstance(cloud, Monitored)
    nodes = cloud.nodes()
    gone = ids.pop()
    del world.fake.projects[nodes[0].account or ""].machines[gone]

    use = cloud.use_of(nodes, DAY)

    assert cloud.monitor == "Cloud Monitoring"
    assert use == dict.fromkeys(ids, USED)


def test_a_machine_without_googles_agent_has_no_use_of_gpus(world: GcpWorld) -> None:
    """Unknown is not zero."""
    node_id = world.launch(MINE)
    del world.fake.measured["agent.googleapis.com/gpu/utilization", "ALIGN_MEAN"]

    use = cloud_of(world).use_of(world.cloud.nodes(), DAY)

    assert use[node_id].gpu_mean_ratio is None
    assert use[node_id].cpu_mean_ratio == USED.cpu_mean_ratio


def test_machines_of_other_regions_are_asked_about_too(world: GcpWorld) -> None:
    """As the scan shows them: a region that nobody named has its machines with their facts."""
    node_id = str(run_machine(world.project, "us-east1-b", {}).told["id"])

    (far,) = [place for place in survey_cloud(world.cloud) if place.nodes]

    assert (far.region, far.watched, [node.id for node in far.nodes]) == ("us-east1", False, [node_id])
    assert far.nodes[0].launched_at is not None
    assert cloud_of(world).use_of(far.nodes, DAY) == {node_id: USED}


@pytest.mark.parametrize("fault", [Fault.GARBLED, Fault.CUT, Fault.GATEWAY])
def test_a_monitor_without_a_usable_answer_says_nothing(world: GcpWorld, fault: Fault) -> None:
    """No answer is not zero."""
    world.launch(MINE)
    nodes = world.cloud.nodes()
    world.server.plan.strike(fault, when(operation=CALL), times=None)

    with pytest.raises(CloudUnavailableError):
        cloud_of(world).use_of(nodes, DAY)


@pytest.mark.parametrize("series", [{}, {"resource": {}}, {"resource": {"labels": {}}}])
def test_a_series_that_does_not_say_whose_it_is_is_no_answer(
    world: GcpWorld, series: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of what was measured would look like rest."""
    world.launch(MINE)
    nodes = world.cloud.nodes()
    monkeypatch.setattr(Client, "pages", lambda *_, **__: iter([{"timeSeries": [{**series, "points": []}]}]))

    with pytest.raises(CloudUnavailableError, match="names no machine"):
        cloud_of(world).use_of(nodes, DAY)


def test_a_monitor_that_may_not_be_asked_says_so(world: GcpWorld) -> None:
    """With Google's own word."""
    world.launch(MINE)
    nodes = world.cloud.nodes()
    world.fake.refuse(CALL, 403, "forbidden")

    with pytest.raises(AuthFailedError, match=r"timeSeries\.list"):
        cloud_of(world).use_of(nodes, DAY)
