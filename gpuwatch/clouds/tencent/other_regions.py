"""GPU machines in every region that the account may use: they are shown to people and never acted on."""

from concurrent.futures import ThreadPoolExecutor

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.permissions import OtherRegion
from gpuwatch.clouds.survey import Surveyed
from gpuwatch.clouds.tencent.instances import Translator, listed
from gpuwatch.clouds.tencent.places import Place, Places, enabled
from gpuwatch.model.fleet import NodeState

_AT_ONCE = 8


def looked_for(places: Places, translator: Translator) -> list[OtherRegion]:
    """Every region of each account that the settings do not name.

    Sources: DescribeRegions, DescribeInstances, DescribeInstanceTypeConfigs.

    Raises:
        CloudError: the regions of an account cannot be listed.

    """
    return [
        OtherRegion(
            where=each.where,
            region=each.region,
            machines=tuple(f"{node.id} ({node.instance_type})" for node in each.nodes),
            nodes=each.nodes,
            refused=each.refused,
            trouble=each.trouble,
        )
        for each in _all(_others(places), translator, watched=False)
    ]


def surveyed(places: Places, translator: Translator) -> list[Surveyed]:
    """The places of the settings, and after them the others."""
    watched = _all(places.all, translator, watched=True)
    try:
        others = _others(places)
    except CloudError as error:
        return [*watched, Surveyed(where="other regions", region="", watched=False, trouble=str(error))]
    return [*watched, *_all(others, translator, watched=False)]


def place_of(places: Places, region: str, account: str | None) -> Place | None:
    """The place of a region in one of our accounts, named by the settings or not; None: no account of ours."""
    for home in places.homes:
        if account in (None, home.account):
            return next(
                (each for each in places.all if each.signer is home.signer and each.region == region), None
            ) or (home.beside(region))
    return None


def _others(places: Places) -> list[Place]:
    return [
        home.beside(region)
        for home in places.homes
        for region in enabled(home)
        if not any(place.signer is home.signer and place.region == region for place in places.all)
    ]


def _all(places: list[Place], translator: Translator, *, watched: bool) -> list[Surveyed]:
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return list(pool.map(lambda place: _looked(place, translator, watched=watched), places))


def _looked(place: Place, translator: Translator, *, watched: bool) -> Surveyed:
    """One region. A refused answer shows no machine, and does not prove that no machine runs there."""
    refused = trouble = None
    nodes = []
    try:
        instances = [each for each in listed(place.reading) if each.state is not NodeState.TERMINATED]
        nodes = list(translator.nodes(place, instances, {}, {}))
    except AuthFailedError as error:
        refused = error.code
    except CloudError as error:
        trouble = str(error)
    return Surveyed(
        where=place.name, region=place.region, watched=watched, nodes=tuple(nodes), refused=refused, trouble=trouble
    )
