"""Rules on how much may change at a time, and for how much money."""

import math
from collections.abc import Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from itertools import chain

from gpuwatch.guard import launches
from gpuwatch.guard.case import Case, Finding, Subject, allow, refuse, retry_wait_seconds
from gpuwatch.model.budget import BudgetState, Scope
from gpuwatch.model.decision import (
    ADDITIONS,
    NOT_SENT,
    REMOVAL_STEPS,
    REMOVALS,
    SETTLE_TIMEOUT,
    VETOED,
    Done,
    Intent,
    Status,
    Verb,
)
from gpuwatch.model.duration import backoff_seconds, format_duration
from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import format_usd
from gpuwatch.model.offers import PriceKey
from gpuwatch.model.readable import how_many
from gpuwatch.model.verbs import PREPARATIONS, WORK_ENDINGS
from gpuwatch.policies import capacity
from gpuwatch.policies.machines import pool_machines
from gpuwatch.policies.spot import back
from gpuwatch.policies.spot.records import CAPACITY

_HOUR = timedelta(hours=1)
_BRINGS = frozenset({Verb.LAUNCH, Verb.GROW})
_ASKED_AGAIN = REMOVAL_STEPS | WORK_ENDINGS | {Verb.EVICT}
_VETOES = 3  # in a row
_ANSWERED = REMOVALS | PREPARATIONS  # they count once they may have been carried out


def in_flight(case: Subject) -> Finding:
    """Refuses a new action on a node before its last one has settled.

    It also refuses additions to a pool with an open launch or growth. A decision on data that does not yet show the
    last action would act twice (P4, P6). But one machine that hangs must not hold up the others (P19): a removal counts
    in the limits and for the minimum from the moment it is recorded, so it blocks only its own node. A launch or growth
    blocks only further additions to its pool, for at most 10 minutes after its last answer; until it has settled it
    counts as capacity. Of a workload only the same step, with the same end of its pods, is tried again.

    An action without an answer may have happened: it blocks its node until the cloud shows it. A removal counts as not
    carried out only if the cloud does not show it 10 minutes later. An action that the cloud certainly has not carried
    out blocks nothing else. Its next attempt waits 30 s, doubled each time, 15 minutes at most. A removal, or the end
    of pods, without permission waits 30 minutes, doubled each time, 4 hours at most, because somebody has to change a
    tag or a policy first.

    `gpuwatch status`, the plan and the alert GpuwatchLedgerUnsettled report a machine that hangs in `stopping`. A
    launch that brings no node has a rule of its own: `launch_unseen`.
    """
    ledger, step, now = case.observation.ledger, case.step, case.observation.now
    for each in ledger.open_intents:
        verb, target, since = (
            each.intent.verb,
            each.intent.node_id,
            each.intent.at if each.last is None else each.last.at,
        )
        # Capacity counts what is on its way; this holds for as long as a cloud may take to show it.
        brings = verb in _BRINGS and each.intent.pool in case.pools and now - since <= SETTLE_TIMEOUT
        brings = brings and not launches.unseen(each)  # which has a rule of its own
        open_still = not each.resumable or (target == step.node_id and not case.repeats(each.intent))
        if open_still and (target == step.node_id or (brings and step.verb in ADDITIONS)):
            whose = "An action on it" if target == step.node_id else "An addition to the pool"
            action = f"the {verb.value} of {target}, asked for at {each.intent.at:%H:%M} UTC"
            return refuse(f"{whose} is in flight: {action}.", "Wait until its outcome is known.")
    own = ledger.open_step(step.node_id, step.verb) or ledger.open_for(step.node_id)
    if own is None or own.last is None:
        return allow("Nothing is in flight.")
    denied = own.last.status is Status.DENIED and own.intent.verb in WORK_ENDINGS
    left = (own.last.at - case.observation.now).total_seconds() + retry_wait_seconds(own.attempts, denied=denied)
    if left > 0:
        return refuse(
            f"The last attempt was {own.last.status.value}: {own.last.detail.rstrip('.')}.",
            f"The next attempt is in {format_duration(left)}.",
        )
    return allow(f"Attempt {own.attempts + 1} of the same intent is due.")


