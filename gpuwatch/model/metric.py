"""What a metric of the catalogue is: an annotation on the field of a reading that holds it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import get_args, get_type_hints

from gpuwatch.model.metric_groups import GroupName

SLOW_SECONDS = 30
STEADY_SECONDS = 5


class Kind(StrEnum):
    """How Prometheus treats a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the catalogue: what a field means and which driver call it comes from.

    With a `label` the field maps that label's values to measurements. A `slow` one is read every SLOW_SECONDS, a
    `steady` one every STEADY_SECONDS, and shown in between; a read that fails ends that at once. What no exported
    `group` has is not read, unless it is `judged`: activity, health or the tally of use rest on it.
    """

    help: str
    source: str
    group: GroupName = field(kw_only=True)
    kind: Kind = field(default=Kind.GAUGE, kw_only=True)
    label: str = field(default="", kw_only=True)
    slow: bool = field(default=False, kw_only=True)
    steady: bool = field(default=False, kw_only=True)
    judged: bool = field(default=False, kw_only=True)

    @property
    def every_seconds(self) -> int | None:
        """How often it is read; None: in every cycle."""
        return SLOW_SECONDS if self.slow else STEADY_SECONDS if self.steady else None


def metrics_of(reading: type) -> Iterator[tuple[str, Metric]]:
    """Each measured field of a reading with its row of the catalogue, in the order of declaration."""
    hints = get_type_hints(reading, include_extras=True)
    for each in fields(reading):
        for extra in get_args(hints[each.name])[1:]:
            if isinstance(extra, Metric):
                yield each.name, extra


def fields_read(reading: type, groups: Collection[GroupName]) -> frozenset[str]:
    """The measured fields of a reading that are read where these groups are exported."""
    return frozenset(name for name, metric in metrics_of(reading) if metric.judged or metric.group in groups)
