"""PURE: what a machine counts in its pool's size: one, or its GPUs.

Rules, all of them:

1. A pool counts nodes, or GPUs (`unit: gpus`). Then everything that says how large it is to be is in GPUs.
2. A node has as many GPUs as its cloud's table of types says, or else its agent. Others of its type have as many,
   whatever an offer says; what an offer says counts only until a node of its type is there.
3. What nobody knows counts as none for a floor, and nothing is added while it is there: no maximum on a guess.
4. Machines come whole. The last one may bring more than is missing, and none brings more than a maximum leaves.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpuwatch.model.decision import ADDITIONS, Step, Verb
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.model.life import Expected

Unit = Literal["nodes", "gpus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What each machine counts: `gpus` has the GPUs of machine types, in a pool that counts them; else it is None."""

    gpus: Mapping[str, int] | None = None

    @property
    def unit(self) -> str:
        """What is counted, in a sentence."""
        return "nodes" if self.gpus is None else "GPUs"

    @property
    def key(self) -> Unit:
        """What is counted, as the ends of keys say it: min_nodes, max_gpus."""
        return "nodes" if self.gpus is None else "gpus"

    def words(self, count: int) -> str:
        """So many of them, in a sentence."""
        return f"{count} {self.unit[:-1] if count == 1 else self.unit}"

    def node(self, node: Node) -> int | None:
        """What a node counts; None: its GPUs are not known."""
        known = self.gpus is not None and node.gpu_count is not None
        return node.gpu_count if known else self.kind(node.kind)

    def kind(self, instance_type: str | None) -> int | None:
        """What a machine of that type counts; None: its GPUs are not known."""
        return 1 if self.gpus is None else self.gpus.get(instance_type or "")

    def of_nodes(self, nodes: Collection[Node]) -> int:
        """What nodes count together; what is not known counts as none."""
        return len(nodes) if self.gpus is None else sum(self.node(node) or 0 for node in nodes)

    def of_expected(self, machines: Collection[Expected]) -> int:
        """The same of machines that are expected."""
        return len(machines) if self.gpus is None else sum(self.kind(each.kind) or 0 for each in machines)

    def brings(self, fleet: Fleet, verb: Verb, target: str, arguments: Mapping[str, str]) -> int | None:
        """What an action adds; None: it is not known. What adds nothing adds 0."""
        if verb not in ADDITIONS:
            return 0
        count = int(arguments.get("adds", "1"))
        if self.gpus is None:
            return count
        node, group = fleet.find(target), fleet.group(target)
        if verb is Verb.START:
            return None if node is None else self.node(node)
        each = self.kind(arguments.get("instance_type") if group is None else group.instance_type)
        return None if each is None else count * each

    def size_of_step(self, fleet: Fleet, step: Step) -> int | None:
        """What a step adds; None: it is not known."""
        return self.brings(fleet, step.verb, step.node_id, step.arguments)

    def total(self, fleet: Fleet, steps: Iterable[Step]) -> int:
        """What steps add; what is not known adds none."""
        return sum(self.size_of_step(fleet, step) or 0 for step in steps)


NODES = Sizes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a pool lacks. All but `machines` is in what the pool counts.

    `wanted` is how large the pool is to be, `most` how much may come at most, and `machines` how many; None: no limit.
    `coming` has the offers of launches that this round asks for already, `but` are names of steps that are spoken for.
    """

    missing: int
    wanted: int = 0
    coming: tuple[str, ...] = ()
    but: Collection[str] = ()
    sizes: Sizes = NODES
    most: int | None = None
    machines: int | None = None

    def fits(self, size: int | None) -> bool:
        """Whether a machine of that size may come."""
        if not size or self.machines == 0:
            return False
        return self.most is None or size <= self.most

    def count(self, size: int | None) -> int:
        """How many machines of that size may come, of so many as are missing; the last may bring more."""
        if not size or self.missing <= 0:
            return 0
        limits = [-(-self.missing // size), self.machines, None if self.most is None else self.most // size]
        return max(0, min(each for each in limits if each is not None))

    def after_machines(self, size: int, machines: int = 1) -> "Need":
        """What is lacking once machines have brought so much."""
        return replace(
            self,
            missing=self.missing - size,
            most=None if self.most is None else self.most - size,
            machines=None if self.machines is None else self.machines - machines,
        )

    def needed_steps(self, steps: Sequence[Step], fleet: Fleet) -> list[Step]:
        """Those of the steps, each for one machine, that bring what is missing.

        They come in their order; of those that bring too much the one comes that does so least.
        """
        if self.sizes.gpus is None:
            return list(steps[: self.count(1)])
        left, need, found = list(steps), self, list[Step]()
        while need.missing > 0:
            able = [step for step in left if need.fits(self.sizes.size_of_step(fleet, step))]
            if not able:
                break
            step = min(able, key=need.excess(fleet))
            left.remove(step)
            found.append(step)
            need = need.after_machines(self.sizes.size_of_step(fleet, step) or 0)
        return found

    def excess(self, fleet: Fleet) -> Callable[[Step], int]:
        """What a step brings more than is missing."""
        return lambda step: max(0, (self.sizes.size_of_step(fleet, step) or 0) - self.missing)
