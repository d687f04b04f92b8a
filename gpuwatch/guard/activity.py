"""Rules on whether the node's use is known, fresh, and nothing but idle."""

import shlex
from datetime import timedelta

from gpuwatch.guard.case import Case, Finding, Subject, allow, refuse
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.duration import format_age, format_duration, format_time
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.readable import how_many
from gpuwatch.model.sensors import Unproven
from gpuwatch.model.stops import NOT_PROVED
from gpuwatch.policies.idle_words import unproved_stop
from gpuwatch.policies.spot import back


def state(case: Case) -> Finding:
    """Refuses an action on a node in a state that does not fit.

    Only running nodes are stopped and only stopped nodes are started; a node that is stopping is not stopped again
    (P6). The state is the cloud's, and is read again right before a removal.

    Wait until the node's state has settled.
    """
    node, verb = case.machine, case.step.verb
    if verb is Verb.START:
        if node.state is NodeState.STOPPED:
            return allow("It is stopped.")
        return refuse(f"It is {node.state.value}.", "Only stopped nodes are started.")
    if node.state is NodeState.RUNNING or (case.asleep and verb in {Verb.NOTICE, Verb.TERMINATE}):
        return allow(f"It is {node.state.value}.")
    return refuse(f"It is {node.state.value}.", "Only running nodes are stopped.")


def not_stopped_by_us(case: Case) -> Finding:
    """Refuses to terminate a stopped node, unless gpuwatch stopped it and its time is over.

    Machines stopped by somebody else are never terminated: a stop is their owner's way to keep them. Who stopped it,
    its cloud says, and nothing else. It must have accepted gpuwatch's own call while the machine ran. And the time of
    the last stop that it shows (EC2, Google Cloud, Azure), or the request (Tencent Cloud), must be that call's. A stop
    without an answer on record counts as the owner's. So does one that came while the machine was on its way down.

    If anybody has started the node since gpuwatch stopped it, it counts as the owner's, also if it was stopped again
    while no controller looked. Azure and Tencent Cloud do not say when a machine was started last. There it counts as
    the owner's if no controller saw it for more than ten minutes since its stop, as after an outage.

    The node is kept for `pools.<name>.idle.terminate_after`; the notice comes at least
    `pools.<name>.idle.terminate_grace_period` (3 days) before the end. Times are by the controller's clock; EC2 itself
    refuses calls from a clock that is wrong by five minutes.
    Running nodes pass.

    Set `pools.<name>.idle.terminate_after`. Without it the pool never terminates stopped nodes.
    """
    if not case.asleep:
        return allow("It runs.")
    node, limit = case.machine, case.pool_rules.idle.terminate_after
    if limit is None:
        return refuse("The pool never terminates stopped nodes.", f"Set pools.{case.pool}.idle.terminate_after.")
    found = case.observation.ledger.stop_of(node.id)
    if found is None and (asked_at := unproved_stop(case.observation.ledger, node.id)) is not None:
        return refuse(
            f"gpuwatch asked for its stop at {format_time(asked_at)}, and its cloud did not show it done in time.",
            "Terminate it yourself, if nobody needs it.",
        )
    if found is None:
        return refuse("gpuwatch has no stop of it on record.", "gpuwatch terminates only what it has stopped itself.")
    if (doubt := found.why_not_ours(node)) is not None:
        return refuse(f"It was stopped, and {NOT_PROVED}: {doubt}.", "Terminate it yourself, if nobody needs it.")
    # By the cloud's own clock, where its time at the stop is on record: ours may have been set since.
    before = found.at if found.launched_at is None else found.launched_at
    if node.launched_at is None or node.launched_at > before:
        return refuse(
            "It was started again after gpuwatch stopped it.", "gpuwatch terminates only what nobody has started since."
        )
    if (unwatched := found.why_unwatched(node, case.observation.interval_seconds)) is not None:
        return refuse(
            f"It may have been started and stopped again since gpuwatch stopped it: {unwatched}.",
            "Terminate it yourself: its cloud does not say when it was started last.",
        )
    age = (case.observation.now - found.at).total_seconds()
    notice = case.pool_rules.idle.terminate_grace_period if case.step.verb is Verb.NOTICE else 0.0
    if age + notice < limit:
        return refuse(f"It was stopped {format_duration(age)} ago.", f"It is kept for {format_duration(limit)}.")
    return allow(f"gpuwatch stopped it {format_duration(age)} ago, and nobody started it since.")


