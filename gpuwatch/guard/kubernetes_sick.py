"""Rules on Kubernetes nodes that stay: sick ones, and those that another autoscaler is to leave alone."""

import math

from gpuwatch.guard import activity
from gpuwatch.guard.case import Case, Finding, allow, refuse
from gpuwatch.model.decision import Verb
from gpuwatch.model.readable import how_many
from gpuwatch.policies.kubernetes import marks, obstacles
from gpuwatch.policies.kubernetes import sick as policy
from gpuwatch.policies.kubernetes.steps import PODS


def quarantine(case: Case) -> Finding:
    """Refuses to cordon a node for its health, unless its pool says so and few of the pool are cordoned.

    With `pools.<name>.health.action` cordon, drain or replace a node gets no new pods while its agent calls a GPU
    `failing`; the pods on it stay. Many sick nodes at once are more likely a fault of a driver, or of what looks at it,
    and a cluster that takes no pods hurts everybody. So `pools.<name>.health.max_cordoned_ratio` of the pool's running
    nodes, rounded up, may be cordoned, also by others. Cordons that the same round allows count.

    Repair the nodes, or raise the ratio.
    """
    rules, fleet = case.pool_rules.health, case.observation.fleet
    why = obstacles.sick(case.machine)
    if not rules.cordons or why is None:
        return refuse(
            "No GPU of it is failing, or its pool does not cordon sick nodes.", f"Set pools.{case.pool}.health.action."
        )
    roster = fleet.roster(case.pool)
    members = [node for node in roster.nodes if node.id in roster.members and node.kubernetes is not None]
    cordoned = {node.id for node in members if node.kubernetes is not None and node.kubernetes.unschedulable}
    cordoned |= {step.node_id for step in case.counts(frozenset({Verb.CORDON, Verb.QUARANTINE}))}
    most = math.ceil(rules.max_cordoned_ratio * len(members))
    if len(cordoned - {case.step.node_id}) + 1 > most:
        key = f"pools.{case.pool}.health.max_cordoned_ratio"
        return refuse(
            f"{how_many(len(cordoned), 'node')} of the pool {'is' if len(cordoned) == 1 else 'are'} cordoned already.",
            f"{key} allows {most}.",
        )
    return allow(why)


def eviction(case: Case) -> Finding:
    """Refuses to move pods off a sick node that have to stay, or off many nodes at once.

    With `pools.<name>.health.action` drain or replace, pods leave a node with a failing GPU, each by the eviction API.
    The node must bear gpuwatch's own cordon, and its agent must call a GPU `failing` now. Pods go only from a node that
    is proven idle, with consent, as `pods_stay` says. With `pools.<name>.health.drain_busy` pods that work go, too, if
    their people say `gpuwatch.io/interruptible: "true"`. Protected and bare pods, and local data without consent,
    always stay. If more than `pools.<name>.health.max_failing_ratio` of the pool's running nodes are sick, nobody's
    pods are moved. A missing GPU may be working, so that only `drain_busy` moves pods off its node.

    Let the pods end, or let their people consent. Look for a common cause if many nodes are sick.
    """
    node, known, rules = case.machine, case.machine.kubernetes, case.pool_rules
    why = obstacles.sick(node)
    if known is None or why is None or not rules.health.drains:
        sentence = "No GPU of it is failing, or its pool does not drain sick nodes."
        return refuse(sentence, f"Set pools.{case.pool}.health.action.")
    if not known.unschedulable or not obstacles.ours(known, case.observation.ledger):
        return refuse("It is not cordoned by gpuwatch.", "The cordon comes first.")
    missing, sentence, remedy = activity.gpus_missing(case)
    if missing and not rules.health.drain_busy:
        return refuse(sentence, remedy)
    held = policy.not_moved(node, known, case.observation, rules)
    if held is not None:
        return refuse(held, "Look for a common cause, or repair the nodes.")
    wait = policy.due(known, case.observation, rules)
    if wait is not None:
        return refuse(f"Its pods may be asked to go in {wait}.", "Wait (health.drain_after, kubernetes.drain_rest).")
    movable, kept = policy.evacuable(node, known, case.observation, rules)
    asked = set(case.step.arguments.get(PODS, "").split())
    if not asked or asked - movable:
        return refuse(
            kept or "Its pods have gone or are ending.",
            "Let them end, or let their people consent by annotation (docs/kubernetes.md#annotations).",
        )
    return allow(f"{why} Its pods may go.")


def mark(case: Case) -> Finding:
    """Refuses to write, or to take away, another autoscaler's mark without proof.

    With `pools.<name>.kubernetes.mark_busy` a node of a pool that cluster-autoscaler or Karpenter owns gets the
    annotation by which they leave it alone (`cluster-autoscaler.kubernetes.io/scale-down-disabled`,
    `karpenter.sh/do-not-disrupt`), while it is in use or kept. Somebody else's mark is neither written again nor taken
    away: gpuwatch's own bears the key of its decision in `gpuwatch.io/marked-by`. An own mark goes once the node is
    proven idle for as long as its pool wants, or once the pool marks no longer.

    Wait for the agent's verdict. A person may take the annotations away at any time.
    """
    node, known, ledger = case.machine, case.machine.kubernetes, case.observation.ledger
    if known is None:
        return refuse("It is a node of no Kubernetes cluster.", "There is nothing to mark.")
    if case.step.verb is Verb.MARK:
        why = marks.in_use(node)
        if not marks.marks(case.pool_rules) or why is None:
            return refuse(
                "Its pool marks no nodes, or it is not in use.", f"Set pools.{case.pool}.kubernetes.mark_busy."
            )
        if known.keep is not None or known.marked_by is not None:
            return refuse("Somebody has marked it already.", "Nothing to do.")
        return allow(why)
    if known.marked_by is None or known.marked_by in ledger.foreign:
        return refuse("Its mark is not gpuwatch's own.", "Who made it takes it away.")
    over = marks.why_unmark(node, case.observation, case.pool_rules)
    return refuse("It is in use, or nobody knows.", "It must be proven idle.") if over is None else allow(over)
