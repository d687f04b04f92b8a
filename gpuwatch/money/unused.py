"""What is billed and used by no running machine, with its price, for people and for scripts."""

import textwrap
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import TypedDict

from gpuwatch.clouds import Cloud, Leftover, LeftoverKind
from gpuwatch.clouds.silence import partial
from gpuwatch.model.currency import shown_in
from gpuwatch.model.legible import legible
from gpuwatch.model.money import dated, format_usd
from gpuwatch.model.silence import Silence
from gpuwatch.money import prices
from gpuwatch.runtime.table import aligned

_WORDS = {
    LeftoverKind.UNATTACHED_VOLUME: "volume, attached to nothing",
    LeftoverKind.STOPPED_VOLUME: "volume of the stopped {node}",
    LeftoverKind.UNUSED_ADDRESS: "address, used by nothing",
    LeftoverKind.STOPPED_ADDRESS: "address of the stopped {node}",
    LeftoverKind.SNAPSHOT: "snapshot of a volume that is gone",
    LeftoverKind.IMAGE: "image, named by no machine or template",
}
_SPARE = {5: 3, 4: 2, 2: 1}  # of a narrow terminal: names go first, then places and types
_GIB = 1024**3
_WIDTH = 80
_CENT = Decimal("0.01")


def usd_per_month(left: Leftover) -> Decimal | None:
    """The list price of a month; None is not known, never free. Only those of AWS are in the table."""
    if left.provider != "aws":
        return None
    if left.kind in {LeftoverKind.UNUSED_ADDRESS, LeftoverKind.STOPPED_ADDRESS}:
        return prices.address_usd_per_month()
    # What a snapshot or an image holds is less than the volumes that it makes.
    if left.size_bytes is None or left.kind in {LeftoverKind.SNAPSHOT, LeftoverKind.IMAGE}:
        return None
    return prices.volume_usd_per_month(
        left.type, size_bytes=left.size_bytes, iops=left.iops, bytes_per_second=left.throughput_bytes_per_second
    )


class UnusedRow(TypedDict):
    """Something left over. `node_id` is the stopped machine that it belongs to; null where it belongs to none."""

    id: str
    kind: LeftoverKind
    name: str
    type: str | None
    size_bytes: int | None
    node_id: str | None
    region: str
    account: str | None
    cloud: str | None
    usd_per_month: str | None


class SilentRow(TypedDict):
    """A place that gave no answer, so that the list lacks what is there; `where` is null for a cloud as a whole."""

    cloud: str | None
    where: str | None
    reason: str


class UnusedDocument(TypedDict):
    """What costs money and serves no running machine; `usd_per_month` is the sum of the known list prices.

    `silent` are the places that the list lacks.
    """

    unused: list[UnusedRow]
    silent: list[SilentRow]
    usd_per_month: str
    prices_as_of: date
    prices_age_days: int
    prices_source: str


def listed(cloud: Cloud) -> tuple[Sequence[Leftover], list[Silence]]:
    """What is left over in all places that answer, and those that do not.

    Raises:
        CloudError: none answers.

    """
    with partial() as silent:
        return cloud.leftovers(), silent


def as_object(found: Sequence[Leftover], silent: Sequence[Silence] = (), *, today: date) -> UnusedDocument:
    """Everything, with the prices as texts, which lose nothing."""
    rows: list[UnusedRow] = [
        {
            "id": left.id,
            "kind": left.kind,
            "name": left.name,
            "type": left.type or None,
            "size_bytes": left.size_bytes,
            "node_id": left.node_id,
            "region": left.region,
            "account": left.account,
            "cloud": left.cloud or None,
            "usd_per_month": None if usd is None else str(usd.quantize(_CENT)),
        }
        for left in found
        for usd in [usd_per_month(left)]
    ]
    return {
        "unused": rows,
        "silent": [
            {"cloud": each.cloud or None, "where": each.where or None, "reason": each.reason} for each in silent
        ],
        "usd_per_month": str(_sum(found).quantize(_CENT)),
        "prices_as_of": prices.STORAGE_AS_OF,
        "prices_age_days": (today - prices.STORAGE_AS_OF).days,
        "prices_source": prices.STORAGE_SOURCE,
    }


def as_text(found: Sequence[Leftover], silent: Sequence[Silence] = (), *, today: date) -> str:
    """The dearest first, and the sum; then what the list lacks."""
    lacks = [f"Warning: no answer from {each.name} ({each.reason}): the list lacks what is there." for each in silent]
    return "\n".join([_text(found, today, whole=not silent), *map(legible, lacks)])


def _text(found: Sequence[Leftover], today: date, *, whole: bool) -> str:
    if not found and not whole:
        return "Nothing is left over where there was an answer."
    if not found:
        return "Nothing is left over: every volume and every address belongs to a machine that runs."
    dearest = sorted(found, key=lambda left: (-(usd_per_month(left) or 0), left.id))
    heads = (f"{shown_in().head}/MONTH", "ID", "TYPE", "WHAT", "WHERE", "NAME")
    lines = aligned([heads, *map(_row, dearest)], left=range(1, 6), spare=_SPARE)
    unknown = sum(usd_per_month(left) is None for left in found)
    more = f", and {unknown} without a known price" if unknown else ""
    lines.append(f"{len(found)} left over, {format_usd(_sum(found))} a month{more}.")
    lines += textwrap.wrap(f"Prices of {dated(prices.STORAGE_AS_OF, today)}: {prices.STORAGE_SOURCE}.", _WIDTH)
    lines += filter(None, [shown_in().note])
    return "\n".join(lines)


def _row(left: Leftover) -> tuple[str, ...]:
    size = "" if left.size_bytes is None else f" {left.size_bytes // _GIB} GiB"
    what = _WORDS[left.kind].format(node=left.node_id)
    where = " ".join(filter(None, (left.region, left.account)))
    return (format_usd(usd_per_month(left), "?"), left.id, f"{left.type}{size}", what, where, left.name)


def _sum(found: Sequence[Leftover]) -> Decimal:
    """The sum of known prices."""
    return sum((usd_per_month(left) or Decimal(0) for left in found), Decimal(0))