def unknown(case: Case) -> Finding:
    """Refuses to remove a node while its use is unknown.

    Reading a cold cache or a failed probe as idle is the typical accident of such tools. Every failure means unknown,
    and unknown is never idle (P1): no answer, a gap, a lost GPU, a clock that jumped, a required signal that is
    missing. Stopped nodes are judged by `not_stopped_by_us`.

    The agent must answer with a complete, fresh verdict. `gpuwatch explain NODE` says what is in doubt.
    """
    if case.asleep:
        return allow("It does not run.")
    activity = case.machine.activity
    if activity.state is not State.UNKNOWN:
        return allow(f"Its use is known: {activity.state.value}.")
    return refuse(f"Its use is unknown: {activity.doubt}.", "Its agent must answer with a complete, fresh verdict.")


def stale(case: Subject) -> Finding:
    """Refuses to remove a node if its verdict is too old, by the agent's own count or by our clock.

    An answer from before the job began looks like any other, and a wrong clock makes every age wrong (P9). A verdict
    from the future is stale, too. `limits.max_verdict_age` limits the age when the answer comes, and then the time that
    the round takes. Agents are asked last in a round, so a Prometheus that hangs makes no verdict old. Asking ends
    after three fifths of the limit. A node that was not asked is unknown until the next round, which asks it first.
    Right before a removal the agent is asked again; its newest sample may then be three sampling
    intervals old.

    Of a workload each machine that its GPU pods are on must have such a verdict: one that is stale keeps all of it.

    Check the agent and both clocks. If the round took too long, the log says whether the cloud or other agents were
    slow.
    """
    if case.asleep:
        return allow("It does not run.")
    limit, now, oldest = case.limits.max_verdict_age, case.observation.now, 0.0
    for node in case.nodes:
        verdict, of_machine = node.verdict, "" if isinstance(case, Case) else f" of its machine {node.name}"
        if verdict is None:
            return refuse(f"There is no verdict{of_machine}.", "Its agent must answer.")
        waited = node.waited_seconds(now)
        skew = (now - verdict.at).total_seconds() - waited
        worst = max(verdict.age_seconds, abs(skew))
        if worst > limit:
            ages = f"{format_duration(verdict.age_seconds)} by its own count, {format_age(skew)} by ours"
            return refuse(
                f"{f'The verdict{of_machine}' if of_machine else 'Its verdict'} is stale: {ages}.",
                f"At most {format_duration(limit)} is allowed; check its agent and both clocks.",
            )
        if abs(waited) > limit:
            slow = "The cloud or other agents answer slowly. The log says which."
            since = f"{case.name_subject(node)} answered {format_duration(waited)} ago"
            return refuse(f"{since} and the round is still running.", slow)
        oldest = max(oldest, worst + max(0.0, waited))
    return allow(f"Its verdict is {format_duration(oldest)} old.")


def busy(case: Case) -> Finding:
    """Refuses to remove a node unless it and each of its GPUs is idle.

    One busy GPU of eight keeps the node (P2), and so does any person or program at work on it (docs/idle-detection.md).
    Occupied, parked or stalled counts as idle only in a pool that reclaims such nodes (`pools.<name>.idle.occupied`,
    `pools.<name>.idle.parked`, `pools.<name>.idle.stalled`; by default the pool's profile decides).

    There is one exception: a node on demand may go once spot works in its place, with both consents. The pool says
    `interruptible: any`, and the machine's own tag `gpuwatch:interruptible` says true
    (docs/policies/spot.md#back-to-spot).
    """
    if case.asleep:
        return allow("It does not run.")
    if case.step.reason.code == back.CODE:
        against = back.against(case.machine, case.pool_rules)
        if against is None:
            return allow(f"It is {case.machine.activity.state.value}, and its people consent to an interruption.")
        return refuse(against, "Both consents are needed to interrupt work, or it must be idle.")
    node, rules = case.machine, case.pool_rules.idle
    allowed = {State.IDLE}
    allowed |= {State.OCCUPIED} if rules.occupied != "report" else set()
    allowed |= {State.PARKED} if rules.parked != "report" else set()
    allowed |= {State.STALLED} if rules.stalled != "report" else set()
    inside = [gpu for gpu in (node.verdict.gpus if node.verdict else ()) if gpu.activity.state not in allowed]
    if node.activity.state in allowed and not inside:
        return allow(f"It is {node.activity.state.value}, and so is each of its GPUs.")
    word = node.activity.state.value if node.activity.state not in allowed else inside[0].activity.state.value
    return refuse(f"It, or one of its GPUs, is {word}.", "Every GPU must be idle.")


