"""PURE: the last word on workloads of a cluster, before anything is written down or done.

As for machines every rule runs, every objection is listed, and a rule that lacks the data to decide refuses. A new rule
is one function and one line in WORKLOAD_RULES.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from gpuwatch.guard.case import Finding, allow, refuse
from gpuwatch.guard.consent import wants_approval
from gpuwatch.guard.mass_idleness import Burst, burst
from gpuwatch.guard.settings import Limits, Rulebook
from gpuwatch.model.decision import Answer, Done, Intent, Observation, Review, Status, Verb
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.fleet import Node
from gpuwatch.model.promise import Notice
from gpuwatch.model.readable import how_many
from gpuwatch.policies.kubernetes import idle_pods
from gpuwatch.policies.kubernetes import idle_pods_obstacles as obstacles
from gpuwatch.policies.kubernetes.idle_pods import GPUS, HOW, PODS, WorkloadStep
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from gpuwatch.policies.kubernetes.pod_use import WITHOUT_USE
from gpuwatch.policies.kubernetes.workload_use import WorkloadUse, at_work

_HOUR = timedelta(hours=1)
# The last question asks each machine's cloud and agent within the seconds that an answer is worth something.
MOST_MACHINES = 16
MOST_NOTICES = 50  # in a round
_BEYOND = 1e9  # every limit


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCase:
    """One step under review. `bursts` are by pool.

    `granted` are the workloads that this round ends already, `notices` is how many it gives a notice.
    """

    step: WorkloadStep
    observation: Observation
    rulebook: Rulebook
    bursts: Mapping[str, Burst | None] = field(default_factory=dict)
    granted: tuple[WorkloadUse, ...] = ()
    notices: int = 0

    @property
    def use(self) -> WorkloadUse:
        """What its pods do."""
        return self.step.use

    @property
    def rules(self) -> Mapping[str, IdlePodRules]:
        """What its pools say, by their names."""
        return self.rulebook.idle_pods(self.use.pools)

    @property
    def limits(self) -> Limits:
        """The fleet's."""
        return self.rulebook.limits

    @property
    def notice(self) -> Notice | None:
        """Its notice in force."""
        return self.observation.ledger.notice(self.use.id)


def judge(case: WorkloadCase) -> Review:
    """Every rule's answer on one step."""
    answers = []
    for name, (verbs, rule) in WORKLOAD_RULES.items():
        if case.step.verb in verbs:
            refused, sentence, remedy = rule(case)
            answers.append(Answer(rule=name, refused=refused, sentence=sentence, remedy=remedy))
    return Review(pool=case.use.pool, step=case.step.step, answers=tuple(answers))


def review(
    observation: Observation,
    steps: Sequence[WorkloadStep],
    rulebook: Rulebook,
    *,
    granted: tuple[WorkloadUse, ...] = (),
) -> tuple[Review, ...]:
    """The guard's answers on each step that would change something; what it allows counts against the next.

    Ends that came to nothing lately have their turn last, so that none of them takes the place of the others.
    """
    changes = [each for each in steps if each.verb is not Verb.HOLD]
    pools = {pool for each in changes for pool in each.use.pools}
    bursts = {pool: burst(observation, pool, rulebook.limits) for pool in pools}
    in_vain = _in_vain(observation)
    changes.sort(key=lambda each: in_vain[each.use.id])
    found: list[Review] = []
    notices = 0
    for step in changes:
        case = WorkloadCase(
            step=step,
            observation=observation,
            rulebook=rulebook,
            bursts=bursts,
            granted=granted,
            notices=notices,
        )
        found.append(judge(case))
        if found[-1].allowed:
            granted = (*granted, step.use) if step.verb is Verb.RELEASE else granted
            notices += step.verb is Verb.NOTICE
    return tuple(found)


def _in_vain(observation: Observation) -> Counter[str]:
    """How often within the hour the end of a workload was vetoed, or a step about it not carried out."""
    ledger, since = observation.ledger, observation.now - _HOUR
    found = Counter(
        each.node_id
        for each in ledger.recent
        if each.verb is Verb.RELEASE and each.status is Status.CANCELLED and each.at > since
    )
    for entry in ledger.open_intents:
        found[entry.intent.node_id] += entry.attempts
    return found


def _observe_only(case: WorkloadCase) -> Finding:
    """Refuses everything while `mode` is observe."""
    if case.rulebook.enforce:
        return allow("gpuwatch may act.")
    return refuse("gpuwatch only observes.", "`mode: enforce` lets it act.")


