"""Accounts, regions and credentials of Tencent Cloud, and what the doctor asks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from requests import Response

from gpuwatch.clouds import AuthFailedError, CloudError, NotFoundError
from gpuwatch.clouds.permissions import Diagnosable, Needs, Quotas
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.clouds.settings import CloudSettings, connect
from gpuwatch.clouds.survey import Searchable
from gpuwatch.clouds.tencent import credentials
from gpuwatch.clouds.tencent.client import Line
from gpuwatch.clouds.tencent.cloud import TencentCloud
from gpuwatch.clouds.tencent.settings import TencentSettings
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.tencent.cvm import REGIONS
from tests.support.clouds.tencent.fake import SECRET_ID, SECRET_KEY
from tests.support.clouds.tencent.others import ACCOUNT
from tests.support.clouds.tencent.world import GPU_TYPE, REGION, TencentWorld, a_world
from tests.support.fakes.cloud_worlds import CPU_TEMPLATE, FLEET, MINE, TEMPLATE

ROLE = AccountSettings(role_arn="qcs::cam::uin/100000000009:roleName/gpuwatch", external_id="research-7")


@pytest.fixture
def world() -> Iterator[TencentWorld]:
    """An empty account."""
    with a_world(ManualClock()) as world:
        yield world


def a_cloud(world: TencentWorld, **more: Any) -> TencentCloud:  # noqa: ANN401  any option of TencentCloud
    """The provider with other settings on the same fake."""
    options = {"regions": [REGION], "key_file": str(world.folder / "key"), **more}
    return TencentCloud(fleet=FLEET, clock=world.clock, endpoint_url=world.server.url, timeouts=(1.0, 1.0), **options)


# Regions


def test_all_regions_are_those_that_the_account_may_use(world: TencentWorld) -> None:
    """`regions: [all]`; one that is closed is not asked."""
    made = {region: world.fake.state.add_machine(region, GPU_TYPE).id for region in REGIONS}

    nodes = a_cloud(world, regions=["all"]).nodes()

    assert {node.region: node.id for node in nodes} == made


def test_a_machine_is_acted_on_where_it_is(world: TencentWorld) -> None:
    """A process that has not seen it yet asks each region."""
    node_id = world.fake.state.add_machine("na-siliconvalley", GPU_TYPE, tags=MINE).id
    cloud = a_cloud(world, regions=REGIONS)

    cloud.stop(node_id, "key", permit=a_permit())

    assert world.machine(node_id).state == "STOPPING"


def test_machines_elsewhere_are_found_and_left_alone(world: TencentWorld) -> None:
    """Regions that the settings do not name, each by itself; one that is down hides no other."""
    forgotten = world.fake.state.add_machine("na-siliconvalley", GPU_TYPE).id
    world.server.plan.strike(Fault.RESET_BEFORE, when(region="ap-beijing"), times=None)
    cloud = world.cloud
    assert isinstance(cloud, Searchable)

    found = {each.where: each for each in cloud.elsewhere()}

    assert sorted(found) == sorted(set(REGIONS) - {REGION})
    assert found["na-siliconvalley"].machines == (f"{forgotten} ({GPU_TYPE})",)
    assert [node.id for node in found["na-siliconvalley"].nodes] == [forgotten]
    assert "ap-beijing" in (found["ap-beijing"].trouble or "")
    assert cloud.nodes() == ()


def test_a_survey_has_the_places_of_the_settings_first_and_what_the_monitor_says(world: TencentWorld) -> None:
    """One region that is refused hides no other."""
    mine, forgotten = world.launch(MINE), world.fake.state.add_machine("na-siliconvalley", GPU_TYPE).id
    world.server.plan.strike(Fault.EXPIRED, when(region="ap-beijing"), times=None)
    cloud = a_cloud(world)

    places = cloud.survey()
    use = cloud.use_of([node for place in places for node in place.nodes], 7 * 86400.0)

    assert [(each.region, each.watched, [node.id for node in each.nodes]) for each in places] == [
        (REGION, True, [mine]),
        ("ap-beijing", False, []),
        ("ap-shanghai", False, []),
        ("na-siliconvalley", False, [forgotten]),
    ]
    assert places[1].refused == "AuthFailure.TokenFailure"
    assert use.keys() == {mine, forgotten}
    assert (use[mine].cpu_mean_ratio, use[mine].cpu_max_ratio, use[mine].gpu_mean_ratio) == (0.5, 1.0, 0.25)


def test_the_monitor_is_asked_within_its_limits(world: TencentWorld) -> None:
    """Ten machines and 1,440 points a call, an hour of a machine being one; a machine without values is left out."""
    nodes = [world.shown(world.launch(MINE)) for _ in range(60)]
    cloud = a_cloud(world)
    gone = nodes[0].id
    del world.fake.state.machines[gone]

    assert set(cloud.use_of(nodes, 7 * 86400.0)) == {node.id for node in nodes[1:]}
    assert {len(each["Instances"]) for each in world.sent("GetMonitorData")} == {8, 4}


def test_a_region_that_is_not_in_the_settings_is_no_place_for_a_launch(world: TencentWorld) -> None:
    """The key of the setting is named."""
    with pytest.raises(NotFoundError, match=r"ap-beijing is not among cloud\.regions"):
        world.cloud.launch({"template": TEMPLATE, "region": "ap-beijing"}, "key")


def test_without_a_region_nothing_is_looked_at(world: TencentWorld) -> None:
    """An empty list would look like an empty fleet."""
    with pytest.raises(CloudError, match=r"set cloud\.regions"):
        a_cloud(world, regions=[])


# Accounts


def test_another_account_is_entered_by_its_role(world: TencentWorld) -> None:
    """Once for all its regions, with the external id, and again some minutes before its credentials end."""
    node_id = world.launch(MINE)
    cloud = a_cloud(world, accounts={"prod": ROLE})

    (node,) = cloud.nodes()
    cloud.nodes()

    assert (node.id, node.account) == (node_id, "100000000009")
    assert [(each["RoleArn"], each["ExternalId"]) for each in world.fake.roles.assumed] == [
        (ROLE.role_arn, "research-7")
    ]
    world.clock.advance(7200)
    cloud.nodes()
    assert len(world.fake.roles.assumed) == 2


def test_credentials_that_end_in_a_round_make_the_region_unknown(world: TencentWorld) -> None:
    """A token that the cloud takes no longer: the machines stay as last seen."""
    node_id = world.launch(MINE)
    cloud = a_cloud(world, accounts={"own": AccountSettings(), "prod": ROLE})
    assert [node.state for node in cloud.nodes()] == [NodeState.RUNNING]
    world.fake.roles.end()

    assert [node.id for node in cloud.nodes()] == [node_id]


# Credentials


@pytest.mark.parametrize("content", ["", "only-an-id", ":secret"])
def test_a_key_file_without_a_key_is_told_without_its_content(world: TencentWorld, content: str) -> None:
    """With what it should hold."""
    file = world.folder / "broken"
    file.write_text(content)

    with pytest.raises(AuthFailedError, match="does not hold a line such as ID:SECRET") as caught:
        a_cloud(world, key_file=str(file)).nodes()

    assert caught.value.code == "NoCredentials"


def test_a_key_file_is_read_again_when_it_changes(world: TencentWorld) -> None:
    """Keys are changed without a restart; nonsense leaves the old key in force."""
    file = world.folder / "key"
    cloud = a_cloud(world)
    cloud.nodes()
    file.write_text("nonsense")
    cloud.nodes()
    file.write_text("AKIDother:key")

    with pytest.raises(AuthFailedError) as caught:
        cloud.nodes()

    assert caught.value.code == "AuthFailure.SecretIdNotFound"


def test_a_key_file_that_is_missing_is_told(world: TencentWorld) -> None:
    """With its path."""
    with pytest.raises(AuthFailedError, match="nowhere cannot be read: No such file"):
        a_cloud(world, key_file=str(world.folder / "nowhere")).nodes()


def test_the_environment_is_the_first_place_for_credentials(
    world: TencentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the SDK's own chain has it."""
    monkeypatch.setenv("TENCENTCLOUD_SECRET_ID", SECRET_ID)
    monkeypatch.setenv("TENCENTCLOUD_SECRET_KEY", SECRET_KEY)

    assert a_cloud(world, key_file=None).nodes() == ()


