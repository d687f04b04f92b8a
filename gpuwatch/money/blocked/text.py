"""What holds money back, as text for terminals and logs."""

import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from gpuwatch.guard.obstacles import IN_DOUBT, Obstacle
from gpuwatch.model.currency import display_currency
from gpuwatch.model.money import cents_of, format_usd
from gpuwatch.money.accounting.totals import round_parts
from gpuwatch.money.blocked.blocked import Blocked, Group, Money
from gpuwatch.money.blocked.obstacles import ADVICE
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.table import align_rows

_NARROWEST = 60
_MOST_NODES = 5
_MOST_PARTS = 3
_INDENT = 13
HELD_BY = "BLOCKED BY"
_PARTS = ("blocked", "blocked_soon", "on_its_way")
_GROUPS = {
    "groups": "blocked",
    "groups_soon": "blocked_soon",
    "groups_in_doubt": "in_doubt",
    "groups_foreign": "foreign",
}
NOTHING = "No running machine is idle, occupied, parked or stalled."


def as_text(found: Blocked, width: int) -> str:
    """Sums, then each group with what would free it; at most so many columns, where words permit."""
    width, found = max(width, _NARROWEST), round_money(found)
    lines = [line for sentence in sums(found) for line in textwrap.wrap(legible(sentence), width)]
    told = {group.reason for group in found.groups}
    for title, groups in (
        ("", found.groups),
        ("Idle, but not yet for long enough; when it is, this blocks the stop:", found.groups_soon),
        ("Use unknown, so it is not counted above:", found.groups_in_doubt),
        ("Not ours, so it is in no sum:", found.groups_foreign),
    ):
        if groups:
            lines += [
                "",
                *([title] if title else []),
                *_groups(groups, width, told if groups is not found.groups else set()),
            ]
    return "\n".join(lines)


def round_money(found: Blocked) -> Blocked:
    """The same in whole cents of the currency that people read: parts add up to their group, groups to their sum."""
    cent = display_currency().cent
    parts = {name: Fraction(getattr(found, name).usd_per_day) for name in _PARTS}
    whole, cents = round_parts(parts, cent)
    for name in ("in_doubt", "foreign"):
        cents[name] = cents_of(getattr(found, name).usd_per_day)
    money = {name: _in_cents(getattr(found, name), each) for name, each in cents.items()}
    groups = {field: _round_groups(getattr(found, field), cents[name]) for field, name in _GROUPS.items()}
    return replace(found, not_used=_in_cents(found.not_used, whole), **money, **groups)  # type: ignore[arg-type]  # by name


def _round_groups(groups: Sequence[Group], total: int) -> tuple[Group, ...]:
    """Groups that add up to so many cents."""
    cent = display_currency().cent
    _, cents = round_parts({group.reason: Fraction(group.money.usd_per_day) for group in groups}, cent, None, total)
    made = []
    for group in groups:
        frees = {str(at): Fraction(each.money.usd_per_day) for at, each in enumerate(group.frees)}
        _, parts = round_parts(frees, cent, None, cents[group.reason])
        freed = tuple(replace(each, money=_in_cents(each.money, parts[str(at)])) for at, each in enumerate(group.frees))
        made.append(replace(group, money=_in_cents(group.money, cents[group.reason]), frees=freed))
    return tuple(made)


def _in_cents(money: Money, cents: int) -> Money:
    return replace(money, usd_per_day=cents * display_currency().usd / 100)


def sums(found: Blocked) -> Iterator[str]:
    """The sums, a sentence each."""
    if not found.not_used.nodes:
        yield NOTHING
    else:
        yield f"Idle, occupied, parked or stalled: {amount(found.not_used)}."
        if found.blocked.nodes:
            yield f"Held back: {amount(found.blocked)}."
        if found.blocked_soon.nodes:
            yield f"Idle, but not yet for long enough; then blocked: {amount(found.blocked_soon)}."
        if found.on_its_way.nodes:
            yield f"Will be stopped: {amount(found.on_its_way)}."
    if found.in_doubt.nodes:
        yield f"Use unknown: {amount(found.in_doubt)}."
    if found.foreign.nodes:
        yield f"Not ours, without use or with an unknown use, in no other sum: {amount(found.foreign)}."
    yield from filter(None, [found.elsewhere])


