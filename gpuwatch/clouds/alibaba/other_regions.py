"""GPU machines in regions that the settings do not name: they are counted and never acted on."""

from collections.abc import Iterator
from datetime import datetime

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.alibaba import instances
from gpuwatch.clouds.alibaba.instances import Instance, Translator
from gpuwatch.clouds.alibaba.regions import Region, Regions
from gpuwatch.clouds.permissions import OtherRegion
from gpuwatch.clouds.places import everywhere


def looked_for(places: Regions, translator: Translator, now: datetime) -> list[OtherRegion]:
    """Every enabled region of each account that is not configured, with the GPU machines in it.

    Sources: DescribeRegions, DescribeInstances.

    Raises:
        CloudError: the regions of an account cannot be listed.

    """

    def look(place: Region) -> OtherRegion:
        return _look(place, translator, now)

    return everywhere([place for home in places.homes for place in _others(places, home)], look)


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