def cooling_down(case: Case) -> Finding:
    """Refuses to try again soon after an action was given up.

    A machine that cannot be stopped, or a zone without capacity, would otherwise be asked for ever, at the cost of
    alarms and quotas. After a failed action the node is left alone for `limits.failure_cooldown`. If the cloud refuses
    a removal twice (a one-time spot instance, stop protection, a missing permission), gpuwatch gives up at once and
    waits for `limits.refusal_cooldown`. After a failed start or launch the same is not tried for
    `limits.capacity_cooldown`; a launch with other arguments, such as the next subnet, may be tried at once.

    Remove the cause that `gpuwatch status` names, or wait.
    """
    adding, limits, now = case.step.verb in ADDITIONS, case.limits, case.observation.now
    for done in case.observation.ledger.given_up:
        refused = done.refused and done.verb in REMOVALS
        wait = limits.capacity_cooldown if adding else limits.failure_cooldown
        wait = max(wait, limits.refusal_cooldown) if refused and not adding else wait
        until = done.at + timedelta(seconds=wait)
        if until <= now:
            continue
        if capacity.same_try(done, case.step) if adding else done.node_id == case.step.node_id:
            sentence = f"A {done.verb.value} of it was given up at {done.at:%H:%M} UTC: {done.detail.rstrip('.')}."
            return refuse(sentence, f"It is left alone until {until:%Y-%m-%d %H:%M} UTC.")
    return allow("No recent failure.")


def often_vetoed(case: Subject) -> Finding:
    """Refuses a removal for some minutes after it came to nothing three times in a row at the last moment.

    Right before the call agent, cloud, cluster and Slurm are asked again; an objection, a silence or a late answer
    cancels it. A machine that is idle in every round and never at that moment would be asked each minute for ever.
    After the third time within an hour it rests for two minutes, doubled each time, ten at most. The same holds if the
    answers are too old for `limits.max_confirmation_age` when the call would leave: agent, cloud or ledger are slow.

    Look at the objection, or make faster what it names. The next attempt comes by itself.
    """
    ledger, now = case.observation.ledger, case.observation.now
    last, vetoes = None, 0
    for done in reversed(ledger.ended_actions(_ASKED_AGAIN)):
        if done.node_id != case.step.node_id:
            continue
        if not (
            done.status is Status.CANCELLED and done.detail.startswith((VETOED, NOT_SENT)) and now - done.at < _HOUR
        ):
            break
        last, vetoes = last or done, vetoes + 1
    if last is None or vetoes < _VETOES:
        return allow("It was not vetoed three times in a row at the last moment.")
    left = (last.at - now).total_seconds() + backoff_seconds(vetoes - _VETOES + 1, first=120.0, longest=600.0)
    if left <= 0:
        return allow(f"It was vetoed {vetoes} times in a row at the last moment, and is asked again.")
    return refuse(
        f"Lately it came to nothing {vetoes} times in a row at the last moment, the last time at {last.at:%H:%M} UTC: "
        f"{last.detail.rstrip('.')}.",
        f"The next attempt is in {format_duration(left)}.",
    )


