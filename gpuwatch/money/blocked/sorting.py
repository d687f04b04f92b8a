"""PURE: what holds each machine without use back. It asks the guard's own rules, so it cannot differ from them.

Rules, all of them:

1. A busy machine is left out, and so is one with a busy GPU.
2. A machine of unknown use may be in use. So may one that the guard does not believe: an old verdict, a missing GPU,
   required evidence that is missing.
3. A machine is on its way if its stop is under way: an open intent, or a notice that still counts.
4. Any other machine without use is asked: which rules would refuse its removal, however long it has been idle by then?
   What passes by itself within the ordinary course (the wait, the notice, the warm-up) is no obstacle.
5. A machine that nothing holds is on its way, too. What has not been idle for long enough is marked.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from gpuwatch import guard
from gpuwatch.guard import Case, Rulebook
from gpuwatch.guard.obstacles import IN_DOUBT, RANK, Holds, Obstacle
from gpuwatch.guard.outlook import group_keeps_member
from gpuwatch.model.activity import State
from gpuwatch.model.decision import REMOVAL_STEPS, Decision, Observation, Reason, Review, Step, Verb
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.policies import idle
from gpuwatch.policies.kubernetes.obstacles import consents, is_joined
from gpuwatch.policies.machines import pool_machines
from gpuwatch.policies.sizes import NODES, Sizes

_NOT_USED = {
    State.IDLE: Obstacle.IDLE_REPORT,
    State.OCCUPIED: Obstacle.OCCUPIED,
    State.PARKED: Obstacle.PARKED,
    State.STALLED: Obstacle.STALLED,
}
_POOLS_CHOICE = frozenset(_NOT_USED.values())
_UNASKED = Reason(code="", sentence="")
# What the objection of a rule means, as the rule says; `Holds.BY_FACTS` are looked at below.
_ALWAYS, _WHEN_DUE = (
    {name: rule.obstacle for name, rule in guard.RULES.items() if rule.obstacle is not None and rule.holds is holds}
    for holds in (Holds.ALWAYS, Holds.WHEN_DUE)
)
_BY_STEP = {"queued": Obstacle.DEMAND, "window_ahead": Obstacle.DEMAND, "no_price": Obstacle.NO_PRICE}
_WAITED = REMOVAL_STEPS | {Verb.NOTICE}
_WAIT_OVER = frozenset({"grace", "min_nodes", "queued", "window_ahead", "kept"})
# Those about ownership need no verdict: machines in doubt have them as well.
_OF_OWNERS = (
    Obstacle.PAID_ANYWAY,
    Obstacle.NOT_ENROLLED,
    Obstacle.GROUP_WITHOUT_CONSENT,
    Obstacle.OTHER_SYSTEM,
    Obstacle.UNKNOWN_POOL,
    Obstacle.OTHER_CLOUD,
    Obstacle.PROTECTED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A machine that is not in use, or may not be. `obstacles` are in order; without any it is on its way to a stop.

    `waits`: it has not been so for as long as its pool waits. `doubt` is why its use is not known.
    """

    node: Node
    usd_per_hour: Decimal | None
    price_source: str | None = None
    obstacles: tuple[Obstacle, ...] = ()
    waits: bool = False
    doubt: str | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether it may be in use."""
        return bool(self.obstacles) and self.obstacles[0] in IN_DOUBT


@dataclass(slots=True, kw_only=True)
class _Found:
    """A machine without use on its way to a `Held`."""

    node: Node
    case: Case
    step: Step | None
    obstacles: set[Obstacle] = field(default_factory=set)
    under_way: bool = False


def held_back(
    observation: Observation, decisions: Sequence[Decision], reviews: Sequence[Review], rules: Rulebook
) -> Iterator[Held]:
    """Every running machine that is not known to be busy, in no particular order."""
    steps = {step.node_id: step for decision in decisions for step in decision.steps}
    reviewed = {review.step.node_id: review for review in reviews}
    bursts = guard.find_bursts(observation, rules.limits)
    found: dict[str, list[_Found]] = {}
    for node in observation.fleet.nodes:
        if node.state is not NodeState.RUNNING or _busy(node):
            continue
        step = steps.get(node.id)
        said = step or Step(node_id=node.id, verb=Verb.HOLD, reason=_UNASKED, change="")
        asked = replace(said, verb=_verb(node, observation, rules))
        case = guard.case_of(asked, observation, node.pool, rules, frozen=bursts)
        doubted = _doubt(case)
        if doubted is not None:
            yield _in_doubt(case, doubted)
            continue
        each = _Found(node=node, case=case, step=step)
        review = reviewed.get(node.id)
        each.under_way = _under_way(each, review)
        if not each.under_way:
            each.obstacles |= set(_obstacles(each, review))
        found.setdefault(node.pool, []).append(each)
    for pool, machines in found.items():
        _keep_floor(observation, pool, machines, rules)
        _keep_group_sizes(observation, machines)
        yield from map(_held_by, machines)


def _busy(node: Node) -> bool:
    """Return whether the node is in use (rule 1)."""
    gpus = () if node.verdict is None else node.verdict.gpus
    return node.activity.state is State.BUSY or any(gpu.activity.state is State.BUSY for gpu in gpus)


def _verb(node: Node, observation: Observation, rules: Rulebook) -> Verb:
    """How the pool would remove the machine; where it would not, how it removes idle ones."""
    settings = rules.pool(node.pool).idle
    choice, _ = idle.choose_action(node, observation, settings)
    if choice not in {"stop", "terminate"}:
        choice = settings.action
    return Verb.TERMINATE if choice == "terminate" else Verb.STOP


def _refuses(case: Case, rule: str) -> bool:
    found = guard.RULES[rule].answer(case)
    return found is not None and found[0]


def _doubt(case: Case) -> Obstacle | None:
    """Rule 2: why the machine may be in use; None: it is not."""
    node = case.machine
    if node.verdict is None:
        return Obstacle.NO_AGENT
    inside = (gpu.activity.state for gpu in node.verdict.gpus)
    if node.activity.state is State.UNKNOWN or State.UNKNOWN in inside:
        return Obstacle.UNKNOWN_USE
    if _refuses(case, "gpus_missing"):
        return Obstacle.GPUS_MISSING
    launched = node.launched_at
    if launched is None and not node.owned:
        return Obstacle.DOUBTFUL_VERDICT
    if launched is not None and node.activity.held_seconds > (case.observation.now - launched).total_seconds():
        return Obstacle.DOUBTFUL_VERDICT
    if _refuses(case, "stale"):
        return Obstacle.DOUBTFUL_VERDICT
    return Obstacle.NO_EVIDENCE if idle.lacking(node.activity, case.pool_rules.idle) is not None else None


def _under_way(each: _Found, review: Review | None) -> bool:
    """Rule 3. A notice from before a pause, or from before a controller only observed, does not count any more."""
    ledger, step = each.case.observation.ledger, each.step
    if any(
        entry.intent.node_id == each.node.id and entry.intent.verb in REMOVAL_STEPS for entry in ledger.open_intents
    ):
        return True
    if step is not None and step.verb in REMOVAL_STEPS:
        return review is not None and review.allowed
    stands = ledger.notice(each.node.id) is not None and step is not None and step.reason.code == "grace"
    return stands and not _refuses(each.case, "observe_only") and not _refuses(each.case, "paused")


def _obstacles(each: _Found, review: Review | None) -> Iterator[Obstacle]:
    """Yield the obstacles that a review names (rule 4)."""
    case, step = each.case, each.step
    yield from _of_owners(case)
    known = case.unknown_pool is None
    if known:
        yield from _of_pools_choice(case)
    for rule, obstacle in _ALWAYS.items():
        blind = obstacle is Obstacle.LOW_COVERAGE and not case.machine.enrolled  # it is no member of its pool yet
        if obstacle not in _OF_OWNERS and not blind and _refuses(case, rule):
            yield obstacle
    if known and _refuses(case, "group") and group_keeps_member(case):
        yield Obstacle.GROUP_SIZE
    if step is None:
        return
    if step.reason.code in _BY_STEP:
        yield _BY_STEP[step.reason.code]
    if step.verb in REMOVAL_STEPS and review is not None:
        yield from (_WHEN_DUE[name] for name in _final_refusals(each, review))


def _final_refusals(each: _Found, review: Review) -> Iterator[str]:
    """What stands against a removal after the grace of its notice."""
    notice = each.case.observation.ledger.notice(each.node.id)
    for answer in review.refusals:
        told = notice is not None and notice.told_at is not None
        if answer.rule in _WHEN_DUE and not (answer.rule == "not_notified" and told):
            yield answer.rule


def _of_owners(case: Case) -> Iterator[Obstacle]:
    """Who owns the machine, and whether gpuwatch may touch it."""
    node, group = case.machine, case.group
    for rule, obstacle in _ALWAYS.items():
        if obstacle in _OF_OWNERS and _refuses(case, rule):
            yield obstacle
    if not node.enrolled:
        yield Obstacle.NOT_ENROLLED
    if node.managed_by is not None and not is_joined(node, case.pool_rules.kubernetes):
        by_group = group is not None and not group.enrolled and node.managed_by.endswith(group.name)
        yield Obstacle.GROUP_WITHOUT_CONSENT if by_group else Obstacle.OTHER_SYSTEM
    elif group is not None and not consents(node, group, case.pool_rules.kubernetes):
        yield Obstacle.GROUP_WITHOUT_CONSENT
    elif node.group is not None and group is None:
        yield Obstacle.GROUP_SIZE
    elif node.group is not None and case.step.verb is Verb.STOP:
        yield Obstacle.GROUP_MEMBER


def _of_pools_choice(case: Case) -> Iterator[Obstacle]:
    """What the pool's settings say of such a machine, and of the GPUs in it."""
    states = {case.machine.activity.state}
    if _refuses(case, "action_not_enabled"):
        yield from (_NOT_USED[state] for state in states)
    elif _refuses(case, "busy"):
        gpus = () if case.machine.verdict is None else case.machine.verdict.gpus
        settings = case.pool_rules.idle
        inside = {gpu.activity.state for gpu in gpus} - states - {State.IDLE}
        yield from (_NOT_USED[state] for state in inside if getattr(settings, state.value) == "report")


