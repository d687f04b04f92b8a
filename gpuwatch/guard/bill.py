"""Rules on whether a removal would end what the target costs."""

from gpuwatch.guard.case import Case, Finding, allow, final_verb, refuse
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import CapacityType

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
