"""Rules on machines that are nodes of a Kubernetes cluster: who owns them, and what becomes of their pods."""

from gpuwatch.guard.case import Case, Finding, allow, refuse
from gpuwatch.model.readable import how_many
from gpuwatch.policies import idle
from gpuwatch.policies.kubernetes import obstacles
from gpuwatch.policies.kubernetes.evacuation import obstacle
from gpuwatch.policies.slurm_sick import UNDOES, ours

_NO_NODE = "It is a node of no Kubernetes cluster."


def cluster_unknown(case: Case) -> Finding:
    """Refuses to remove, cordon or drain a machine if nobody knows its pods.

    Nobody is idle because an API server is silent (P1). The view of the cluster must have no trouble: no silence beyond
    `kubernetes.max_silence`, no forbidden call. If it lacks three pods or more that agents see on GPUs, and most of all
    that they see, it is not believed either: it may have been restored from an old or empty store. In a pool with
    `pools.<name>.kubernetes.node_owner` every running machine must be a node of the configured cluster. So must every
    machine if its agent sees pods on its GPUs, in any pool. While the cluster is not known, a machine that was started
    since it was seen last counts as a node as well. Right before each removal, cordon and drain the API server is asked
    again about the node: no answer, no node of that name, or another one under its name is a veto. A stopped machine
    has no pods.

    Repair the way to the API server, or its permissions; `gpuwatch doctor controller` says what is wrong.
    """
    doubt = obstacles.unknown(case.machine, case.observation.fleet, case.pool_rules.kubernetes)
    if doubt is None:
        return allow("Its pods are known, or it runs no pods.")
    return refuse(doubt, "The cluster's API server must answer, and list it.")


def node_owner(case: Case) -> Finding:
    """Refuses to remove, cordon or drain a Kubernetes node that is not gpuwatch's to remove.

    Two systems that remove nodes fight: one takes the machine that the other has just kept, or launches another in its
    place. Each pool has one owner, `pools.<name>.kubernetes.node_owner`. Where it says nobody (the default),
    cluster-autoscaler or karpenter, gpuwatch only shows what is idle. The node's marks are looked at as well: those
    of Karpenter, cluster-autoscaler, Cluster API, OpenShift's Machine API, Gardener, Kubermatic, CAST AI and Spot
    Ocean. If they name one of these while the pool says gpuwatch, nobody knows, and the node stays.

    Set `pools.<name>.kubernetes.node_owner: gpuwatch`, and take the node group out of the other autoscaler first.
    """
    whose = obstacles.owner(case.machine, case.pool_rules.kubernetes)
    if whose is None:
        return allow(_NO_NODE if case.machine.kubernetes is None else "gpuwatch removes its pool's nodes.")
    return refuse(whose, f"pools.{case.pool}.kubernetes.node_owner says who removes its nodes.")


def kept_node(case: Case) -> Finding:
    """Refuses to remove, cordon or drain a Kubernetes node that its own marks keep.

    People and other programs mark nodes that must stay: `cluster-autoscaler.kubernetes.io/scale-down-disabled`,
    `karpenter.sh/do-not-disrupt`, `gpuwatch.io/protect`, `gpuwatch.io/snooze-until`. gpuwatch honours each of them
    (P3, P20).

    Remove the annotation if the node may be removed.
    """
    kept = obstacles.marks(case.machine)
    return allow("No mark on its node object keeps it.") if kept is None else refuse(kept, "Remove that mark.")


def vital_node(case: Case) -> Finding:
    """Refuses to remove, cordon or drain a Kubernetes node that its cluster, or gpuwatch itself, cannot do without.

    A control plane looks idle, and it is the cluster: its GPUs do nothing, and without it, or without most of its
    etcd's members, nothing else is ever scheduled again. It shows in the node's labels and taints
    (`node-role.kubernetes.io/control-plane`, `master`, `etcd` …), in its static pods (etcd, kube-apiserver,
    kube-controller-manager, kube-scheduler), and in pods of a DaemonSet with the labels of these. A node with
    gpuwatch's own controller stays as well: nobody would be left to undo its cordon. No consent changes that.

    Put the control plane, and gpuwatch's controller, onto nodes without GPUs. A label that is left from an earlier role
    is taken away with `kubectl label node NODE KEY-`.
    """
    needed = obstacles.vital(case.machine)
    if needed is None:
        return allow("It serves neither the control plane nor gpuwatch's own controller.")
    return refuse(needed, "What the cluster cannot do without has to move first.")


def foreign_cordon(case: Case) -> Finding:
    """Refuses to touch a Kubernetes node that somebody else has cordoned.

    A person who cordons a node works on it, or looks for a fault; another controller has plans for it. Its cordon is
    never undone, and the node is neither drained nor removed (P20). gpuwatch's own cordon bears the key of its decision
    in the annotation `gpuwatch.io/cordoned-by`, and the ledger has that decision on record. A cordon with a key that
    the ledger lacks is another controller's, or older than the ledger.

    The person who cordoned it uncordons it: `kubectl uncordon NODE`.
    """
    theirs = obstacles.foreign_cordon(case.machine, case.observation.ledger)
    if theirs is None:
        return allow("Nobody else has cordoned it.")
    return refuse(theirs, "Its owner runs `kubectl uncordon`; then a new notice comes first.")


