"""What is left behind in several clouds, and our own standing with each of them."""

import pytest

from gpuwatch.clouds import CloudUnavailableError, Leftover, LeftoverKind
from gpuwatch.clouds.permissions import Identity, Needs
from gpuwatch.clouds.several import SeveralClouds
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.simulate.cloud import SimulatedCloud
from tests.support.fakes.several_clouds import Clouds, Region, machine, silent


def test_leftovers_are_those_of_all_clouds() -> None:
    """In the order of their ids, with their clouds; without one cloud's answer they are not whole."""
    clouds = Clouds()
    for name, left in (("us", "vol-1"), ("bj", "vol-2")):
        clouds[name].add_leftover(Leftover(id=left, kind=LeftoverKind.UNATTACHED_VOLUME, region="r"))

    assert [(each.id, each.cloud) for each in clouds.all.leftovers()] == [("vol-1", "us"), ("vol-2", "bj")]
    clouds["us"].down = silent()
    with pytest.raises(CloudUnavailableError):
        clouds.all.leftovers()


def test_each_cloud_is_asked_about_its_own_machines_and_launches() -> None:
    """Each answer names its cloud; a silent one is a permission that was not tried."""
    clouds = Clouds("bj", "us")
    clouds["bj"].add(machine("i-1"))
    clouds["us"].add(machine("i-2"))
    clouds.all.nodes()
    launches = ({"template": "a", "cloud": "us"}, {"template": "b", "cloud": "bj"})
    needs = Needs(node_ids=("i-1", "i-2", "i-3"), launches=launches)

    assert [(each.where, each.call) for each in clouds.all.may(needs)] == [
        ("bj: r", "('i-1',) ({'template': 'b'},)"),
        ("us: r", "('i-2',) ({'template': 'a'},)"),
    ]
    assert list(clouds.all.unfit(launches)) == ["bj: {'template': 'b'}", "us: {'template': 'a'}"]
    assert clouds.all.unencrypted_disks(["i-1", "i-2", "i-3"]) == ("bj: i-1", "us: i-2")
    assert clouds.all.identity() == Identity(name="role bj in bj, role us in us", at=None)
    assert [(each.cloud, each.left) for each in clouds.all.quotas()] == [("bj", 6.0), ("us", 6.0)]
    assert [each.where for each in clouds.all.elsewhere()] == ["bj: far", "us: far"]
    clouds["bj"].down = silent()
    assert [(each.where, each.allowed) for each in clouds.all.may(needs)] == [("bj", None), ("us: r", True)]
    assert [(each.where, each.trouble) for each in clouds.all.elsewhere()] == [
        ("other than named in bj", "cloud bj: no answer"),
        ("us: far", None),
    ]


def test_clouds_that_cannot_be_asked_are_left_out() -> None:
    """Not every cloud has a way to try its permissions."""
    plain = SimulatedCloud(fleet="lab", clock=ManualClock())
    several = SeveralClouds({"bj": plain, "us": Region("us")})

    assert [each.where for each in several.may(Needs())] == ["us: r"]
    assert several.identity().name == "role us in us"
    assert [each.where for each in several.elsewhere()] == ["us: far"]
    assert [each.cloud for each in several.quotas()] == ["us"]
    assert (several.unencrypted_disks([]), list(several.unfit([]))) == ((), [])