def blast_radius(case: Case) -> Finding:
    """Refuses a removal beyond the limits for a round and for an hour.

    Whatever else is wrong, no more than this is lost within an hour (P4). The limits are `limits.max_stops_per_round`,
    `limits.max_stops_per_hour`, `limits.max_stops_per_hour_ratio`, `limits.max_stops_per_owner_per_hour` (nodes without
    an owner tag are one owner) and `limits.max_stopped_usd_per_hour` (under it, a node without a known price is not
    stopped). The count is in the ledger and survives crashes.

    An action counts for an hour after its last attempt, also if the machine hangs in `stopping` for longer. An action
    without an answer counts, and so does one given up after it may have happened; an action that the cloud refused does
    not. The end of a member's scale-in protection counts as its removal, and so do the cordon and the drain of a
    Kubernetes node. All together count once, also where the cordon was undone. After a veto or refusal, a machine comes
    after the others for an hour.

    Wait, or raise the limit.
    """
    limits = case.limits
    past, begun = _gone_within_the_hour(case), {each.node_id for each in _within_the_hour(case, PREPARATIONS)}
    # Of a Kubernetes node the first step counts in its round: those that follow are of the same removal.
    granted = [step for step in case.counts(REMOVAL_STEPS) if step.node_id not in begun]
    counted = {each.node_id for each in past if isinstance(each, Intent)}
    fresh = [step for step in granted if step.node_id not in counted]
    hour = len(past) + len(fresh)
    # What was terminated within the hour is a part of the fleet that the share is of.
    there = case.observation.fleet.enrolled
    enrolled = len(there) + len({each.node_id for each in past} - there)
    share = math.ceil(limits.max_stops_per_hour_ratio * enrolled)
    for count, limit, name in (
        (0 if case.step.node_id in begun else len(granted), limits.max_stops_per_round, "max_stops_per_round"),
        (hour, limits.max_stops_per_hour, "max_stops_per_hour"),
        (hour, share, "max_stops_per_hour_ratio"),
    ):
        if count + 1 > limit:
            return refuse(f"{_count_words(count)}, {name} allows {limit}.", f"Wait, or raise {name}.")
    owner, per_owner = case.machine.owner, limits.max_stops_per_owner_per_hour
    rationed = per_owner is not None or limits.max_stopped_usd_per_hour is not None
    found = (case.observation.fleet.find(step.node_id) for step in fresh if rationed)
    nodes = [node for node in found if node is not None]
    if per_owner is not None:
        of_owner = [each for each in (*past, *nodes) if each.owner == owner]
        if len(of_owner) + 1 > per_owner:
            spent = f"{_count_words(len(of_owner))} for {owner or 'machines without an owner'}"
            return refuse(f"{spent}, max_stops_per_owner_per_hour allows {per_owner}.", "Wait, or raise it.")
    if limits.max_stopped_usd_per_hour is not None:
        worth = [_usd(case, node.id) for node in nodes] + [done.usd_per_hour for done in past]
        return _money(worth, _usd(case, case.step.node_id), limits.max_stopped_usd_per_hour, "max_stopped_usd_per_hour")
    return allow(f"{how_many(hour, 'stop')} within the hour, {len(granted)} in this round.")


def _count_words(number: int, noun: str = "stop") -> str:
    return f"{how_many(number, noun)} {'counts' if number == 1 else 'count'} already"


def _gone_within_the_hour(case: Case) -> list[Done | Intent]:
    """All removals; of protections that were ended those that no removal of the same node followed, or is about to."""
    removed = _within_the_hour(case, REMOVALS)
    once = {each.node_id for each in removed} | {case.step.node_id}
    ended = {
        each.node_id: each for each in _within_the_hour(case, REMOVAL_STEPS - REMOVALS) if each.node_id not in once
    }
    return [*removed, *ended.values()]


def _within_the_hour(case: Case, verbs: frozenset[Verb]) -> list[Done | Intent]:
    """What was, or may have been, done of these verbs within the hour, by when its last attempt was over.

    Cancelled intents changed nothing, failed ones may have. A removal that the cloud certainly did not carry out takes
    nobody's place, and one that hangs takes it for an hour.
    """
    ledger, hour_ago, cancelled = case.observation.ledger, case.observation.now - _HOUR, Status.CANCELLED
    found: dict[str, Done | Intent] = {
        done.key: done
        for done in ledger.ended_actions(verbs)
        if done.status is not cancelled
        and (done.reached or done.verb not in _ANSWERED)
        and (done.at if done.reached_at is None else done.reached_at) > hour_ago
    }
    for each in ledger.open_intents:
        if each.intent.verb not in verbs or each.intent.node_id == case.step.node_id:
            continue
        late = each.reached_at is not None and each.reached_at <= hour_ago
        if each.intent.verb not in _ANSWERED or (each.counts and not late):
            found[each.intent.key] = each.intent
    return list(found.values())