def cloud_notice(case: Case) -> Finding:
    """Refuses to evacuate a Kubernetes node that its cloud is not about to take.

    A node with a notice of its cloud (a spot interruption, a deletion, the end of its host) is cordoned, and its pods
    are asked to go, without being idle: its cloud ends it anyway. That takes a notice that stands, as its agent or the
    ledger has it, and happens until the deadline at the latest. Protected pods, pods of DaemonSets, and what a
    PodDisruptionBudget keeps are left where they are.

    Nothing to do. A node that is not taken is uncordoned.
    """
    against = obstacle(case.machine, case.observation, case.pool_rules.kubernetes)
    if against is None:
        return allow("Its cloud is about to take it.")
    return refuse(against, "Only what a cloud is about to take is evacuated, until its deadline.")


def pods_stay(case: Case) -> Finding:
    """Refuses to remove, cordon or drain a Kubernetes node with pods that must not be moved.

    A pod that holds GPUs goes only if it is proven idle and its people consent. Proven means: the node's agent says
    idle of the node and of each of its GPUs, for as long as the pool wants, and the pod is at least that old. Consent
    is the annotation `gpuwatch.io/interruptible: "true"` or `gpuwatch.io/idle-action` (`scale-to-zero`, `stop`,
    `delete`) on the pod, its workload or its namespace; `gpuwatch.io/snooze-until` there, or `gpuwatch snooze
    WORKLOAD`, takes it back until then. A pod that requests no GPU, and that the agent sees on one, counts as well. A
    pod that the agent alone sees, on a node that is not idle, keeps it. Of all pods that a drain moves, none may be
    protected (`gpuwatch.io/protect`). None may lose a volume that goes with it, or with its machine, without
    `gpuwatch.io/delete-local-data: "true"`. And none may be bare unless `pools.<name>.kubernetes.bare_pods` says
    `evict`. Bare is also a pod of a Job that fails by one more failure. Pods of DaemonSets stay; one with GPUs counts,
    and one that may have data on its host. So does a volume on a disk of the machine that no pod uses now. Each pod has
    to be sure to run on another node, whichever place the scheduler chooses for it and the others. A workload goes
    whole: if it has GPUs, each of its pods stays while a sibling on another node is not proven idle as long. Siblings
    are the workers of a Ray head, of an MPI launcher, of Spark's driver. A consent does not change that.

    Let the pods end, or annotate their workloads. The sentence names them.
    """
    _, wait = idle.choose_action(case.machine, case.observation, case.pool_rules.idle)
    stays = obstacles.disk_data(case.machine) or obstacles.unseen(case.machine)
    if stays is None:
        stays = obstacles.pods(case.machine, case.observation, case.pool_rules.kubernetes, wait)
    if stays is None:
        refused = None if case.machine.kubernetes is None else obstacles.refusing_budgets(case.machine.kubernetes)
        return allow("No pod on it has to stay." if refused is None else f"No pod on it has to stay. {refused}")
    return refuse(stays, "Let them end, or let their people consent by annotation (docs/kubernetes.md#annotations).")


def not_drained(case: Case) -> Finding:
    """Refuses to remove a node of Kubernetes or Slurm before gpuwatch has closed it to new work and its pods are gone.

    Ending the machine would kill what the eviction API may refuse: a PodDisruptionBudget protects a service only from
    evictions. So a cordon comes first, then evictions as often as it takes, and the removal once nothing is left to
    move. Pods of DaemonSets stay to the end. A node of Slurm is drained first, so that no job is sent to a machine that
    is off: Slurm sees only minutes later (`SlurmdTimeout`) that it is.

    Wait. After `pools.<name>.kubernetes.drain_timeout`, in Slurm after 15 minutes, the node is given back and kept.
    """
    known, in_slurm = case.machine.kubernetes, case.machine.slurm
    if in_slurm is not None and in_slurm.doubt is None and not case.asleep and not ours(in_slurm, case.observation):
        return refuse("It is not drained in Slurm by gpuwatch.", "The drain comes first.")
    if known is None or case.asleep:
        return allow(_NO_NODE if known is None else "It does not run.")
    if not known.unschedulable or not obstacles.ours(known, case.observation.ledger):
        return refuse("It is not cordoned by gpuwatch.", "The cordon comes first.")
    if known.to_drain:
        names = ", ".join(sorted(map(str, known.to_drain))[:3])
        return refuse(f"Still there: {how_many(len(known.to_drain), 'pod')} ({names}).", "They are drained first.")
    return allow("It is cordoned, and its pods are gone.")


def not_ours(case: Case) -> Finding:
    """Refuses to undo a cordon, or a drain in Slurm, that gpuwatch did not make.

    `gpuwatch.io/cordoned-by`, or the reason that Slurm shows, must name a decision of this ledger (P20). To undo an own
    cordon takes nothing else: it gives back what was there before, also in a paused pool and of a machine that is no
    longer enrolled.

    The person who cordoned the node uncordons it.
    """
    known, in_slurm = case.machine.kubernetes, case.machine.slurm
    if UNDOES in case.step.arguments and in_slurm is not None:
        if ours(in_slurm, case.observation) and in_slurm.drained_by == case.step.arguments[UNDOES]:
            return allow("Its drain in Slurm is gpuwatch's own.")
        return refuse("Its drain in Slurm is not gpuwatch's own.", "The person who drained it resumes it.")
    if known is None:
        return refuse(_NO_NODE, "There is nothing to undo.")
    ledger = case.observation.ledger
    if obstacles.ours(known, ledger) or obstacles.has_leftover_taint(known, ledger):
        return allow("Its cordon is gpuwatch's own.")
    return refuse("Its cordon is not gpuwatch's own.", "The person who cordoned it uncordons it.")
