"""What `gpuwatch recommend rightsize` says: machines larger than what their rounds on record show."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.fleet import Fleet
from gpuwatch.model.money import format_usd
from gpuwatch.money.advice import rightsizing
from gpuwatch.money.advice.rightsizing import Sizing
from gpuwatch.money.prices import catalogue
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.printable import legible

_MOST_ROUNDS = 1000  # of a large fleet each takes tens of milliseconds to read


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsizingReport:
    """The advice, from `rounds` of the `rounds_kept` whole rounds between the first and the last one."""

    over_seconds: float
    nodes: int
    rounds: int
    rounds_kept: int
    first_round: datetime
    last_round: datetime
    advice: tuple[Sizing, ...]


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
        pasts = rightsizing.see_rounds(_fleets(ledger, chosen))
        newest = ledger.round(kept[-1][0]).observation
    finally:
        ledger.close()
    listed = (each for provider in dict.fromkeys(providers) for each in catalogue.offers(provider=provider))
    offers = [each for each in listed if each.capacity_type == "on_demand"]
    usd = {offer.instance_type: offer.price_per_hour for offer in offers if offer.price_per_hour is not None}
    for node in newest.fleet.nodes:
        price = newest.price(node)
        if price is not None:
            usd[node.instance_type] = price.usd_per_hour
    return RightsizingReport(
        over_seconds=over_seconds,
        nodes=len(pasts),
        rounds=len(chosen),
        rounds_kept=len(kept),
        first_round=kept[0][1],
        last_round=kept[-1][1],
        advice=rightsizing.advice(pasts, over, offers, usd),
    )


def _many(kept: Sequence[object]) -> bool:
    return len(kept) > _MOST_ROUNDS


def _fleets(ledger: Ledger, rounds: Sequence[tuple[int, datetime]]) -> Iterator[tuple[datetime, Fleet]]:
    for round_id, at in rounds:
        yield at, ledger.round(round_id).observation.fleet


def as_text(found: RightsizingReport) -> str:
    """Return what was found as text for people."""
    return "\n".join(map(legible, _lines(found)))


def _lines(found: RightsizingReport) -> Iterator[str]:
    advised = [each for each in found.advice if each.kind != "unknown"]
    for each in advised:
        saved = "" if each.usd_per_month is None else f" (saves {format_usd(each.usd_per_month)} a month at list price)"
        yield f"{each.name} ({each.instance_type}, pool {each.pool}): {each.sentence}{saved}."
    if not advised:
        yield "No machine is larger than what was measured on it."
    unknown = [each for each in found.advice if each.kind == "unknown"]
    if unknown:
        yield ""
        for each in unknown:
            yield f"{each.name}: {each.sentence}."
    yield ""
    yield (
        f"From {found.rounds} of {found.rounds_kept} whole rounds between {format_time(found.first_round)} and "
        f"{format_time(found.last_round)}, {found.nodes} running machines, for what was unused for "
        f"{format_duration(found.over_seconds)}. docs/advice.md says how."
    )
