"""Rules on how large a pool may be, and how small: in nodes, and in GPUs where the pool counts them."""

from gpuwatch.guard.case import Case, Finding, allow, refuse
from gpuwatch.model.decision import ADDITIONS, REMOVAL_STEPS, Step
from gpuwatch.model.readable import how_many
from gpuwatch.policies.capacity import pool_of_launch
from gpuwatch.policies.machines import pool_machines, unsized_machines
from gpuwatch.policies.sizes import NODES, Unit
from gpuwatch.policies.spot import back

_MORE_NODES = 4  # that a pool without a maximum may have besides what it needs


def min_nodes(case: Case) -> Finding:
    """Refuses a removal that leaves a pool fewer sound running nodes than its minimum.

    The minimum is `pools.<name>.min_nodes` (P7). A node counts if it runs, its use is known, and none of its GPUs is
    failing or in a deadlock: work can be given to it. A machine with a dead agent does not count. Parked nodes and
    nodes with a notice count. Removals that are under way, or were decided earlier in the round, count as gone. Stopped
    nodes may be removed. The minimums of the scaling and schedule policies limit the decision before this rule.
    """
    if case.asleep:
        return allow("It does not run.")
    leaving, roster = _leaving(case), case.observation.fleet.roster(case.pool)
    left = len(roster.sound) - len(leaving & roster.sound)  # in the order of the few
    unsound = len(roster.members) - len(leaving & roster.members) - left
    sentence = f"{how_many(left, 'running node')} of the pool would remain"
    one = unsound == 1
    more = (
        f"{unsound} more {'is' if one else 'are'} unknown, failing or stalled and {'does' if one else 'do'} not count"
    )
    sentence += f"; {more}" if unsound else ""
    if left >= case.pool_rules.min_nodes:
        return allow(f"{sentence}.")
    return refuse(f"{sentence}.", f"min_nodes is {case.pool_rules.min_nodes}.")


def min_gpus(case: Case) -> Finding:
    """Refuses a removal that leaves a pool fewer GPUs on sound running nodes than its minimum.

    The minimum is `pools.<name>.min_gpus`, for pools with `unit: gpus`. Nodes count as for [min_nodes](#min_nodes),
    each with its GPUs (P7). A node of which nobody knows how many it has counts as none.
    """
    floor = case.pool_rules.min_gpus
    if case.asleep or not floor:
        return allow("It does not run." if case.asleep else "The pool has no minimum in GPUs.")
    fleet, leaving = case.observation.fleet, _leaving(case)
    roster, sizes = fleet.roster(case.pool), case.pool_rules.sizes(fleet)
    stay = [node for node in roster.nodes if node.id in roster.sound and node.id not in leaving]
    left = sum(sizes.node(node) or 0 for node in stay)
    sentence = f"{sizes.words(left)} on {how_many(len(stay), 'running node')} of the pool would remain."
    return allow(sentence) if left >= floor else refuse(sentence, f"min_gpus is {floor}.")


def _leaving(case: Case) -> set[str]:
    """The nodes that are being removed, or that were decided to be earlier in the round, and that of the step."""
    leaving = pool_machines(case.observation, case.pool).may_leave
    return {*leaving} | {step.node_id for step in case.counts(REMOVAL_STEPS)} | {case.step.node_id}


def max_nodes(case: Case) -> Finding:
    """Refuses an addition beyond the pool's maximum.

    The maximum is `pools.<name>.max_nodes`. Nodes on their way count as present, so asking again adds nothing (P4).
    Nodes above the maximum are not removed for that reason; only idle nodes ever are.

    A node that its cloud is about to take does not count, so that it is replaced before it is gone. While there are
    such nodes the pool may run `pools.<name>.surge_nodes` more than its maximum. Without that setting it may run as
    many more as they are. It never runs more than twice its maximum.

    Nodes that gpuwatch no longer waits for may still come. These are the nodes that a cloud does not give a group,
    until the group's size is taken back, and a launched machine that its cloud has never shown. They count here, and
    not as nodes. A launch without an answer counts here too, as it may have happened, also where the pool's settings
    have changed since. So does a machine that gpuwatch launched and that stopped by itself: its disks are paid for, and
    it may be started again.

    Spot that takes the place of a node on demand is launched first. For that alone `pools.<name>.capacity.surge` nodes
    more may be there until that node is gone.

    Without the setting the maximum follows from what the pool needs, now or within the time that decisions look back
    (an hour, or longer cooldowns). It is half as many nodes again, and four more at least (P23). So it never stands
    against growth that is wanted, and holds what comes besides: machines that stopped, launches in doubt, a surge.
    """
    return _maximum(case, "nodes")


