"""What flaps is reported once: however the causes of a GPU come and go, its verdict changes a few times a day."""

import math
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.agent.health.causes import LEVELS
from gpuwatch.agent.health.settings import HealthRules
from gpuwatch.model.gpu import DownCause, GpuDown, GpuReading
from gpuwatch.model.health import Health
from tests.support.builders.gpu import a_down, a_reading
from tests.support.builders.sick_gpus import SEEN, Patient
from tests.support.nightly import examples

DAY = 86400.0
EVERY = 60.0
LASTING = {level.finding.code for level in LEVELS if level.after(HealthRules()) > 0}
# Causes that a look shows at once; a share of time with lowered clocks fades by itself.
SUDDEN = sorted(code for code in SEEN if code not in LASTING and "clock_events" not in SEEN[code][0])


def entry(codes: frozenset[str], down: DownCause | None) -> GpuReading | GpuDown:
    """A GPU with these causes, or one that is not read."""
    if down is not None:
        return a_down(cause=down)
    measured: dict[str, Any] = {"clock_events": ()}
    for code in codes:
        for name, value in SEEN[code][0].items():
            both = isinstance(value, tuple) and name in measured
            measured[name] = (*measured[name], *value) if both else value
    return a_reading(**measured)


def most_changes(days: float) -> float:
    """Of one cause: it doubles its rest with each return, until that is a day; each return is two changes."""
    return 2 * (math.log2(DAY / HealthRules().recover_after) + 2 + days)


stretches = st.lists(
    st.tuples(
        st.frozensets(st.sampled_from(SUDDEN), max_size=3),
        st.sampled_from([None, None, None, DownCause.LOST, DownCause.ERROR, DownCause.DRIVER]),
        st.integers(1, 40),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(15))  # a day of looks each
@given(pattern=stretches)
def test_what_flaps_is_reported_a_bounded_number_of_times(
    pattern: list[tuple[frozenset[str], DownCause | None, int]],
) -> None:
    """A pattern of causes and outages, over and over for a day: each cause is reported a few times."""
    patient = Patient()
    before: frozenset[str] = frozenset()
    changes = Counter[str]()
    while patient.seconds < 1000.0 + DAY:
        for codes, down, looks in pattern:
            for _ in range(looks):
                patient.look(entry(codes, down), every=EVERY)
                now = frozenset(patient.codes)
                changes.update(now ^ before)
                before = now
    assert all(count <= most_changes(1) for count in changes.values()), changes


def test_a_cause_every_eleven_minutes_is_reported_as_one() -> None:
    """Just too rarely for the first ten minutes of rest: without more, 130 ends and starts a day."""
    patient = Patient()
    states: list[Health] = []
    for minute in range(3 * 1440):
        sick = {"fabric_faults": ("degraded_bandwidth",)} if minute % 11 == 0 else {"fabric_faults": ()}
        states.append(patient.look(a_reading(**sick), every=EVERY).state)

    assert sum(now is not then for now, then in zip(states[1:], states, strict=False)) <= 3
    assert states[-1] is Health.DEGRADED


def test_a_cause_that_stays_away_for_a_day_begins_anew() -> None:
    """What happened once a week ago makes nobody wait."""
    patient = Patient()
    for _ in range(3):
        patient.look(a_reading(remapped_rows_pending=1), every=EVERY)
        patient.look(a_reading(remapped_rows_pending=0), times=3 * 1440, every=EVERY)
    patient.look(a_reading(remapped_rows_pending=1), every=EVERY)

    assert patient.look(a_reading(remapped_rows_pending=0), times=11, every=EVERY).state is Health.HEALTHY
