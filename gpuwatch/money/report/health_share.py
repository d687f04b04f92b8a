"""PURE: the share of a fleet's GPU-hours in each health, by type of machine and driver, for the page and the report.

It is the dashboard's number: each look at the fleet counts each GPU once, in the health that its agent gives it. What
no agent speaks for is unknown, and unknown is not healthy. A report looks once an hour, the page at its round.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.health import Health

_Key = tuple[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverHealth:
    """Machines of one type with one driver, null where it is not known. `gpus` is the mean of all looks."""

    instance_type: str
    driver: str | None
    gpus: float
    ratios: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthShare:
    """The shares of GPU-hours in each health, of the fleet and by type and driver; from so many `looks` at it."""

    looks: int
    gpus: float
    ratios: Mapping[str, float]
    by_driver: tuple[DriverHealth, ...]


def health_share(looks: Iterable[Sequence[Node]]) -> HealthShare | None:
    """Of looks at equal distances, each with the machines of then; None: there was no running GPU."""
    number, counted = 0, dict[_Key, Counter[Health]]()
    for nodes in looks:
        number += 1
        for node in nodes:
            if node.state is NodeState.RUNNING:
                _count(node, counted)
    whole = sum(counted.values(), Counter[Health]())
    if not whole:
        return None
    return HealthShare(
        looks=number,
        gpus=whole.total() / number,
        ratios=_ratios(whole),
        by_driver=tuple(
            DriverHealth(instance_type=kind, driver=driver, gpus=found.total() / number, ratios=_ratios(found))
            for (kind, driver), found in sorted(counted.items(), key=lambda each: (each[0][0], each[0][1] or ""))
            if found.total()
        ),
    )


def _count(node: Node, counted: dict[_Key, Counter[Health]]) -> None:
    verdict = node.verdict
    driver = None if verdict is None else verdict.driver_version
    found = counted.setdefault((node.instance_type, driver), Counter())
    if verdict is None or not verdict.gpus:
        found[Health.UNKNOWN] += node.known_gpus
    for gpu in () if verdict is None else verdict.gpus:
        found[Health.UNKNOWN if gpu.health is None else gpu.health.state] += 1


def _ratios(found: Counter[Health]) -> dict[str, float]:
    return {each.value: found[each] / found.total() for each in Health}
