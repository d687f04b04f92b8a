"""PURE: adds what one round saw of a pool's nodes to the pool's history of gaps.

Rules, all of them:

1. A node that is seen idle has a gap since its agent says so. Idle for less long than its open gap, it was needed in
   between.
2. A node that works, or that runs again after it was reclaimed, was needed.
3. Of a node that is not known, nothing is learned; its gap waits for sight of it.
4. A gap is lost if its node is not seen at all, unless gpuwatch itself reclaimed the node. Pass such nodes as reclaimed
   for as long as their return would show, and as needed when something is launched in their place.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gpuwatch.policies.idle_timeout import gap_history as gaps
from gpuwatch.policies.idle_timeout.gap_history import GapHistory

_SLACK_SECONDS = 30.0  # by which two rounds may differ on when a node turned idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One node in one round. `idle_seconds` counts where it is idle."""

    node_id: str
    says: Literal["idle", "needed", "reclaimed", "unknown"]
    idle_seconds: float = 0.0


def followed(
    history: GapHistory, at: float, seen: Iterable[Sighting], restart: float, *, demand: bool | None = None
) -> GapHistory:
    """The history after a round at which a restart costs so much, and work waited for the pool or none did.

    Gaps that are open keep what held when they began.
    """
    sightings = {each.node_id: each for each in seen}
    for name in sorted(history.open.keys() - sightings.keys()):
        history = gaps.gone(history, name, at)
    for _, sighting in sorted(sightings.items()):
        history = _followed(history, at, sighting, restart, demand)
    unknown = {name for name, sighting in sightings.items() if sighting.says == "unknown"}
    return gaps.aged(history, at, unknown)


def _followed(history: GapHistory, at: float, sighting: Sighting, restart: float, demand: bool | None) -> GapHistory:
    """One node's part."""
    name = sighting.node_id
    if sighting.says == "needed":
        return gaps.needed(history, name, at)
    if sighting.says == "reclaimed":
        return gaps.reclaimed(history, name, at)
    if sighting.says == "unknown":
        return history
    since, gap = at - sighting.idle_seconds, history.open.get(name)
    if gap is not None and (gap.reclaimed is not None or since > gap.since + _SLACK_SECONDS):
        history = gaps.needed(history, name, max(since, gap.since + (gap.reclaimed or 0.0)))
    return gaps.went_idle(history, name, since, restart, demand=demand)