def growth_rate(case: Case) -> Finding:
    """Refuses an addition beyond the limits for a round and for an hour.

    A metric that runs away must not buy a thousand machines before anybody looks (P4). The limits are
    `limits.max_additions_per_round` and `limits.max_additions_per_hour`. A group's growth counts with all of its nodes.
    If it is too large, as many nodes come as all rules allow; the rest follows in later rounds. Of the additions of an
    hour, spot that takes the places of nodes on demand has half: the rest is for what a pool lacks.
    """
    per_hour = case.limits.max_additions_per_hour
    per_hour = per_hour // 2 if case.step.reason.code == back.CODE else per_hour
    past = _within_the_hour(case, ADDITIONS)
    now = sum(capacity.adds(step) for step in case.counts(ADDITIONS))
    hour = sum(capacity.adds_of(each.verb, each.arguments) for each in past)
    hour += sum(
        capacity.adds(step) for step in case.counts(ADDITIONS) if case.observation.ledger.open_for(step.node_id) is None
    )
    for count, limit, name in (
        (now, case.limits.max_additions_per_round, "max_additions_per_round"),
        (hour, per_hour, "max_additions_per_hour"),
    ):
        if count + capacity.adds(case.step) > limit:
            spent = _count_words(count, "addition")
            return refuse(f"{spent}, {name} allows {limit}.", f"Wait, or raise {name}.")
    return allow(f"{hour} additions within the hour, {now} in this round.")


def hourly_cost_limit(case: Case) -> Finding:
    """Refuses an addition that raises the price of the enrolled nodes above the limit per hour.

    The limit is `limits.max_usd_per_hour`. Open launches and starts of all pools count, and so do the nodes that groups
    still lack, and launches without an answer, which may have happened. One unknown price makes the sum unknown, and
    then nothing is added. A machine at another region's list price counts as in the dearest region. A launch without an
    `instance_type` has no known price. One from an offer costs what that offer does, spot or on demand; one that is on
    its way counts as on demand until its machine is listed.

    Add the missing prices (docs/money.md#prices), wait, or raise the limit.
    """
    limit = case.limits.max_usd_per_hour
    if limit is None:
        return allow("There is no limit on the fleet's price an hour.")
    found = [pool_machines(case.observation, pool) for pool in case.observation.fleet.pools]
    running = [
        None if (price := case.observation.price(node)) is None else price.limit_usd_per_hour
        for each in found
        for node in (*each.present, *each.taken, *each.leaving)
    ]
    asked = {case.step.node_id, *(step.node_id for step in case.counts(ADDITIONS))}
    expected = [(*each.coming, *each.late, *(one for one in each.doubtful if one.name not in asked)) for each in found]
    coming = [
        None if kind is None or (known := case.observation.prices.get(kind)) is None else known.limit_usd_per_hour
        for kind in (each.kind for each in chain.from_iterable(expected))
    ]
    new = [usd for step in case.counts(ADDITIONS) for usd in _each(case, step.node_id, step.arguments)]
    mine = _each(case, case.step.node_id, case.step.arguments)
    total: Decimal | None = Decimal(0)
    for usd in mine:
        total = None if usd is None or total is None else total + usd
    return _money([*running, *coming, *new], total, limit, "max_usd_per_hour")


def _each(case: Case, node_id: str, arguments: object) -> list[Decimal | None]:
    """The price of each node that an addition brings."""
    node, group = case.observation.fleet.find(node_id), case.observation.fleet.group(node_id)
    known: dict[str, str] = dict(arguments) if isinstance(arguments, dict) else {}
    kind = node.kind if node is not None else group.instance_type if group is not None else None
    prices = case.observation.prices
    price = prices.get(_offer_price_key(known)) or prices.get(kind or known.get("instance_type", ""))
    return [None if price is None else price.limit_usd_per_hour] * int(known.get("adds", "1"))


def _offer_price_key(arguments: Mapping[str, str]) -> str:
    """The key of the price of a launch from an offer: spot costs what spot costs there."""
    if CAPACITY not in arguments:
        return ""
    return PriceKey(
        instance_type=arguments.get("instance_type", ""),
        region=arguments.get("region"),
        zone=arguments.get("zone", ""),
        capacity_type=CapacityType(arguments[CAPACITY]),
        cloud=arguments.get("cloud", ""),
    ).key


