"""PURE: the lines of Google Cloud's detailed billing export: rows of BigQuery as JSON lines, or as CSV with flat names.

Rules, by cloud.google.com/billing, "Structure of detailed data export":

1. A line costs `cost` and its credits that are part of the price: committed and sustained use, negotiated discounts,
   resellers' margins. Promotions and free tiers are credits, and no price.
2. Commitments for resources are charged apart ("Commitment v1: …"), and what they cover is credited in full. The fees
   of a region are divided over what was credited there: no export says how much of a commitment was not used.
3. A machine is charged by its parts: processors, memory, GPUs, each a line. Their costs are the machine's; its hours
   are those of its processors, divided by how many it has (system_labels).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal

from gpuwatch.money.bill.charge import (
    CORRECTIONS,
    CREDITS,
    EGRESS,
    OTHER,
    REFUNDS,
    TAXES,
    Charge,
    LocalDay,
    Row,
    as_number,
    day_of,
)

REQUIRED = ("usagestarttime", "skudescription", "cost")
_NO_PRICE = frozenset({"PROMOTION", "FREE_TIER"})
_COMMITMENT = frozenset({"COMMITTED_USAGE_DISCOUNT", "COMMITTED_USAGE_DISCOUNT_DOLLAR_BASE"})
_APART = {"tax": TAXES, "adjustment": CORRECTIONS, "rounding_error": CORRECTIONS}
_FEE = re.compile(r"^commitment\b", re.IGNORECASE)
_PROCESSORS = re.compile(
    r"\b(instance core|custom instance core|predefined instance core|core running)\b", re.IGNORECASE
)
_PART = re.compile(r"\b(core|ram|gpu|accelerator)\b|tpu|nvidia", re.IGNORECASE)
_OTHER_PARTS = re.compile(r"\b(egress|network|disk|pd capacity|snapshot|image|ip)\b", re.IGNORECASE)
_MACHINE_HOSTS = "compute.googleapis.com"


def google_charges(row: Row, local_day: LocalDay) -> Iterator[Charge]:
    """What one line says: nothing, one thing, or that and the credits that are no price."""
    begin = row.time("usagestarttime")
    made = Charge(
        resource=row.text("resourceglobalname", "resourcename").rpartition("/")[2],
        day=begin.date(),
        cost=row.amount("cost"),
        currency=row.text("currency") or "USD",
        machine=False,
        hours=None,
        plain=False,
        region=row.text("locationregion") or None,
    )
    cost_type, item = row.text("costtype"), row.text("skudescription")
    given_back = _credits(row)
    given = sum((amount for kind, amount in given_back if kind in _NO_PRICE), Decimal(0))
    if given:
        yield replace(made, cost=given, kind=CREDITS)
    price = made.cost + sum((amount for kind, amount in given_back if kind not in _NO_PRICE), Decimal(0))
    if cost_type in _APART:
        made = replace(made, kind=_APART[cost_type])
    elif _FEE.match(item):
        made = replace(made, cost=price, fee=True)
    elif not _is_machine(row, item):
        made = replace(made, cost=price, kind=_kind(item), plain=True)
    elif made.cost < 0:
        made = replace(made, kind=REFUNDS)
    else:
        made = _machine(row, made, price, given_back, local_day)
    if made.cost or made.hours or made.commitment_credit:
        yield made


def _machine(
    row: Row, common: Charge, price: Decimal, given_back: list[tuple[str, Decimal]], local_day: LocalDay
) -> Charge:
    """What a part of a machine costs in an hour."""
    committed = -sum((amount for kind, amount in given_back if kind in _COMMITMENT), Decimal(0))
    labels = row.entries("systemlabels")
    end = row.text("usageendtime")
    dated = len(row.text("usagestarttime")) <= len("2026-03-01")
    begin, until = row.time("usagestarttime"), row.time("usageendtime") if end else None
    spec = labels.get("computegoogleapiscommachinespec")
    item = row.text("skudescription")
    return replace(
        common,
        day=day_of(begin, until, local_day, row.line, dated=dated),
        cost=price,
        machine=True,
        hours=_hours(row, labels, item),
        plain=not given_back,
        committed=committed > 0,
        commitment_credit=max(committed, Decimal(0)),
        list_cost=row.number("costatlist") or common.cost,
        instance_type=spec,
        spot=bool(re.search(r"\b(spot|preemptible)\b", item, re.IGNORECASE)),
        rated=spec is None or not spec.startswith(("n1-", "custom-")),  # any number of GPUs may be attached to these
    )


def _is_machine(row: Row, item: str) -> bool:
    service = row.text("servicedescription")
    return service in {"", "Compute Engine"} and bool(_PART.search(item)) and not _OTHER_PARTS.search(item)


def _hours(row: Row, labels: Mapping[str, str], item: str) -> Decimal | None:
    """The machine's hours, by its processors; None: it is another part, or nobody says how many it has."""
    cores, amount = labels.get("computegoogleapiscomcores"), row.number("usageamountinpricingunits")
    if amount is None or not cores or not _PROCESSORS.search(item) or row.text("usagepricingunit") != "hour":
        return None
    count = as_number(cores, "system_labels", row.line)
    return amount / count if count > 0 else None


def _credits(row: Row) -> list[tuple[str, Decimal]]:
    """The credits of a line: type and amount."""
    found = row.json("credits")
    entries = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    return [
        (str(each.get("type") or ""), as_number(str(each.get("amount") or "0"), "credits", row.line))
        for each in entries
    ]


def _kind(item: str) -> str:
    """What a line that is for no machine's time is for."""
    text = item.casefold()
    if "egress" in text or "data transfer out" in text:
        return EGRESS
    pairs = (("snapshot", "snapshots"), ("pd capacity", "disks"), ("disk", "disks"), ("network", "traffic"))
    return next((kind for word, kind in pairs if word in text), "addresses" if " ip " in f" {text} " else OTHER)
