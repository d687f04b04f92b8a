"""The section about money that no rule lets gpuwatch save."""

from collections.abc import Iterator

from gpuwatch.model.currency import shown_in
from gpuwatch.money.blocked.blocked import Group
from gpuwatch.money.blocked.text import frees_text, sums, usd_text
from gpuwatch.money.report.blocks import Part, Table, Words
from gpuwatch.money.report.report import Report


def blocked(report: Report) -> Iterator[Part]:
    """What machines without use cost a day, by what holds it, with what would free it; nothing where none is held."""
    found = report.facts.blocked
    if found is None or not found.blocked.nodes:
        return
    yield Words(tuple(sums(found)))
    yield Table(
        caption="By what holds it",
        heads=("held by", f"{shown_in().code}/day", "machines", "GPUs", "what would free it"),
        rows=tuple(_row(group) for group in found.groups),
        left=frozenset({0, 4}),
        beneath=True,
        extra=frozenset({3}),
    )


def _row(group: Group) -> tuple[str, ...]:
    freed = "" if group.alone.nodes == group.money.nodes else f" Frees {frees_text(group)}."
    act = f"{group.act[0].upper()}{group.act[1:]}. Risk: {group.risk}.{freed}"
    return group.name, usd_text(group.money), f"{group.money.nodes:,}", f"{group.money.gpus:,}", act
