"""PURE: the lines of AWS Cost and Usage Reports, legacy and 2.0, with what commitments change.

Rules, by docs.aws.amazon.com/cur, "Line item details", "Reservation details", "Savings Plans details":

1. `SavingsPlanCoveredUsage` costs its SavingsPlanEffectiveCost, `DiscountedUsage` its reservation's EffectiveCost; both
   net of discounts where the report has that. Their hours count. `SavingsPlanNegation` takes the list price of the
   same hours back, so it is left out.
2. What is paid for a commitment (upfront and recurring) is a fee. What was not used of it is SavingsPlans'
   TotalCommitmentToDate less UsedCommitment, and reservations' unused upfront and recurring fees.
3. Discounts (EDP, private rates, bundled) are of the price of the machine that they name. Taxes, credits and refunds
   are not.
4. Rows of split cost allocation say again, by pod, what the row of their instance has.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal

from gpuwatch.money.bill.charge import (
    CREDITS,
    DISCOUNTS,
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

REQUIRED = ("lineitemresourceid", "lineitemusagestartdate", "lineitemunblendedcost")
_MACHINE_TIME = ("BoxUsage", "SpotUsage", "DedicatedUsage", "HostBoxUsage", "Reservation:")
_UNUSED_USAGE = ("UnusedBox", "UnusedDed")  # of a capacity reservation
# Usage types of AWS that are for no machine's time, after the code of the region: what people call them. Egress is what
# leaves a region, for the Internet, another region or Direct Connect; other traffic stays in it, or comes in.
_KINDS = (
    ("Out-Bytes", EGRESS),
    ("Out-ABytes", EGRESS),
    ("Out-OBytes", EGRESS),
    ("DataXfer-Out", EGRESS),
    ("SnapshotUsage", "snapshots"),
    ("EBS:Volume", "disks"),
    ("DataTransfer", "traffic"),
    ("-Bytes", "traffic"),
    ("ElasticIP", "addresses"),
    ("PublicIPv4", "addresses"),
)
_PLAIN = frozenset({"", "Usage"})
_COMMITTED: Mapping[str, tuple[str, ...]] = {
    "SavingsPlanCoveredUsage": (
        "savingsplannetsavingsplaneffectivecost",
        "savingsplansavingsplaneffectivecost",
    ),
    "DiscountedUsage": ("reservationneteffectivecost", "reservationeffectivecost"),
}
_UNUSED_OF_RESERVATIONS = (
    ("reservationnetunusedamortizedupfrontfeeforbillingperiod", "reservationunusedamortizedupfrontfeeforbillingperiod"),
    ("reservationnetunusedrecurringfee", "reservationunusedrecurringfee"),
)
_APART = {"Tax": TAXES, "Credit": CREDITS, "Refund": REFUNDS}
_NET, _COST = "lineitemnetunblendedcost", "lineitemunblendedcost"


def kind_of_usage(usage: str) -> str:
    """What a usage type of AWS that is for no machine's time is for."""
    return next((kind for word, kind in _KINDS if word in usage), OTHER)


def is_machine_time(usage: str) -> bool:
    """Whether a usage type of AWS is for a machine's time."""
    return any(word in usage for word in _MACHINE_TIME)


def aws_charges(row: Row, local_day: LocalDay) -> Iterator[Charge]:
    """What one line says: nothing, one thing, or a fee and its unused part."""
    line, usage = row.text("lineitemlineitemtype"), row.text("lineitemusagetype")
    if line == "SavingsPlanNegation" or row.text("splitlineitemparentresourceid"):
        return
    apart = REFUNDS if row.text("billbilltype") == "Refund" else _APART.get(line)
    if apart is None and any(word in usage for word in _UNUSED_USAGE):
        apart = UNUSED
    if apart is not None:
        made = replace(_common(row, local_day, machine=False), cost=_cost(row), kind=apart, plain=False)
    elif line in {"SavingsPlanUpfrontFee", "SavingsPlanRecurringFee", "RIFee"} or (
        line == "Fee" and _has_reservation(row)
    ):
        made = replace(_common(row, local_day, machine=False), cost=_cost(row), plain=False, fee=True)
        unused = _unused_cost(row, line)
        if unused:
            yield replace(made, cost=unused, kind=UNUSED, fee=False)
    elif line == "Fee":
        made = replace(_common(row, local_day, machine=False), cost=_cost(row), plain=False)
    elif line.endswith("Discount"):
        machine = bool(row.text("lineitemresourceid")) and is_machine_time(usage)
        cost = row.amount(_NET) if row.has(_NET) else row.amount(_COST)  # where usage is net, the discount is in it
        made = replace(
            _common(row, local_day, machine=machine),
            cost=cost,
            plain=False,
            kind=DISCOUNTS,
            region=_region(row),
            instance_type=_instance_type(row, usage),
            spot="SpotUsage" in usage,
            rated=_is_rated(usage),
        )
    else:
        made = _usage(row, local_day, line, usage)
    if made.cost or made.hours:
        yield made


