"""PURE: how much power of a GPU is no sign of work.

Rules, all of them:

1. Power is busy at or above `busy_power_ratio` of the limit.
2. It may be more where the GPU rests at more: by the table of its model while its clocks are up, or by its own floor in
   its present performance state; each with a margin for heat and for the sensor. It is never more than
   `max_rest_power_ratio` of the limit: work that no other signal shows stays visible from there on.
3. Rule 2 holds only in a sample in which the other signals are able to show work: utilization (with MIG the activity of
   every instance) is readable, and no memory traffic is seen. Otherwise rule 1 alone counts: power by itself still
   makes a GPU busy if its utilization cannot be read.
4. The own floor is learned from whole hours without a gap, in one performance state, in which every other signal said
   idle in every sample: the highest minute of the quietest such hour. An hour with minutes that differ by more than
   the margin teaches nothing, because rest is even and work is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from gpuwatch.agent.activity.settings import ActivityRules
from gpuwatch.model.gpu import GpuReading

# The power of GPUs at rest that hold a CUDA context, by model: measured figures. With a context the driver keeps the
# clocks up (performance states P0 to P2), and a GPU without work then draws far more than an empty one: nearly half of
# its limit on the small cards. In P8 and below nothing comes near a third of the limit.
#
# The highest figure seen is used, because it rises with the temperature (a T4 draws 26 W at 35 °C and 33 W at 75 °C).
# A model is left out where `busy_power_ratio` suffices and no figure was found; its GPUs learn their own.
#
# Sources:
# [P] arXiv:2605.23918, bare and context idle power. The memory held adds less than 0.02 W/GB.
# [D] NVIDIA/open-gpu-kernel-modules issue 874: an A40 with a loaded, idle process.
# [S] nvidia-smi tables in public repositories, at 0 % utilization (5 % at most).
# [G] measured for gpuwatch with driver 580.159: tests/captures/nvidia_h200_context.jsonl.
# [I] issues of llama.cpp (3717), text-generation-inference (946) and ollama (8591).
#
# Consecutive words of the product name, hyphens counting as blanks; the first row that fits counts.
REST_WATTS: tuple[tuple[tuple[str, ...], float], ...] = (
    (("T4",), 33.0),  # [S] of 70 W: 26 to 28 W up to 60 °C, 31 to 33 W at 70 to 77 °C
    (("L4",), 36.0),  # [S] of 72 W: 27 to 28 W empty, 36 W with 20 GB loaded at 54 and 60 °C
    (("P4",), 24.0),  # [S] of 75 W: 22 and 23 W
    (("A2",), 20.0),  # [S] of 60 W
    (("A10",), 57.0),  # [S] of 150 W: 54 to 57 W, empty
    (("A10G",), 70.0),  # [S] of 300 W: 59 and 60 W empty, 70 W with 10 GB loaded
    (("A30",), 43.0),  # [S] of 165 W: 27 to 35 W, 43 W at 49 °C
    (("A40",), 110.0),  # [D] of 300 W: 30 W empty
    (("RTX", "A4000"), 38.0),  # [I] of 140 W
    (("RTX", "A6000"), 83.0),  # [S] of 300 W: 71 W with 21 GB loaded, 83 W
    (("A100",), 80.0),  # [P] 54 W empty; [S] of 250 to 400 W: 45 to 70 W
    (("L20",), 114.0),  # [S] of 350 W, with 34 GB loaded
    (("L40S",), 103.0),  # [P] of 350 W: 36 W empty, 102 W
    (("H100", "80GB", "HBM3"), 122.0),  # [P] 72 W empty; [S] of 700 W: 67 to 73 W empty, 110 W with 6 GB loaded
    (("H200",), 124.0),  # [G] of 700 W: 81 W empty, 123 and 124 W with a context and 0.5 to 1.6 GB at 39 °C
    (("V100",), 55.0),  # [S] of 300 W: 41 to 47 W empty, 53 and 55 W with 15 and 20 GB loaded; [I]
    (("P40",), 52.0),  # [I] of 250 W
    (("P100",), 32.0),  # [S] of 250 W: 27 to 32 W
    (("T10",), 40.0),  # [S] of 150 W, with 5 GB loaded
    (("RTX", "3090"), 106.0),  # [S] of 350 W: 105 W with 21 GB loaded in P2, 106 W in P0
    (("RTX", "4090"), 54.0),  # [S] of 450 W, with 18 GB loaded in P2
)


@lru_cache(maxsize=64)
def rest_watts(name: str | None) -> float | None:
    """What a GPU of this product name draws at rest with its clocks up; None where that is not known."""
    words = (name or "").replace("-", " ").split()
    if "Laptop" in words:
        return None
    for model, watts in REST_WATTS:
        if any(tuple(words[start : start + len(model)]) == model for start in range(len(words))):
            return watts
    return None


MARGIN = 1.15  # heat adds about a quarter between 35 and 75 °C, of which the table has the top; sensors are good to 5 %
_HOUR_SECONDS = 3600.0
_MINUTE_SECONDS = 60.0
_CLOCKS_UP = 2  # P0 to P2


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietStretch:
    """A stretch of time, an hour at most, in which nothing but power could have been a sign of work."""

    performance_state: int | None
    seconds: float = 0.0
    minute_seconds: float = 0.0
    minute_joules: float = 0.0
    lowest_watts: float | None = None  # of its whole minutes
    highest_watts: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestPower:
    """What is known of one GPU's power at rest: its floor in watts by performance state, and the hour that is on."""

    floors: Mapping[int | None, float] = field(default_factory=dict)
    stretch: QuietStretch | None = None