def max_gpus(case: Case) -> Finding:
    """Refuses an addition beyond the pool's maximum of GPUs.

    The maximum is `pools.<name>.max_gpus`, for pools with `unit: gpus`; `pools.<name>.max_nodes` holds as well. A
    launch counts with the GPUs of nodes of its type that are there; if none is there, with what its offer says.
    A launch without an answer, which may have happened, counts as well. Nothing is added while nobody knows the GPUs of
    a machine of the pool, or of the one that would come. Of a growth that is too large a smaller one, or another
    machine, may come in its place.

    Machines that may still come, and those that their cloud is about to take, are treated as in
    [max_nodes](#max_nodes). For the latter the pool may have their GPUs more, those of the largest
    `pools.<name>.surge_nodes` of them where that is set, and never more than twice its maximum. For spot in the place
    of nodes on demand it is `pools.<name>.capacity.surge` machines of the largest offer.

    Let an agent report the GPUs, name them in an offer of that type, or raise `pools.<name>.max_gpus`.
    """
    return _maximum(case, "gpus")


def _maximum(case: Case, unit: Unit) -> Finding:
    """Whether an addition stays within the pool's maximum of nodes, or of GPUs: both see the same machines."""
    rules, fleet = case.pool_rules, case.observation.fleet
    sizes = NODES if unit == "nodes" else rules.sizes(fleet)
    found, adding = pool_machines(case.observation, case.pool), (*_adding(case), case.step)
    counted = [sizes.size_of_step(fleet, step) for step in adding]
    after = sizes.of_nodes(found.present) + sizes.of_expected(found.coming) + sum(each or 0 for each in counted)
    limit, surge = (rules.max_nodes, rules.capacity.surge) if unit == "nodes" else (rules.max_gpus, rules.surge)
    named = f"max_{unit}"
    if limit is not None and case.step.reason.code == back.CODE:
        limit, named = limit + surge, f"{named} with capacity.surge"
    needed = limit is None and rules.unit == unit
    if needed:
        limit, named = _limit_by_need(case), f"{named} is not set; by what the pool needs it"
    if limit is None:
        words = f"The pool would have {how_many(after, 'node')}."
        return allow(words if unit == "nodes" else "The pool has no maximum in GPUs.")
    asked = {step.node_id for step in adding}
    late = [*found.late, *(each for each in found.doubtful if each.name not in asked)]
    stopped = [node for node in found.stopped if node.id not in asked]
    unsized = unsized_machines(case.observation, case.pool, sizes, all_that_may_be=True)
    if (unsized or None in counted) and needed:
        return allow("The pool has no maximum in GPUs.")
    if unsized or None in counted:
        what = ", ".join(unsized) or "what would come"
        return refuse(f"Nobody knows the GPUs of {what}, and max_gpus is set.", "Name them in an offer of that type.")
    taken = sorted((sizes.node(node) or 0 for node in found.taken), reverse=True)
    going, most = sum(taken), limit + min(sum(taken[: rules.surge_nodes]), limit)
    may, down = sizes.of_expected(late), sizes.of_nodes(stopped)
    sentence = (
        f"The pool would have {how_many(after, 'node' if unit == 'nodes' else 'GPU')}{_besides(may, down, going)}"
    )
    if after + may + down <= limit and after + may + down + going <= most:
        return allow(sentence)
    remedy = f"{named} is {limit}{f', and with those it is {most}' if going else ''}."
    return refuse(sentence, f"{remedy} Start or terminate those that stopped." if stopped else remedy)


def _limit_by_need(case: Case) -> int | None:
    """The maximum of a pool without one, in what it counts; None: nobody knows what it needs."""
    rules, surge = case.pool_rules, case.step.reason.code == back.CODE
    if case.wanted is None:
        return None
    wishes = [each.want for each in case.observation.ledger.wishes if each.pool == case.pool]
    needed = max([case.wanted, rules.least, *wishes])
    largest = 1 if rules.unit == "nodes" else max((each.gpus or 1 for each in rules.offers.values()), default=1)
    return needed + max(_MORE_NODES * largest, -(-needed // 2)) + (rules.surge if surge else 0)


def _besides(late: int, stopped: int, going: int) -> str:
    """The rest of a sentence on a pool's size: what does not count in it."""
    sentence = f", and {late} that may still come" if late else ""
    sentence += f", and {stopped} that gpuwatch launched and that stopped by themselves" if stopped else ""
    return sentence + (f", and {going} that its cloud is about to take." if going else ".")


def _adding(case: Case) -> list[Step]:
    """The steps allowed earlier that add to the same pool."""
    fleet = case.observation.fleet
    places = [(step, fleet.find(step.node_id) or fleet.group(step.node_id)) for step in case.counts(ADDITIONS)]
    return [step for step, place in places if (pool_of_launch(step) if place is None else place.pool) == case.pool]