def _usage(row: Row, local_day: LocalDay, line: str, usage: str) -> Charge:
    """What was used, at its own rate or at that of a commitment."""
    machine = not usage or is_machine_time(usage)
    effective = row.number(*_COMMITTED[line]) if line in _COMMITTED else None
    listed = row.number("pricingpublicondemandcost")
    return replace(
        _common(row, local_day, machine=machine),
        cost=_cost(row) if effective is None else effective,
        hours=row.number("lineitemusageamount"),
        plain=line in _PLAIN,
        kind=kind_of_usage(usage),
        list_cost=row.amount(_COST) if listed is None and line == "SavingsPlanCoveredUsage" else listed,
        committed=line in _COMMITTED,
        amortized=line not in _COMMITTED or effective is not None,
        region=_region(row),
        instance_type=_instance_type(row, usage),
        spot="SpotUsage" in usage,
        rated=_is_rated(usage),
    )


def _is_rated(usage: str) -> bool:
    """Whether it is an hour of one machine: no host, no reservation."""
    return "HostBoxUsage" not in usage and ("BoxUsage" in usage or "SpotUsage" in usage)


def _common(row: Row, local_day: LocalDay, *, machine: bool) -> Charge:
    """The resource and the day of a line; only those of a machine's time must be of a day at most."""
    begin = row.time("lineitemusagestartdate")
    dated = len(row.text("lineitemusagestartdate")) <= len("2026-03-01")
    ends = bool(row.text("lineitemusageenddate"))
    end = row.time("lineitemusageenddate") if machine and ends else None
    day: date = day_of(begin, end, local_day, row.line, dated=dated)
    return Charge(
        resource=row.text("lineitemresourceid").rpartition("/")[2],
        day=day,
        cost=Decimal(0),
        currency=row.text("lineitemcurrencycode") or "USD",
        machine=machine,
        hours=None,
        plain=True,
    )


def _cost(row: Row) -> Decimal:
    return row.amount(_NET, _COST)


def _has_reservation(row: Row) -> bool:
    return bool(row.text("reservationreservationarn"))


def _unused_cost(row: Row, line: str) -> Decimal:
    """What of a commitment's fee no hour used (rule 2)."""
    if line == "RIFee":
        return sum((row.amount(*names) for names in _UNUSED_OF_RESERVATIONS), Decimal(0))
    if line == "SavingsPlanRecurringFee":
        return row.amount("savingsplantotalcommitmenttodate") - row.amount("savingsplanusedcommitment")
    return Decimal(0)


def _region(row: Row) -> str | None:
    found = row.text("productregioncode", "productregion") or _product(row, "regioncode", "region")
    zone = row.text("lineitemavailabilityzone")
    return found or (zone[:-1] if zone[-1:].isalpha() and zone[-2:-1].isdigit() else zone) or None


def _instance_type(row: Row, usage: str) -> str | None:
    found = row.text("productinstancetype") or _product(row, "instancetype")
    return found or usage.partition(":")[2] or None


def _product(row: Row, *names: str) -> str:
    """What CUR 2.0 has in its map of a product's attributes."""
    if not row.has("product"):
        return ""
    entries = row.entries("product")
    return next((entries[name] for name in names if entries.get(name)), "")