def usd_text(money: Money) -> str:
    """Dollars a day; unknown where no machine has a price, more than that where some machines have no price."""
    if money.unpriced and money.unpriced == money.nodes:
        return "unknown"
    return f"{format_usd(money.usd_per_day)}{'+?' if money.unpriced else ''}"


def _sum_of(money: Money) -> str:
    """The same within a sentence."""
    text = usd_text(money)
    return "an unknown sum" if text == "unknown" else text


def amount(money: Money) -> str:
    """Dollars a day, machines, GPUs."""
    unpriced = f"; {money.unpriced} without a known price" if money.unpriced else ""
    gpus = f"{money.gpus:,} GPU{'s' if money.gpus != 1 else ''}"
    return f"{_sum_of(money)} a day ({_machines(money.nodes)}, {gpus}{unpriced})"


def _machines(count: int) -> str:
    return f"{count:,} machine{'s' if count != 1 else ''}"


def frees_text(group: Group) -> str:
    """How much the act frees by itself, and what else the rest takes."""
    if group.alone.nodes == group.money.nodes:
        return "all of it"
    parts = [f"{_sum_of(each.money)} only together with {names(each.also)}" for each in group.frees[1:]]
    more = len(parts) - _MOST_PARTS
    rest = [*parts[:_MOST_PARTS], *([f"the rest in {more} other ways"] if more > 0 else [])]
    alone = [f"{_sum_of(group.alone)} alone"] if group.alone.nodes else []
    return "; ".join([*alone, *rest])


def names(obstacles: Iterable[Obstacle]) -> str:
    """Obstacles by their names."""
    return " + ".join(ADVICE[each].name for each in obstacles)


def nodes_text(group: Group) -> str:
    """The dearest machines by name."""
    named = [each.id if each.name == each.id else f"{each.name} ({each.id})" for each in group.nodes[:_MOST_NODES]]
    more = len(group.nodes) - len(named)
    return ", ".join([*named, *([f"and {more} more"] if more else [])])


def _groups(groups: Sequence[Group], width: int, told: Collection[Obstacle]) -> Iterator[str]:
    """A line for each, and beneath it what to do about it, unless another group has said so."""
    rows = [(f"{display_currency().head}/DAY", "NODES", "GPUS", HELD_BY), *(_row(group) for group in groups)]
    head, *lines = align_rows(rows, left={3})
    yield head
    for line, group in zip(lines, groups, strict=True):
        yield line
        for word, text in _details(group, told=group.reason in told):
            first, rest = f"    {word:<{_INDENT - 4}}", " " * _INDENT
            yield from textwrap.wrap(
                legible(text), width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
            )


def _row(group: Group) -> tuple[str, str, str, str]:
    return (
        usd_text(group.money).removeprefix(display_currency().sign),
        f"{group.money.nodes:,}",
        f"{group.money.gpus:,}",
        group.name,
    )


def _details(group: Group, *, told: bool) -> Iterator[tuple[str, str]]:
    if not told:
        yield "do", group.act
    if group.reason not in IN_DOUBT and not told:
        yield "risk", group.risk
        yield "frees", frees_text(group)
    if group.doubts:
        yield "doubt", "; ".join(group.doubts)
    yield "nodes", nodes_text(group)


def observed_line(found: Blocked) -> str | None:
    """One line for the log of a controller that only observes; None: nothing to say."""
    groups = [*found.groups, *found.groups_soon]
    held = [group for group in groups if group.reason not in {Obstacle.OBSERVE, Obstacle.PAUSED}]
    if not groups:
        return None
    switch = sum((group.money.usd_per_day for group in groups if group.reason is Obstacle.OBSERVE), Decimal(0))
    saves = f"{format_usd(switch)} a day of it" if switch else "none of it"
    text = f"Observed: {amount(found.not_used)} without use. `mode: enforce` alone would save {saves}."
    if held:
        most = max(held, key=lambda group: group.money.usd_per_day)
        text += f" Most of the rest ({usd_text(most.money)} a day): {most.name}; {most.act}."
    return f"{text} `gpuwatch blocked` has all of it."