def busy_watts(reading: GpuReading, known: RestPower, rules: ActivityRules) -> float | None:
    """The watts from which power is a sign of work; None where the power limit is not known."""
    limit = reading.power_limit_watts
    if limit is None:
        return None
    usual = rules.busy_power_ratio * limit
    if not sees_work(reading):
        return usual
    rest = known.floors.get(reading.performance_state, 0.0)
    if reading.performance_state is None or reading.performance_state <= _CLOCKS_UP:
        rest = max(rest, rest_watts(reading.info.name) or 0.0)
    return max(usual, min(rest * MARGIN, rules.max_rest_power_ratio * limit))


def sees_work(reading: GpuReading) -> bool:
    """Whether work would show in other signals than power, and no memory traffic is seen."""
    traffic = reading.memory_bandwidth_utilization_ratio
    if reading.mig_mode == 1 or reading.mig_instances is not None:
        return bool(reading.mig_instances) and all(
            part.sm_activity_ratio is not None and part.dram_activity_ratio is not None
            for part in reading.mig_instances or ()
        )
    if reading.utilization_ratio is None and reading.utilization_max_ratio is None:
        return False
    if traffic is None:
        return reading.dram_activity_ratio is not None  # it is evidence by itself
    return traffic <= 0.0


def learn_rest_power(
    known: RestPower, reading: GpuReading, watts: float | None, gap: float, *, quiet: bool
) -> RestPower:
    """What is known after one more sample, `gap` seconds after the last one.

    `watts` is the mean since then, None where it or the time between is not known. `quiet`: every signal but power said
    idle, and all of them could be read.
    """
    if not quiet or watts is None:
        return known if known.stretch is None else replace(known, stretch=None)
    state = reading.performance_state
    stretch = known.stretch
    if stretch is None or stretch.performance_state != state:
        return replace(known, stretch=QuietStretch(performance_state=state))
    stretch = _minute(
        replace(
            stretch,
            seconds=stretch.seconds + gap,
            minute_seconds=stretch.minute_seconds + gap,
            minute_joules=stretch.minute_joules + watts * gap,
        )
    )
    if stretch.seconds < _HOUR_SECONDS:
        return replace(known, stretch=stretch)
    floors = dict(known.floors)
    lowest, highest = stretch.lowest_watts, stretch.highest_watts
    if lowest is not None and highest is not None and highest <= lowest * MARGIN:
        floors[state] = min(highest, floors.get(state, highest))
    return RestPower(floors=floors, stretch=QuietStretch(performance_state=state))


def _minute(stretch: QuietStretch) -> QuietStretch:
    """The stretch with its minute counted if that is over."""
    if stretch.minute_seconds < _MINUTE_SECONDS:
        return stretch
    watts = stretch.minute_joules / stretch.minute_seconds
    return replace(
        stretch,
        minute_seconds=0.0,
        minute_joules=0.0,
        lowest_watts=watts if stretch.lowest_watts is None else min(watts, stretch.lowest_watts),
        highest_watts=watts if stretch.highest_watts is None else max(watts, stretch.highest_watts),
    )
