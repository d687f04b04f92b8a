"""Rules on what a removal does: whether it ends the bill, whether the cloud can do it, and what would be lost."""

from gpuwatch.guard.case import Case, Finding, allow, chosen_action, final_verb, refuse
from gpuwatch.model.activity import LocalDisks
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.verbs import prepared_removal
from gpuwatch.policies.profiles import OWNED

_PAID_ANYWAY = {
    CapacityType.CAPACITY_BLOCK: "It runs in a Capacity Block, which is paid to its end.",
    CapacityType.RESERVED: "It runs in a capacity reservation, which is paid whether it runs or not.",
    CapacityType.DEDICATED_HOST: "It runs on a Dedicated Host, which is paid whether anything runs on it or not.",
    CapacityType.PREPAID: "It is prepaid, by the month or the year: it is paid to the end of its term.",
}


def reserved_capacity(case: Case) -> Finding:
    """Refuses to remove a node that is prepaid, in a Capacity Block, in a reservation or on a Dedicated Host.

    Its hours are paid whether it runs or not, so removing it saves nothing, and a block's machine may not come back.
    Prepaid are machines that are paid by the month or the year (包年包月 on Alibaba Cloud and Tencent Cloud).
    Spot and on-demand nodes pass, and so do dedicated instances (tenancy `dedicated`), which are paid by themselves.
    Savings Plans are not capacity and do not matter here.

    Let others use the node, or end the reservation.
    """
    sentence = _PAID_ANYWAY.get(case.machine.capacity_type)
    if sentence is None:
        return allow("Its hours are paid as they are used.")
    return refuse(sentence, "Stopping it saves nothing; let others use it, or end the reservation.")


def still_billed(case: Case) -> Finding:
    """Refuses a stop that would not end what the node costs per hour, and its notice.

    Stopped does not mean unbilled on every cloud. Alibaba Cloud and Tencent Cloud go on billing some machines that are
    stopped: those with local disks, for example. gpuwatch always asks for the stop
    that ends the bill, and this rule refuses where the cloud cannot do that: users would lose the machine, and nobody
    would save anything. A termination ends the bill, and is not refused. What a stopped node keeps (disks, addresses)
    does not count here: `gpuwatch report` lists that. A node that is paid for anyway is refused by `reserved_capacity`
    alone: its termination would throw away what is paid.

    `pools.<name>.idle.action: terminate` could remove the node.
    """
    reason = case.machine.still_billed
    if case.machine.capacity_type in _PAID_ANYWAY:
        return allow("It is paid for anyway: reserved_capacity answers.")
    if reason is None or case.asleep or final_verb(case) is not Verb.STOP:
        return allow("The action ends what it costs per hour.")
    return refuse(f"A stop would not end its bill: {reason}.", "`action: terminate` could remove it.")


def unsupported(case: Case) -> Finding:
    """Refuses an action that the cloud would reject or undo, and its notice.

    EC2 stops a spot instance only if its request is persistent, and never stops a machine with an instance store
    as its root disk. If the machine of a persistent request is terminated, EC2 launches a new one. A request that EC2
    does not describe might do so, too; the permission `ec2:DescribeSpotInstanceRequests` may be missing. Stop
    protection in the cloud (DisableApiStop) is known only after EC2 has refused.

    If a node cannot be stopped, `pools.<name>.idle.action: terminate` could remove it. If terminating would not last,
    cancel the spot request, or set `action: stop`.
    """
    node, verb = case.machine, final_verb(case)
    if node.owned:
        return allow("It is a host of your own: no_power answers.")
    if verb is Verb.STOP and node.cannot_stop is not None:
        return refuse(f"The cloud cannot stop it: {node.cannot_stop}.", "`action: terminate` could remove it.")
    if verb is Verb.TERMINATE and node.cannot_terminate is not None:
        return refuse(
            f"Terminating it would not end it: {node.cannot_terminate}.",
            "Cancel the request that would launch it again, or set `action: stop`.",
        )
    return allow("The cloud can do it.")


def no_power(case: Case) -> Finding:
    """Refuses a removal of a host of your own that gpuwatch cannot switch off, and its notice.

    With `cloud.provider: hosts` gpuwatch watches and counts. It switches a host off only where its pool has power
    control, and only while it is proved that the BMC is the host's own and could start it again. A host of your own is
    never terminated. What it costs without use is counted as waste all the same.

    Let others use the host, ask its owner to switch it off, or give its pool
    [power control](clouds/hosts-power.md). Where it has that, mend what the sentence says.
    """
    terminates = final_verb(case) is Verb.TERMINATE
    reason = case.machine.cannot_terminate if terminates else case.machine.cannot_stop
    if not case.machine.owned or reason is None:
        return allow("It is not a host without power control.")
    return refuse(f"It is a host of your own, and {reason}.", "Its owner can switch it off, or let others use it.")


