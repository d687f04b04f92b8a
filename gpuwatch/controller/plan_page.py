"""What a round would do now: the document of `gpuwatch plan --json`."""

from dataclasses import dataclass
from datetime import datetime

from gpuwatch.controller.context import Round
from gpuwatch.controller.node_row import node_rows
from gpuwatch.controller.workload_rows import workload_rows
from gpuwatch.guard import Rulebook
from gpuwatch.model.decision import Decision, Proposal, Review
from gpuwatch.model.nodes_page import NodeRow, WorkloadRow
from gpuwatch.model.sight import Silence


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage:
    """What a round would do, and what blocks it; `trouble` is why the fleet cannot be seen.

    `nodes` are those that it would change, with the guard's objections in `why`; `reviews` have every rule's answer.
    `proposals` are the policies', `decisions` their outcome; `silent` are the places that gave no answer,
    `workloads` those of a Kubernetes cluster that it would end, or give a notice.
    """

    at: datetime
    trouble: str | None
    nodes: tuple[NodeRow, ...]
    proposals: tuple[Proposal, ...]
    decisions: tuple[Decision, ...]
    reviews: tuple[Review, ...]
    silent: tuple[Silence, ...] = ()
    workloads: tuple[WorkloadRow, ...] = ()


def plan_page(done: Round, rules: Rulebook) -> PlanPage:
    """The plan of a round."""
    changed = {review.step.node_id for review in done.reviews}
    rows = node_rows(done, rules) if changed else ()
    return PlanPage(
        at=done.observation.now,
        trouble=done.trouble,
        nodes=tuple(row for row in rows if row.id in changed),
        proposals=tuple(done.proposals),
        decisions=tuple(done.decisions),
        reviews=tuple(done.reviews),
        silent=done.observation.fleet.silent,
        workloads=tuple(row for row in workload_rows(done, rules) if row.id in changed),
    )
