"""PURE: how many of a pool's nodes are to be spot and how many on demand, now.

Rules: on demand comes at the interruption notice, not at the loss, and goes only once a spot node works in its place
(make before break). More nodes than wanted are spot nodes alone: a spare one where the rules ask for it, and so many as
`surge` says while they take the places of nodes on demand.
"""

from dataclasses import dataclass
from math import inf
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Setting
from gpuwatch.policies.spot.offers import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class MixRules:
    """How a pool divides its nodes between spot and on demand."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    on_demand_base: Annotated[int, Ge(0), Setting("So many nodes, or GPUs, are always on demand.")] = 0
    spot_share: Annotated[
        float, Ge(0), Le(1), Setting("The share of the nodes above the base that should be spot, 0 to 1.")
    ] = 1.0
    fallback_after: Annotated[
        Seconds,
        Ge(0),
        Setting(
            "On-demand nodes take the place of missing spot nodes once spot was refused for this time. 0: at once."
        ),
    ] = 0.0
    back_to_spot_after: Annotated[
        Seconds,
        Ge(0),
        Setting("An on-demand node in a spot node's place stays at least this long."),
    ] = 0.0
    surge: Annotated[
        int,
        Ge(0),
        Setting(
            "While spot is taking the places of on-demand nodes, so many nodes more than wanted, and than max_nodes, "
            "are there at most (of GPUs, those of so many machines of the largest offer). 0: a pool does not come back "
            "to spot."
        ),
    ] = 2
    give_back_notice: Annotated[
        Seconds,
        Ge(60),
        Setting(
            "The notice of an on-demand node that works and is given back with consent "
            "(docs/policies/spot.md#back-to-spot)."
        ),
    ] = 120.0
    max_price_ratio: Annotated[
        float, Gt(0), Le(1), Setting("Spot that costs more than this part of on demand is not bought.")
    ] = 0.9
    spread: Annotated[
        Spread,
        Setting(
            "How offers of about one price are ordered. capacity: those first that take nodes back least often; zones: "
            "those with the fewest nodes of the pool; lowest_price: by price alone."
        ),
    ] = "capacity"
    over_provision: Annotated[
        int, Ge(0), Setting("So many spot nodes more than wanted; for `recommend spot` alone.")
    ] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Has:
    """A pool's nodes at one moment, without those that have an interruption notice.

    Coming are those that boot. `on_demand` counts both, `on_demand_coming` those of them that no list shows yet.
    `missing_seconds` is for how long fewer spot nodes than wanted were there or coming; 0 where none is missing.
    """

    spot_working: int
    spot_coming: int
    on_demand: int
    on_demand_coming: int = 0
    missing_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """How many more spot nodes to ask for, and how many on-demand nodes to have."""

    spot_missing: int
    on_demand: int


def shares(wanted: int, rules: MixRules) -> tuple[int, int]:
    """How many of so many nodes should be spot, and how many on demand."""
    above = max(0, wanted - rules.on_demand_base)
    spot = int(above * rules.spot_share + 0.5)
    return spot, wanted - spot


def goal(wanted: int, has: Has, rules: MixRules) -> Goal:
    """What to have next."""
    spot, fixed = shares(wanted, rules)
    here = has.spot_working + has.spot_coming
    missing = max(0, spot - here)
    late = rules.fallback_after < inf and has.missing_seconds >= rules.fallback_after
    fallback = max(0, has.on_demand - fixed)
    ordered = missing if late else min(missing, fallback)
    # What stands in for a spot node stays until that node works.
    kept = min(fallback, max(0, spot - has.spot_working))
    more = rules.over_provision if spot else 0
    # Spot that takes the places of nodes on demand comes a few at a time: until it works both are paid for.
    room = wanted + more + rules.surge - here - has.on_demand
    return Goal(spot_missing=max(0, min(spot + more - here, room)), on_demand=fixed + max(ordered, kept))
