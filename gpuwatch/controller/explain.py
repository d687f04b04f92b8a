"""`explain`: one node in one round, of this moment or of the past, judged again from what the round saw."""

from dataclasses import dataclass
from datetime import datetime

from gpuwatch.controller.context import Round
from gpuwatch.controller.node_row import node_rows
from gpuwatch.controller.round import explain_step
from gpuwatch.guard import Rulebook
from gpuwatch.guard.outlook import required_approval
from gpuwatch.ledger import Entry, Ledger, PastRound
from gpuwatch.model.activity import Activity, Evidence
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.decision import LedgerView, Review, Step
from gpuwatch.model.evidence_text import amount_text, owners_text, reset_text, who_text
from gpuwatch.model.fleet import GpuVerdict, Node, NodeVerdict
from gpuwatch.model.nodes_page import NodeRow, RequiredApproval
from gpuwatch.model.orders import Snooze
from gpuwatch.runtime.printable import legible


class UnknownNodeError(Exception):
    """The round has no node of that id or unique name; the sentence names some that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyRow:
    """The newest evidence of a signal that set the idle time to zero, `ago_seconds` before the verdict was made.

    `amount` is what was seen against the limit, `who` did it, both as text.
    """

    evidence: Evidence
    at: datetime
    ago_seconds: float
    amount: str | None
    who: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePage:
    """One node explained: what `gpuwatch explain --json` prints. `if_stopped_now` has every guard rule's answer.

    `round` is the past round that this is about, null for the newest one; `at` is its time. `last_reset` says what
    keeps the node from being idle, or what its idle time began after. `last_busy` is the newest of each signal since
    `agent_started_at`, newest first; of a past round one alone is stored. `owners` are the people and units at work,
    `blind` is what its agent cannot see. `snooze` and `approval` are those in force now; a snooze may last
    `max_snooze_seconds`. `pool_reasons` is what else was decided for its pool. `launched_at` is the last start,
    `managed_by` the other system that the machine belongs to, `group` its Auto Scaling group, `protected` why it must
    not be touched. `cloud_notice` is by which its cloud takes the machine; null: it does not.
    """

    row: NodeRow
    launched_at: datetime | None
    account: str | None
    group: str | None
    managed_by: str | None
    protected: str | None
    cloud_notice: CloudNotice | None
    round: int | None
    at: datetime
    activity: Activity
    gpus: tuple[GpuVerdict, ...]
    agent_version: str | None
    verdict_age_seconds: float | None
    agent_started_at: datetime | None
    last_reset: str | None
    last_busy: tuple[BusyRow, ...]
    owners: tuple[str, ...]
    blind: tuple[str, ...]
    step: Step
    if_stopped_now: Review
    pool_reasons: tuple[str, ...]
    history: tuple[Entry, ...]
    snooze: Snooze | None
    max_snooze_seconds: float
    approval: RequiredApproval | None


def busy_rows(verdict: NodeVerdict) -> tuple[BusyRow, ...]:
    """What was busy last, newest first."""
    return tuple(
        BusyRow(
            evidence=each.evidence,
            at=each.at,
            ago_seconds=each.ago_seconds,
            amount=amount_text(each.evidence),
            who=who_text(each.evidence),
        )
        for each in sorted(verdict.last_busy, key=lambda each: each.ago_seconds)
    )


def find_node(done: Round | PastRound, name: str) -> Node:
    """The round's node of that id or unique name.

    Raises:
        UnknownNodeError: the round has no such node.

    """
    node = done.observation.fleet.node(name)
    if node is None:
        known = ", ".join(legible(each.name) for each in done.observation.fleet.nodes[:10]) or "none"
        held = (
            ""
            if done.observation.fleet.cluster is None
            else " Nor has a workload that holds GPUs (NAMESPACE/KIND/NAME)."
        )
        raise UnknownNodeError(f"No GPU node has the id or the unique name {name!r}.{held} There are: {known}.")
    return node


def node_page(
    done: Round | PastRound, rules: Rulebook, ledger: Ledger, node: Node, orders: LedgerView, *, round_id: int | None
) -> NodePage:
    """A node in a round. In a past round, which has an id, its history ends with that round.

    `orders` is what the ledger holds of snoozes and approvals now.
    """
    observation, verdict = done.observation, node.verdict
    step, review = explain_step(observation, done.decisions, node, rules)
    decided = next(each for each in done.decisions if each.pool == node.pool)
    return NodePage(
        row=next(row for row in node_rows(done, rules) if row.id == node.id),
        launched_at=node.launched_at,
        account=node.account,
        group=node.group,
        managed_by=node.managed_by,
        protected=node.protected,
        cloud_notice=node.cloud_notice,
        round=round_id,
        at=observation.now,
        activity=node.activity,
        gpus=() if verdict is None else verdict.gpus,
        agent_version=None if verdict is None else verdict.agent_version,
        verdict_age_seconds=None if verdict is None else verdict.age_seconds,
        agent_started_at=None if verdict is None or verdict.tally is None else verdict.tally.since,
        last_reset=None if verdict is None else reset_text(verdict),
        last_busy=() if verdict is None else busy_rows(verdict),
        owners=owners_text(node.activity),
        blind=() if verdict is None else tuple(map(legible, verdict.blind)),
        step=step,
        if_stopped_now=review,
        pool_reasons=(
            *(
                f"{each.policy}: {each.reason.sentence}"
                for each in done.proposals
                if each.pool == node.pool and each.policy != "idle" and each.reason.sentence not in decided.clamps
            ),
            *decided.clamps,
            *(f"advice: {each.reason.sentence}" for each in decided.advice if each.target in {node.id, node.pool}),
        ),
        history=ledger.trail.entries_about(node.id, None if round_id is None else observation.now),
        snooze=next((each for each in orders.snoozes if each.node_id == node.id), None),
        max_snooze_seconds=rules.pool(node.pool).idle.max_snooze,
        approval=required_approval(node, orders, rules),
    )
