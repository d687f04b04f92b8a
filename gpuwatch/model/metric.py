"""What a metric of the catalogue is: an annotation on the field of a reading that holds it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import get_args, get_type_hints

SLOW_SECONDS = 30


class Kind(StrEnum):
    """How Prometheus treats a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the catalogue: what a field means and which driver call it comes from.

    With a `label` the field maps that label's values to measurements. A `slow` one is read every SLOW_SECONDS and
    shown in between; a read that fails ends that at once.
    """

    help: str
    source: str
    kind: Kind = field(default=Kind.GAUGE, kw_only=True)
    label: str = field(default="", kw_only=True)
    slow: bool = field(default=False, kw_only=True)


def metrics_of(reading: type) -> Iterator[tuple[str, Metric]]:
    """Each measured field of a reading with its row of the catalogue, in the order of declaration."""
    hints = get_type_hints(reading, include_extras=True)
    for each in fields(reading):
        for extra in get_args(hints[each.name])[1:]:
            if isinstance(extra, Metric):
                yield each.name, extra
