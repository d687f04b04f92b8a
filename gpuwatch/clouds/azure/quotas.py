"""The subscription's limits on machines with GPUs. Source: Usage List of each region that is looked at."""

from collections.abc import Iterable, Iterator, Sequence

from gpuwatch.clouds.azure.machine_types import Sizes
from gpuwatch.clouds.azure.places import Subscription
from gpuwatch.clouds.permissions import Quota
from gpuwatch.clouds.places import gathered
from gpuwatch.model.fleet import Node

_ALL_SPOT, _ALL = "lowprioritycores", "cores"


def listed(place: Subscription, sizes: Sizes, regions: Iterable[str]) -> Iterator[Quota]:
    """Of the families with GPUs, and of all machines of a region together; families with a limit of zero are left out.

    Raises:
        CloudError: they could not be had whole.

    """
    for region in sorted(regions):
        families = sizes.families(place, region)
        path = f"{place.root}/providers/Microsoft.Compute/locations/{region}/usages"
        for usage in place.listed(path):
            name = str((usage.get("name") or {}).get("value", ""))
            limit = float(usage.get("limit") or 0)
            if name.lower() in {_ALL, _ALL_SPOT} or (name.lower() in families and limit > 0):
                used = usage.get("currentValue")
                yield Quota(
                    name=name,
                    region=region,
                    limit=limit,
                    used=None if used is None else float(used),
                    unit="vCPUs",
                )


def of_all(places: Sequence[Subscription], sizes: Sizes, nodes: Iterable[Node]) -> Sequence[Quota]:
    """Of all subscriptions; where one looks at all regions, those of its machines; raises likewise."""
    seen = {(node.account, node.region) for node in nodes}

    def ask(place: Subscription) -> Iterator[Quota]:
        return listed(place, sizes, place.regions or {region for account, region in seen if account == place.id})

    return tuple(sorted(gathered(places, ask), key=lambda each: (each.region, each.name)))
