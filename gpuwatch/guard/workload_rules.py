"""Rules on workloads of a cluster alone: who owns them, what their people say, what they do, and how many may go.

A workload goes whole or not at all: all of its pods, on all of their machines, in all of their pools.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from gpuwatch.guard.case import Finding, WorkloadCase, allow, refuse
from gpuwatch.model.decision import Done, Intent, Status, Verb
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.kubernetes import IDLE_ACTION, LOSES_LOCAL_DATA
from gpuwatch.model.readable import how_many
from gpuwatch.model.workload_kinds import ACTIONS
from gpuwatch.policies.kubernetes import idle_pods
from gpuwatch.policies.kubernetes import idle_pods_obstacles as obstacles
from gpuwatch.policies.kubernetes.idle_pods import GPUS, HOW, PODS
from gpuwatch.policies.kubernetes.pod_use import WITHOUT_USE

_HOUR = timedelta(hours=1)
_BEYOND = 1e9  # every limit
# The last question asks each machine's cloud and agent within the seconds that an answer is worth something.
MOST_MACHINES = 16
MOST_NOTICES = 50  # in a round


def not_ours(case: WorkloadCase) -> Finding:
    """Refuses to end the pods of a workload on a machine that is not enrolled, or in a pool that only reports.

    gpuwatch touches only what is enrolled by tag (P3), and `pools.<name>.kubernetes.pods.action` says `report` until
    somebody changes it. Each machine that its pods are on must be enrolled, and each of their pools must act: a
    workload goes whole, or not at all.

    Tag the machines `gpuwatch:fleet`, or set `pools.<name>.kubernetes.pods.action: as-annotated`.
    """
    whose = obstacles.not_ours(case.use, case.rules)
    if whose is None:
        return allow("Its machines are enrolled, and its pools end such pods.")
    if not all(each.node.enrolled for each in case.use.pods):
        return refuse(whose, "Tag the machine gpuwatch:fleet=<your fleet>, if gpuwatch may end pods on it.")
    pool = next(pool for pool in case.use.pools if case.rules[pool].action == "report")
    return refuse(whose, f"Set pools.{pool}.kubernetes.pods.action: as-annotated, if it may end them.")


def no_consent(case: WorkloadCase) -> Finding:
    """Refuses to end the pods of a workload if its people have not said so, or if its kind cannot end like that.

    Consent is the annotation `gpuwatch.io/idle-action` on the workload or its namespace: `scale-to-zero`, `stop` or
    `delete`. All of its pods must say the same. Some kinds are scaled to zero, some are suspended or stopped as their
    own project does it, a Job's pods may be deleted, and so may a pod without an owner. What is done must be what its
    people say now. A static pod is made again by a file on its machine.

    Let its people annotate it (docs/kubernetes.md#annotations).
    """
    missing, says = obstacles.without_consent(case.use), idle_pods.how(case.use)
    asked = case.step.arguments.get(HOW)
    if missing is not None:
        static = obstacles.static_pod(case.use) is not None
        kinds = "" if static else " or ".join(sorted(ACTIONS.get(case.use.workload.kind, ())))
        remedy = (
            f"Let its people annotate it, or its namespace, with {IDLE_ACTION}: {kinds} "
            "(docs/kubernetes.md#annotations)."
        )
        return refuse(missing, remedy if kinds else "Its people end it themselves.")
    if case.step.verb is Verb.RELEASE and asked != says:
        return refuse(f"It is to end by {asked}, and its people say {says}.", "The next round decides again.")
    return allow(f"Its people say {says}.")


def kept(case: WorkloadCase) -> Finding:
    """Refuses to end the pods of a workload that is protected or snoozed, or that is on such a machine.

    `gpuwatch.io/protect` and `gpuwatch.io/snooze-until` on a pod, on what owns it or on its namespace keep it (P3, P8),
    and so does `gpuwatch snooze WORKLOAD`. The tags `gpuwatch:protect` and `gpuwatch:snooze-until` of a machine keep
    the pods on it. One such mark keeps all pods of the workload.

    Remove the mark, run `gpuwatch snooze WORKLOAD --end`, or wait until its time is over.
    """
    said = obstacles.why_protected(case.use)
    if said is not None:
        return refuse(said, "Remove that mark, or wait until its time is over.")
    said = obstacles.why_snoozed(case.use, case.observation)
    if said is not None:
        return refuse(said, "Remove that mark, run `gpuwatch snooze WORKLOAD --end`, or wait.")
    return allow("Nobody keeps it.")


def would_lose(case: WorkloadCase) -> Finding:
    """Refuses to end pods that nothing would make again, or that would lose a volume that goes with them.

    Pods without an owner, and pods of a Job that fails by one more failure, are gone for good. They end only where
    each of their pools has `pools.<name>.kubernetes.pods.bare_pods: delete`. A volume that is deleted with its pod
    keeps the workload, unless its people annotate `gpuwatch.io/delete-local-data: "true"`.

    Set `pools.<name>.kubernetes.pods.bare_pods`, or let its people consent by that annotation.
    """
    gone = obstacles.not_made_again(case.use, case.rules)
    if gone is not None:
        pool = next(pool for pool in case.use.pools if case.rules[pool].bare_pods == "keep")
        return refuse(gone, f"Set pools.{pool}.kubernetes.pods.bare_pods: delete, if they may go for good.")
    lost = obstacles.local_data(case.use)
    if lost is not None:
        return refuse(lost, f'Let their people annotate {LOSES_LOCAL_DATA}: "true", if nothing there is worth keeping.')
    return allow("Nothing is lost for good.")


def changing(case: WorkloadCase) -> Finding:
    """Refuses to end the pods of a workload while one of them is ending already.

    Somebody else is at work on it: a person, its own controller, or another autoscaler. What its pods will be like
    after that is not known.

    Wait until these pods are gone. The next round looks again.
    """
    ends = obstacles.ending(case.use)
    return allow("No pod of it is ending.") if ends is None else refuse(ends, "Wait until these pods are gone.")


def unknown(case: WorkloadCase) -> Finding:
    """Refuses to end the pods of a workload while the use of one of them is unknown.

    Unknown is never idle (P1). The view of the cluster must have no trouble, and each of its pods must be on a machine
    that gpuwatch watches. The agent there must know what the pod does, on its GPUs and besides them. A pod that waits
    for a node, and one without GPUs, is of unknown use.

    The API server, and the agent on each of its machines, must answer.
    """
    doubt = obstacles.not_known(case.use, case.observation)
    if doubt is None:
        return allow("The use of each of its pods is known.")
    return refuse(doubt, "The cluster's API server, and the agent of each of its machines, must answer.")


def busy(case: WorkloadCase) -> Finding:
    """Refuses to end the pods of a workload unless each of them is without use.

    One busy pod keeps all of them (P2): its GPU computes, or it works on processors, disks or the network, or people
    are at its terminals. Without use means idle, parked or stalled.

    Wait until none of its pods works.
    """
    use, remedy = case.use, "Each of its pods must be idle, parked or stalled."
    works = obstacles.working(use, case.observation)
    if works is not None:
        return refuse(works, remedy)
    if use.state in WITHOUT_USE and all(each.state in WITHOUT_USE for each in use.pods):
        return allow(f"Its pods are {use.state.value}.")
    return refuse("Not each of its pods is known to be without use.", remedy)


def too_soon(case: WorkloadCase) -> Finding:
    """Refuses to end the pods of a workload before it was without use for as long as its pools wait.

    The wait is `pools.<name>.kubernetes.pods.timeout` if all of its pods are idle, and
    `pools.<name>.kubernetes.pods.unused_timeout` if one is parked or stalled; the longest of its pools counts, and its
    people may ask for more by `gpuwatch.io/idle-timeout`. Each pod must be at least that old: a new one idles while it
    loads (P10).

    Wait, or shorten these settings.
    """
    wait = case.wait_seconds
    now, ages = case.observation.now, [each.pod.created_at for each in case.use.pods]
    young = any(at is None or (now - at).total_seconds() < wait for at in ages)
    soon = obstacles.too_soon(case.use, case.rules)
    if soon is None and not young:
        return allow(f"It has been without use for {format_duration(case.use.held_seconds)}.")
    return refuse(
        soon or f"A pod of it is younger than {format_duration(wait)}, or of unknown age.",
        f"Wait: each of its pods must be without use for {format_duration(wait)}.",
    )


def notice_rate(case: WorkloadCase) -> Finding:
    """Refuses more notices than a round has time for.

    Each notice is two calls of the API server, an annotation and an event. A round gives 50 at most, so that it ends
    in time to ask the agents again.

    Wait: the next rounds give the others their notices.
    """
    if case.notices < MOST_NOTICES:
        return allow("The round has time for its notice.")
    return refuse(
        f"This round gives {MOST_NOTICES} workloads a notice.", "Wait: the next rounds go on with the others."
    )


def too_large(case: WorkloadCase) -> Finding:
    """Refuses to notice or end a workload that no round could ever end.

    It has more pods than `limits.workloads.max_pods_per_round` or `limits.workloads.max_pods_per_hour`, or more GPUs
    than `limits.workloads.max_gpus_per_hour` or `limits.workloads.max_gpus_per_owner_per_hour`. Or it is on more than
    16 machines: right before the end each of them is asked again, and the first answers must not be old by the last
    one. Its people have no notice of what could not be done.

    Raise the limit if such workloads may be ended, or end it yourself.
    """
    limits, use = case.limits.workloads, case.use
    for count, limit, what, name in (
        (len(use.pods), limits.max_pods_per_round, "pod", "max_pods_per_round"),
        (len(use.pods), limits.max_pods_per_hour, "pod", "max_pods_per_hour"),
        (use.gpus, limits.max_gpus_per_hour, "GPU", "max_gpus_per_hour"),
        (use.gpus, limits.max_gpus_per_owner_per_hour, "GPU", "max_gpus_per_owner_per_hour"),
    ):
        if limit is not None and count > limit:
            key = f"limits.workloads.{name}"
            sentence = f"It has {count:g} {what}{'' if count == 1 else 's'}, and {key} allows {limit}."
            return refuse(sentence, f"Raise {key} if it may be ended, or end it yourself.")
    machines = len(case.nodes)
    if machines > MOST_MACHINES:
        sentence = f"It is on {machines} machines, and {MOST_MACHINES} at most can be asked before one answer is old."
        return refuse(sentence, "End it yourself.")
    return allow("It is within the limits.")


def resting(case: WorkloadCase) -> Finding:
    """Refuses to notice or end a workload again soon after the end of its pods, or after a failure.

    Somebody has brought it back, or it could not be ended. It is left alone for
    `pools.<name>.kubernetes.pods.rest`, the longest of its pools. A notice that could not be written counts like an end
    that failed.

    Wait. If it failed, remove the cause that `gpuwatch explain WORKLOAD` names.
    """
    last = idle_pods.last_end(case.observation, case.use.id)
    rest = timedelta(seconds=max(case.rules[pool].rest for pool in case.use.pools))
    if last is None or last.at + rest <= case.observation.now:
        return allow("Its pods were not ended lately.")
    what = "Its notice failed" if last.verb is Verb.NOTICE else "Its pods were ended, or were to be,"
    detail = f": {last.detail}" if last.status is Status.FAILED and last.detail else ""
    return refuse(
        f"{what} at {format_time(last.at)}{detail}.", f"It is left alone until {format_time(last.at + rest)}."
    )


def blast_radius(case: WorkloadCase) -> Finding:
    """Refuses to end more pods and GPUs than the limits of a round, of an hour and of an owner allow.

    Whatever else is wrong, no more than this ends within an hour (P4). The limits are
    `limits.workloads.max_pods_per_round`, `limits.workloads.max_pods_per_hour`, `limits.workloads.max_gpus_per_hour`
    and `limits.workloads.max_gpus_per_owner_per_hour`. Only pods that hold GPUs count. An end without an answer counts,
    and so does one given up after it may have happened. A record that cannot be read counts as beyond every limit.

    Wait, or raise the limit.
    """
    limits, use = case.limits.workloads, case.use
    past = list(_within_the_hour(case))
    granted = [each for each in case.granted if each.id != use.id]
    pods = len(use.pods) + sum(len(each.pods) for each in granted)
    hour = pods + sum(int(_number(each.arguments, PODS)) for each in past)
    gpus = use.gpus + sum(each.gpus for each in granted) + sum(_number(each.arguments, GPUS) for each in past)
    owner = use.workload.owner
    theirs = use.gpus + sum(each.gpus for each in granted if each.workload.owner == owner)
    theirs += sum(_number(each.arguments, GPUS) for each in past if each.owner == owner)
    whose = owner or "workloads without an owner"
    for count, limit, name, noun, then in (
        (pods, limits.max_pods_per_round, "max_pods_per_round", "pod", " would end in this round"),
        (hour, limits.max_pods_per_hour, "max_pods_per_hour", "pod", " would end within the hour"),
        (gpus, limits.max_gpus_per_hour, "max_gpus_per_hour", "GPU", " would be freed within the hour"),
        (
            theirs,
            limits.max_gpus_per_owner_per_hour,
            "max_gpus_per_owner_per_hour",
            "GPU",
            f" of {whose} would be freed",
        ),
    ):
        if limit is not None and count > limit:
            key = f"limits.workloads.{name}"
            return refuse(
                f"With it {count:g} {noun}{'' if count == 1 else 's'}{then}; {key} allows {limit}.",
                f"Wait, or raise {key}.",
            )
    return allow(f"{how_many(int(hour), 'pod')} within the hour, {pods} in this round.")


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
