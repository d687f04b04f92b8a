"""PURE: workloads that hold GPUs without use: a notice first, and then what their people have said.

Rules, all of them; the first that fits decides:

1. While the cluster's view has trouble, or the use of one of its pods is not known, nothing happens; a notice waits.
2. A workload of which one pod works is left alone. Its notice is withdrawn.
3. So is one that is protected, snoozed, a static pod or changing already; one that would lose something for good; one
   on a machine that is not enrolled; one in a pool that only reports; and one without an annotation about its end.
4. All of its GPU pods must be idle for the pool's wait, or parked or stalled for the longer one. Its people may ask for
   a longer wait. After the end of its pods it rests.
5. Then it gets a notice. If it is without use for all of the grace, its pods are ended (gpuwatch.policies.waiting).
6. A notice stands for the action that it named. If its people change that, there is a new notice.
7. A notice that was not used within a day after its time is withdrawn.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpuwatch.model.decision import FINAL, Done, Observation, Reason, Status, Step, Verb
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.kubernetes import cluster_prefix, is_workload
from gpuwatch.model.promise import Notice
from gpuwatch.model.workload_kinds import DEACTIVATE
from gpuwatch.policies import notices, waiting
from gpuwatch.policies.kubernetes import idle_pods_obstacles as obstacles
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from gpuwatch.policies.kubernetes.workload_use import WorkloadUse, workloads
from gpuwatch.policies.waiting import Phase

# The arguments of an end, besides which object it is about: what becomes of it; how many pods and GPUs it is, for the
# limits; of a delete the uids of its pods.
HOW, PODS, GPUS, UIDS = "how", "pods", "gpus", "uids"
GONE = Reason(code="gone", sentence="It holds no GPUs any more, so its notice is closed.")
_WORK = "Work of one of its pods."


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadStep:
    """What is to become of a workload now, and why: HOLD, NOTICE, WITHDRAW or RELEASE.

    `change` is what would make it come out otherwise.
    """

    use: WorkloadUse
    verb: Verb
    reason: Reason
    change: str
    arguments: Mapping[str, str] = field(default_factory=dict)

    @property
    def step(self) -> Step:
        """As guard and ledger have it."""
        return Step(
            node_id=self.use.id, verb=self.verb, reason=self.reason, change=self.change, arguments=self.arguments
        )


def steps(observation: Observation, rules: Mapping[str, IdlePodRules]) -> tuple[WorkloadStep, ...]:
    """A step for each workload that holds GPUs, in the order of their ids; `rules` by pool."""
    return tuple(_step(use, observation, rules) for use in workloads(observation))


def notices_of_gone(observation: Observation) -> Iterator[Notice]:
    """The notices of workloads that hold no GPU any more, where that is known, and of another cluster's."""
    view = observation.fleet.cluster
    silent = () if view is None else tuple(cluster_prefix(each.name) for each in view.each if each.trouble is not None)
    there = {use.id for use in workloads(observation)}
    for each in observation.ledger.notices:
        if not is_workload(each.node_id) or each.node_id in there:
            continue
        if not each.node_id.startswith(silent):
            yield each


def _step(use: WorkloadUse, observation: Observation, rules: Mapping[str, IdlePodRules]) -> WorkloadStep:
    """One workload's; the table of the rules above, top to bottom."""
    notice = observation.ledger.notice(use.id)
    undo = Verb.HOLD if notice is None else Verb.WITHDRAW
    if (works := obstacles.working(use, observation)) is not None:
        return _make_step(use, undo, "busy", works, "Its idleness.")
    if (doubt := obstacles.not_known(use, observation)) is not None:
        return _make_step(use, Verb.HOLD, "unknown", doubt, "Answers of the API server and of each pod's agent.")
    if (kept := _why_kept(use, observation, rules)) is not None:
        return _make_step(use, undo, *kept)
    wait, grace, now = obstacles.wait_seconds(use, rules), grace_seconds(use, rules), observation.now
    phase = waiting.phase(_count(use, now), wait, notice, grace, now)
    if phase in {Phase.WAITING, Phase.TOO_SOON}:
        return _make_step(use, undo, "too_soon", str(obstacles.too_soon(use, rules)), _WORK)
    if notice is None:
        return _first(use, observation, rules)
    if not notices.is_paused(notice) and (over := notice_over(use, notice, now)) is not None:
        return _make_step(use, Verb.WITHDRAW, "notice_over", f"{over}.", "A new notice follows if it still has no use.")
    if phase is Phase.BROKEN:
        sentence = f"The clock was set back since: {notices.notice_words(notice).lower()} names a time too far ahead."
        return _make_step(use, Verb.WITHDRAW, "notice_over", sentence, "A new notice follows if it still has no use.")
    if phase is Phase.GRACE:
        left = format_duration(left_seconds(use, notice, grace, now))
        return _make_step(
            use,
            Verb.HOLD,
            "grace",
            f"{_words(use)} {_deed_words(use)} follows in {left} unless a pod of it works.",
            _WORK,
        )
    sentence = f"{_words(use)} Its notice was given at {format_time(notice.at)}, and the grace has passed."
    return _make_step(use, Verb.RELEASE, "expired", sentence, _WORK, arguments=_target_arguments(use))


