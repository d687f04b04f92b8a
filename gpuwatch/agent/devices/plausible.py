"""What cannot be true: a sick GPU or driver gives 4294967295 degrees, 250 percent, more memory in use than there is.

Such a value is left out, and its name is noted. The bounds are wide on purpose: they tell garbage from figures, not
good figures from bad ones.
"""

from collections.abc import Mapping
from typing import Any

ALL_ONES = {2**32 - 1, 2**64 - 1}  # how drivers and broken firmware say "no value"

# By the end of a field's name, the first that fits; lowest and highest in its base unit.
_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("fan_speed_ratio", 0, 3),  # a fan may exceed its nominal speed
    ("_ratio", 0, 1),
    ("margin_celsius", -300, 300),
    ("memory_temperature_celsius", -50, 200),
    ("_celsius", 0, 200),  # 4294967295 degrees are -1 where the driver's number has a sign
    ("_watts", 0, 20_000),
    ("_hertz", 0, 2e10),
    ("_joules_total", 0, 1e13),
    ("_seconds_total", 0, 1e10),
    ("_bytes_per_second", 0, 1e14),
    ("_total", 0, 2**63),
    ("_bytes", 0, 2**48),
    ("performance_state", 0, 15),
    ("generation", 0, 16),
    ("generation_max", 0, 16),
    ("width", 0, 64),
    ("width_max", 0, 64),
    ("_mode", 0, 64),
    ("recovery_action", 0, 64),
    ("_exceeded", 0, 1),
    ("fabric_state", 0, 3),
    ("", -(2**63), 2**63),
)
_SIZES = ("memory", "bar1")


def bounds(name: str) -> tuple[float, float]:
    """The lowest and highest value that the field may have."""
    return next((low, high) for end, low, high in _BOUNDS if name.endswith(end))


def plausible(value: Any, limits: tuple[float, float]) -> Any:  # noqa: ANN401  the row knows the type
    """The value of a field with these limits; None if it cannot be true. Of values by label those that can."""
    kind = type(value)
    if kind is float or kind is int:
        return value if limits[0] <= value <= limits[1] and value not in ALL_ONES else None
    if kind is dict:
        kept = {label: one for label, one in value.items() if plausible(one, limits) is not None}
        return value if len(kept) == len(value) else kept or None
    return value


def impossible_sizes(values: Mapping[str, Any]) -> set[str]:
    """The fields of each memory of which more is in use, or free, than there is: one of the three is wrong."""
    found = set[str]()
    for memory in _SIZES:
        total = values.get(f"{memory}_total_bytes")
        parts = {name: values.get(name) for name in (f"{memory}_used_bytes", f"{memory}_free_bytes")}
        if total is not None and any(part is not None and part > total for part in parts.values()):
            found |= {f"{memory}_total_bytes", *parts}
    return found & values.keys()
