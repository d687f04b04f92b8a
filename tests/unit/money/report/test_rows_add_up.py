"""What is printed adds up as it is printed: whoever sums the cells of a column gets the cell of the sum."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.guard import Limits
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.currency import Currency, show_in
from gpuwatch.model.money import Price
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.savings import Saved, Saving
from gpuwatch.money.accounting.settings import CostSettings, EnergySettings
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.bill.by_cloud import as_lines
from gpuwatch.money.bill.charge import KINDS
from gpuwatch.money.bill.reconcile import Bill
from gpuwatch.money.blocked.text import as_text as blocked_text
from gpuwatch.money.report.blocks import Table
from gpuwatch.money.report.cost import as_text, cost_document, cost_report
from gpuwatch.money.report.gather import gather_report
from gpuwatch.money.report.money_sections import saved_parts, storage
from gpuwatch.money.report.period import period_of
from gpuwatch.money.report.sections import sections
from gpuwatch.money.unused import as_text as unused_text
from gpuwatch.money.unused import by_kind, unused_document
from tests.support.builders.blocked import blocked_of
from tests.support.builders.fleet import NOW, RULES, Desk, a_node, a_verdict, an_observation
from tests.support.nightly import examples

ZONE, RULE = ZoneInfo("UTC"), Metering(zone=ZoneInfo("UTC"), silent_after_seconds=1e6)
STATES = (State.BUSY, State.IDLE, State.PARKED, State.UNKNOWN)
NUMBER = re.compile(r"-?[^\d\s-]{0,4}(\d[\d,]*(?:\.\d+)?)(?:\+\?)?")
FEW = settings(max_examples=examples(25), deadline=None)
currencies = st.sampled_from(
    [Currency(), Currency(code="CNY", usd=Decimal("0.138")), Currency(code="EUR", usd=Decimal("1.0837"))]
)
prices = st.decimals("0.0001", "98.32", places=6)


def number(cell: str) -> Decimal:
    """A cell as people read it: `$1,234.50+?`, `¥0.12`, `-3.4`."""
    found = NUMBER.fullmatch(cell)
    assert found, cell
    amount = Decimal(found[1].replace(",", ""))
    return -amount if cell.startswith("-") else amount


def columns_that_do_not_add_up(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> list[str]:
    """Of rows of which the last is the others' sum; shares, and cells without a number, are no sum."""
    wrong = []
    for at, head in enumerate(heads):
        column = [row[at] for row in rows]
        if not at or any("%" in cell for cell in column) or not NUMBER.fullmatch(column[-1]):
            continue
        parts = [number(cell) for cell in column[:-1] if NUMBER.fullmatch(cell)]
        if sum(parts, Decimal(0)) != number(column[-1]):
            wrong.append(f"{head}: {column}")
    return wrong


def in_cells(lines: Sequence[str], head: str) -> tuple[list[list[str]], list[str]]:
    """The rows of a table of a terminal, up to the row `all`, and its heads."""
    first = next(at for at, line in enumerate(lines) if line.startswith(head))
    last = next(at for at, line in enumerate(lines) if at > first and line.startswith("all "))
    made = [re.split(r"\s{2,}", line.strip()) for line in lines[first : last + 1]]
    return made[1:], made[0]


def a_ledger(billed: Sequence[tuple[Decimal, int, State]]) -> Ledger:
    """Machines of three pools and owners, each for so many minutes in one state, at a price of its own."""
    ledger = Ledger.in_memory()
    spend = SpendBook(ledger)
    for minutes in (0, *sorted({each[1] for each in billed})):
        at = NOW + timedelta(minutes=minutes)
        nodes, kinds = [], {}
        for number_, (usd, runs, state) in enumerate(billed):
            if runs < minutes:
                continue
            kind = f"t{number_}"
            kinds[kind] = Price(usd_per_hour=usd, as_of=NOW.date(), source="a list")
            node = a_node(
                f"i-{number_}", state, 9e6, instance_type=kind, pool=f"p{number_ % 3}", owner=f"o{number_ % 4}"
            )
            verdict = a_verdict(node.id, state, 9e6, at=at, age=0.0)
            nodes.append(replace(node, launched_at=NOW, signal=replace(node.signal, verdict=verdict)))
        spend.meter(replace(an_observation(*nodes, now=at), prices=kinds), RULE)
    return ledger


@FEW
@given(st.lists(st.tuples(prices, st.integers(1, 300), st.sampled_from(STATES)), min_size=1, max_size=14), currencies)
def test_rows_of_cost_and_report_add_up_as_printed(
    billed: Sequence[tuple[Decimal, int, State]], currency: Currency
) -> None:
    """By whatever they are sliced, in any currency; and so do the groups of the JSON."""
    show_in(currency)
    ledger = a_ledger(billed)
    period = period_of(ZONE, NOW, day=f"{NOW:%Y-%m-%d}")
    for by in ("pool", "owner", "node"):
        found = cost_report(SpendBook(ledger), period, by)
        rows, heads = in_cells(as_text(found, EnergySettings()).splitlines(), by)
        assert columns_that_do_not_add_up(rows, heads) == []
        document = cost_document(found, EnergySettings())
        for key in ("usd", "usd_wasted", "usd_unproven"):
            sums = [getattr(each, key) for each in document.groups]
            assert sum(each or 0 for each in sums) == (getattr(document.total, key) or 0)
    report = gather_report(ledger, period, NOW + timedelta(hours=6), CostSettings(), 60.0)
    for table in summed(part for section in sections(report) for part in section.parts):
        assert columns_that_do_not_add_up(table.rows, table.heads) == []
    ledger.close()


