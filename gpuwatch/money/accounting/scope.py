"""Which machines count: those of this fleet, or all that the accounts show (`cost.scope`).

Rules, all of them:

1. A machine is ours while it is enrolled, or a member of a group that is. Any other is foreign: it is seen and metered.
2. The mark is kept with what was billed, by what its cloud showed at the begin of that time. A machine that is enrolled
   or leaves in the middle of a month is ours for its enrolled hours alone. What has no mark, as all that was billed
   before there was one, is ours.
3. A listing may lack all tags of a machine of ours. For as long as a gap between rounds may be, what was known last
   counts: its labels, and that it is ours. After that it is believed.
4. Foreign time is in no sum, budget, forecast or saving; it stands next to the sums. With `account` all machines count.
5. One process counts in one scope, which a shell chooses once it has read the settings (`count_in`), so that no surface
   can forget it. The ledger keeps the marks in either scope. A bill has all machines, and so has its comparison.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.model.usage import FLEET_TAG, FOREIGN, GPU, HOUR_MS, JOULES, Terms

CostScope = Literal["fleet", "account"]
_chosen: list[CostScope] = ["fleet"]


def count_in(scope: CostScope) -> None:
    """Choose the machines that this process counts from now on."""
    _chosen[:] = [scope]


def counted_scope() -> CostScope:
    """Which machines this process counts."""
    return _chosen[0]


def foreign_nodes(fleet: Fleet) -> dict[str, str]:
    """Rule 1: the nodes that are not ours, each with the fleet that its tag names, "" where it names none."""
    others = [node for node in fleet.nodes if not node.enrolled]
    if not others:
        return {}
    members = {each for group in fleet.groups if group.enrolled or group.serves_cluster for each in group.node_ids}
    return {node.id: node.tags.get(FLEET_TAG, "") for node in others if node.id not in members}


def uncounted_nodes(fleet: Fleet) -> frozenset[str]:
    """The nodes that are in no sum of this process."""
    return frozenset(foreign_nodes(fleet)) if counted_scope() == "fleet" else frozenset()


def counted_nodes(fleet: Fleet) -> Iterable[Node]:
    """The nodes that are in sums of money."""
    left_out = uncounted_nodes(fleet)
    return [node for node in fleet.nodes if node.id not in left_out] if left_out else fleet.nodes


def mark_tags(tags: tuple[tuple[str, str], ...], named: str | None) -> tuple[tuple[str, str], ...]:
    """The tags to keep of a machine, with the mark of a foreign one; None: it is ours. No tag can forge the mark."""
    kept = tuple(each for each in tags if each[0] != FOREIGN)
    return kept if named is None else tuple(sorted((*kept, (FOREIGN, named))))


def unmark_terms(terms: Terms) -> Terms:
    """The same terms without the mark."""
    return terms if terms.foreign is None else replace(terms, tags=mark_tags(terms.tags, None))


def counted_terms(terms: Terms) -> Terms:
    """What this process takes the terms for: in the scope of an account every machine is ours."""
    return unmark_terms(terms) if counted_scope() == "account" else terms


@dataclass(slots=True)
class Foreign:
    """What foreign machines were billed, next to a sum; `usd` is of those with a known price.

    `machines` are those that rows name, `fleets` those that the machines' tags named.
    """

    node_ms: int = 0
    gpu_ms: int = 0
    usd: Fraction = Fraction(0)
    unpriced_ms: int = 0
    fleets: frozenset[str] = frozenset()
    machines: frozenset[str] = field(default=frozenset(), compare=False)

    def add(self, terms: Terms, amounts: Sequence[int], machines: frozenset[str]) -> None:
        """Add what one more row has."""
        ms, price = sum(amounts[:GPU]), terms.usd_per_hour
        self.node_ms += ms
        self.gpu_ms += sum(amounts[GPU:JOULES])
        self.machines |= machines
        self.fleets |= {terms.foreign} if terms.foreign else frozenset()
        if price is None:
            self.unpriced_ms += ms
        else:
            self.usd += Fraction(price) * ms / HOUR_MS

    def merge(self, other: "Foreign") -> None:
        """What another one has, too."""
        self.node_ms += other.node_ms
        self.gpu_ms += other.gpu_ms
        self.usd += other.usd
        self.unpriced_ms += other.unpriced_ms
        self.fleets |= other.fleets
        self.machines |= other.machines

    @property
    def unpriced(self) -> bool:
        """Whether no machine of it has a known price."""
        return self.unpriced_ms > 0 and self.unpriced_ms == self.node_ms
