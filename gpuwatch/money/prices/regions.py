"""Where the regions of the clouds lie, to about a degree: which one is the nearest that has a list price.

data/regions.tsv is edited by hand. Regions of one partition have one seller: AWS in China and in GovCloud sells apart
from all other regions, with other prices; so are Azure's.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

from gpuwatch.money.prices.catalogue import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a region is, in degrees, and which others are sold with it."""

    partition: str
    latitude: float
    longitude: float


@cache
def known_places(provider: str) -> Mapping[str, Place]:
    """Every region of a cloud, by its name."""
    return {
        row["region"]: Place(
            partition=row["partition"], latitude=float(row["latitude"]), longitude=float(row["longitude"])
        )
        for row in read_table("regions.tsv")
        if row["provider"] == provider
    }


def alike(provider: str, region: str, among: Collection[str]) -> frozenset[str]:
    """Those of these regions that are sold with that one; all of them where none is, or nobody knows the region."""
    places = known_places(provider)
    here = places.get(region)
    found = frozenset(
        each for each in among if here is not None and each in places and places[each].partition == here.partition
    )
    return found or frozenset(among)


def nearest(provider: str, region: str, among: Collection[str]) -> str | None:
    """The one of these regions that is the nearest to that one; None: where it lies is not known.

    Of two that are equally near, the first by name.
    """
    places = known_places(provider)
    here = places.get(region)
    far = {each: _radians_between(here, places[each]) for each in among if here is not None and each in places}
    return min(far, key=lambda each: (round(far[each], 6), each), default=None)


def _radians_between(one: Place, other: Place) -> float:
    """Along the great circle."""
    north, south = math.radians(one.latitude), math.radians(other.latitude)
    east = math.radians(one.longitude - other.longitude)
    half = math.sin((north - south) / 2) ** 2 + math.cos(north) * math.cos(south) * math.sin(east / 2) ** 2
    return 2 * math.asin(min(1.0, math.sqrt(half)))
