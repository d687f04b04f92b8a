"""GPU machines in every region of the accounts, those that the settings do not name as well; nothing is acted on."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.aws import instances as aws_machines
from gpuwatch.clouds.aws.instances import Translator
from gpuwatch.clouds.aws.places import Region, Regions
from gpuwatch.clouds.permissions import OtherRegion
from gpuwatch.clouds.survey import Surveyed
from gpuwatch.model.fleet import Node

_AT_ONCE = 8


def looked_for(places: Regions, translator: Translator, *, page_size: int) -> list[OtherRegion]:
    """Every enabled region of each account that is not configured, with the GPU machines in it.

    Sources: DescribeRegions, DescribeInstances, DescribeInstanceTypes.

    Raises:
        CloudError: the regions of an account cannot be listed.

    """
    others = [place for home in places.homes for place in _others(places, home)]
    found = _all(others, translator, page_size, watched=False)
    return [
        OtherRegion(
            where=each.where,
            machines=tuple(f"{node.id} ({node.instance_type})" for node in each.nodes),
            nodes=each.nodes,
            region=each.region,
            refused=each.refused,
            trouble=each.trouble,
        )
        for each in found
    ]


def surveyed(places: Regions, translator: Translator, *, page_size: int) -> list[Surveyed]:
    """The same, and the configured regions first; where other regions cannot be listed, that is an entry."""
    found = _all(places.all, translator, page_size, watched=True)
    for home in places.homes:
        where = "other regions" + (f" of account {home.called}" if home.called else "")
        try:
            others = list(_others(places, home))
        except CloudError as error:
            refused = error.code if isinstance(error, AuthFailedError) else None
            trouble = None if refused is not None else str(error)
            found.append(Surveyed(where=where, region="", watched=False, refused=refused, trouble=trouble))
        else:
            found += _all(others, translator, page_size, watched=False)
    return found


def place_of(places: Regions, region: str, account: str | None) -> Region | None:
    """The place of a region and an account's number, whether the settings name it or not."""
    for home in places.homes:
        if len(places.homes) == 1 or account in (None, home.account):
            same = (each for each in places.all if each.region == region and each.session is home.session)
            return next(same, None) or home.beside(region)
    return None


def _all(places: list[Region], translator: Translator, page_size: int, *, watched: bool) -> list[Surveyed]:
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return list(pool.map(lambda place: _look(place, translator, page_size, watched=watched), places))


def _others(places: Regions, home: Region) -> Iterator[Region]:
    """The account's enabled regions that nobody configured."""
    configured = {place.region for place in places.all if place.session is home.session}
    return (home.beside(region) for region in home.enabled() if region not in configured)


def _look(place: Region, translator: Translator, page_size: int, *, watched: bool) -> Surveyed:
    """One region. A refused answer shows no machine, and does not prove that no machine runs there."""
    refused, trouble, nodes = None, None, tuple[Node, ...]()
    try:
        instances = aws_machines.alive(aws_machines.listed(place, [], page_size=page_size))
        nodes = tuple(translator.nodes(place, instances, {}))
    except AuthFailedError as error:
        refused = error.code
    except CloudError as error:
        trouble = str(error)
    return Surveyed(
        where=place.name, region=place.region, watched=watched, nodes=nodes, refused=refused, trouble=trouble
    )