def _paused(case: WorkloadCase) -> Finding:
    """Refuses everything in a pool that people have paused."""
    now = case.observation.now
    for pause in case.observation.ledger.pauses:
        if pause.pool in {None, *case.use.pools} and (pause.until is None or pause.until > now):
            return refuse("People have paused it.", "`gpuwatch resume`.")
    return allow("Nobody has paused it.")


def _not_ours(case: WorkloadCase) -> Finding:
    """Refuses a workload on a machine that is not enrolled, or in a pool that only reports."""
    whose = obstacles.not_ours(case.use, case.rules)
    return allow("Its machines and pools are gpuwatch's.") if whose is None else refuse(whose, "See the pool's rules.")


def _no_consent(case: WorkloadCase) -> Finding:
    """Refuses a workload without a word of its people about its end, or with one that its kind cannot do."""
    missing = obstacles.without_consent(case.use)
    if missing is None and case.step.verb is Verb.RELEASE and case.step.arguments.get(HOW) != idle_pods.how(case.use):
        missing = "It is to be ended in another way than its people say."
    if missing is None:
        return allow(f"Its people say {idle_pods.how(case.use)}.")
    return refuse(missing, "Its people annotate it, or its namespace.")


def _kept(case: WorkloadCase) -> Finding:
    """Refuses a workload that is protected or snoozed: by a pod, what owns it, its namespace, or an order."""
    kept = obstacles.protected(case.use) or obstacles.snoozed(case.use, case.observation)
    return (
        allow("Nobody keeps it.") if kept is None else refuse(kept, "Without that word of theirs, or after its time.")
    )


def _would_lose(case: WorkloadCase) -> Finding:
    """Refuses to end pods that nothing would make again, or that would lose a volume that goes with them."""
    lost = obstacles.would_lose(case.use, case.rules)
    return allow("Nothing is lost for good.") if lost is None else refuse(lost, "The consent of its people, or pool.")


def _changing(case: WorkloadCase) -> Finding:
    """Refuses a workload of which pods are ending already: somebody else is at it."""
    ends = obstacles.ending(case.use)
    return allow("No pod of it is ending.") if ends is None else refuse(ends, "Wait until they are gone.")


def _unknown(case: WorkloadCase) -> Finding:
    """Refuses a workload with a pod of unknown use, and all while the cluster's view has trouble (P1)."""
    doubt = obstacles.not_known(case.use, case.observation)
    if doubt is None:
        return allow("The use of each of its pods is known.")
    return refuse(doubt, "The API server and each pod's agent must answer.")


def _stale(case: WorkloadCase) -> Finding:
    """Refuses a workload with a pod on a machine with an old verdict, by the agent's count or by our clock."""
    limit = case.limits.max_verdict_age
    old = [each.node for each in case.use.pods if _age(each.node, case.observation) > limit]
    if not old:
        return allow("Each verdict is fresh.")
    return refuse(f"The verdict of {old[0].name} is stale.", f"At most {format_duration(limit)} is allowed.")


def _age(node: Node, observation: Observation) -> float:
    """The worst age of a machine's verdict."""
    verdict = node.verdict
    if verdict is None:
        return float("inf")
    waited = node.waited_seconds(observation.now)
    skew = (observation.now - verdict.at).total_seconds() - waited
    return max(verdict.age_seconds, abs(skew), abs(waited))


def _busy(case: WorkloadCase) -> Finding:
    """Refuses a workload unless each of its GPU pods is without use. One busy pod keeps all of it (P2)."""
    works = [each for each in case.use.pods if each.state not in WITHOUT_USE or at_work(each)]
    if not works and case.use.state in WITHOUT_USE:
        return allow(f"Its pods are {case.use.state.value}.")
    return refuse("Not each of its pods is without use.", "Its idleness.")


def _too_soon(case: WorkloadCase) -> Finding:
    """Refuses a workload that was not without use for the wait of each of its pools, or has a younger pod (P10)."""
    wait = obstacles.wait_seconds(case.use, case.rules)
    now, ages = case.observation.now, [each.pod.created_at for each in case.use.pods]
    young = any(at is None or (now - at).total_seconds() < wait for at in ages)
    soon = obstacles.too_soon(case.use, case.rules)
    if soon is None and not young:
        return allow(f"It has been without use for {format_duration(case.use.held_seconds)}.")
    return refuse(soon or f"A pod of it is younger than {format_duration(wait)}.", "Time.")


def _mass_idleness(case: WorkloadCase) -> Finding:
    """Refuses workloads in a pool of which many machines turned idle at once: a sensor is suspected."""
    freeze = timedelta(seconds=case.limits.mass_idleness_freeze)
    wait = timedelta(seconds=obstacles.wait_seconds(case.use, case.rules))
    for pool in case.use.pools:
        found = case.bursts.get(pool)
        if found is not None and case.observation.now < (until := found.last + wait + freeze):
            said = f"{found.count} of {found.members} machines of the pool {pool} turned idle at once"
            return refuse(f"{said}; it is frozen until {format_time(until)}.", "`gpuwatch acknowledge`, or wait.")
    return allow("No pool of it turned idle at once.")


