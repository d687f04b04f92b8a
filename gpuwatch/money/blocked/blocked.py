"""PURE: the money a day that machines without use cost because a rule forbids stopping them, by what holds it.

Each machine is in one group at most, that of its first obstacle, so its money is counted once. Its other obstacles are
listed with it: an act frees the money alone, or only together with others.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

from gpuwatch.guard import Rulebook
from gpuwatch.guard.obstacles import Obstacle
from gpuwatch.model.decision import Decision, Observation, Review
from gpuwatch.model.money import price_note
from gpuwatch.money.accounting.scope import uncounted_nodes
from gpuwatch.money.blocked.obstacles import ADVICE, act_text
from gpuwatch.money.blocked.sorting import Held, held_back

_Key = TypeVar("_Key")
HOURS_A_DAY = 24
_MOST_DOUBTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """So many machines with so many GPUs, and what a day of them costs; `unpriced` of them have no known price."""

    nodes: int
    gpus: int
    usd_per_day: Decimal
    unpriced: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedNode:
    """One machine of a group. `also` is what else holds it."""

    id: str
    name: str
    pool: str
    gpus: int | None
    usd_per_day: Decimal | None
    also: tuple[Obstacle, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """A part of a group's money that comes free only if these obstacles go as well; none of them: the act is enough."""

    also: tuple[Obstacle, ...]
    money: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMoney:
    """A group's money in one pool."""

    pool: str
    money: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All that one obstacle holds back: `act` would free it, at the `risk`. The dearest machines come first.

    `frees` are the parts of it, of which the first is what the act frees alone. `doubts` are the most frequent reasons
    why the use of its machines is not known.
    """

    reason: Obstacle
    name: str
    act: str
    risk: str
    money: Money
    frees: tuple[Together, ...]
    pools: tuple[PoolMoney, ...]
    nodes: tuple[BlockedNode, ...]
    doubts: tuple[str, ...] = ()

    @property
    def alone(self) -> Money:
        """What the act frees if nothing else is done."""
        return self.frees[0].money


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """What machines without use cost a day at that time, and what happens to it.

    `not_used` = `blocked` + `blocked_soon` + `on_its_way`, in dollars and in machines. `blocked` is held by `groups`.
    What is `blocked_soon` has not been without use for as long as its pool waits, and would then be held
    (`groups_soon`). `on_its_way` waits and nothing blocks it, or its notice or stop is under way. What is
    `in_doubt` may be in use (`groups_in_doubt`) and is in no other sum. Nor is `foreign` (`groups_foreign`): machines
    that are not ours and not known to be busy. `elsewhere` says where prices are of another region.
    """

    at: datetime
    mode: str
    not_used: Money
    blocked: Money
    blocked_soon: Money
    on_its_way: Money
    in_doubt: Money
    foreign: Money
    groups: tuple[Group, ...]
    groups_soon: tuple[Group, ...]
    groups_in_doubt: tuple[Group, ...]
    groups_foreign: tuple[Group, ...]
    elsewhere: str | None = None


def blocked_money(
    observation: Observation,
    decisions: Sequence[Decision],
    reviews: Sequence[Review],
    rules: Rulebook,
    *,
    pool: str | None = None,
) -> Blocked:
    """Of one round, under the rules that it was decided by; of one pool, if one is named."""
    machines, left_out = held_back(observation, decisions, reviews, rules), uncounted_nodes(observation.fleet)
    asked = tuple(each for each in machines if pool in {None, each.node.pool})
    found = tuple(each for each in asked if each.node.id not in left_out)
    foreign = [each for each in asked if each.node.id in left_out and each.obstacles]
    doubted = [each for each in found if each.in_doubt]
    known = [each for each in found if not each.in_doubt]
    held = [each for each in known if each.obstacles and not each.waits]
    soon = [each for each in known if each.obstacles and each.waits]
    return Blocked(
        at=observation.now,
        mode="enforce" if rules.enforce else "observe",
        not_used=_money(known),
        blocked=_money(held),
        blocked_soon=_money(soon),
        on_its_way=_money(each for each in known if not each.obstacles),
        in_doubt=_money(doubted),
        foreign=_money(foreign),
        groups=_groups(held),
        groups_soon=_groups(soon),
        groups_in_doubt=_groups(doubted),
        groups_foreign=_groups(foreign),
        elsewhere=price_note(each.price_source for each in found),
    )


def _money(found: Iterable[Held]) -> Money:
    machines = tuple(found)
    usd = [each.usd_per_hour for each in machines]
    return Money(
        nodes=len(machines),
        gpus=sum(each.node.known_gpus for each in machines),
        usd_per_day=HOURS_A_DAY * sum((each for each in usd if each is not None), Decimal(0)),
        unpriced=usd.count(None),
    )


def _groups(found: Iterable[Held]) -> tuple[Group, ...]:
    """By the first obstacle, the dearest first."""
    parts = _group_by(found, lambda each: each.obstacles[0])
    return tuple(sorted((_group(*each) for each in parts.items()), key=lambda each: _dearest(each.money, each.reason)))


def _group(reason: Obstacle, machines: list[Held]) -> Group:
    pools = [
        PoolMoney(pool=pool, money=_money(part))
        for pool, part in _group_by(machines, lambda each: each.node.pool).items()
    ]
    pools.sort(key=lambda each: _dearest(each.money, each.pool))
    others = _group_by(machines, lambda each: each.obstacles[1:])
    alone = Together(also=(), money=_money(others.pop((), [])))
    frees = [Together(also=also, money=_money(part)) for also, part in others.items()]
    frees.sort(key=lambda each: _dearest(each.money, "".join(each.also)))
    doubts = _group_by((each for each in machines if each.doubt is not None), lambda each: each.doubt or "")
    often = sorted(doubts, key=lambda each: (-len(doubts[each]), each))
    advice = ADVICE[reason]
    return Group(
        reason=reason,
        name=advice.name,
        act=act_text(reason, [each.pool for each in pools]),
        risk=advice.risk,
        money=_money(machines),
        frees=(alone, *frees),
        pools=tuple(pools),
        nodes=tuple(
            _node(each) for each in sorted(machines, key=lambda each: (-(each.usd_per_hour or 0), each.node.id))
        ),
        doubts=tuple(often[:_MOST_DOUBTS]),
    )


def _node(each: Held) -> BlockedNode:
    node, usd = each.node, each.usd_per_hour
    return BlockedNode(
        id=node.id,
        name=node.name,
        pool=node.pool,
        gpus=node.gpu_count,
        usd_per_day=None if usd is None else HOURS_A_DAY * usd,
        also=each.obstacles[1:],
    )


def _dearest(money: Money, name: str) -> tuple[Decimal, int, str]:
    return -money.usd_per_day, -money.nodes, name


def _group_by(found: Iterable[Held], key: Callable[[Held], _Key]) -> dict[_Key, list[Held]]:
    parts: dict[_Key, list[Held]] = {}
    for each in found:
        parts.setdefault(key(each), []).append(each)
    return parts
