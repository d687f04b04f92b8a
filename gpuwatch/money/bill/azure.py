"""PURE: the lines of Azure's cost exports, actual and amortized, of enterprise and customer agreements.

Rules, by learn.microsoft.com, "Understand usage details fields" and "Amortized reservation and savings plan costs":

1. The amortized export has the rate of a reservation or a savings plan in each line that it covers, and what was not
   used as `UnusedReservation` and `UnusedSavingsPlan`. The actual one has zero there, and the purchase: what it covers
   has no known cost in it.
2. A purchase for a reservation or a plan is a fee. Refunds, taxes and rounding are kept apart.
3. A machine's time is the meter category Virtual Machines; its type stands in AdditionalInfo (ServiceType).
"""

import re
from collections.abc import Iterator
from dataclasses import replace

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
)

REQUIRED = ("chargetype", "metercategory")
_COST = ("costinbillingcurrency", "cost", "pretaxcost")
_NODE = ("resourceid", "instanceid", "instancename")
_DAY = ("date", "usagedate", "usagedatetime")
_CURRENCY = ("billingcurrency", "billingcurrencycode", "currency")
_APART = {
    "refund": REFUNDS,
    "tax": TAXES,
    "credit": CREDITS,
    "roundingadjustment": CORRECTIONS,
    "unusedreservation": UNUSED,
    "unusedsavingsplan": UNUSED,
}
_COMMITMENTS = frozenset({"reservation", "savingsplan"})
_HOURS = re.compile(r"(1 )?hours?", re.IGNORECASE)


def azure_charges(row: Row, _: LocalDay) -> Iterator[Charge]:
    """What one line says: nothing or one thing."""
    kind = row.text("chargetype").casefold().replace(" ", "")
    made = Charge(
        resource=row.text(*_NODE).rpartition("/")[2],
        day=row.time(*_DAY).date(),
        cost=row.amount(*_COST),
        currency=row.text(*_CURRENCY) or "USD",
        machine=False,
        hours=None,
        plain=False,
    )
    if kind in _APART:
        made = replace(made, kind=_APART[kind])
    elif kind == "purchase":
        made = replace(made, fee=bool(row.text("reservationid", "benefitid", "reservationname", "benefitname")))
    elif row.text("metercategory").casefold() == "virtual machines":
        made = _machine(row, made)
    else:
        made = replace(made, kind=_kind(row), plain=True)
    if made.cost or made.hours:
        yield made


def _machine(row: Row, common: Charge) -> Charge:
    """What an hour of a machine costs."""
    committed = row.text("pricingmodel").casefold().replace(" ", "") in _COMMITMENTS
    quantity, list_price = row.number("quantity", "usagequantity"), row.number("paygprice", "paygprice")
    same_money = row.text("pricingcurrency", "pricingcurrencycode") in {"", common.currency}
    known = quantity is not None and list_price is not None and same_money
    spot = row.text("pricingmodel").casefold() == "spot" or "spot" in row.text("metername").casefold()
    if common.cost < 0:
        return replace(common, kind=REFUNDS)
    return replace(
        common,
        machine=True,
        hours=quantity if _HOURS.fullmatch(row.text("unitofmeasure")) else None,
        plain=not committed,
        committed=committed,
        amortized=not committed or bool(common.cost),
        list_cost=quantity * list_price if known and quantity is not None and list_price is not None else None,
        region=row.text("resourcelocation", "resourcelocationnormalized", "location").casefold().replace(" ", "")
        or None,
        instance_type=row.entries("additionalinfo").get("servicetype"),
        spot=spot,
    )


def _kind(row: Row) -> str:
    """What a line that is for no machine's time is for."""
    category, meter = row.text("metercategory").casefold(), row.text("metername").casefold()
    if category in {"bandwidth", "networking", "virtual network"}:
        return EGRESS if "data transfer out" in meter or "egress" in meter else "traffic"
    return (
        "disks" if category == "storage" and "disk" in f"{row.text('metersubcategory')} {meter}".casefold() else OTHER
    )
