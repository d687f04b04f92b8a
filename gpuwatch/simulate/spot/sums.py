"""What a play of a pool comes to: cost, time with all nodes at work, losses, failed launches."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from gpuwatch.simulate.spot.recording import STEP_SECONDS, Recording

_MINUTES_PER_HOUR = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is assumed: prices in US dollars an hour for one node, times in minutes.

    `spot_price_ratio` is what spot costs of on demand where the recording has no prices. After each interruption
    `lost_minutes` of work are done again.
    """

    on_demand_usd_per_hour: float = 1.0
    spot_price_ratio: float = 0.40
    boot_minutes: int = 4
    notice_minutes: int = 2
    lost_minutes: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What one policy did. Ratios are of the recording's time, `cost_ratio` of what on demand alone costs."""

    name: str
    cost_usd: float
    cost_ratio: float
    full_ratio: float  # all wanted nodes worked
    working_ratio: float  # the mean part of the wanted nodes that worked
    interruptions: int
    interruptions_per_node_day: float  # of a spot node
    failed_launches_per_day: float
    most_failed_launches_a_day: int
    spot_node_hours: float
    on_demand_node_hours: float
    lost_node_hours: float  # done again, or spent on boots after an interruption


class Sums:
    """The sums of one play, minute by minute."""

    def __init__(self, recording: Recording, wanted: int, terms: Terms) -> None:
        """Nothing was played yet."""
        self.interruptions = 0
        self._recording, self._wanted, self._terms = recording, wanted, terms
        self._cost = self._working = 0.0
        self._full = self._spot_minutes = self._on_demand_minutes = 0
        self._failed = [0] * ceil(recording.minutes * STEP_SECONDS / 86_400)  # by day

    def count(self, minute: int, failed: int, spot_usd: Sequence[float], on_demand: int, working: int) -> None:
        """One minute: failed launches, what each spot node costs an hour, nodes on demand, nodes that work."""
        self._failed[minute * STEP_SECONDS // 86_400] += failed
        self._spot_minutes += len(spot_usd)
        self._on_demand_minutes += on_demand
        self._cost += sum(spot_usd) + on_demand * self._terms.on_demand_usd_per_hour
        self._full += working >= self._wanted
        self._working += min(1.0, working / self._wanted)

    def play_sums(self, name: str) -> Played:
        """What it came to."""
        recording, terms = self._recording, self._terms
        cost = self._cost / _MINUTES_PER_HOUR
        lost = self.interruptions * (terms.lost_minutes + terms.boot_minutes) / _MINUTES_PER_HOUR
        return Played(
            name=name,
            cost_usd=cost,
            cost_ratio=cost / on_demand_cost(recording, self._wanted, terms),
            full_ratio=self._full / recording.minutes,
            working_ratio=self._working / recording.minutes,
            interruptions=self.interruptions,
            interruptions_per_node_day=self.interruptions / max(self._spot_minutes / 1440, 1e-9),
            failed_launches_per_day=sum(self._failed) / recording.days,
            most_failed_launches_a_day=max(self._failed),
            spot_node_hours=self._spot_minutes / _MINUTES_PER_HOUR,
            on_demand_node_hours=self._on_demand_minutes / _MINUTES_PER_HOUR,
            lost_node_hours=lost,
        )


def on_demand_cost(recording: Recording, wanted: int, terms: Terms) -> float:
    """What so many nodes cost on demand, in US dollars."""
    return recording.minutes / _MINUTES_PER_HOUR * wanted * terms.on_demand_usd_per_hour
