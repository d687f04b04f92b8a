"""What people are shown of Alibaba Cloud: every region of the account, and what CloudMonitor says of machines."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from gpuwatch.clouds import AuthFailedError, CloudUnavailableError
from gpuwatch.clouds.survey import CloudUse, Monitored, Surveyable
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.alibaba.world import OTHER_REGION, REGION, AlibabaWorld, a_world
from tests.support.clouds.faults import Fault, when
from tests.support.fakes.cloud_worlds import MINE

DAY = 86400.0


@pytest.fixture
def world() -> Iterator[AlibabaWorld]:
    """Two regions; the settings name one."""
    with a_world(ManualClock()) as world:
        yield world


def test_every_region_is_looked_at_and_one_without_an_answer_hides_no_other(world: AlibabaWorld) -> None:
    """Those of the settings first."""
    mine, forgotten = world.launch(MINE), world.launch({}, region=OTHER_REGION)
    cloud = world.another()
    assert isinstance(cloud, Surveyable)

    assert [(each.region, each.watched, [node.id for node in each.nodes]) for each in cloud.survey()] == [
        (REGION, True, [mine]),
        (OTHER_REGION, False, [forgotten]),
    ]

    there = when(operation="DescribeInstances", region=REGION)
    world.server.plan.strike(Fault.EXPIRED, there, times=None)
    assert [(each.refused, len(each.nodes)) for each in cloud.survey()] == [
        ("InvalidSecurityToken.Expired", 0),
        (None, 1),
    ]


def test_regions_that_cannot_be_listed_are_an_entry(world: AlibabaWorld) -> None:
    """What the settings name is shown."""
    mine = world.launch(MINE)
    world.server.plan.strike(Fault.GARBLED, when(operation="DescribeRegions"), times=None)

    places = world.another().survey()

    assert [[node.id for node in each.nodes] for each in places] == [[mine], []]
    assert places[1].where == "other regions"
    assert places[1].trouble is not None


def test_use_is_what_the_monitor_measured(world: AlibabaWorld) -> None:
    """Per cent become ratios; a machine that it does not know is left out."""
    ids = [world.launch(MINE), world.launch(MINE, region=OTHER_REGION)]
    cloud = world.another([REGION, OTHER_REGION])
    assert isinstance(cloud, Monitored)
    nodes = cloud.nodes()
    gone = world.launch(MINE)
    more = [node for node in cloud.nodes() if node.id == gone]
    del world.fake.state.machines[gone]

    use = cloud.use_of([*nodes, *more], DAY)

    assert cloud.monitor == "CloudMonitor"
    assert use == dict.fromkeys(ids, CloudUse(cpu_mean_ratio=0.5, cpu_max_ratio=1.0, gpu_mean_ratio=0.25))


def test_the_monitor_is_asked_within_its_limits(world: AlibabaWorld) -> None:
    """Fifty machines a question, page by page, and at most 31 days."""
    world.fake.state.points_a_page = 30
    ids = [
        world.fake.state.add_machine(REGION, world.words.machine_type, MINE, world.clock.now()).id for _ in range(60)
    ]
    world.clock.advance(timedelta(minutes=5).total_seconds())
    cloud = world.another(page_size=100)

    use = cloud.use_of(cloud.nodes(), 60 * DAY)

    assert set(use) == set(ids)
    assert world.server.count("DescribeMetricList") == 2 * (4 + 1)  # 100 and 20 points, 30 on a page


@pytest.mark.parametrize("fault", [Fault.GARBLED, Fault.CUT, Fault.GATEWAY])
def test_a_monitor_without_a_usable_answer_says_nothing(world: AlibabaWorld, fault: Fault) -> None:
    """No answer is not zero."""
    world.launch(MINE)
    cloud = world.another()
    nodes = cloud.nodes()
    world.server.plan.strike(fault, when(operation="DescribeMetricList"), times=None)

    with pytest.raises(CloudUnavailableError):
        cloud.use_of(nodes, DAY)


def test_a_monitor_that_may_not_be_asked_says_so(world: AlibabaWorld) -> None:
    """By RAM's own code."""
    world.launch(MINE)
    cloud = world.another()
    nodes = cloud.nodes()
    world.fake.denied.add("cms:DescribeMetricList")

    with pytest.raises(AuthFailedError, match="CMS DescribeMetricList"):
        cloud.use_of(nodes, DAY)