def _why_kept(
    use: WorkloadUse, observation: Observation, rules: Mapping[str, IdlePodRules]
) -> tuple[str, str, str] | None:
    """Rule 3, as code, sentence and remedy."""
    found = (
        ("protected", obstacles.why_protected(use), "Without that annotation."),
        ("snoozed", obstacles.why_snoozed(use, observation), "The end of that time."),
        ("static_pod", obstacles.static_pod(use), "Take its file out of the kubelet's folder of manifests."),
        ("not_ours", obstacles.not_ours(use, rules), "The machine's tag, or the pool's settings."),
        ("no_consent", obstacles.without_consent(use), "An annotation of its people (docs/kubernetes.md#annotations)."),
        ("ending", obstacles.ending(use), "Once they are gone."),
        ("would_lose", obstacles.would_lose(use, rules), "The consent of its people, or of the pool."),
    )
    return next(((code, why, change) for code, why, change in found if why is not None), None)


def _first(use: WorkloadUse, observation: Observation, rules: Mapping[str, IdlePodRules]) -> WorkloadStep:
    """Rules 4 and 5: a notice, or the rest after the last end."""
    last = last_end(observation, use.id)
    rest = max(rules[pool].rest for pool in use.pools)
    if last is not None and last.at + timedelta(seconds=rest) > observation.now:
        until = format_time(last.at + timedelta(seconds=rest))
        what = "Its notice failed" if last.verb is Verb.NOTICE else "Its pods were ended, or were to be,"
        sentence = f"{what} at {format_time(last.at)}. It rests until {until}."
        return _make_step(use, Verb.HOLD, "rest", sentence, "Then a new notice follows.")
    grace = grace_seconds(use, rules)
    promised = {"grace_seconds": repr(grace), "idle_seconds": repr(use.held_seconds), "action": how(use)}
    promised["owner"] = use.workload.owner or ""
    arguments = {**use.target.arguments, **promised, PODS: str(len(use.pods)), GPUS: repr(use.gpus)}
    sentence = f"{_words(use)} {_deed_words(use)} follows in {format_duration(grace)} unless a pod of it works."
    return _make_step(use, Verb.NOTICE, "notice", sentence, _WORK, arguments=arguments)


def notice_over(use: WorkloadUse, notice: Notice, now: datetime) -> str | None:
    """Why a notice does not stand any more; None: it does."""
    if (why := notices.withdrawn(notice, use.pool, use.workload.owner)) is not None:
        return why
    promise = notice.promise
    if notice.target is not None and notice.target.uid != use.workload.uid:
        return f"{notices.notice_words(notice)} was about another object of its name"
    if promise is None or promise.action != how(use):
        return f"{notices.notice_words(notice)} did not announce what its people say now ({how(use)})"
    if not waiting.unbroken(_count(use, now), notice, now):
        return f"A pod of it has worked since, or is new: {notices.notice_words(notice).lower()} does not stand"
    return notices.why_outdated(notice, now)


def left_seconds(use: WorkloadUse, notice: Notice, grace: float, now: datetime) -> float:
    """How long to wait until what a notice promised may happen: on our clock and by the agents' own count."""
    return waiting.left_seconds(_count(use, now), notice, grace, now)


def _count(use: WorkloadUse, now: datetime) -> waiting.Count:
    return waiting.count_of([each.node for each in use.pods], use.held_seconds, now)


def grace_seconds(use: WorkloadUse, rules: Mapping[str, IdlePodRules]) -> float:
    """The longest of its pools'."""
    return max(rules[pool].grace_period for pool in use.pools)


def how(use: WorkloadUse) -> str:
    """What its people allow to be done; "" where they say nothing. A queue's Job is stopped by its queue."""
    said = use.workload.idle_action or ""
    return DEACTIVATE if said == "stop" and use.workload.queued else said


def last_end(observation: Observation, workload_id: str) -> Done | None:
    """The newest end of its pods that happened, or that failed, as far as the ledger looks back; or a failed notice."""
    found = [done for done in observation.ledger.recent if done.node_id == workload_id and _counts(done)]
    return max(found, key=lambda done: done.at, default=None)


def _counts(done: Done) -> bool:
    """Whether it may have happened, or failed: what was cancelled before anything was sent is forgotten."""
    if done.verb is Verb.NOTICE:
        return done.status is Status.FAILED
    return done.verb is Verb.RELEASE and done.status in FINAL - {Status.CANCELLED}


def _target_arguments(use: WorkloadUse) -> dict[str, str]:
    """Which object it is, what becomes of it, and how much that is."""
    named = {UIDS: " ".join(pod.uid for pod in use.all_pods)} if how(use) == "delete" else {}
    return {**use.target.arguments, **named, HOW: how(use), PODS: str(len(use.pods)), GPUS: repr(use.gpus)}


def _words(use: WorkloadUse) -> str:
    """Return what was seen in words."""
    held, count = format_duration(use.held_seconds), len(use.pods)
    if count == 1:
        return f"Its GPU pod has been {use.state.value} for {held}."
    return f"Its {count} GPU pods have been without use ({use.state.value}) for {held}."


def _deed_words(use: WorkloadUse) -> str:
    """What is to come, as the subject of a sentence."""
    deeds = {"scale-to-zero": "Its scaling to zero", "stop": "Its stop", "delete": "The deletion of its pods"}
    deeds |= {DEACTIVATE: "Its stop by its Workload of Kueue"}
    return deeds[how(use)]


def _make_step(
    use: WorkloadUse, verb: Verb, code: str, sentence: str, change: str, *, arguments: Mapping[str, str] | None = None
) -> WorkloadStep:
    """A step with its reason; whatever changes something says which object it is about."""
    told = {} if verb is Verb.HOLD else use.target.arguments
    reason = Reason(code=code, sentence=sentence)
    return WorkloadStep(use=use, verb=verb, reason=reason, change=change, arguments=arguments or told)
