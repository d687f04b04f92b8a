"""Rules on whether the node's use is known, fresh, and nothing but idle."""

import shlex
from datetime import timedelta

from gpuwatch.guard.case import Case, Word, no, ok
from gpuwatch.model.decision import Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import NodeState, State
from gpuwatch.policies import idle


def state(case: Case) -> Word:
    """A step needs its node in the state that it starts from."""
    node, verb = case.machine, case.step.verb
    if verb is Verb.START:
        if node.state is NodeState.STOPPED:
            return ok("It is stopped.")
        return no(f"It is {node.state.value}.", "Only stopped nodes are started.")
    if node.state is NodeState.RUNNING or (case.asleep and verb in {Verb.NOTICE, Verb.TERMINATE}):
        return ok(f"It is {node.state.value}.")
    return no(f"It is {node.state.value}.", "Only running nodes are stopped.")


def ladder(case: Case) -> Word:
    """A stopped node goes only if gpuwatch stopped it, nobody started it since, and the pool's time for it is over."""
    if not case.asleep:
        return ok("It runs.")
    node, limit = case.machine, case.pool_rules.idle.terminate_after
    if limit is None:
        return no("The pool never terminates stopped nodes.", f"Set pools.{case.pool}.idle.terminate_after.")
    found = case.observation.ledger.stop_of(node.id)
    if found is None:
        return no("Somebody else stopped it.", "gpuwatch terminates only what it has stopped itself.")
    # By the cloud's own clock, where its time at the stop is on record: ours may have been set since.
    before = found.at if found.launched_at is None else found.launched_at
    if node.launched_at is None or node.launched_at > before:
        return no("It was started again after gpuwatch stopped it.", "Whoever did that may want it.")
    age = (case.observation.now - found.at).total_seconds()
    notice = case.pool_rules.idle.notice if case.step.verb is Verb.NOTICE else 0.0
    if age + notice < limit:
        return no(f"It was stopped {format_duration(age)} ago.", f"It is kept for {format_duration(limit)}.")
    return ok(f"gpuwatch stopped it {format_duration(age)} ago, and nobody started it since.")


def unknown(case: Case) -> Word:
    """P1: a node whose use is not known is left alone."""
    if case.asleep:
        return ok("It does not run.")
    activity = case.machine.activity
    if activity.state is not State.UNKNOWN:
        return ok(f"Its use is known: {activity.state.value}.")
    return no(f"Its use is unknown: {activity.doubt}.", "Its agent must answer with a complete, fresh verdict.")


def stale(case: Case) -> Word:
    """A verdict must be fresh by its own count and by our clock when it comes, and have come in this round."""
    verdict = case.machine.verdict
    if case.asleep:
        return ok("It does not run.")
    if verdict is None:
        return no("There is no verdict.", "Its agent must answer.")
    limit, waited = case.limits.max_verdict_age, case.machine.waited_seconds(case.observation.now)
    skew = (case.observation.now - verdict.at).total_seconds() - waited
    worst = max(verdict.age_seconds, abs(skew))
    if worst <= limit and abs(waited) <= limit:
        return ok(f"Its verdict is {format_duration(worst + max(0.0, waited))} old.")
    if worst <= limit:
        slow = "Something that the round asks is slow: the cloud, or other agents. The log says which."
        return no(f"It answered {format_duration(waited)} ago and the round has been going on since.", slow)
    told = f"{format_duration(verdict.age_seconds)} by its own count, {format_duration(skew)} by ours"
    return no(f"Its verdict is stale: {told}.", f"At most {format_duration(limit)}; check its agent and both clocks.")


def busy(case: Case) -> Word:
    """P2: the node and each of its GPUs must be idle (or parked, or stalled, where the pool reclaims those)."""
    if case.asleep:
        return ok("It does not run.")
    node, rules = case.machine, case.pool_rules.idle
    allowed = {State.IDLE}
    allowed |= {State.PARKED} if rules.parked != "tell" else set()
    allowed |= {State.STALLED} if rules.stalled != "tell" else set()
    inside = [gpu for gpu in (node.verdict.gpus if node.verdict else ()) if gpu.activity.state not in allowed]
    if node.activity.state in allowed and not inside:
        return ok(f"It is {node.activity.state.value}, and so is each of its GPUs.")
    word = node.activity.state.value if node.activity.state not in allowed else inside[0].activity.state.value
    return no(f"It, or one of its GPUs, is {word}.", "Every GPU must be idle.")


def gpus_missing(case: Case) -> Word:
    """A GPU that nobody sees may be working."""
    node = case.machine
    seen = len(node.verdict.gpus) if node.verdict else 0
    if case.asleep:
        return ok("It does not run.")
    if node.gpu_count is None:
        return no(f"Nobody knows how many GPUs a {node.instance_type} has.", "The cloud must describe its type.")
    if seen >= node.gpu_count:
        return ok(f"All {node.gpu_count} GPUs of its type are accounted for.")
    return no(f"Its agent sees {seen} of {node.gpu_count} GPUs.", "The others may be working; find out where they are.")


def warm_up(case: Case) -> Word:
    """P10: a node is left alone for a while after its start."""
    node, limit = case.machine, case.pool_rules.warm_up
    if case.asleep:
        return ok("It does not run.")
    if node.launched_at is None:
        return no("Nobody knows when it was started.", "The cloud must tell its launch time.")
    age = (case.observation.now - node.launched_at).total_seconds()
    if age < limit:
        return no(f"It was started {format_duration(age)} ago.", f"It warms up for {format_duration(limit)}.")
    if node.activity.held_seconds > age:
        held = format_duration(node.activity.held_seconds)
        return no(f"It claims {held} of idleness and was started {format_duration(age)} ago.", "Check its clock.")
    return ok(f"It was started {format_duration(age)} ago.")


def blind(case: Case) -> Word:
    """A pool of which too little is known is left alone as a whole."""
    if case.asleep:
        return ok("It does not run.")
    roster = case.observation.fleet.roster(case.pool)
    told = f"{roster.known} of {len(roster.members)} running nodes of the pool are known"
    if roster.members and roster.known / len(roster.members) >= case.limits.min_coverage_ratio:
        return ok(f"{told}.")
    return no(f"Only {told}.", f"At least {case.limits.min_coverage_ratio:.0%}: mend the agents or the way to them.")


def mass_idleness(case: Case) -> Word:
    """When most of a pool turns idle at the same time, a broken sensor is likelier than a holiday: freeze."""
    found = case.burst
    if found is None or case.asleep:
        return ok("The pool did not turn idle all at once.")
    told = f"{found.count} of {found.members} working nodes of the pool turned idle at once, by {found.last:%H:%M} UTC"
    _, wait = idle.chosen(case.machine, case.observation, case.pool_rules.idle)
    # Counted from the first possible notice: people need the time after something showed, not before. Nothing showed
    # while the pool was paused, or nobody made rounds.
    resumed = [at for pool, at in case.observation.ledger.resumed if pool in {None, case.pool}]
    begins = max(found.last + timedelta(seconds=wait or 0.0), *resumed, found.last)
    ends = begins + timedelta(seconds=case.limits.mass_idleness_freeze)
    if case.observation.now >= ends:
        return ok(f"{told}; that was thought over until {ends:%H:%M} UTC.")
    remedy = f"`gpuwatch acknowledge --pool {shlex.quote(case.pool)}` if that is true"
    return no(f"{told}.", f"{remedy}; otherwise it is frozen until {ends:%H:%M} UTC.")