def _resting(case: WorkloadCase) -> Finding:
    """Refuses a workload again soon after the end of its pods: somebody has brought it back."""
    last = idle_pods.last_end(case.observation, case.use.id)
    rest = timedelta(seconds=max(case.rules[pool].rest for pool in case.use.pools))
    if last is None or last.at + rest <= case.observation.now:
        return allow("Its pods were not ended lately.")
    what = "Its notice failed" if last.verb is Verb.NOTICE else "Its pods were ended, or were to be,"
    return refuse(f"{what} at {format_time(last.at)}.", f"It rests until {format_time(last.at + rest)}.")


def _in_flight(case: WorkloadCase) -> Finding:
    """Refuses anything about a workload while the outcome of an earlier step is open; the same may be tried again."""
    entry = case.observation.ledger.open_for(case.use.id)
    if entry is None or (entry.resumable and _same(entry.intent, case.step)):
        return allow("Nothing is under way.")
    return refuse("An earlier step of it is not over.", "Wait until it has settled.")


def _same(intent: Intent, step: WorkloadStep) -> bool:
    """Whether an open intent is for the same thing; pods may have come and gone since."""
    return intent.verb is step.verb and intent.arguments.get(HOW) == step.arguments.get(HOW)


def _no_notice(case: WorkloadCase) -> Finding:
    """Refuses to end a workload without a notice of that very end, or before the grace that it promised (P14)."""
    notice = case.notice
    if notice is None:
        return refuse("It has had no notice.", "The notice comes first.")
    if (over := idle_pods.notice_over(case.use, notice, case.observation.now)) is not None:
        return refuse(f"{over}.", "A new notice.")
    grace = idle_pods.grace_seconds(case.use, case.rules)
    left = idle_pods.left_seconds(case.use, notice, grace, case.observation.now)
    if left > 0:
        return refuse(f"Its grace lasts {format_duration(left)} more.", "Wait.")
    return allow(f"Its notice was given at {format_time(notice.at)}.")


def _approval(case: WorkloadCase) -> Finding:
    """Refuses an end that no operator has approved, where a pool of it, or its notice, says so."""
    if not any(wants_approval(case.rulebook.pool(pool), case.notice) for pool in case.use.pools):
        return allow("No pool of it requires an approval.")
    given = case.observation.ledger.approval(case.use.id)
    if given is None:
        return refuse("No operator has approved it since its notice.", "Without `approval` in its pools' rules.")
    return allow(f"{given.who} approved it at {format_time(given.at)}.")


def _not_notified(case: WorkloadCase) -> Finding:
    """Refuses an end unless a message about its notice reached somebody a whole grace before, where that is asked."""
    promise = None if case.notice is None else case.notice.promise
    if not case.limits.require_notification and (promise is None or not promise.heard):
        return allow("No message is required before its end.")
    told_at = None if case.notice is None else case.notice.told_at
    if told_at is None:
        return refuse("No message about its notice was delivered.", "`gpuwatch notify test` shows what is wrong.")
    grace = idle_pods.grace_seconds(case.use, case.rules)
    grace = grace if promise is None else max(grace, promise.grace_seconds)
    since = (case.observation.now - told_at).total_seconds()
    said = f"The first message about it is {format_duration(since)} old."
    return refuse(said, f"The grace is {format_duration(grace)}.") if since < grace else allow(said)


def _other_cloud(case: WorkloadCase) -> Finding:
    """Refuses a workload on a machine in a cloud that is none of its pool's."""
    for node in (each.node for each in case.use.pods):
        clouds = case.rulebook.pool(node.pool).clouds
        if clouds and node.cloud not in clouds:
            return refuse(f"{node.name} is in the cloud {node.cloud}, and its pool is not.", "See pools.<name>.clouds.")
    return allow("Its machines are in clouds of their pools.")