def _keep_floor(observation: Observation, pool: str, machines: Iterable[_Found], rules: Rulebook) -> None:
    """The pool's minimum holds so many of its machines: of those that nothing stronger holds, those idle the shortest.

    Floors of the schedule and of scaling show in the round's own steps.
    """
    roster, leaving = observation.fleet.roster(pool), pool_machines(observation, pool).may_leave
    in_force, sizes = rules.pool(pool), rules.pool(pool).sizes(observation.fleet)
    sound = [node for node in roster.nodes if node.id in roster.sound and node.id not in leaving]
    spare = sum(sizes.node(node) or 0 for node in sound) - in_force.least
    members = [each for each in machines if each.node.id in roster.members and not each.under_way]
    asked = [each for each in members if each.node.id in roster.sound] if spare >= 0 else members
    coded = [each for each in members if each.step is not None and each.step.reason.code == "min_nodes"]
    for each in [*coded, *_last(asked, max(0, spare), lambda each: each in coded, sizes)]:
        each.obstacles.add(Obstacle.FLOOR)


def _keep_group_sizes(observation: Observation, machines: Iterable[_Found]) -> None:
    """A group's minimum holds so many of its members; each alone might go."""
    members: dict[str, list[_Found]] = {}
    for each in machines:
        if each.node.group is not None and not each.under_way and each.case.step.verb is Verb.TERMINATE:
            members.setdefault(each.node.group, []).append(each)
    for group_id, found in members.items():
        group = observation.fleet.group(group_id)
        if group is not None:
            for each in _last(found, max(0, group.desired - group.min_size), lambda _: False):
                each.obstacles.add(Obstacle.GROUP_SIZE)


