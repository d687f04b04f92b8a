"""PURE: what is wrong together, and what is known to mislead, in all pools' rules."""

from collections.abc import Iterator, Mapping, Sequence

from gpuwatch.model.knobs import Contradiction
from gpuwatch.policies import PoolRules, scaling, schedule

Path = tuple[str, ...]


def contradictions(pools: Mapping[str, PoolRules], calendars: Mapping[str, Sequence[str]]) -> Iterator[Contradiction]:
    """What no single key's bounds can tell."""
    yield from schedule.calendar_contradictions(calendars, ("calendars",))
    for name, rules in pools.items():
        here = ("pools", name)
        yield from scaling.contradictions(rules.scaling, (*here, "scaling"))
        yield from schedule.contradictions(rules.schedule, calendars, (*here, "schedule"))
        if rules.max_nodes is not None and rules.max_nodes < rules.min_nodes:
            yield Contradiction(
                keys=((*here, "max_nodes"), (*here, "min_nodes")),
                wrong=f"pools.{name}.max_nodes ({rules.max_nodes}) is below pools.{name}.min_nodes ({rules.min_nodes})",
                right=f"a max_nodes of {rules.min_nodes} or more",
            )


def warnings(pools: Mapping[str, PoolRules]) -> Iterator[Contradiction]:
    """Choices that are allowed and known to mislead."""
    for name, rules in pools.items():
        yield from scaling.warnings(rules.scaling, ("pools", name, "scaling"))
