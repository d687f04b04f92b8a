"""What each idle policy would have cost and saved over recorded gaps, compared with a policy that knows every end.

A restart is charged as `restart` seconds of rental in the bill and in the cost alike. The ratio to the optimum scores
the gaps with a known end, as ADR 18 does; bill, restarts and the ratio to break-even take all gaps.
"""

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from gpuwatch.model.duration import has_no_unit, parse_duration
from gpuwatch.model.money import Price
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle_settings import IdleRules, resolve_rules
from gpuwatch.policies.idle_timeout.break_even import USUAL_USD_PER_HOUR
from gpuwatch.policies.profiles import PROFILES
from gpuwatch.simulate.backtest import pool_rules
from gpuwatch.simulate.backtest.gaps import History, known_prices_of, node_prices_of, usd
from gpuwatch.simulate.backtest.replay import Cost, Recorded, cost, learned_waits, live_waits, optimum
from gpuwatch.simulate.backtest.stops import Stopped, stops_of

Rule = Literal["break_even", "learned"]
_RULES: Mapping[str, Rule] = {"break_even": "break_even", "learned": "learned"}
_RIGHT = "never, timeout=<duration> such as timeout=10m, timeout=break_even, timeout=learned or profile=balanced"
_PROFILE = "profile="
_HOUR = 3600.0
_DAY = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy by its name. `timeout` is seconds or a rule's name, infinite for `never`.

    `rules` are a pool's own, where they and not `timeout` alone are to be tried.
    """

    name: str
    timeout: float | Rule
    rules: PoolRules | None = None

    def rules_at(self, restart: float) -> PoolRules | None:
        """Its rules; those of a profile where a restart costs so much, a pool's own as they are."""
        if self.rules is None or not self.name.startswith(_PROFILE):
            return self.rules
        return replace(self.rules, idle=replace(self.rules.idle, restart_cost=restart))

    @property
    def never(self) -> bool:
        """Whether it stops nothing."""
        return self.timeout == math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One policy's. Ratios are None where there is nothing to divide by, money where a machine has no list price."""

    policy: Policy
    waits: Sequence[float]  # how long each gap of the history was let be
    cost: Cost
    idle_cost_ratio_to_optimum: float | None
    live_cost_ratio_to_optimum: float | None  # rounds and notice charged, too
    idle_cost_ratio_to_break_even: float | None
    bill_saved_ratio: float | None
    node_hours_billed: float
    node_hours_saved: float
    gpu_hours_billed: float
    gpu_hours_saved: float
    billed_usd: Decimal | None
    saved_usd: Decimal | None
    stops: int
    stops_per_node_day: float | None
    nodes_stopped_again: int  # within a day of an earlier stop
    most_stops_in_a_day: int  # of one node
    restarts_per_node_day: float | None
    people_waited_seconds: float
    people_waited_seconds_per_node_day: float | None
    suspected_wrong_stops: int
    suspected_wrong_ratio: float | None
    regret_cost_ratio: float | None  # of what stops of nodes saved that were needed again; None: none was

    @property
    def restarts(self) -> int:
        """How many of its stops were needed again."""
        return self.cost.restarts


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a restart costs in rental, a boot's length, and how soon after a stop a need makes the stop suspect.

    `interval` and `grace` are the rounds and the notice of the live figures: nobody is at a recorded node.
    """

    restart: float = 600.0
    boot: float = 180.0
    regret: float = 900.0
    interval: float = 60.0
    grace: float = 0.0  # `unattended_grace_period: 0s`


def policy_of(text: str) -> Policy:
    """The policy of a name.

    Raises:
        ValueError: no policy has that name; the text says what would be right.

    """
    if text == "never":
        return Policy(name=text, timeout=math.inf)
    key, _, value = text.partition("=")
    if text.startswith(_PROFILE) and value in PROFILES:
        idle = replace(resolve_rules(IdleRules(), value), instance_store="discard")
        return Policy(name=text, timeout=idle.timeout, rules=PoolRules(profile=value, idle=idle))
    if key != "timeout":
        raise ValueError(f"{text!r} is not a policy; expected {_RIGHT}")
    if value in _RULES:
        return Policy(name=text, timeout=_RULES[value])
    if has_no_unit(value):
        raise ValueError(f"{text!r} has no unit; write {text}m for minutes, {text}h for hours")
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}, or {_RIGHT}") from error
    if not isinstance(seconds, float) or not 0 < seconds < math.inf:
        raise ValueError(f"{text!r}: the duration is not above 0; expected {_RIGHT}")
    return Policy(name=text, timeout=seconds)


def waits_of(
    policy: Policy, gaps: Sequence[Recorded], restart: float, prices: Mapping[str, Price] | None = None
) -> list[float]:
    """How long each gap is let be; nothing is known ahead of time, and of some nodes the price."""
    if (rules := policy.rules_at(restart)) is not None:
        idle, restart = rules.idle, pool_rules.restart_seconds(rules.idle)
        if idle.timeout == "learned":
            waiting = pool_rules.waiting(idle, prices or {})
            own = learned_waits(gaps, restart, fresh=pool_rules.fresh(idle), waiting=waiting)
        else:
            own = waits_of(replace(policy, rules=None), gaps, restart)
        return [pool_rules.in_all(idle, wait) for wait in own]
    if policy.timeout == "learned":
        return learned_waits(gaps, restart)
    return [restart if policy.timeout == "break_even" else policy.timeout] * len(gaps)


def figures_of(policy: Policy, history: History, terms: Terms) -> Figures:
    """One policy over a history."""
    waits = waits_of(policy, history.gaps, terms.restart, known_prices_of(history))
    return _charge_policy(policy, waits, history, terms, live=True)


def optimum_of(history: History, terms: Terms) -> Figures:
    """Who knew every end: keeps what is needed sooner than a restart is worth, and stops all else at once."""
    waits = [math.inf if gap.needed and gap.seconds <= terms.restart else 0.0 for gap in history.gaps]
    return _charge_policy(Policy(name="optimum", timeout=0.0), waits, history, terms)


def _charge_policy(
    policy: Policy, waits: Sequence[float], history: History, terms: Terms, *, live: bool = False
) -> Figures:
    gaps, node_seconds = history.gaps, history.node_seconds
    whole = cost(gaps, waits, terms.restart)
    needed = [(gap, wait) for gap, wait in zip(gaps, waits, strict=True) if gap.needed]
    scored = cost([gap for gap, _ in needed], [wait for _, wait in needed], terms.restart)
    even = cost(gaps, [terms.restart] * len(gaps), terms.restart)
    saved, stops, suspects = dict.fromkeys(node_seconds, 0.0), 0, 0
    for stop in stops_of(gaps, waits, terms.restart):
        saved[stop.gap.node_id] += stop.saved_seconds
        stops += 1
        suspects += stop.suspect(terms.regret)
    billed = {name: seconds - saved[name] for name, seconds in node_seconds.items()}
    most = _most_in_a_day(stops_of(gaps, waits, terms.restart))
    gpus = {life.name: len(life.gpus) for life in history.lives}
    days = sum(node_seconds.values()) / _DAY
    priced = node_prices_of(history)
    all_usd, saved_usd = usd(priced, node_seconds), usd(priced, saved)
    return Figures(
        policy=policy,
        waits=waits,
        cost=whole,
        idle_cost_ratio_to_optimum=_ratio(scored.seconds, optimum(gaps, terms.restart)),
        live_cost_ratio_to_optimum=_ratio(
            _live(policy, waits, history, terms) if live else scored.seconds, optimum(gaps, terms.restart)
        ),
        idle_cost_ratio_to_break_even=_ratio(whole.seconds, even.seconds),
        bill_saved_ratio=_ratio(sum(saved.values()), sum(node_seconds.values())),
        node_hours_billed=sum(billed.values()) / _HOUR,
        node_hours_saved=sum(saved.values()) / _HOUR,
        gpu_hours_billed=sum(seconds * gpus[name] for name, seconds in billed.items()) / _HOUR,
        gpu_hours_saved=sum(seconds * gpus[name] for name, seconds in saved.items()) / _HOUR,
        billed_usd=None if all_usd is None or saved_usd is None else all_usd - saved_usd,
        saved_usd=saved_usd,
        stops=stops,
        stops_per_node_day=_ratio(stops, days),
        nodes_stopped_again=sum(each > 1 for each in most.values()),
        most_stops_in_a_day=max(most.values(), default=0),
        restarts_per_node_day=_ratio(whole.restarts, days),
        people_waited_seconds=whole.restarts * terms.boot,
        people_waited_seconds_per_node_day=_ratio(whole.restarts * terms.boot, days),
        suspected_wrong_stops=suspects,
        suspected_wrong_ratio=_ratio(suspects, stops),
        regret_cost_ratio=_regret_cost_ratio(policy, waits, history, terms),
    )


def _regret_cost_ratio(policy: Policy, waits: Sequence[float], history: History, terms: Terms) -> float | None:
    """What regretted stops cost, restarts and the people who wait for them, of what stops saved before a need.

    What is saved on nodes that nobody needed again makes up for nobody's waiting. Seconds are weighed by prices.
    """
    idle, prices = IdleRules() if policy.rules is None else policy.rules.idle, known_prices_of(history)
    waiting, lost, saved = pool_rules.waiting(idle, prices), 0.0, 0.0
    for stop in stops_of(history.gaps, waits, terms.restart):
        if stop.gap.needed:
            price = prices.get(stop.gap.node_id)
            rate = USUAL_USD_PER_HOUR if price is None else float(price.usd_per_hour)
            saved += rate * (stop.gap.seconds - stop.wait)
            lost += rate * terms.restart * (1 + waiting(stop.gap.node_id)) * stop.suspect(terms.regret)
    return _ratio(lost, saved)


def _live(policy: Policy, waits: Sequence[float], history: History, terms: Terms) -> float:
    """What the gaps with a known end cost with rounds and notice; a pool's own rules have their grace in the waits."""
    learned = policy.timeout == "learned" or policy.rules is not None
    grace = terms.grace if policy.rules is None else policy.rules.idle.unattended_grace_period
    stops = live_waits(history.gaps, waits, grace, learned=learned, interval=terms.interval)
    scored = [(gap, stop) for gap, stop in zip(history.gaps, stops, strict=True) if gap.needed]
    return cost([gap for gap, _ in scored], [stop for _, stop in scored], terms.restart).seconds


def _most_in_a_day(stops: Iterable[Stopped]) -> Mapping[str, int]:
    """The most stops of each node within any 24 hours; one node's come in the order of time."""
    recent, most = defaultdict[str, deque[float]](deque), defaultdict[str, int](int)
    for stop in stops:
        times = recent[stop.gap.node_id]
        times.append(stop.at)
        while times[0] <= stop.at - _DAY:
            times.popleft()
        most[stop.gap.node_id] = max(most[stop.gap.node_id], len(times))
    return most


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
