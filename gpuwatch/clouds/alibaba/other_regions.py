"""GPU machines in every region of the accounts, those that the settings do not name as well; nothing is acted on."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.alibaba import instances, monitor
from gpuwatch.clouds.alibaba.instances import Instance, Translator
from gpuwatch.clouds.alibaba.places import Region, Regions
from gpuwatch.clouds.permissions import OtherRegion
from gpuwatch.clouds.places import everywhere
from gpuwatch.clouds.survey import CloudUse, Surveyed, of_other
from gpuwatch.model.fleet import Node


def looked_for(places: Regions, translator: Translator, now: datetime) -> list[OtherRegion]:
    """Every enabled region of each account that is not configured, with the GPU machines in it.

    Sources: DescribeRegions, DescribeInstances.

    Raises:
        CloudError: the regions of an account cannot be listed.

    """

    def look(place: Region) -> OtherRegion:
        return _look(place, translator, now)

    return everywhere([place for home in places.homes for place in _others(places, home)], look)


def surveyed(places: Regions, translator: Translator, now: datetime) -> list[Surveyed]:
    """Every region of each account, those of the settings first; what cannot be listed is an entry."""

    def look(place: Region, *, watched: bool) -> Surveyed:
        return replace(of_other(_look(place, translator, now)), watched=watched)

    found = everywhere(places.all, lambda place: look(place, watched=True))
    try:
        others = [place for home in places.homes for place in _others(places, home)]
    except CloudError as error:
        return [*found, Surveyed(where="other regions", region="", watched=False, trouble=str(error))]
    return [*found, *everywhere(others, lambda place: look(place, watched=False))]


def place_of(places: Regions, region: str, account: str | None) -> Region | None:
    """The place of a region and an account's number, whether the settings name it or not."""
    for home in places.homes:
        if len(places.homes) == 1 or account in (None, home.account):
            same = (each for each in places.all if each.region == region and each.owner is home.owner)
            return next(same, None) or home.beside(region)
    return None


def use_of(places: Regions, nodes: Sequence[Node], seconds: float, end: datetime) -> dict[str, CloudUse]:
    """What CloudMonitor says of machines over the last seconds, in the region and the account of each."""
    found = dict[str, CloudUse]()
    for region, account in sorted({(node.region, node.account or "") for node in nodes}):
        place = place_of(places, region, account or None)
        ids = [node.id for node in nodes if (node.region, node.account or "") == (region, account)]
        if place is not None:
            found |= monitor.use_of(place, ids, end - timedelta(seconds=seconds), end)
    return found


def _others(places: Regions, home: Region) -> Iterator[Region]:
    """The account's regions that nobody configured."""
    configured = {place.region for place in places.all if place.owner is home.owner}
    return (home.beside(region) for region in home.enabled() if region not in configured)


def _look(place: Region, translator: Translator, now: datetime) -> OtherRegion:
    """One region. A refused answer shows no machine, and does not prove that no machine runs there."""
    try:
        found = [Instance(described=each) for each in instances.listed(place, {})]
        nodes = tuple(sorted(translator.nodes(place, found, {}, now), key=lambda node: node.id))
    except AuthFailedError as error:
        return OtherRegion(where=place.name, region=place.region, refused=error.code)
    except CloudError as error:
        return OtherRegion(where=place.name, region=place.region, trouble=str(error))
    words = tuple(f"{node.id} ({node.instance_type})" for node in nodes)
    return OtherRegion(where=place.name, region=place.region, machines=words, nodes=nodes)
