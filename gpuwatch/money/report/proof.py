"""`gpuwatch cost --explain`: every total made again from the ledger's single rows, and the rows proved."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import add

from gpuwatch.model.currency import display_currency
from gpuwatch.model.money import format_cents, format_price
from gpuwatch.model.usage import GPU, HOUR_MS, JOULES, Holder, HourKey, Terms
from gpuwatch.money.accounting.holders import rows_by_holder
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import BY_HOLDER, Row, Total, grouping, round_parts
from gpuwatch.money.report.cost import Report

_MACHINES = ""  # the one group of all rows, before they are divided by holder


@dataclass(slots=True)
class Proof:
    """The amounts of each group under each terms, by number, made from single rows; and what is wrong, in sentences."""

    terms: dict[int, Terms] = field(default_factory=dict)
    amounts: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    rows: int = 0
    wrong: list[str] = field(default_factory=list)


def prove_report(spend: SpendBook, report: Report) -> Proof:
    """Walk all rows of the report's period; memory stays bounded by the groups and the terms."""
    made, group = Proof(), grouping(report.by, Calendar(report.period.zone))
    for key, terms, amounts in spend.each(report.period.since, report.period.until):
        made.rows += 1
        made.wrong += _impossible(key, terms, amounts)
        made.terms[key.terms] = terms
        row = Row(terms=terms, amounts=(), begin=key.begin, node_id=key.node_id)
        _sum(made, _MACHINES if report.by in BY_HOLDER else group(row), key.terms, amounts)
    if report.by in BY_HOLDER:
        _divide(made, spend, report, group)
    made.wrong += spend.wrong(report.period.since, report.period.until)
    for name in sorted(report.groups.keys() | made.amounts.keys()):
        if _total(made, name) != report.groups.get(name, Total()):
            made.wrong.append(f"the rows of {name} do not add up to what is shown")
    return made


def _divide(made: Proof, spend: SpendBook, report: Report, group: Callable[[Row], str]) -> None:
    """What machines were billed, by who held their GPUs; both out of single rows."""
    parts: dict[int, dict[Holder, list[int]]] = {}
    for number, holder, amounts in spend.each_held(report.period.since, report.period.until):
        made.rows += 1
        before = parts.setdefault(number, {}).get(holder)
        parts[number][holder] = amounts if before is None else list(map(add, before, amounts))
    machines = made.amounts.pop(_MACHINES, {})
    for number, amounts in machines.items():
        terms = made.terms[number]
        for row in rows_by_holder(terms, amounts, parts.pop(number, {})):
            _sum(made, group(row), number, row.amounts)
            if min(row.amounts) < 0:
                made.wrong.append(f"GPUs of {terms.instance_type} were held for longer than they were billed")
    made.wrong += [f"GPUs were held under the terms {number}, and no machine was billed" for number in sorted(parts)]


def _sum(made: Proof, name: str, number: int, amounts: Sequence[int]) -> None:
    by_terms = made.amounts.setdefault(name, {})
    before = by_terms.get(number)
    by_terms[number] = list(amounts) if before is None else list(map(add, before, amounts))


def as_text(proof: Proof) -> str:
    """The terms of each group: hours x price with its source; and whether all is well."""
    lines: list[str] = []
    for name, by_terms in sorted(proof.amounts.items()):
        lines += _group(proof, name, by_terms)
    lines += [f"WRONG: {sentence}" for sentence in proof.wrong]
    if not proof.wrong:
        lines.append(
            f"All totals are made again from {proof.rows:,} rows and are the same; sealed days are as they were sealed "
            "(`gpuwatch audit verify` proves the seals)."
        )
    return "\n".join(lines)


def _group(proof: Proof, name: str, by_terms: dict[int, list[int]]) -> Iterator[str]:
    """Yield the lines of one group."""
    money = {str(number): _one(proof.terms[number], amounts).usd for number, amounts in by_terms.items()}
    total, parts = round_parts(money, display_currency().cent)
    yield f"{name}: {format_cents(total)}"
    for number, amounts in sorted(by_terms.items()):
        terms = proof.terms[number]
        hours = f"{sum(amounts[:GPU]) / HOUR_MS:,.4f} h"
        what = " ".join(filter(None, (terms.instance_type, terms.capacity_type, terms.region, terms.account)))
        whose = f"pool {terms.pool}" + (f", owner {terms.owner}" if terms.owner else "")
        if terms.usd_per_hour is None:
            yield f"  {hours} x an unknown price: {what}, {whose}"
            continue
        price = f"${terms.usd_per_hour.normalize():f}"
        if display_currency().code != "USD":
            price += f" ({format_price(terms.usd_per_hour)})"
        source = f"{terms.price_source}, as of {terms.price_as_of}"
        yield f"  {hours} x {price} = {format_cents(parts[str(number)])}: {what}, {whose}; {source}"


def _total(proof: Proof, name: str) -> Total:
    made = Total()
    for number, amounts in proof.amounts.get(name, {}).items():
        made.add(Row(terms=proof.terms[number], amounts=amounts))
    return made


def _one(terms: Terms, amounts: list[int]) -> Total:
    made = Total()
    made.add(Row(terms=terms, amounts=amounts))
    return made


def _impossible(key: HourKey, terms: Terms, amounts: list[int]) -> Iterator[str]:
    """What no metering can have written."""
    node, gpus = sum(amounts[:GPU]), sum(amounts[GPU:JOULES])
    if min(amounts) < 0 or node > key.span * 1000 or gpus != terms.gpus * node:
        yield f"the row of {key.node_id} that begins at {key.begin} (seconds since 1970) cannot be: it was changed"
