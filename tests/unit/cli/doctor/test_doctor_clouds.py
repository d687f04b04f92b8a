"""The checks of a controller with several clouds: each finding names its cloud, and one cloud hides no other's."""

from datetime import timedelta
from typing import Any

from gpuwatch.cli.doctor import cloud
from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.clouds import ClockSkewError, CloudUnavailableError
from gpuwatch.clouds.permissions import Identity
from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.policies import PoolRules
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.doctor_findings import a_controller, codes
from tests.support.builders.fleet import NOW, a_node
from tests.support.fakes.several_clouds import Clouds, machine

ENFORCE = {
    "mode": "enforce",
    "pools": {"train": PoolRules(launch=LaunchRules(template="lt-1", cloud="us"))},
}


def a_case(clouds: Clouds, **settings: Any) -> ControllerCase:  # noqa: ANN401  settings are anything
    """A controller of these clouds, with a machine in each."""
    for name, each in clouds.items():
        each.add(machine(f"i-{name}"))
    named = {name: CloudSettings() for name in clouds}
    return a_controller(clouds.all, ManualClock(wall=NOW), {"clouds": named, **settings})


def test_the_fleet_is_that_of_all_clouds() -> None:
    """Named with what they are."""
    (found,) = cloud.fleet(a_case(Clouds("bj", "us")))

    assert found.looked_at == "the fleet 'lab' in bj (aws), us (aws)"
    assert found.seen.startswith("2 GPU machines, 2 enrolled")


def test_each_clouds_clock_is_looked_at() -> None:
    """One that is wrong, or silent, hides no other."""
    clouds = Clouds("bj", "us", "eu")

    def silent() -> Identity:
        raise CloudUnavailableError("no answer")

    clouds["bj"].identity = lambda: Identity(name="me", at=NOW + timedelta(seconds=60))  # type: ignore[method-assign]
    clouds["us"].identity = silent  # type: ignore[method-assign]
    found = list(cloud.clock(a_case(clouds)))

    assert [each.looked_at for each in found] == [f"this clock against the cloud's: {name}" for name in clouds]
    assert codes(found) == ["clock.cloud", "cloud.skipped"]
    assert found[0].seen == "the cloud's is 1m ahead; asked as me"


def test_a_cloud_that_refuses_our_clock_says_so() -> None:
    """It does not even say who we are: that is what is found, and not a check that was left out."""
    clouds = Clouds("bj")

    def refused() -> Identity:
        raise ClockSkewError("the signature has expired")

    clouds["bj"].identity = refused  # type: ignore[method-assign]
    (found,) = cloud.clock(a_case(clouds))

    assert (found.code, found.seen) == ("clock.cloud", "the signature has expired")


def test_a_launch_is_tried_in_the_cloud_that_its_pool_names() -> None:
    """And in no other."""
    case = a_case(Clouds("bj", "us"), **ENFORCE)
    _ = case.nodes
    seen = {each.looked_at: each.seen for each in cloud.permissions(case)}

    assert "'template': 'lt-1'" in seen["permissions in us: r"]
    assert "'template'" not in seen["permissions in bj: r"]
    assert "('i-bj',)" in seen["permissions in bj: r"]


def test_rights_on_machines_of_others_are_named_with_their_cloud() -> None:
    """A machine that is not enrolled, and that the controller might stop; of a silent cloud nothing is known."""
    clouds = Clouds("bj", "us")
    case = a_case(clouds)
    for name, each in clouds.items():
        each.add(a_node(f"i-foreign-{name}"))
    _ = case.nodes
    clouds["bj"].down = CloudUnavailableError("no answer")
    (found,) = cloud.reach(case)

    assert found.code == "permission.beyond"
    assert found.seen == "stop allowed in us: r, machine i-foreign-us"


def test_the_same_rights_in_many_places_are_one_finding() -> None:
    """Somebody who tries it with an administrator's credentials reads one line."""
    clouds = Clouds("bj", "us", "eu", "jp")
    case = a_case(clouds)
    for name, each in clouds.items():
        each.add(a_node(f"i-foreign-{name}"))
    (found,) = cloud.reach(case)

    assert found.code == "permission.beyond"
    assert "bj: r, machine i-foreign-bj" in found.seen


def test_a_silent_cloud_is_a_permission_that_was_not_tried() -> None:
    """The others' are told."""
    clouds = Clouds("bj", "us")
    case = a_case(clouds)
    _ = case.nodes
    clouds["bj"].down = CloudUnavailableError("no answer")
    found = list(cloud.permissions(case))

    assert codes(found) == ["permission.untried"]
    assert any(each.looked_at == "permissions in us: r" for each in found)
