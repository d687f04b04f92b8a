"""`gpuwatch status`: the fleet as a table, what it costs, and the choices of who looks."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from rich.text import Text

from gpuwatch.cli.console import fit_height
from gpuwatch.controller.observe.agent_errors import kind_of
from gpuwatch.model.activity import State, legend
from gpuwatch.model.currency import display_currency
from gpuwatch.model.decision import REMOVALS, Verb
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.money import bare_usd, format_usd, price_note
from gpuwatch.model.nodes_page import NodeRow, NodesPage
from gpuwatch.model.readable import how_many, legible
from gpuwatch.model.verbs import PREPARATIONS
from gpuwatch.money.accounting.useful_time import OF_NO_USE
from gpuwatch.runtime.columns import Column, laid_out, wrap_words
from gpuwatch.runtime.translation import translate_text

if TYPE_CHECKING:
    from gpuwatch.controller.context import Round
    from gpuwatch.guard import Rulebook

_ORDER: dict[State | None, int] = {state: rank for rank, state in enumerate(State)}
_VERB_STYLES = dict.fromkeys(REMOVALS | PREPARATIONS, "state.stalled") | {Verb.NOTICE: "tint.idle"}

# What `--sort` takes; ties are in the order of names.
SORTS: dict[str, Callable[[NodeRow], object]] = {
    "use": lambda row: _ORDER.get(row.activity, len(_ORDER)),
    "name": lambda _: 0,
    "cost": lambda row: -(row.usd_per_hour or Decimal(0)),
    "for": lambda row: -(row.held_seconds or 0.0),
    "owner": lambda row: (row.owner is None, row.owner or ""),
    "pool": lambda row: row.pool,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which nodes to list, and in which order; empty: all."""

    pools: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    sort: str = "use"

    def chosen_nodes(self, page: NodesPage) -> NodesPage:
        """The nodes that are asked for. `--owner none` means nodes without an owner."""
        if not (self.pools or self.owners or self.states or self.sort != "use"):
            return page
        found = [row for row in page.nodes if self._wants(row)]
        found.sort(key=lambda row: (SORTS[self.sort](row), row.name, row.id))
        return replace(page, total=len(found), nodes=tuple(found))

    def _wants(self, row: NodeRow) -> bool:
        uses = {row.state.value, *(() if row.activity is None else (row.activity.value,))}
        return (
            (not self.pools or row.pool in self.pools)
            and (not self.owners or (row.owner or "none") in self.owners)
            and (not self.states or bool(uses & set(self.states)))
        )


def table(page: NodesPage, choice: Choice, width: int | None) -> list[Text]:
    """One row a node. In a narrow terminal other columns shrink or go; the reason wraps. None: whole lines."""
    if not page.nodes:
        if choice != Choice():
            return [Text(translate_text("No node matches."))]
        words = "There is no GPU machine where the settings look. `gpuwatch scan` looks in every region."
        return [Text(line) for line in wrap_words(translate_text(words), width, None)]
    rows = sorted(page.nodes, key=lambda row: (SORTS[choice.sort](row), row.name, row.id))
    return laid_out([replace(each, title=translate_text(each.title)) for each in _columns(rows)], width, lines=None)


def screen(done: "Round", rules: "Rulebook", choice: Choice, width: int, height: int) -> list[Text]:
    """One picture of `--watch`: time and totals, then as much of the table as there is room for."""
    from gpuwatch.cli.render import silences
    from gpuwatch.controller.node_row import nodes_page

    at = format_time(done.observation.now, seconds=True)
    if done.trouble is not None:
        return [Text(at, style="bold"), Text(legible(translate_text(done.trouble)), style="state.stalled")]
    page = choice.chosen_nodes(nodes_page(done, rules))
    head = [Text(line, style="bold") for line in wrap_words(f"{at}  {translate_text(totals(page))}", width, 2)]
    head += [
        Text(line, style="state.stalled")
        for each in silences(done)
        for line in wrap_words(translate_text(each), width, 2)
    ]
    return [*head, Text(), *fit_height(table(page, choice, width), height - len(head) - 1)]


def _columns(rows: Sequence[NodeRow]) -> list[Column]:
    """All columns. Names stand for ids where each name is one node's alone."""
    named = len({row.name for row in rows}) == len(rows)
    alike = all(row.name == row.id for row in rows)
    shown = [*("state." + row.activity.value if row.activity else "dim" for row in rows)]
    return [
        Column(title="NODE", cells=[legible(row.id) for row in rows], spare=9 if named and not alike else 0),
        Column(
            title="NAME",
            cells=["" if alike else legible(row.name) for row in rows],
            spare=9 if alike else 0 if named else 6,
            least=14,
        ),
        *_cloud(rows),
        Column(title="POOL", cells=[legible(row.pool) for row in rows], spare=4, least=8),
        Column(title="OWNER", cells=[legible(row.owner or "-") for row in rows], spare=3, least=8),
        Column(title="TYPE", cells=[legible(row.instance_type) for row in rows], spare=8),
        Column(
            title="GPUS",
            cells=["?" if row.gpu_count is None else str(row.gpu_count) for row in rows],
            spare=7,
            right=True,
        ),
        Column(title="STATE", cells=[translate_text(row.state.value) for row in rows], spare=5),
        Column(title="USE", cells=[translate_text(_use(row)) for row in rows], styles=shown),
        Column(title="FOR", cells=[_held_words(row) for row in rows], spare=1, right=True),
        Column(
            title=f"{display_currency().head}/H", cells=[_usd(row.usd_per_hour) for row in rows], spare=2, right=True
        ),
        Column(
            title="NEXT",
            cells=[translate_text(row.action.value) for row in rows],
            spare=6,
            styles=[_VERB_STYLES.get(row.action, "") for row in rows],
        ),
        Column(title="WHY", cells=[legible(translate_text(why(row))) for row in rows]),
    ]


