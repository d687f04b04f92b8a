"""P21: whatever the rules allow of a wanted growth happens in that round. The rules themselves stay the last word."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gpuwatch.guard.case import Case
from gpuwatch.model.decision import ADDITIONS, Decision, Observation, Review, Step, Verb
from gpuwatch.model.proposal import changing
from gpuwatch.policies import PoolRules, capacity, wakes
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.next_offer import lacking, next_launches, without_offer
from gpuwatch.policies.sizes import Need
from gpuwatch.policies.spot import back
from gpuwatch.policies.spot.records import OFFER
from gpuwatch.policies.spot.settings import Offers

# Rules about the target of an addition: another target may pass where this one does not.
_OF_THE_TARGET = frozenset(
    {"not_enrolled", "protected", "other_cloud", "residency", "owned", "group", "not_running", "start_consent"}
    | {"cooling_down", "launch_unseen", "launch_lasts", "month_budget", "owner_limit", "gone", "interruptible"}
    | {"hourly_cost_limit", "max_gpus"}
)
# Those of them that every other machine of that type breaks, too.
_OF_THE_SIZE = frozenset({"hourly_cost_limit", "max_gpus"})


def largest(case: Case, judge: Callable[[Case], Review]) -> Review:
    """The review of a step; of the growth of a group by several nodes, of the largest part that no rule objects to.

    Whatever limits a growth lets a smaller one pass before a larger one, so the size is found by halving. Where not
    even one node may come, the result lists the objections to that one.
    """
    whole = judge(case)
    step, most = case.step, capacity.adds(case.step)
    if whole.allowed or step.verb is not Verb.GROW or most == 1:
        return whole
    best = judge(replace(case, step=_part(step, 1, whole)))
    if not best.allowed:
        return replace(best, step=step)
    low, high = 2, most - 1
    while low <= high:
        middle = (low + high) // 2
        tried = judge(replace(case, step=_part(step, middle, whole)))
        if tried.allowed:
            best, low = tried, middle + 1
        else:
            high = middle - 1
    return best


def _part(step: Step, adds: int, whole: Review) -> Step:
    """The growth by fewer nodes, with what limits it."""
    limited = " ".join(answer.sentence for answer in whole.refusals)
    sentence = f"{step.reason.sentence} {adds} of {capacity.adds(step)} now: {limited}"
    return replace(_smaller(step, adds), reason=replace(step.reason, sentence=sentence))


def _smaller(step: Step, adds: int) -> Step:
    """The growth by fewer nodes."""
    size = int(step.arguments["size"]) - capacity.adds(step) + adds
    return replace(step, arguments={**step.arguments, "size": str(size), "adds": str(adds)})


def instead(
    observation: Observation,
    decision: Decision,
    reviews: Sequence[Review],
    rules: PoolRules,
    judged: Callable[[Step], Review],
) -> Iterator[Review]:
    """The reviews of what may be added from elsewhere, in the place of what the pool may not have as decided.

    No more comes than was decided. One of a group that was reviewed before is in the place of the earlier one.
    """
    fleet, sizes = observation.fleet, rules.sizes(observation.fleet)
    wanted = [step for step in changing(decision.steps) if _may_come_from_elsewhere(step)]
    asked = [review for review in reviews if _may_come_from_elsewhere(review.step)]
    granted = sizes.total(fleet, [each.step for each in asked if each.allowed])
    need = lacking(observation, decision, sizes, granted, sizes.total(fleet, wanted) - granted)
    blocked = [each for each in asked if not each.allowed]
    if need.missing <= 0 or not all(map(another_may_pass, blocked)):
        return
    launch = LaunchRules() if any(each.step.verb is Verb.LAUNCH for each in blocked) else rules.sources
    dear: set[str] = set()  # machine types that are too dear, or of no known price
    grown = {each.step.node_id: capacity.adds(each.step) for each in asked if each.allowed}
    for step in capacity.others(observation, decision.pool, need, decision.steps, launch, rules.start, grown=grown):
        node, had = fleet.find(step.node_id), grown.get(step.node_id, 0)
        each = (sizes.size_of_step(fleet, step) or 0) // capacity.adds(step)
        count = min(capacity.adds(step) - had, need.count(each))
        if count <= 0 or (node is not None and node.instance_type in dear):
            continue
        review = judged(step if capacity.adds(step) == count + had else _smaller(step, count + had))
        if review.allowed:
            yield review
            count = capacity.adds(review.step) - had
            need = need.after_machines(count * each, count)
        elif node is not None and {answer.rule for answer in review.refusals} <= _OF_THE_SIZE:
            dear.add(node.instance_type)
        elif not another_may_pass(review):
            return
        if need.missing <= 0:
            return
    if isinstance(rules.sources, Offers) and launch is not rules.sources:
        yield from _other_offers(observation, decision, asked, need, rules.sources, judged)


def _may_come_from_elsewhere(step: Step) -> bool:
    """Whether another machine would do: not where work waits for this one, nor where spot takes a node's place."""
    return step.verb in ADDITIONS and step.reason.code not in {back.CODE, wakes.CODE}


def _other_offers(
    observation: Observation,
    decision: Decision,
    asked: Sequence[Review],
    need: Need,
    sources: Offers,
    judged: Callable[[Step], Review],
) -> Iterator[Review]:
    """The reviews of launches from the offers after those that the guard has refused.

    The way back to spot has no such second try: it takes what is left by those that are needed.
    """
    pool, names = decision.pool, {step.node_id for step in decision.steps}
    added = [each.step for each in asked if each.allowed]
    for each in asked:
        if not each.allowed and OFFER in each.step.arguments:
            observation = without_offer(observation, pool, each.step.arguments[OFFER])
    reason = next(each.step.reason for each in asked if not each.allowed)
    while need.missing > 0:
        steps = next_launches(observation, pool, replace(need, but=names), added, sources, reason)
        step = next(iter(steps), None)
        if step is None:
            return
        names.add(step.node_id)
        review = judged(step)
        if review.allowed:
            yield review
            added.append(review.step)
            need = need.after_machines(need.sizes.size_of_step(observation.fleet, review.step) or 0)
        elif another_may_pass(review):
            observation = without_offer(observation, pool, step.arguments[OFFER])
        else:
            return


def another_may_pass(review: Review) -> bool:
    """Whether only rules about this very target object: another one may pass."""
    return {answer.rule for answer in review.refusals} <= _OF_THE_TARGET
