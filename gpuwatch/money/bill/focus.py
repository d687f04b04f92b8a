"""PURE: the lines of a bill in FOCUS columns, versions 1.0 to 1.2 and those that only add to them: of any cloud.

Rules, by focus.finops.org ("Charge Category", "Charge Class", "Commitment Discount Status", "Effective Cost"):

1. Usage costs its EffectiveCost; ListCost stands next to it. Without an EffectiveCost what a commitment covers has no
   known cost, which the output says.
2. `Unused` usage is no machine's. A purchase with a CommitmentDiscountId is a fee: its hours carry it.
3. Corrections of earlier periods, credits, adjustments, taxes and refunds within the period (usage below zero) are kept
   apart: they are no price.
4. Where the pricing currency is US dollars and the billing currency is not, the dollars of the row hold, at no rate of
   ours.
5. A machine's time is what an instance is charged by the hour, or by the second. Where the unit is of one machine's
   hours, they count, by the quantity that is priced: what covers half an hour is priced as half an hour.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

from gpuwatch.money.bill.aws import is_machine_time, kind_of_usage
from gpuwatch.money.bill.charge import (
    CORRECTIONS,
    CREDITS,
    EGRESS,
    OTHER,
    REFUNDS,
    TAXES,
    UNUSED,
    Charge,
    LocalDay,
    Row,
    day_of,
)

REQUIRED = ("billedcost", "chargeperiodstart", "chargecategory")
_APART = {"Tax": TAXES, "Credit": CREDITS, "Adjustment": CORRECTIONS}
_INSTANCE = re.compile(
    r"(^|[:/])(instance|instances|virtualmachines|virtualmachine)[/:]|^i-[0-9a-f]+$|/virtualmachinescalesets/",
    re.IGNORECASE,
)
_INSTANCE_TYPES = ("instance", "virtual machine", "virtualmachine")
_HOURS = re.compile(r"^(1 )?(hour|hours|hrs|hr|instance-hours?)$", re.IGNORECASE)
_SECONDS = re.compile(r"^(1 )?(second|seconds)$", re.IGNORECASE)
_TIME = re.compile(r"hour|hrs|second", re.IGNORECASE)
_PARTS = re.compile(r"\b(core|ram|cpu|memory|vcpu|gpu)\b", re.IGNORECASE)  # Google charges for the parts of a machine
_BY_SERVICE = (("networking", "traffic"), ("block storage", "disks"), ("file storage", "disks"))


def focus_charges(row: Row, local_day: LocalDay) -> Iterator[Charge]:
    """What one line says: nothing or one thing."""
    category = row.text("chargecategory")
    made = _common(row, local_day)
    if row.text("chargeclass") == "Correction":
        made = replace(made, kind=CORRECTIONS)
    elif category in _APART:
        made = replace(made, kind=_APART[category])
    elif category == "Purchase":
        fee = bool(row.text("commitmentdiscountid"))
        made = replace(made, fee=fee, cost=row.amount("billedcost") if fee else made.cost)
    elif row.text("commitmentdiscountstatus") == "Unused":
        made = replace(made, kind=UNUSED)
    else:
        made = _usage(row, local_day, made)
    if made.cost or made.hours:
        yield made


def _common(row: Row, local_day: LocalDay) -> Charge:
    """A line that is of no machine's time."""
    begin = row.time("chargeperiodstart")
    dollars = _dollars(row)
    return Charge(
        resource=row.text("resourceid").rpartition("/")[2],
        day=day_of(begin, None, local_day, row.line, dated=True),
        cost=row.amount("effectivecost", "billedcost") if dollars is None else dollars,
        currency="USD" if dollars is not None else row.text("billingcurrency") or "USD",
        machine=False,
        hours=None,
        plain=False,
        kind=OTHER,
    )