def _cloud(rows: Sequence[NodeRow]) -> list[Column]:
    """The clouds, where the settings name them."""
    if all(row.cloud is None for row in rows):
        return []
    return [Column(title="CLOUD", cells=[legible(row.cloud or "-") for row in rows], spare=4)]


def why(row: NodeRow) -> str:
    """The reason, with an agent's failure in one word: `explain` has its sentence and the remedy."""
    kind = kind_of(row.doubt) if row.activity is State.UNKNOWN else None
    if row.stopped is not None and row.stopped.still_billed is not None:
        return f"It is stopped, and its cloud still bills it: {row.stopped.still_billed}."
    words = row.why if kind is None else f"No verdict of its agent: {kind.word.replace('-', ' ')}."
    if row.enrolled or "not enrolled" in words:
        return words
    return f"{words} It is not enrolled."


def _use(row: NodeRow) -> str:
    """What it does; of a node that does not run, its state."""
    return row.state.value if row.activity is None else row.activity.value


def _held_words(row: NodeRow) -> str:
    return "-" if row.held_seconds is None else format_duration(row.held_seconds)


def _usd(amount: Decimal | None) -> str:
    return "-" if amount is None else bare_usd(amount)


def totals(page: NodesPage) -> str:
    """`4 nodes, 32 GPUs, $98.32/h; wasted now: $49.16/h (idle $24.58, parked $24.58)`, of the nodes listed."""
    rows = page.nodes
    seen = [row for row in rows if row.activity is not None]
    running, foreign = [row for row in seen if not row.foreign], [row for row in seen if row.foreign]
    ours = [row for row in rows if not row.foreign]  # a stopped machine that is still billed is among them
    gpus = sum(row.gpu_count or 0 for row in seen)
    parts = [
        f"{how_many(len(rows), 'node')}, {len(seen)} running with {how_many(gpus, 'GPU')}, {format_usd(_sum(ours))}/h"
    ]
    by_use = {
        use: sum((row.usd_per_hour_of_no_use.get(use, Decimal(0)) for row in ours), Decimal(0)) for use in OF_NO_USE
    }
    each = ", ".join(f"{use} {format_usd(usd)}" for use, usd in by_use.items() if usd)
    uses = {_possible_use(row) for row in rows if not row.foreign} - {None}
    known = uses != {State.UNKNOWN}
    total = format_usd(sum(by_use.values())) + "/h" if known else "not known"
    parts.append(f"wasted now: {total}" + (f" ({each})" if each else ""))
    unpriced = sum(row.usd_per_hour is None for row in running)
    if unpriced:
        parts.append(f"the price of {unpriced} is not known")
    if foreign:
        lacks = sum(row.usd_per_hour is None for row in foreign)
        more = f", the price of {lacks} is not known" if lacks else ""
        parts.append(f"not ours, in no sum: {how_many(len(foreign), 'node')}, {format_usd(_sum(foreign))}/h{more}")
    elsewhere = price_note(row.price_source for row in running)
    return " ".join(filter(None, ("; ".join(parts) + ".", elsewhere, display_currency().note)))


def all_unknown(page: NodesPage) -> bool:
    """Whether machines run, or may run, and nothing is known of the use of any."""
    return {_possible_use(row) for row in page.nodes} - {None} == {State.UNKNOWN}


def _possible_use(row: NodeRow) -> State | None:
    """What it does: unknown too where nobody says whether it runs, as of a silent host of one's own."""
    return State.UNKNOWN if row.activity is None and row.state is NodeState.UNKNOWN else row.activity


def hints(page: NodesPage) -> Iterator[str]:
    """What the states mean, where the remedy of an agent's failure is, and which stops people took back."""
    if words := legend(row.activity for row in page.nodes if row.activity is not None):
        yield f"{words}."
    yield from page.regrets
    failed = [row for row in page.nodes if row.activity is State.UNKNOWN and kind_of(row.doubt) is not None]
    if all_unknown(page):
        kinds = Counter(kind_of(row.doubt) for row in failed)
        kind = next((each for each, _ in kinds.most_common(1)), None)
        why = "" if kind is None else f" Most say: {kind.word.replace('-', ' ')}. {kind.remedy}"
        yield (
            "Warning: the use of no running machine is known, so no idle one is found and none is stopped."
            f"{why} `gpuwatch doctor controller` asks each."
        )
    elif failed:
        silent = how_many(len(failed), "agent")
        yield f"{silent} gave no verdict. The remedy: gpuwatch explain {legible(failed[0].name)}"


def _sum(rows: Sequence[NodeRow]) -> Decimal:
    return sum((row.usd_per_hour for row in rows if row.usd_per_hour is not None), Decimal(0))