def _usd(case: Case, node_id: str) -> Decimal | None:
    node = case.observation.fleet.find(node_id)
    price = None if node is None else case.observation.price(node)
    return None if price is None else price.limit_usd_per_hour


def _money(spent: Iterable[Decimal | None], more: Decimal | None, limit: Decimal, name: str) -> Finding:
    """Whether a sum stays within a limit; one unknown price makes the sum unknown."""
    known = list(spent)
    if more is None or None in known:
        return refuse(f"Not every price is known, and {name} is set.", "Add the missing prices, or remove the limit.")
    total = sum((usd for usd in known if usd is not None), Decimal(0))
    if total + more > limit:
        sentence = (
            f"{format_usd(total)} an hour count already and this adds {format_usd(more)}; "
            f"{name} allows {format_usd(limit)}."
        )
        return refuse(sentence, f"Wait, or raise {name}.")
    return allow(f"{format_usd(total + more)} of {format_usd(limit)} an hour.")


def month_budget(case: Case) -> Finding:
    """Refuses an addition covered by a month's budget that is used up, or forecast to be.

    This applies to `budgets` with `block_growth` (docs/budgets.md#budgets). `actual` refuses once all of the budget is
    spent; `forecast` also once the month is forecast to end above it, with the error margin that the past shows. A
    stopped node counts to a budget by its own cloud, pool, owner, account and tags. A new node counts if any node of
    its pool in its cloud does, or if it is the first one. If the ledger cannot say what is spent, nothing is added.
    Hours without a known price count here at the last known one of their kind. While a machine of a kind that never had
    a price runs, or if the price of what is added is not known, nothing is added. Removals, notices and what people
    start themselves are not affected.

    Raise the budget, add the missing prices (docs/money.md#prices), or wait for the next month.
    """
    watching = [each for each in case.observation.budgets if each.block_growth != "never" and _counts(case, each.scope)]
    for each in watching:
        key = f"budgets.{each.name}"
        if each.doubt is not None:
            return refuse(
                f"The spending of the budget {each.name} is unknown: {each.doubt}.", f"See the log, or {key}."
            )
        if each.blocked is not None:
            lacks = "add the missing prices, " if each.unpriced_hours or each.unpriced_now else ""
            until = f"Wait until {each.ends_at:%Y-%m-%d %H:%M} UTC, {lacks}or raise {key}.usd_per_month."
            return refuse(f"{each.blocked}.", until)
    if not watching:
        return allow("No month's budget blocks its growth.")
    for each in watching:
        if _adds_unpriced(case, each):
            return refuse(
                f"The price of what is added is not known, and the budget {each.name} limits growth.",
                f"Add the price (docs/money.md#prices), or set budgets.{each.name}.block_growth to never.",
            )
    return allow(f"The month's budget allows it: {', '.join(each.name for each in watching)}.")


def _adds_unpriced(case: Case, budget: BudgetState) -> bool:
    """Whether the addition has no price, and the budget no last known one of its type."""
    if case.step.verb not in ADDITIONS:
        return False
    if case.node is not None:
        return _usd(case, case.node.id) is None and case.node.instance_type not in budget.assumed_types
    group = case.group
    kind = group.instance_type if group is not None else case.step.arguments.get("instance_type", "")
    prices = _each(case, case.step.node_id, case.step.arguments)
    return None in prices and kind not in budget.assumed_types


def _counts(case: Case, scope: Scope) -> bool:
    """Whether what the step adds counts: a node by itself, a new one as any of its pool does, or if it is the first.

    What a launched node will be labelled with is not known; the nodes of its pool in the same cloud tell best. A launch
    names its cloud where there are several.
    """
    if scope.pool not in {None, case.pool}:
        return False
    if case.node is not None:
        return scope.covers(case.node)
    cloud = case.group.cloud if case.group is not None else case.step.arguments.get("cloud", "")
    if cloud and scope.cloud not in {None, cloud}:
        return False
    nodes = [node for node in case.observation.fleet.roster(case.pool).nodes if not cloud or node.cloud == cloud]
    return not nodes or any(scope.covers(node) for node in nodes)
