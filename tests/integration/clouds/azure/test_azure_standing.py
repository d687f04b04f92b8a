"""What Azure says of our own standing: who we are, what our roles allow, what is left of the limits."""

import base64
import json
from collections.abc import Iterator

import pytest

from gpuwatch.clouds.azure.iam import ACT, END
from gpuwatch.clouds.permissions import Diagnosable, Needs, Quota, Quotas
from gpuwatch.clouds.survey import CloudUse, Monitored, Searchable, Surveyable
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.azure.fake import FakeAzure
from tests.support.clouds.azure.world import OTHER_SUB, AzureWorld, StaticCredential, an_azure
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.server import Request, Response
from tests.support.fakes.cloud_worlds import MINE

MACHINE = "Microsoft.Compute/virtualMachines"
THIRD_SUB = "33333333-3333-4333-8333-333333333333"
LAUNCH = {"template": "gpu-node", "pool": "train", "region": "eastus"}


@pytest.fixture
def world() -> Iterator[AzureWorld]:
    """An empty subscription."""
    with an_azure(ManualClock()) as world:
        yield world


def test_the_cloud_can_be_asked_all_of_it(world: AzureWorld) -> None:
    """Doctor, status and scan find their questions by these protocols."""
    for protocol in (Diagnosable, Quotas, Searchable, Surveyable, Monitored):
        assert isinstance(world.cloud, protocol)


@pytest.mark.parametrize(
    ("allowed", "missing"),
    [
        (["*"], ()),
        (["Microsoft.Compute/*", "Microsoft.Resources/tags/write"], ()),
        ([f"{MACHINE}/*"], (*(each for each in (*ACT, *END) if not each.startswith(f"{MACHINE}/")),)),
        (["*/read"], (*ACT, *END)),
    ],
    ids=["all", "enough", "no scale sets, no tags", "reads alone"],
)
def test_what_the_roles_do_not_allow_is_named(world: AzureWorld, allowed: list[str], missing: tuple[str, ...]) -> None:
    """By comparing the roles' actions, patterns too, with those of the calls; nothing is tried."""
    world.state.allowed = allowed
    node_id = world.launch(MINE)
    cloud = world.connect()
    cloud.nodes()

    answers = list(cloud.may(Needs(act=True, terminate=True, node_ids=(node_id,))))

    refused = tuple(each.call for each in answers if each.allowed is False and not each.call.endswith("/read"))
    assert refused == missing
    assert world.server.changes() == []


def test_without_a_machine_to_ask_of_nothing_is_claimed(world: AzureWorld) -> None:
    """Roles may hold for a resource group alone."""
    answers = [each for each in world.connect().may(Needs(act=True)) if "deallocate" in each.call]

    assert [each.allowed for each in answers] == [None]


def test_rights_on_machines_that_are_not_ours_are_listed_for_each_resource_group(world: AzureWorld) -> None:
    """By the roles' actions at one machine of each; nothing is tried."""
    world.state.allowed = ["*/read", f"{MACHINE}/deallocate/action", f"{MACHINE}/write"]
    node_ids = [world.launch({}) for _ in range(2)]
    cloud = world.connect()
    cloud.nodes()

    found = list(cloud.may_beyond(node_ids))

    assert {each.call for each in found if each.allowed} == {f"{MACHINE}/deallocate/action", f"{MACHINE}/write"}
    assert len({each.where for each in found}) == 1
    assert world.server.changes() == []


def test_launches_are_asked_of_their_resource_group(world: AzureWorld) -> None:
    """Where the machine would be made."""
    world.state.allowed = ["*/read"]

    answers = list(world.connect().may(Needs(launches=(LAUNCH,))))

    (launch,) = [each for each in answers if each.call == "Microsoft.Compute/virtualMachines/write"]
    assert (launch.allowed, launch.reason) == (False, "AuthorizationFailed")
    assert launch.where == "subscription main, resource group fleet-rg"