def _usage(row: Row, local_day: LocalDay, common: Charge) -> Charge:
    """What was used, and whether a commitment covers it."""
    committed = bool(row.text("commitmentdiscountstatus", "commitmentdiscountid"))
    effective = row.number("effectivecost")
    machine = _is_machine(row)
    if machine is False:
        return replace(common, kind=_kind(row), plain=not committed)
    if common.cost < 0:
        return replace(common, kind=REFUNDS)
    begin, end = row.time("chargeperiodstart"), row.text("chargeperiodend")
    until = row.time("chargeperiodend") if end else None
    dated = len(row.text("chargeperiodstart")) <= len("2026-03-01")
    return replace(
        common,
        day=day_of(begin, until, local_day, row.line, dated=dated),
        machine=machine,
        hours=_hours(row),
        plain=not committed,
        list_cost=_list_cost(row, common.cost),
        committed=committed,
        amortized=not committed or effective is not None,
        region=row.text("regionid") or _region_of(row.text("availabilityzone")),
        instance_type=_instance_type(row),
        spot=row.text("pricingcategory") == "Dynamic" or "SpotUsage" in row.text("xusagetype"),
    )


def _dollars(row: Row) -> Decimal | None:
    """What it costs in US dollars by the row itself (rule 4); None: it does not say."""
    if row.text("billingcurrency") == "USD" or row.text("pricingcurrency") != "USD":
        return None
    return row.number("pricingcurrencyeffectivecost")


def _list_cost(row: Row, cost: Decimal) -> Decimal | None:
    """The list price, in the currency of `cost`; None: it is not known."""
    listed, effective = row.number("listcost"), row.number("effectivecost")
    if _dollars(row) is None or listed is None:
        return listed
    return listed * cost / effective if effective else None


def _is_machine(row: Row) -> bool | None:
    """Whether it is a machine's time (rule 5); None: it is, if the ledger knows its resource as a machine."""
    if row.has("xusagetype") and row.text("xusagetype"):
        return is_machine_time(row.text("xusagetype"))
    kind, resource = row.text("resourcetype").casefold(), row.text("resourceid")
    known = any(word in kind for word in _INSTANCE_TYPES) or bool(_INSTANCE.search(resource))
    category = row.text("servicecategory").casefold()
    unit = row.text("pricingunit", "consumedunit")
    if category not in {"", "compute", "ai and machine learning"} or (unit and not _TIME.search(unit)):
        return False
    return True if known else None


def _hours(row: Row) -> Decimal | None:
    """The hours of a machine; None: it is charged by its parts, or in another unit."""
    if _PARTS.search(row.text("skumeter")) or _PARTS.search(row.text("chargedescription")):
        return None
    for quantity, unit in (("pricingquantity", "pricingunit"), ("consumedquantity", "consumedunit")):
        number, written = row.number(quantity), row.text(unit)
        if number is not None and _HOURS.match(written):
            return number
        if number is not None and _SECONDS.match(written):
            return number / 3600
    return None


def _kind(row: Row) -> str:
    """What a line that is for no machine's time is for."""
    usage = row.text("xusagetype")
    if usage:
        return kind_of_usage(usage)
    service = f"{row.text('servicecategory')} {row.text('servicesubcategory')}".casefold()
    text = f"{row.text('chargedescription')} {row.text('skumeter')}".casefold()
    if "data transfer out" in text or "egress" in text:
        return EGRESS
    return next((kind for word, kind in _BY_SERVICE if word in service), OTHER)


def _instance_type(row: Row) -> str | None:
    """The machine's type, where the version, or the cloud's own columns, have one."""
    for column in ("skupricedetails", "xskudetails", "xserviceattributes"):
        entries = row.entries(column)
        for name in ("instancetype", "xinstancetype", "servicetype", "vmsize", "machinespec"):
            if entries.get(name):
                return entries[name]
    named = row.text("xinstancetype", "xskuinstancetype", "xmachinetype")
    return named or row.text("xusagetype").partition(":")[2] or None


def _region_of(zone: str) -> str | None:
    return re.sub(r"(?<=\d)[a-z]$|-[a-z0-9]$", "", zone) or None