def summed(parts: Iterator[object]) -> Iterator[Table]:
    """The tables that have a sum."""
    return (part for part in parts if isinstance(part, Table) and part.summed)


@FEW
@given(
    st.dictionaries(
        st.sampled_from([f"pool-{number}" for number in range(14)]),
        st.tuples(st.integers(0, 10**9), st.fractions(-50, 5000)),
        min_size=1,
    ),
    st.lists(st.tuples(st.sampled_from(list(LeftoverKind)), st.integers(0, 2**40)), min_size=1, max_size=12),
    currencies,
)
def test_rows_of_savings_and_disks_add_up_as_printed(
    pools: dict[str, tuple[int, Fraction]], left: list[tuple[LeftoverKind, int]], currency: Currency
) -> None:
    """Hours and money, of what stops saved and of what is left over; and so do the rows of `unused` and its JSON."""
    show_in(currency)
    by_pool = {name: Saving(ms=ms, gross_usd=usd) for name, (ms, usd) in pools.items()}
    usd = sum((each.usd for each in by_pool.values()), Fraction(0))
    whole = Saving(ms=sum(each.ms for each in by_pool.values()), gross_usd=usd)
    saved = Saved(whole=whole, by_pool=by_pool, by_owner=by_pool, stops=3)
    found = [
        Leftover(
            kind=kind,
            id=f"vol-{at}",
            name="",
            type="gp3",
            region="us-east-1",
            size_bytes=size,
            iops=3000,
        )
        for at, (kind, size) in enumerate(left)
    ]
    ledger = Ledger.in_memory()
    report = gather_report(ledger, period_of(ZONE, NOW), NOW, CostSettings(), 60.0)
    ledger.close()
    report = replace(report, facts=replace(report.facts, saved=saved, storage=tuple(by_kind(found))))
    for table in summed(iter([*saved_parts(report), *storage(report)])):
        assert columns_that_do_not_add_up(table.rows, table.heads) == []
    document = unused_document(found, today=date(2026, 3, 2))
    assert sum(each.usd_per_month or 0 for each in document.unused) == document.usd_per_month
    assert sum(each.usd_per_month or 0 for each in document.in_use) == document.in_use_usd_per_month
    text = unused_text(found, today=date(2026, 3, 2))
    cells = [cell for cell in re.findall(r"^ *(\S+)  vol-", text, re.MULTILINE) if cell != "?"]
    total = re.search(r"left over, (\S+) a month", text)
    if total is not None:
        assert sum(map(number, cells), Decimal(0)) == number(total[1])


@FEW
@given(st.lists(st.tuples(prices, st.sampled_from(STATES), st.booleans()), min_size=1, max_size=9), currencies)
def test_what_is_held_back_adds_up_as_printed(machines: list[tuple[Decimal, State, bool]], currency: Currency) -> None:
    """Groups to the sum that is held back, and the sums to all that is without use."""
    show_in(currency)
    desk = Desk(limits=Limits(), rules=RULES, enforce=False)
    for at, (usd, state, protected) in enumerate(machines):
        desk.prices[f"t{at}"] = Price(usd_per_hour=usd, as_of=NOW.date(), source="a list")
        desk.fleet.put(a_node(f"i-{at}", state, instance_type=f"t{at}", protected="a tag" if protected else None))
    lines = blocked_text(blocked_of(desk.round(), desk), 400).split("\n")
    held = lines[: next((at for at, line in enumerate(lines) if line.startswith("Use unknown, so")), None)]
    text = " ".join(lines)
    sums = {
        name: number(found[1]) if (found := re.search(rf"{name}: (\S+) a day", text)) else Decimal(0)
        for name in ("stalled", "Held back", "then blocked", "Will be stopped")
    }
    assert sums["stalled"] == sums["Held back"] + sums["then blocked"] + sums["Will be stopped"]
    rows = [re.fullmatch(r" *([\d,.]+) +\d+ +\d+ {2}\S.*", line) for line in held]
    assert sum((number(row[1]) for row in rows if row), Decimal(0)) == sums["Held back"] + sums["then blocked"]


@FEW
@given(
    st.lists(st.dictionaries(st.sampled_from(KINDS), st.fractions(-9, 900), min_size=1), min_size=1, max_size=4),
    currencies,
)
def test_bills_of_several_clouds_add_up_as_printed(bills: list[dict[str, Fraction]], currency: Currency) -> None:
    """Rows to the clouds' sum, columns to the row of all."""
    show_in(currency)
    lines = as_lines([(f"c{at}", Bill(lines={}, by_kind=kinds)) for at, kinds in enumerate(bills)])
    made = [re.split(r"\s{2,}", line.strip()) for line in lines[1 : 3 + len(bills)]]
    for row in made[1 : 1 + len(bills)]:
        assert sum(map(number, row[1:-1]), Decimal(0)) == number(row[-1])
    if len(bills) > 1:
        assert columns_that_do_not_add_up(made[1:], made[0]) == []
