"""Rules on machines that are nodes of a Slurm cluster: who is drained for its health, and who is resumed."""

import math

from gpuwatch.guard.case import Case, Finding, allow, refuse
from gpuwatch.model.decision import Verb
from gpuwatch.policies import slurm_sick as policy
from gpuwatch.policies.kubernetes.obstacles import sick

_NO_NODE = "It is a node of no Slurm cluster that gpuwatch knows."


def slurm_power(case: Case) -> Finding:
    """Refuses to remove, start or add machines of a pool in `slurm.pools` if Slurm powers its nodes itself.

    Two systems that power the same nodes fight: Slurm marks a node that went without its word as down, and starts it
    again for the next job. So a `SuspendProgram` or a `ResumeProgram` in `slurm.conf` makes Slurm the owner of
    its nodes' power, and gpuwatch only shows what is idle. Sick nodes are drained all the same. If Slurm gives no
    answer, the owner of the power is not known, and nothing is removed or added.

    Let Slurm do it (`SuspendTime`), or take both programs out of `slurm.conf` and run `scontrol reconfigure`.
    """
    seen = case.observation.fleet.slurm
    if seen is None or case.pool not in seen.pools:
        return allow("Its pool is not in slurm.pools.")
    if seen.doubt is not None:
        return refuse(seen.doubt, "`scontrol show config` must answer.")
    if seen.power is not None:
        return refuse(
            f"Slurm powers its nodes itself ({seen.power}).",
            "Only one may own the power (docs/slurm.md#idle-machines-and-who-powers-them).",
        )
    return allow("Slurm leaves the power of its nodes to others.")


def slurm_node(case: Case) -> Finding:
    """Refuses to remove a running machine that is a node of Slurm, unless Slurm shows it idle and nobody took it out.

    In a pool of `slurm.pools` each machine must be known as one node of Slurm (P1). A node with jobs, one that is
    planned or reserved for a job, and one that Slurm shows as down or not responding stays. So does a node that
    somebody else has drained: that person works on it (P20). So does a node that a waiting job may need, with the job
    in the sentence: docs/slurm.md#jobs-that-wait says how many nodes one job holds. A node of a reservation stays for a
    week before it begins. If nobody knows which jobs wait, nothing is removed. Right before each removal Slurm is asked
    again. A stopped machine has no jobs.

    Wait for its jobs. The person who drained it resumes it: `scontrol update NodeName=NODE State=RESUME`.
    """
    known = case.machine.slurm
    if known is None or case.asleep:
        return allow(_NO_NODE if known is None else "It does not run.")
    if known.doubt is not None:
        return refuse(known.doubt, "`scontrol show node` must list it, and nobody else under its name.")
    if known.drained and not policy.ours(known, case.observation):
        reason = f" with the reason {known.reason!r}" if known.reason else ""
        return refuse(f"Somebody has drained it in Slurm{reason}.", "Its person resumes it; then a new notice comes.")
    if not known.rests:
        return refuse(f"Slurm shows it {known.state}.", "It must be idle for Slurm, too.")
    if known.wanted_by is not None:
        return refuse(known.wanted_by, "Once that job runs, or waits no more.")
    seen = case.observation.fleet.slurm
    if seen is not None and seen.queue_doubt is not None:
        return refuse(seen.queue_doubt, "`squeue` must answer; slurm.squeue says where it is.")
    return allow(f"Slurm shows it {known.state}.")


def slurm_drain(case: Case) -> Finding:
    """Refuses to drain a node in Slurm, unless a GPU of it is failing, its pool says so, and few nodes are drained.

    With `pools.<name>.health.action` cordon, drain or replace a node of a pool in `slurm.pools` gets no new jobs while
    its agent calls a GPU `failing`; jobs on it run to their end. Its node in Slurm must be known for certain, and must
    be one that gets jobs: what somebody else has drained is theirs. If somebody has resumed it,
    `pools.<name>.health.drain_rest` passes first. Many sick nodes at once are more likely a fault of a driver, or of
    what looks at it. So `pools.<name>.health.max_cordoned_ratio` of the pool's running nodes, rounded up, may get no
    jobs from Slurm, also if others have drained them. Nodes that Slurm does not show count as drained. Drains that
    the same round allows count.

    Repair the nodes, or raise the ratio.
    """
    node, rules, fleet = case.machine, case.pool_rules.health, case.observation.fleet
    why = sick(node)
    if not rules.cordons or why is None:
        return refuse(
            "No GPU of it is failing, or its pool does not drain sick nodes.", f"Set pools.{case.pool}.health.action."
        )
    held = policy.not_drained(node, case.observation, rules)
    if held is not None:
        return refuse(held, "`scontrol show node` says what Slurm knows about it.")
    if node.slurm is None or case.step.arguments.get(policy.NODE) != node.slurm.name:
        return refuse(
            "It is another node in Slurm than the one that was decided about.", "The next round decides again."
        )
    roster = fleet.roster(case.pool)
    members = [each for each in roster.nodes if each.id in roster.members and each.slurm is not None]
    out = {each.id for each in members if each.slurm is not None and (each.slurm.drained or not each.slurm.sound)}
    out |= {step.node_id for step in case.counts(frozenset({Verb.SLURM_DRAIN}))}
    most = math.ceil(rules.max_cordoned_ratio * len(members))
    if len(out - {node.id}) + 1 > most:
        key = f"pools.{case.pool}.health.max_cordoned_ratio"
        return refuse(f"Nodes of the pool that get no jobs from Slurm already: {len(out)}.", f"{key} allows {most}.")
    return allow(why)


def slurm_resume(case: Case) -> Finding:
    """Refuses to resume a node in Slurm, unless gpuwatch drained it and all its GPUs are known to be well.

    The reason that Slurm shows must bear the key of a decision of this ledger (P20). The agent must tell the health of
    as many GPUs as the machine type has, and none may be failing: what is not known is not well. A node that does not
    answer, that has failed, or that somebody reboots, stays as it is.

    Repair the GPU, or resume the node yourself: `scontrol update NodeName=NODE State=RESUME`.
    """
    node, known = case.machine, case.machine.slurm
    if known is None:
        return refuse(_NO_NODE, "There is nothing to resume.")
    if known.doubt is not None:
        return refuse(known.doubt, "`scontrol show node` must list it, and nobody else under its name.")
    if not policy.ours(known, case.observation) or case.step.arguments.get(policy.UNDOES) != known.drained_by:
        return refuse("Its drain is not gpuwatch's own.", "The person who drained it resumes it.")
    if not known.resumable or not known.answers:
        return refuse(f"Slurm shows it {known.state}.", "It must be drained, and its slurmd must answer.")
    unwell = policy.not_well(node)
    if unwell is not None:
        return refuse(unwell, "Its agent must tell that each GPU is well.")
    return allow("gpuwatch drained it, and no GPU of it is failing.")
