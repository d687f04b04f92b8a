"""PURE: how bold a pool is, in one word, and what the word decides.

Idle nodes are nobody's. An occupied, parked or stalled node is somebody's, who may come back:

1. cautious only reports such nodes.
2. balanced stops them after 16 h, 4 h after a notice: 20 h in all. A machine left at 18:00 is untouched the next
   morning, its owner has half a working day to answer (gpuwatch.policies.idle_timeout.working_time), and it is found
   within a day, or on Monday.
3. eager is for batch pools, where nobody comes back: 2 h, and 30 min of notice.

Idle nodes of cautious wait for a fixed time. balanced and eager learn their wait once the pool has shown how it pauses;
until then theirs is fixed, too, the notice included. The short grace where nobody is there goes with the learned wait
only.

What is written in the settings wins. What the word decides is never bolder than what the pool does with idle nodes: no
other action, no shorter wait, no shorter grace.
"""

from dataclasses import dataclass, fields
from typing import Literal

ProfileName = Literal["cautious", "balanced", "eager"]
Removal = Literal["stop", "terminate", "report"]

_MINUTE, _HOUR = 60.0, 3600.0
OWNED = ("occupied", "parked", "stalled")  # somebody's nodes: each has a choice of that name and a wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a word decides, by the names of the settings; times in seconds."""

    timeout: float | Literal["learned"]
    fresh_timeout: float | None
    grace_period: float
    unattended_grace_period: float
    owner_grace_period: float
    occupied: Removal
    occupied_timeout: float
    parked: Removal
    parked_timeout: float
    stalled: Removal
    stalled_timeout: float


def _profile(*, wait: float, grace: float, owned: Removal, owned_wait: float, owner_grace: float) -> Profile:
    """Make a profile: `wait` and `grace` of idle nodes; what happens to somebody's, and their wait and grace."""
    learns = owned != "report"
    return Profile(
        timeout="learned" if learns else wait,
        fresh_timeout=wait if learns else None,
        grace_period=grace,
        unattended_grace_period=_MINUTE if learns else grace,
        owner_grace_period=owner_grace,
        occupied=owned,
        occupied_timeout=owned_wait,
        parked=owned,
        parked_timeout=owned_wait,
        stalled=owned,
        stalled_timeout=owned_wait,
    )


# The pages that state these numbers are held to them by tests/docs/test_profile_numbers.py.
PROFILES: dict[ProfileName, Profile] = {
    "cautious": _profile(
        wait=2 * _HOUR, grace=30 * _MINUTE, owned="report", owned_wait=16 * _HOUR, owner_grace=4 * _HOUR
    ),
    "balanced": _profile(
        wait=15 * _MINUTE, grace=10 * _MINUTE, owned="stop", owned_wait=16 * _HOUR, owner_grace=4 * _HOUR
    ),
    "eager": _profile(
        wait=15 * _MINUTE, grace=10 * _MINUTE, owned="stop", owned_wait=2 * _HOUR, owner_grace=30 * _MINUTE
    ),
}
DECIDED = tuple(each.name for each in fields(Profile))
