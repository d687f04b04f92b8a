"""What each idle policy would have cost and saved over recorded gaps, beside who knew every end.

A restart is charged as `restart` seconds of rental in the bill and in the cost alike. The ratio to the optimum scores
the gaps whose end is known, as docs/policies/timing.md does; bill, restarts and the ratio to break-even take all gaps.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Literal

from gpuwatch import prices
from gpuwatch.backtest.gaps import History
from gpuwatch.model.knobs import parse_duration
from gpuwatch.policies.timing.replay import Cost, Recorded, cost, learned_waits, optimum
from gpuwatch.policies.timing.rules import draw_of, randomized

Rule = Literal["break_even", "randomized", "learned"]
_RULES: Mapping[str, Rule] = {"break_even": "break_even", "randomized": "randomized", "learned": "learned"}
_RIGHT = "never, after=<duration> such as after=10m, after=break_even, after=randomized or after=learned"
_DAY = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy by its name. `after` is seconds or a rule's name, infinite for `never`."""

    name: str
    after: float | Rule

    @property
    def never(self) -> bool:
        """Whether it stops nothing."""
        return self.after == math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """One stop that a policy would have made, in seconds from the recording's begin."""

    node: str
    idle_since: float
    stopped_at: float
    needed_at: float | None  # None: not before its gap was lost from sight


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One policy's. Ratios are None where there is nothing to divide by."""

    policy: Policy
    cost: Cost
    idle_cost_ratio_to_optimum: float | None
    idle_cost_ratio_to_break_even: float | None
    bill_saved_ratio: float | None
    node_hours_saved: float
    saved_usd: Decimal
    restarts_per_node_day: float | None
    people_waited_seconds: float
    suspected_wrong_stops: int
    stops: tuple[Stopped, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a restart costs in rental, a boot's length, and how soon after a stop a need makes the stop suspect."""

    restart: float = 600.0
    boot: float = 180.0
    regret: float = 900.0


def policy_of(text: str) -> Policy:
    """The policy of a name.

    Raises:
        ValueError: there is none; the text says what would be right.

    """
    if text == "never":
        return Policy(name=text, after=math.inf)
    key, _, value = text.partition("=")
    if key != "after":
        raise ValueError(f"{text!r} is not a policy; right would be {_RIGHT}")
    if value in _RULES:
        return Policy(name=text, after=_RULES[value])
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}, or {_RIGHT}") from error
    if not isinstance(seconds, float) or not 0 < seconds < math.inf:
        raise ValueError(f"{text!r}: the duration is not above 0; right would be {_RIGHT}")
    return Policy(name=text, after=seconds)


def waits_of(policy: Policy, gaps: Sequence[Recorded], restart: float) -> list[float]:
    """How long each gap is let be; nothing is known ahead of time."""
    if policy.after == "learned":
        return learned_waits(gaps, restart)
    if policy.after == "randomized":
        return [randomized(restart, draw_of(gap.node_id, f"{gap.begin:.0f}")).seconds for gap in gaps]
    return [restart if policy.after == "break_even" else policy.after] * len(gaps)


def figures_of(policy: Policy, history: History, terms: Terms) -> Figures:
    """One policy over a history."""
    gaps, waits = history.gaps, waits_of(policy, history.gaps, terms.restart)
    whole = cost(gaps, waits, terms.restart)
    known = [(gap, wait) for gap, wait in zip(gaps, waits, strict=True) if gap.needed]
    scored = cost([gap for gap, _ in known], [wait for _, wait in known], terms.restart)
    even = cost(gaps, [terms.restart] * len(gaps), terms.restart)
    node_seconds = sum(history.node_seconds.values())
    stops = tuple(_stops(gaps, waits))
    return Figures(
        policy=policy,
        cost=whole,
        idle_cost_ratio_to_optimum=_ratio(scored.seconds, optimum(gaps, terms.restart)),
        idle_cost_ratio_to_break_even=_ratio(whole.seconds, even.seconds),
        bill_saved_ratio=_ratio(sum(gap.seconds for gap in gaps) - whole.seconds, node_seconds),
        node_hours_saved=(sum(gap.seconds for gap in gaps) - whole.seconds) / 3600,
        saved_usd=_usd(history, waits, terms.restart),
        restarts_per_node_day=_ratio(whole.restarts, node_seconds / _DAY),
        people_waited_seconds=whole.restarts * terms.boot,
        suspected_wrong_stops=sum(
            stop.needed_at is not None and stop.needed_at - stop.stopped_at <= terms.regret for stop in stops
        ),
        stops=stops,
    )


def optimum_saved_ratio(history: History, restart: float) -> float | None:
    """The part of the bill that who knew every end would have saved."""
    idle = sum(gap.seconds for gap in history.gaps)
    return _ratio(idle - optimum(history.gaps, restart), sum(history.node_seconds.values()))


def _stops(gaps: Sequence[Recorded], waits: Sequence[float]) -> Iterator[Stopped]:
    for gap, wait in zip(gaps, waits, strict=True):
        if gap.seconds > wait:
            yield Stopped(
                node=gap.node_id,
                idle_since=gap.begin,
                stopped_at=gap.begin + wait,
                needed_at=gap.end if gap.needed else None,
            )


def _usd(history: History, waits: Sequence[float], restart: float) -> Decimal:
    """The rental that was saved, restarts taken off, at list price, to the cent."""
    kinds = {life.name: life.instance_type for life in history.lives}
    seconds = dict.fromkeys(kinds.values(), 0.0)
    for gap, wait in zip(history.gaps, waits, strict=True):
        if gap.seconds > wait:
            seconds[kinds[gap.node_id]] += gap.seconds - wait - restart * gap.needed
    total = Decimal(0)
    for kind, saved in sorted(seconds.items()):
        price = prices.lookup(kind)
        if price is None:
            raise LookupError(f"there is no list price for {kind}")
        total += price.usd_per_hour * Decimal(f"{saved / 3600:.6f}")
    return total.quantize(Decimal("0.01"), rounding=ROUND_HALF_EVEN)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
