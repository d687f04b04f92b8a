"""What `gpuwatch recommend rightsize` says: machines larger than their use on record, and dollars of little use."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.fleet import Fleet
from gpuwatch.model.money import committed_ratio, format_usd
from gpuwatch.money.accounting.scope import counted_nodes
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.advice import rightsizing
from gpuwatch.money.advice.efficiency import (
    BELOW,
    BELOW_POWER,
    BusyHours,
    LowUse,
    by_owner_and_job,
    by_power,
    power_limits,
)
from gpuwatch.money.advice.rightsizing import Sizing
from gpuwatch.money.prices import catalogue
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.table import align_rows

_MOST_ROWS = 20
_MOST_ROUNDS = 1000  # of a large fleet each takes tens of milliseconds to read


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsizingReport:
    """The advice, from `rounds` of the `rounds_kept` whole rounds between the first and the last one.

    `low_use` is busy time by the activity of multiprocessors in these rounds, below `below_ratio`; `low_power` is that
    by the energy of all metered hours, below `below_power_ratio` of a model's rated power.
    """

    over_seconds: float
    nodes: int
    rounds: int
    rounds_kept: int
    first_round: datetime
    last_round: datetime
    advice: tuple[Sizing, ...]
    below_ratio: float
    low_use: tuple[LowUse, ...]
    below_power_ratio: float
    low_power: tuple[LowUse, ...]


def make_report(
    settings: LedgerSettings, clock: Clock, over_seconds: float, providers: Sequence[str]
) -> RightsizingReport:
    """What the rounds of that time say; machine types of these clouds are compared.

    Raises:
        LedgerError: the ledger cannot be read, or keeps no round of that time whole.

    """
    over, now = timedelta(seconds=over_seconds), clock.now()
    ledger = Ledger.connect(settings, read_only=True)
    try:
        kept = ledger.whole_rounds(now - over, now)
        if not kept:
            raise LedgerError(
                f"{settings.place} keeps no round of the last {format_duration(over_seconds)} whole "
                "(ledger.retention, ledger.quiet_round_retention); let `gpuwatch controller` run"
            )
        chosen = [kept[number * len(kept) // _MOST_ROUNDS] for number in range(_MOST_ROUNDS)] if _many(kept) else kept
        chosen = [*chosen[:-1], kept[-1]]
        busy = BusyHours()
        limits: dict[str, float] = {}
        pasts = rightsizing.see_rounds(_fleets(ledger, chosen, busy, limits))
        newest = ledger.round(kept[-1][0]).observation
        since, until = (int(at.timestamp()) for at in (now - over, now))
        metered = SpendBook(ledger).rows(since, until, by_node=True, by_time=True)
    finally:
        ledger.close()
    listed = (each for provider in dict.fromkeys(providers) for each in catalogue.offers(provider=provider))
    offers = [each for each in listed if each.capacity_type == "on_demand"]
    usd = {offer.instance_type: offer.price_per_hour for offer in offers if offer.price_per_hour is not None}
    committed: dict[str, Decimal] = {}
    for node in newest.fleet.nodes:
        price = newest.price(node)
        if price is not None:
            usd[node.instance_type] = price.usd_per_hour
            committed[node.instance_type] = committed_ratio(price.source)
    return RightsizingReport(
        over_seconds=over_seconds,
        nodes=len(pasts),
        rounds=len(chosen),
        rounds_kept=len(kept),
        first_round=kept[0][1],
        last_round=kept[-1][1],
        advice=rightsizing.advice(pasts, over, offers, usd, committed),
        below_ratio=BELOW,
        low_use=by_owner_and_job(busy.sums),
        below_power_ratio=BELOW_POWER,
        low_power=by_power(metered, {each.instance_type: each.gpu_model for each in offers}, limits=limits),
    )


def _many(kept: Sequence[object]) -> bool:
    return len(kept) > _MOST_ROUNDS


def _fleets(
    ledger: Ledger, rounds: Sequence[tuple[int, datetime]], busy: BusyHours, limits: dict[str, float]
) -> Iterator[tuple[datetime, Fleet]]:
    """The fleets of rounds; busy hours and limits of power are gathered on the way, so that each round is read once."""
    for round_id, at in rounds:
        seen = ledger.round(round_id).observation
        prices = {node.id: price.usd_per_hour for node in seen.fleet.nodes if (price := seen.price(node)) is not None}
        busy.see(at, replace(seen.fleet, nodes=tuple(counted_nodes(seen.fleet))), prices)
        limits.update(power_limits(seen.fleet, limits))
        yield at, seen.fleet


def as_text(found: RightsizingReport) -> str:
    """Return what was found as text for people."""
    return "\n".join(map(legible, _lines(found)))


def _lines(found: RightsizingReport) -> Iterator[str]:
    advised = [each for each in found.advice if each.kind != "unknown"]
    for each in advised:
        saved = "" if each.usd_per_month is None else f" (saves {format_usd(each.usd_per_month)} a month)"
        if each.usd_shared_per_month is not None:
            free = format_usd(each.usd_shared_per_month)
            saved = f" ({free} a month of this GPU would be free for others; without them it saves nothing)"
        yield f"{each.name} ({each.instance_type}, pool {each.pool}): {each.sentence}{saved}."
    if not advised:
        yield "No machine is larger than what was measured on it."
    unknown = [each for each in found.advice if each.kind == "unknown"]
    if unknown:
        yield ""
        for each in unknown:
            yield f"{each.name}: {each.sentence}."
    yield from _low(found.low_use, f"below {found.below_ratio:.0%} of the multiprocessors, by rounds")
    yield from _low(found.low_power, f"below {found.below_power_ratio:.0%} of the rated power, by metered energy")
    yield ""
    yield (
        f"From {found.rounds} of {found.rounds_kept} whole rounds between {format_time(found.first_round)} and "
        f"{format_time(found.last_round)}, {found.nodes} running machines, for what was unused for "
        f"{format_duration(found.over_seconds)}. docs/advice.md says how."
    )


def _low(found: Sequence[LowUse], measure: str) -> Iterator[str]:
    """A table of busy hours with little use; no line where nothing was busy."""
    if not found:
        return
    shown = [*found[:_MOST_ROWS]]
    yield ""
    yield f"Busy GPU-hours {measure} (idle time is waste, and in `gpuwatch cost`):"
    heads = ("owner", "job", "busy h", "low h", "not known h", "busy", "low", "not known")
    rows = [
        (
            each.owner,
            each.job or "all",
            *(f"{hours:,.1f}" for hours in (each.gpu_hours_busy, each.gpu_hours_low, each.gpu_hours_unknown)),
            *(format_usd(usd, "unknown") for usd in (each.usd_busy, each.usd_low, each.usd_unknown)),
        )
        for each in shown
    ]
    yield from align_rows([heads, *rows], left={0, 1})
    if len(found) > len(shown):
        yield f"… and {len(found) - len(shown)} smaller ones (--json)."
    if all(each.gpu_hours_unknown >= each.gpu_hours_busy for each in found):
        yield "It is not measurable here: no reading decides any of these hours."