def _blast_radius(case: WorkloadCase) -> Finding:
    """Refuses the end of more pods and GPUs than the limits of a round, of an hour and of an owner allow (P4)."""
    limits, use = case.limits.workloads, case.use
    past = list(_within_the_hour(case))
    granted = [each for each in case.granted if each.id != use.id]
    pods = len(use.pods) + sum(len(each.pods) for each in granted)
    hour = pods + sum(int(_number(each.arguments, PODS)) for each in past)
    gpus = use.gpus + sum(each.gpus for each in granted) + sum(_number(each.arguments, GPUS) for each in past)
    owner = use.workload.owner
    theirs = use.gpus + sum(each.gpus for each in granted if each.workload.owner == owner)
    theirs += sum(_number(each.arguments, GPUS) for each in past if each.owner == owner)
    for count, limit, name in (
        (pods, limits.max_pods_per_round, "max_pods_per_round"),
        (hour, limits.max_pods_per_hour, "max_pods_per_hour"),
        (gpus, limits.max_gpus_per_hour, "max_gpus_per_hour"),
        (theirs, limits.max_gpus_per_owner_per_hour, "max_gpus_per_owner_per_hour"),
    ):
        if limit is not None and count > limit:
            key = f"limits.workloads.{name}"
            return refuse(f"It would be {count:g}, and {key} allows {limit}.", f"Wait, or raise {key}.")
    return allow(f"{how_many(int(hour), 'pod')} within the hour, {pods} in this round.")


def _too_large(case: WorkloadCase) -> Finding:
    """Refuses a workload that no round could end: larger than the limits, or on more machines than can be asked."""
    limits, use = case.limits.workloads, case.use
    machines = len({each.node.id for each in use.pods})
    for count, limit, what in (
        (len(use.pods), limits.max_pods_per_round, "pods, and limits.workloads.max_pods_per_round"),
        (len(use.pods), limits.max_pods_per_hour, "pods, and limits.workloads.max_pods_per_hour"),
        (use.gpus, limits.max_gpus_per_hour, "GPUs, and limits.workloads.max_gpus_per_hour"),
        (use.gpus, limits.max_gpus_per_owner_per_hour, "GPUs, and limits.workloads.max_gpus_per_owner_per_hour"),
        (machines, MOST_MACHINES, "machines, and the time for the last question"),
    ):
        if limit is not None and count > limit:
            return refuse(f"It has {count:g} {what} allows {limit}.", "A higher limit, where people want that.")
    return allow("It is within the limits.")


def _notice_rate(case: WorkloadCase) -> Finding:
    """Refuses more notices than a round has time for: each is two calls of the API server."""
    if case.notices < MOST_NOTICES:
        return allow("The round has time for its notice.")
    return refuse(f"This round gives {MOST_NOTICES} workloads a notice.", "The next rounds go on with the others.")


def _within_the_hour(case: WorkloadCase) -> Iterator[Done | Intent]:
    """The ends of other workloads that happened within the hour, or may have."""
    since = case.observation.now - _HOUR
    for done in case.observation.ledger.recent:
        at = done.at if done.reached_at is None else done.reached_at
        if done.verb is Verb.RELEASE and done.reached and done.status is not Status.CANCELLED and at > since:
            yield done
    for entry in case.observation.ledger.open_intents:
        if entry.intent.verb is Verb.RELEASE and entry.counts and entry.intent.node_id != case.use.id:
            yield entry.intent


def _number(arguments: Mapping[str, str], name: str) -> float:
    """A count of the arguments; one that cannot be read is beyond every limit."""
    try:
        count = float(arguments[name])
    except (KeyError, ValueError):
        return _BEYOND
    return count if 0 <= count < _BEYOND else _BEYOND


_RELEASE, _NOTICE = frozenset({Verb.RELEASE}), frozenset({Verb.NOTICE})
_ANNOUNCED = _RELEASE | _NOTICE
_ALL = _ANNOUNCED | {Verb.WITHDRAW}
WORKLOAD_RULES: dict[str, tuple[frozenset[Verb], Callable[[WorkloadCase], Finding]]] = {
    "observe_only": (_ALL, _observe_only),
    "paused": (_ALL, _paused),
    "not_ours": (_ANNOUNCED, _not_ours),
    "other_cloud": (_ANNOUNCED, _other_cloud),
    "no_consent": (_ANNOUNCED, _no_consent),
    "kept": (_ANNOUNCED, _kept),
    "would_lose": (_ANNOUNCED, _would_lose),
    "changing": (_ANNOUNCED, _changing),
    "unknown": (_ANNOUNCED, _unknown),
    "stale": (_ANNOUNCED, _stale),
    "busy": (_ANNOUNCED, _busy),
    "too_soon": (_ANNOUNCED, _too_soon),
    "mass_idleness": (_ANNOUNCED, _mass_idleness),
    "notice_rate": (_NOTICE, _notice_rate),
    "too_large": (_ANNOUNCED, _too_large),
    "resting": (_ANNOUNCED, _resting),
    "in_flight": (_ALL, _in_flight),
    "no_notice": (_RELEASE, _no_notice),
    "not_notified": (_RELEASE, _not_notified),
    "approval": (_RELEASE, _approval),
    "blast_radius": (_RELEASE, _blast_radius),
}
