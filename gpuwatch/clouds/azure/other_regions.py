"""GPU machines in every subscription that the credentials may see, also where the settings do not look.

They are shown, and never acted on.
"""

from collections.abc import Iterator

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.azure import groups, instances
from gpuwatch.clouds.azure.instances import Machine
from gpuwatch.clouds.azure.nodes import Surroundings, Translator
from gpuwatch.clouds.azure.places import Subscription, Subscriptions
from gpuwatch.clouds.azure.seen import Paths
from gpuwatch.clouds.permissions import OtherRegion
from gpuwatch.clouds.places import everywhere
from gpuwatch.clouds.survey import Surveyed

_USABLE = frozenset({"enabled", "warned", "pastdue"})


def looked_for(places: Subscriptions, translator: Translator, paths: Paths) -> list[OtherRegion]:
    """Every region with GPU machines where the settings do not look, and every subscription that gives no answer.

    Raises:
        CloudError: the subscriptions cannot be listed.

    """
    own = [place for place in places.all if place.regions]  # without regions all of them are looked at
    found = everywhere([*own, *_others(places)], lambda place: list(_looked_at(places, place, translator, paths)))
    return [
        OtherRegion(
            where=each.where,
            machines=tuple(f"{node.id} ({node.instance_type})" for node in each.nodes),
            nodes=each.nodes,
            region=each.region,
            refused=each.refused,
            trouble=each.trouble,
        )
        for part in found
        for each in part
        if not each.watched
    ]


def surveyed(places: Subscriptions, translator: Translator, paths: Paths) -> list[Surveyed]:
    """All regions that have GPU machines; where other subscriptions cannot be listed, that is an entry."""
    try:
        others, missing = list(_others(places)), []
    except CloudError as error:
        others, missing = [], [_silent("other subscriptions", error, watched=False)]
    found = everywhere([*places.all, *others], lambda place: list(_looked_at(places, place, translator, paths)))
    return [*(each for part in found for each in part), *missing]


def _others(places: Subscriptions) -> Iterator[Subscription]:
    """Source: Subscriptions List."""
    first = places.all[0]
    known = {place.id for place in places.all}
    for each in first.listed("/subscriptions", version="subscriptions"):
        number = str(each.get("subscriptionId", "")).lower()
        if number and number not in known and str(each.get("state", "")).lower() in _USABLE:
            yield first.beside(number, str(each.get("displayName") or number))


def _looked_at(places: Subscriptions, place: Subscription, translator: Translator, paths: Paths) -> Iterator[Surveyed]:
    """One subscription by its regions; one list has all of them."""
    ours = place in places.all
    apart = Subscription(place.id, place.account, frozenset(), place.line)
    try:
        there = _machines(apart, translator)
        nodes = list(translator.nodes(apart, there, Surroundings()))
    except CloudError as error:
        yield _silent(place.name, error, watched=ours)
        return
    paths.saw(there)  # for the monitor's answers
    regions = {node.region for node in nodes} | {region for region in place.regions if ours}
    for region in sorted(regions):
        yield Surveyed(
            where=f"{region} of {place.name}",
            region=region,
            watched=ours and place.covers(region),
            nodes=tuple(node for node in nodes if node.region == region),
        )


def _silent(where: str, error: CloudError, *, watched: bool) -> Surveyed:
    """A refused answer shows no machine, and does not prove that no machine runs there."""
    refused = error.code if isinstance(error, AuthFailedError) else None
    trouble = None if refused is not None else str(error)
    return Surveyed(where=where, region="", watched=watched, refused=refused, trouble=trouble)


def _machines(place: Subscription, translator: Translator) -> list[Machine]:
    found = instances.listed(place)
    for group in groups.listed(place):
        if group.uniform and translator.has_gpus(place, group.region, group.size):
            found += instances.members(place, group.described)
    return found