def gpus_missing(case: Case) -> Finding:
    """Refuses to remove a node if its agent sees fewer GPUs than its machine type has.

    A GPU that fell off the bus, or that was passed to a virtual machine or a container, may be working (P1). The
    cloud's number for the machine type counts; if it is unknown, the node stays.

    Find the missing GPUs.
    """
    node = case.machine
    seen = len(node.verdict.gpus) if node.verdict else 0
    if case.asleep:
        return allow("It does not run.")
    if node.gpu_count is None:
        remedy = "Its agent must answer." if node.owned else "The cloud must describe this type."
        return refuse(f"The number of GPUs of a {node.instance_type} is unknown.", remedy)
    sentence = f"Its agent sees {seen} of {how_many(node.gpu_count, 'GPU')}."
    if seen >= node.gpu_count:
        return allow(sentence)
    return refuse(sentence, "The others may be working: check the driver and the host's devices.")


def warm_up(case: Case) -> Finding:
    """Refuses to remove a node if its start time is recent, or unknown for as long.

    A new node idles while it loads, and removing it would mean buying another one (P10, P11). Recent means within
    `pools.<name>.warm_up`; a start time in the future is recent, too. A verdict that claims more idleness than the
    node's age is not believed: check the node's clock. If the cloud names no start time, a controller that has seen the
    node run for the whole of `warm_up`, without a gap of ten minutes, knows enough.
    """
    node, limit = case.machine, case.pool_rules.warm_up
    if case.asleep:
        return allow("It does not run.")
    if node.launched_at is None:
        watched = case.observation.watched.get(node.id, 0.0)
        sentence = f"Its start time is not known. gpuwatch has seen it run for {format_duration(watched)}."
        return allow(sentence) if watched >= limit else refuse(sentence, f"It warms up for {format_duration(limit)}.")
    age = (case.observation.now - node.launched_at).total_seconds()
    if age < limit:
        started = f"It was started {format_duration(age)} ago" if age >= 0 else f"Its start is {format_age(age)}"
        return refuse(f"{started}.", f"It warms up for {format_duration(limit)}.")
    if node.activity.held_seconds > age:
        held = format_duration(node.activity.held_seconds)
        return refuse(f"It claims {held} of idleness and was started {format_duration(age)} ago.", "Check its clock.")
    return allow(f"It was started {format_duration(age)} ago.")


def low_coverage(case: Case) -> Finding:
    """Refuses to remove nodes of a pool in which too few nodes answer.

    If half of a pool is silent, the network is probably at fault, and the other answers may be wrong, too (P1). The
    share that must be known is `limits.min_coverage_ratio`. Only enrolled, running nodes count; a pool without any is
    blind.

    Repair the agents or the network.
    """
    if case.asleep:
        return allow("It does not run.")
    roster = case.observation.fleet.roster(case.pool)
    coverage = f"{roster.known} of {len(roster.members)} running nodes of the pool are known"
    if roster.members and roster.known / len(roster.members) >= case.limits.min_coverage_ratio:
        return allow(f"{coverage}.")
    return refuse(
        f"Only {coverage}.",
        f"At least {case.limits.min_coverage_ratio:.0%} must be known: repair the agents or the network to them.",
    )