def _last(machines: list[_Found], spare: int, kept: Callable[[_Found], bool], sizes: Sizes = NODES) -> list[_Found]:
    """Those beyond the first `spare`, where what nothing holds goes first, and of it what has been idle the longest."""

    def order(each: _Found) -> tuple[bool, int, float, str]:
        first = min((RANK[obstacle] for obstacle in each.obstacles), default=len(RANK))
        return kept(each), -first, -each.node.activity.held_seconds, each.node.id

    found = list[_Found]()
    for each in sorted(machines, key=order):
        spare -= sizes.node(each.node) or 0
        if spare < 0:
            found.append(each)
            spare += sizes.node(each.node) or 0
    return found


def _in_doubt(case: Case, doubted: Obstacle) -> Held:
    """Return what doubt holds back (rule 2)."""
    owners = sorted({each for each in _of_owners(case) if each in _OF_OWNERS}, key=RANK.__getitem__)
    doubt = case.machine.activity.doubt
    usd, source = _price(case)
    return Held(node=case.machine, usd_per_hour=usd, price_source=source, obstacles=(doubted, *owners), doubt=doubt)


def _held_by(each: _Found) -> Held:
    """Return what a node's obstacles hold back (rule 5)."""
    found = tuple(sorted(each.obstacles, key=RANK.__getitem__))
    waits = not each.under_way and _waits(each)
    usd, source = _price(each.case)
    return Held(node=each.node, usd_per_hour=usd, price_source=source, obstacles=found, waits=waits)


def _waits(each: _Found) -> bool:
    """Whether its pool's wait is not over; a window of the schedule may make it shorter, which its step knows."""
    step, case = each.step, each.case
    if step is not None and (step.reason.code == "waiting" or step.verb in _WAITED or step.reason.code in _WAIT_OVER):
        return step.reason.code == "waiting"
    _, wait = idle.choose_action(each.node, case.observation, case.pool_rules.idle)
    return wait is not None and each.node.activity.held_seconds < wait


def _price(case: Case) -> tuple[Decimal | None, str | None]:
    price = case.observation.price(case.machine)
    return (None, None) if price is None else (price.usd_per_hour, price.source)
