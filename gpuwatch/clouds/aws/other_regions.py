"""GPU machines in regions that the settings do not name: they are counted and never acted on."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.aws import instances as aws_machines
from gpuwatch.clouds.aws.instances import Translator
from gpuwatch.clouds.aws.regions import Region, Regions
from gpuwatch.clouds.permissions import OtherRegion

_AT_ONCE = 8


def looked_for(places: Regions, translator: Translator, *, page_size: int) -> list[OtherRegion]:
    """Every enabled region of each account that is not configured, with the GPU machines in it.

    Sources: DescribeRegions, DescribeInstances, DescribeInstanceTypes.

    Raises:
        CloudError: the regions of an account cannot be listed.

    """
    others = [place for home in places.homes for place in _others(places, home)]
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return list(pool.map(lambda place: _look(place, translator, page_size), others))


def _others(places: Regions, home: Region) -> Iterator[Region]:
    """The account's enabled regions that nobody configured; without AllRegions, EC2 lists the enabled ones alone."""
    with home.asking("DescribeRegions"):
        enabled = [named["RegionName"] for named in home.reading.ec2.describe_regions()["Regions"]]
    configured = {place.region for place in places.all if place.session is home.session}
    return (home.beside(region) for region in sorted(enabled) if region not in configured)


def _look(place: Region, translator: Translator, page_size: int) -> OtherRegion:
    """One region. A refused answer shows no machine, and does not prove that no machine runs there."""
    try:
        instances = aws_machines.alive(aws_machines.listed(place, [], page_size=page_size))
        nodes = list(translator.nodes(place, instances, {}))
    except AuthFailedError as error:
        return OtherRegion(where=place.name, refused=error.code)
    except CloudError as error:
        return OtherRegion(where=place.name, trouble=str(error))
    return OtherRegion(where=place.name, machines=tuple(f"{node.id} ({node.instance_type})" for node in nodes))