def test_without_any_credentials_the_places_to_look_are_named(
    world: TencentWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No environment, no file, no role: the metadata service gives no answer."""
    monkeypatch.delenv("TENCENTCLOUD_SECRET_ID", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(credentials._MachineRole, "_role_endpoint", "http://127.0.0.1:1/")

    with pytest.raises(AuthFailedError, match=r"TENCENTCLOUD_SECRET_ID.*nor by a role \(URLError\)"):
        a_cloud(world, key_file=None).nodes()


def test_the_sdk_logs_no_request(world: TencentWorld, caplog: pytest.LogCaptureFixture) -> None:
    """At the level DEBUG it would write whole ones, with signatures and tokens."""
    with caplog.at_level("DEBUG"):
        a_cloud(world, accounts={"prod": ROLE}).nodes()

    assert "X-TC-Token" not in caplog.text
    assert "Authorization" not in caplog.text
    assert "token1" not in caplog.text


def test_a_secret_is_in_no_message(world: TencentWorld) -> None:
    """Not even where the signature is wrong."""
    (world.folder / "key").write_text(f"{SECRET_ID}:somethingelse")

    with pytest.raises(AuthFailedError) as caught:
        a_cloud(world).nodes()

    assert "somethingelse" not in str(caught.value)
    assert caught.value.code == "AuthFailure.SignatureFailure"


# The settings


def test_the_cloud_is_made_of_its_settings(world: TencentWorld) -> None:
    """By its name in the table of clouds; it can be examined, searched, and asked for quotas."""
    settings = CloudSettings(
        provider="tencent",
        regions=(REGION,),
        endpoint_url=world.server.url,
        tencent=TencentSettings(key_file=str(world.folder / "key")),
    )

    cloud = connect(settings, fleet=FLEET, clock=world.clock)

    assert isinstance(cloud, TencentCloud)
    assert isinstance(cloud, Diagnosable)
    assert isinstance(cloud, Searchable)
    assert isinstance(cloud, Quotas)
    assert cloud.nodes() == ()


@pytest.mark.parametrize(
    ("url", "host"),
    [
        (None, "https://cvm.tencentcloudapi.com"),
        ("https://internal.tencentcloudapi.com", "https://cvm.internal.tencentcloudapi.com"),
        ("https://intl.tencentcloudapi.com", "https://cvm.intl.tencentcloudapi.com"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ],
)
def test_each_product_has_its_host(url: str | None, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below Tencent Cloud's domains, in front of the domain; any other address is that of all products."""
    asked: list[str] = []

    def request(self: Any, method: str, url: str, **_: object) -> Response:  # noqa: ANN401  a session
        del self, method
        asked.append(url)
        raise OSError

    monkeypatch.setattr("requests.Session.request", request)
    signer = credentials.FixedKey("id", "secret")
    line = Line(signer=signer, region=REGION, where=REGION, clock=ManualClock(), endpoint_url=url, once=True)
    with pytest.raises(CloudError):
        line.ask("cvm", "DescribeRegions")

    assert asked == [host]


# The doctor


def test_the_doctor_tries_what_can_be_tried(world: TencentWorld) -> None:
    """Reads by reading, a launch by DryRun; what cannot be tried is said to be so, and nothing is made."""
    cloud = a_cloud(world)
    launches = ({"template": TEMPLATE}, {"template": "nothing"})
    world.fake.refusals["DescribeDisks"] = ["UnauthorizedOperation"]

    found = {each.call: each for each in cloud.may(Needs(act=True, terminate=True, launches=launches[:1]))}

    assert found["DescribeInstances"].allowed is True
    assert (found["DescribeDisks"].allowed, found["DescribeDisks"].reason) == (False, "UnauthorizedOperation")
    assert found["RunInstances"].allowed is True
    assert found["StopInstances, StartInstances, TagResources, TerminateInstances"].allowed is None
    assert world.fake.state.machines == {}
    assert world.server.changes() == []
    (untried,) = (each for each in cloud.may(Needs(launches=launches[1:])) if each.call == "RunInstances")
    assert untried.allowed is None


def test_the_doctor_knows_who_asks_and_the_clouds_time(world: TencentWorld) -> None:
    """By STS, and by the Date of its answer."""
    identity = a_cloud(world).identity()

    assert identity.name == f"qcs::cam:{ACCOUNT}:uin/100000000002"
    assert identity.at is not None


def test_the_doctor_tells_unfit_templates_and_open_disks(world: TencentWorld) -> None:
    """A template without a GPU; disks that are not encrypted."""
    node_id = world.launch(MINE)
    cloud = a_cloud(world)

    (sentence,) = cloud.unfit([{"template": TEMPLATE}, {"template": CPU_TEMPLATE}])

    assert "has no GPU of NVIDIA" in sentence
    assert cloud.unencrypted_disks([node_id]) == (f"disk-{node_id[4:]} of {node_id}",)
    assert cloud.unencrypted_disks([]) == ()