def test_an_exception_of_a_role_is_no_right(world: AzureWorld) -> None:
    """`notActions` take out what `actions` name."""
    real = FakeAzure.answer

    def answer(request: Request) -> Response:
        if "permissions" in request.path:
            actions = [{"actions": ["*"], "notActions": ["Microsoft.Compute/virtualMachines/deallocate/action"]}]
            return Response(body={"value": actions})
        return real(world.fake, request)

    node_id = world.launch(MINE)
    cloud = world.connect()
    cloud.nodes()
    world.fake.answer = answer  # type: ignore[method-assign]

    answers = {each.call: each.allowed for each in cloud.may(Needs(act=True, node_ids=(node_id,)))}

    assert answers["Microsoft.Compute/virtualMachines/deallocate/action"] is False
    assert answers["Microsoft.Compute/virtualMachines/start/action"] is True


@pytest.mark.parametrize(
    ("claims", "name"),
    [({"appid": "an-app", "oid": "x"}, "an-app"), ({"upn": "anna@lab"}, "anna@lab"), ({"oid": "x"}, "x")],
)
def test_we_are_who_the_token_says(world: AzureWorld, claims: dict[str, str], name: str) -> None:
    """A user, or an application; with the time of Azure's own clock."""
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    world.fake.token = f"head.{payload}.signature"

    who = world.connect(credential=StaticCredential(world.fake.token)).identity()

    assert (who.name, who.at) == (f"{name} in the subscription Research", world.clock.now())


def test_a_token_that_cannot_be_read_names_nobody(world: AzureWorld) -> None:
    """It is none of our business what form it has."""
    assert world.connect().identity().name == "an identity with an unreadable token in the subscription Research"


def test_quotas_are_those_of_gpu_families_and_of_the_region(world: AzureWorld) -> None:
    """In vCPUs, as Azure counts; families that nobody may use are left out."""
    world.launch(MINE)

    assert world.connect().quotas() == (
        Quota(name="Standard NCASv3_T4 Family", region="eastus", limit=16, used=4, unit="vCPUs"),
        Quota(name="cores", region="eastus", limit=100, used=4, unit="vCPUs"),
        Quota(name="lowPriorityCores", region="eastus", limit=100, used=0, unit="vCPUs"),
    )


def test_disks_are_always_encrypted(world: AzureWorld) -> None:
    """Azure encrypts every managed disk at rest; nobody can switch that off."""
    assert world.connect().unencrypted_disks([world.launch(MINE)]) == ()


# For people who look for forgotten machines


def test_a_survey_tells_every_region_of_every_subscription(world: AzureWorld) -> None:
    """Those of the settings are watched, others are not; a subscription without an answer hides no other."""
    here, there, far = world.add(MINE), world.add(MINE, region="westeurope"), world.add({}, sub=OTHER_SUB)
    world.state.subscriptions |= {OTHER_SUB: "Sandbox", THIRD_SUB: "Closed"}
    world.server.plan.strike(Fault.EXPIRED, when(operation="VirtualMachines_ListAll", region=THIRD_SUB), times=None)

    places = world.connect(regions=("eastus",)).survey()

    assert {(each.where, each.watched, tuple(node.id for node in each.nodes), each.refused) for each in places} == {
        ("eastus of subscription main", True, (here.vm_id,), None),
        ("westeurope of subscription main", False, (there.vm_id,), None),
        ("eastus of subscription Sandbox", False, (far.vm_id,), None),
        ("subscription Closed", False, (), "ExpiredAuthenticationToken"),
    }


def test_the_monitor_tells_use_of_machines_that_were_seen(world: AzureWorld) -> None:
    """CPU as ratios, network as rates; hours without values are no zeros, and a machine without any is left out."""
    used, silent = world.add(MINE), world.add(MINE)
    world.state.hours[used.path.lower()] = {
        "Percentage CPU": [{"average": 10.0, "maximum": 50.0}, {"average": 30.0, "maximum": 90.0}, {}],
        "Network In Total": [{"total": 7200.0}, {}],
    }
    cloud = world.connect()
    nodes = [node for place in cloud.survey() for node in place.nodes]

    assert {node.id for node in nodes} == {used.vm_id, silent.vm_id}
    assert cloud.use_of(nodes, 7200.0) == {
        used.vm_id: CloudUse(cpu_mean_ratio=0.2, cpu_max_ratio=0.9, received_bytes_per_second=2.0)
    }