def mass_idleness(case: Subject) -> Finding:
    """Refuses to remove nodes, or to end pods, where a sensor is suspected: too many nodes read idle.

    A broken sensor, a driver upgrade or an exporter that reads zero looks like this, and no other rule sees it. There
    are two signs. The first is that most working nodes turned idle at once. The end of one job on many nodes and a
    restart of all agents look the same. Nodes are frozen for
    `limits.mass_idleness_freeze` if the share `limits.mass_idleness_ratio` of those that have something in common, and
    at least `limits.mass_idleness_nodes` of them, turn idle within `limits.mass_idleness_window`. In common they may
    have their pool, the fleet, their cloud, their image, their driver or their version of the agent. So a fleet of many
    small pools freezes as one large pool does, and a fleet of fewer nodes than that number never freezes. Nodes that
    were idle before, are idle since their start, or started later do not count. The freeze begins when the first of
    these nodes could have its notice. Time in which gpuwatch was paused, only observed or made no rounds does not
    count.

    The second sign is a new driver, version of the agent or image: the nodes that have it are not seen at work, while
    their pool worked with another one within the last week. A pool that is younger is compared with the fleet. A
    roll-out may take days, so these nodes turn idle one after another. What is new is proven once enough nodes of the
    same type were at work with it at one time: the share that is left by `limits.mass_idleness_ratio` of as many as the
    others were. By default this is half, and of a single node one. Until then the nodes that have it are frozen,
    however few they are. The freeze ends a day after the last of them got it, or was started with it, and a week after
    the last of them got it in any case. A driver that one type of machine cannot use is found, too: each type has its
    own proof. What machines were seen at work with is kept in the ledger. In the first round of a new ledger nothing is
    suspected.

    If the nodes are really idle, run `gpuwatch acknowledge`, or `gpuwatch acknowledge --pool NAME` for one pool. It
    covers only what was seen by then, and ends no pause; `gpuwatch resume` acknowledges nothing. Otherwise repair the
    sensor, or go back to what worked; the freeze ends by itself.
    """
    over = "Neither its pool nor the fleet turned idle all at once."
    if case.asleep:
        return allow(over)
    for pool in case.pools:
        found = case.burst_of(pool)
        if found is None:
            continue
        nodes = f"{found.count} of {found.members} working nodes {found.of}"
        sentence = f"{nodes} turned idle at once, by {found.last:%H:%M} UTC"
        if found.common:
            sentence += f"; in common they have {', '.join(found.common)}"
        # Counted from the first possible notice: people need the time after something showed, not before. Nothing
        # showed while the pool was paused, or nobody made rounds.
        resumed = [at for each, at in case.observation.ledger.resumed if each in {None, pool}]
        begins = max(found.last + timedelta(seconds=case.wait_seconds), *resumed, found.last)
        ends = begins + timedelta(seconds=case.limits.mass_idleness_freeze)
        if case.observation.now < ends:
            of_pool, what = (f" --pool {shlex.quote(pool)}", "The pool is") if found.is_of_pool else ("", "They are")
            remedy = f"If they are really idle, run `gpuwatch acknowledge{of_pool}`"
            return refuse(f"{sentence}.", f"{what} frozen until {ends:%H:%M} UTC. {remedy}.")
        over = f"{sentence}; the freeze ended at {ends:%H:%M} UTC."
    unproven = [each for node in case.nodes if (each := case.observation.unproven_of(node)) is not None]
    return _refuse_unproven(max(unproven, key=lambda each: each.until)) if unproven else allow(over)


def _refuse_unproven(found: Unproven) -> Finding:
    """Say what nobody is seen at work with, and what would prove it."""
    nodes = how_many(found.nodes, "node")
    seen = "none was" if found.busy == 0 else f"at most {found.busy} at one time were"
    of_pool = f" --pool {shlex.quote(found.pools[0])}" if len(found.pools) == 1 else ""
    return refuse(
        f"Of {nodes} with {found.words} {seen} seen at work since it came at {format_time(found.since)}; nodes with "
        f"the {found.of} {found.before} were.",
        f"They are frozen until {format_time(found.until)}, or until {found.needed} of them are at work at one time. "
        f"If they are really idle, run `gpuwatch acknowledge{of_pool}`.",
    )
