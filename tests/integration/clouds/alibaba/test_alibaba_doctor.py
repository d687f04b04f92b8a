"""The doctor and Alibaba Cloud: permissions by DryRun that change nothing, the clock, disks, quotas."""

from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.clouds import ClockSkewError
from gpuwatch.clouds.alibaba.cloud import AlibabaCloud
from gpuwatch.clouds.permissions import Diagnosable, Needs, Quotas
from gpuwatch.clouds.survey import Searchable
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.alibaba.site import an_alibaba_site
from tests.support.clouds.alibaba.world import CPU_TYPE, REGION, AlibabaWorld, a_world
from tests.support.clouds.faults import Fault, when
from tests.support.fakes.cloud_worlds import CPU_TEMPLATE, MINE, TEMPLATE

ACTS = {"StopInstance", "StartInstance", "DeleteInstance", "RunInstances"}


@pytest.fixture
def world() -> Iterator[AlibabaWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


def asked(cloud: AlibabaCloud, node_id: str | None) -> dict[str, tuple[bool | None, str]]:
    """What the doctor learns: call -> allowed, reason."""
    launches = ({"template": TEMPLATE, "region": REGION},)
    names = () if node_id is None else (node_id,)
    needs = Needs(act=True, terminate=True, groups=True, node_ids=names, launches=launches)
    return {each.call: (each.allowed, each.reason) for each in cloud.may(needs)}


def test_it_can_be_asked() -> None:
    """By the protocols that the doctor and the status look for."""
    assert issubclass(AlibabaCloud, Diagnosable)
    assert issubclass(AlibabaCloud, Quotas)
    assert issubclass(AlibabaCloud, Searchable)


def test_every_call_is_tried_and_none_is_carried_out(world: AlibabaWorld) -> None:
    """A DryRun that would be carried out is an error named DryRunOperation, and a yes."""
    cloud, node_id = world.another(), world.launch(MINE)
    cloud.nodes()
    before = deepcopy(world.fake.state.machines)

    found = asked(cloud, node_id)

    assert world.fake.state.machines == before
    assert {call for call, (allowed, _) in found.items() if allowed} >= ACTS - {"StartInstance"}
    assert all(allowed for call, (allowed, _) in found.items() if call.startswith("Describe"))
    # A running machine cannot be started, which ECS says before it says anything of the permission.
    assert found["StartInstance"][0] is None
    assert "IncorrectInstanceStatus" in found["StartInstance"][1]
    assert found["TagResources"] == (None, "it has no DryRun")
    assert found["RemoveInstances, SetInstancesProtection"] == (None, "it has no DryRun")
    assert [entry.request.query.get("DryRun") for entry in world.server.changes()] == ["true"] * 4


@pytest.mark.parametrize(
    "call", ["ecs:StopInstance", "ecs:RunInstances", "ecs:DescribeDisks", "ess:DescribeScalingGroups"]
)
def test_a_call_that_is_denied_is_named_and_the_others_are_tried(world: AlibabaWorld, call: str) -> None:
    """By RAM's word."""
    cloud, node_id = world.another(), world.launch(MINE)
    cloud.nodes()
    world.fake.denied.add(call)

    found = asked(cloud, node_id)

    name = call.partition(":")[2]
    assert {each for each, (allowed, _) in found.items() if allowed is False} == {name}
    assert found[name] == (False, "Forbidden.RAM")


def test_no_answer_is_no_yes(world: AlibabaWorld) -> None:
    """A gateway's page, a throttle: not known."""
    cloud, node_id = world.another(), world.launch(MINE)
    cloud.nodes()
    world.server.plan.strike(Fault.GATEWAY, when(operation="StopInstance"), times=None)
    world.server.plan.strike(Fault.THROTTLED, when(operation="DeleteInstance"), times=None)

    found = asked(cloud, node_id)

    assert (found["StopInstance"][0], found["DeleteInstance"][0]) == (None, None)


def test_without_a_machine_nothing_can_be_tried(world: AlibabaWorld) -> None:
    """That is told, and nothing is asked."""
    found = asked(world.another(), None)

    assert found["StopInstance, StartInstance, DeleteInstance"][0] is None
    assert world.server.count("StopInstance") == 0


def test_a_right_on_a_machine_that_is_not_ours_is_found_by_dry_run(world: AlibabaWorld) -> None:
    """Stop and end, both without being carried out."""
    cloud, node_id = world.another(), world.launch({})
    cloud.nodes()
    world.fake.denied.add("ecs:DeleteInstance")
    before = deepcopy(world.fake.state.machines)

    found = {each.call: each for each in cloud.may_beyond([node_id])}

    assert {call: each.allowed for call, each in found.items()} == {"StopInstance": True, "DeleteInstance": False}
    assert found["StopInstance"].where.endswith(f"machine {node_id}")
    assert world.fake.state.machines == before


def test_the_clouds_own_clock_is_told(world: AlibabaWorld) -> None:
    """By the Date of its answer; our own may be wrong."""
    world.server.plan.strike(Fault.SKEW, when(operation="DescribeRegions"))

    identity = world.another().identity()

    assert identity.name.startswith("acs:ram::")
    assert identity.at == world.clock.now().replace(microsecond=0)


def test_a_clock_that_is_wrong_is_no_missing_machine(world: AlibabaWorld) -> None:
    """A signature that is too old is refused as such."""
    world.launch(MINE)
    cloud = world.another()
    cloud.nodes()
    world.server.clock = ManualClock(wall=world.clock.now() + timedelta(hours=1))

    with pytest.raises(ClockSkewError, match=r"InvalidTimeStamp\.Expired"):
        cloud.nodes()


def test_disks_that_are_not_encrypted_are_told_with_their_machines(world: AlibabaWorld) -> None:
    """Of the machines that are asked about."""
    cloud, node_id = world.another(), world.launch(MINE)
    other = world.launch(MINE)
    for disk in world.fake.state.disks.values():
        disk.encrypted = disk.machine == other

    (found,) = cloud.unencrypted_disks([node_id, other])

    assert found.endswith(f" of {node_id}")


def test_a_template_without_a_gpu_is_unfit(world: AlibabaWorld) -> None:
    """Its machines would never be nodes."""
    (why,) = world.another().unfit([{"template": TEMPLATE}, {"template": CPU_TEMPLATE}])

    assert why == f"the launch template {CPU_TEMPLATE} makes a machine of type {CPU_TYPE}, which has no GPU of NVIDIA"


def test_a_type_of_another_maker_is_unfit(world: AlibabaWorld) -> None:
    """The agent reads NVIDIA's GPUs."""
    (why,) = world.another().unfit([{"template": TEMPLATE, "instance_type": "ecs.ga1.xlarge"}])

    assert "ecs.ga1.xlarge" in why


def test_quotas_are_told_with_what_is_used(world: AlibabaWorld) -> None:
    """vCPUs, pay-as-you-go and spot apart; what the cloud does not tell is left out."""
    world.fake.state.vcpus["max-spot-instance-vcpu-count"] = "500"

    found = world.another().quotas()

    assert [(each.name, each.region, each.limit, each.used, each.left, each.unit) for each in found] == [
        ("max-postpaid-instance-vcpu-count", REGION, 1000.0, 96.0, 904.0, "vCPUs"),
        ("max-spot-instance-vcpu-count", REGION, 500.0, None, None, "vCPUs"),
    ]


def test_the_command_tries_each_permission_and_changes_nothing(tmp_path: Path, nvml_library: Path) -> None:
    """By DryRun, over the command line."""
    with an_alibaba_site(tmp_path, nvml_library) as site:
        site.launch("trainer", 0.9)
        site.configure("enforce")

        said = site.run("doctor", "controller")

        assert "StopInstance" in said.stdout
        assert site.server is not None
        assert {entry.request.query.get("DryRun") for entry in site.server.changes()} == {"true"}