def may_not_start(case: Case) -> Finding:
    """Refuses to stop a node that might not start again, and its notice.

    A stop promises that the machine can be had again as it was. On AWS a machine may have volumes under a KMS key of
    your own. If nobody lets EC2 use that key at the next start, EC2 accepts the start all the same, and the machine
    falls back to stopped. So gpuwatch looks before the first stop: at the key, at its own right to it, and at machines
    with the same key that did not start. What is not known of such a key counts as a no. A termination is not refused:
    it is meant for good.

    Give gpuwatch the right that the sentence names, or repair the key
    ([AWS](clouds/aws.md#volumes-under-keys-of-your-own)). Where a machine did not start, start that one once with the
    right in place.
    """
    reason = case.machine.may_not_start
    if reason is None or case.asleep or final_verb(case) is not Verb.STOP:
        return allow("Nothing is known that would keep it from starting again.")
    return refuse(
        f"It might not start again: {reason}.", "Give gpuwatch the right to its key, or `action: terminate` removes it."
    )


def action_not_enabled(case: Case) -> Finding:
    """Refuses a removal that the pool's settings do not name for the node's activity.

    Terminating destroys disks. `action: stop` does not allow termination, `report` allows no removal at all, and
    consent for idle nodes does not cover occupied, parked or stalled ones. Where a pool says `terminate`, a stop is
    allowed as the milder action. Stopped nodes are judged by `not_stopped_by_us`.

    Set `pools.<name>.profile`, or `action`, `occupied`, `parked` or `stalled` in `pools.<name>.idle`.
    """
    state, verb = case.machine.activity.state, prepared_removal(case.step.verb, case.step.arguments)
    if case.asleep:
        return allow("It does not run.")
    choice = chosen_action(case)
    if choice == "terminate" or (choice == "stop" and verb not in {Verb.TERMINATE, Verb.UNPROTECT}):
        return allow(f"The pool says `{choice}` for {state.value} nodes.")
    if choice is None:
        return refuse(
            f"No setting allows the removal of {state.value} nodes.",
            "Only idle, occupied, parked and stalled nodes are removed.",
        )
    key = state.value if state.value in OWNED else "action"
    return refuse(
        f"The pool says `{choice}` for {state.value} nodes.", f"To allow it, change pools.{case.pool}.idle.{key}."
    )


def data_loss(case: Case) -> Finding:
    """Refuses to remove a running node with local disks (instance store) in use, unless the pool allows it.

    A stop erases local disks without asking; checkpoints on them are lost. Nothing is lost where nothing is: the agent
    looks at these disks, and again for the last confirmation. They are unused if they are neither formatted nor written
    to since the boot, or if they hold nothing but an empty file system ([local
    disks](policies/idle.md#local-disks)). What the agent does not know counts as used: it is too old, does not see the
    host's disks, or is not asked (`signals.source: promql`). A stopped node has nothing left to lose there.

    Decide with `pools.<name>.idle.instance_store`: `discard` if nothing on these disks is worth keeping, `keep` if such
    nodes are to be left alone while their disks are in use. `ask`, the default, leaves them alone, too, and `gpuwatch
    doctor controller` says that the pool needs a decision.
    """
    node, rules = case.machine, case.pool_rules.idle
    if not node.instance_store or case.asleep:
        return allow("It has no local disk that a stop would empty.")
    if rules.instance_store == "discard":
        return allow("Its local disks may be emptied: the pool says so.")
    if not node.local_data:
        return allow("Its local disks are not used: its agent sees nothing on them.")
    verdict = node.verdict
    if verdict is not None and verdict.local_disks is LocalDisks.USED:
        sentence = f"Its local disks ({node.instance_type} has instance store) are in use and would lose their data."
    else:
        sentence = (
            f"It is not known whether its local disks ({node.instance_type} has instance store) are in use; "
            "`gpuwatch doctor agent` on it says why."
        )
    key = f"pools.{case.pool}.idle.instance_store"
    return refuse(
        sentence,
        f"Decide with {key}: `discard`, if nothing on them is worth keeping, or `keep`, if such machines are to stay.",
    )
