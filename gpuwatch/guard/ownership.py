"""Rules on whose the target is and whether anybody may touch it at all."""

from datetime import UTC, datetime, timedelta

from gpuwatch.guard.case import Case, Word, no, ok
from gpuwatch.model.decision import DECISION_TAG, NOTIFIED_TAG, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import CapacityType, Node, State
from gpuwatch.policies import capacity, idle

_PREPAID = {
    CapacityType.CAPACITY_BLOCK: "It runs in a Capacity Block, which is paid to its end.",
    CapacityType.RESERVED: "It runs in a capacity reservation, which is paid whether it runs or not.",
    CapacityType.DEDICATED_HOST: "It runs on a Dedicated Host, which is paid whether anything runs on it or not.",
}
RECENT = timedelta(days=1)
_FORM = "%Y-%m-%dT%H:%M:%SZ"


def observe_only(case: Case) -> Word:
    """A controller that only observes does nothing."""
    if case.enforce:
        return ok("This controller enforces.")
    return no("This controller only observes.", "Set `mode: enforce` once you trust its plan.")


def paused(case: Case) -> Word:
    """Somebody's order to do nothing holds until its time, or until it is taken back."""
    for pause in case.observation.ledger.pauses:
        if pause.pool in {None, case.pool} and (pause.until is None or pause.until > case.observation.now):
            what = "Everything" if pause.pool is None else f"The pool {pause.pool}"
            until = "" if pause.until is None else f" until {pause.until:%Y-%m-%d %H:%M} UTC"
            return no(
                f"{what} is paused{until} by {pause.who}: {pause.reason or 'no reason given'}.",
                "`gpuwatch resume` ends it.",
            )
    return ok("Nobody has paused it.")


def not_enrolled(case: Case) -> Word:
    """Only what carries the fleet's tag is ever touched; a group's consent is the tag on the group itself."""
    if case.step.verb is Verb.LAUNCH:
        return ok("A new node is enrolled from its launch.")
    if case.node is not None and not case.node.enrolled:
        return no("It is not enrolled.", "Tag it gpuwatch:fleet=<your fleet>, if gpuwatch may touch it.")
    if case.group is not None and not case.group.enrolled:
        return no(
            f"Its group {case.group.name} is not enrolled.",
            "Tag the group itself gpuwatch:fleet=<your fleet>, if gpuwatch may resize it.",
        )
    return ok("It is enrolled by its tag.")


def protected(case: Case) -> Word:
    """A protection tag on the node or its group forbids every change."""
    for each in (case.node, case.group):
        if each is not None and each.protected is not None:
            return no(f"It is protected: {each.protected}.", "Remove the tag, or wait until it runs out.")
    return ok("Nothing protects it.")


def snoozed(case: Case) -> Word:
    """Somebody's wish for more time holds up to the pool's cap, counted from when the node turned idle."""
    until, cap = case.machine.snoozed, case.pool_rules.idle.snooze_max
    if until is None:
        return ok("Nobody has snoozed it.")
    unused = case.machine.activity.held_seconds
    if case.asleep:
        found = case.observation.ledger.stop_of(case.machine.id)
        unused = 0.0 if found is None else (case.observation.now - found.at).total_seconds()
    if unused <= cap:
        return no(
            f"It is snoozed until {until}.",
            f"Remove the tag, or wait; it holds for {format_duration(cap)} of idleness at most.",
        )
    return ok(f"It is snoozed until {until}, but a snooze holds for {format_duration(cap)} of idleness at most.")


def unknown_pool(case: Case) -> Word:
    """Which rules hold for a node or a group is doubtful where its tag names a pool that the settings do not have."""
    if case.unknown_pool is None:
        return ok("The settings have its pool.")
    return no(case.unknown_pool, "Correct the tag gpuwatch:pool, or add rules for that pool under `pools`.")


def unsupported(case: Case) -> Word:
    """What the cloud refuses to do to a node, or would undo, is not asked for, and nobody is told that it comes."""
    node, verb = case.machine, case.step.verb
    if verb is Verb.NOTICE:
        choice, _ = idle.chosen(node, case.observation, case.pool_rules.idle)
        verb = Verb.TERMINATE if case.asleep or choice == "terminate" else Verb.STOP
    if verb is Verb.STOP and node.cannot_stop is not None:
        return no(f"The cloud cannot stop it: {node.cannot_stop}.", "`then: terminate` could remove it.")
    if verb is Verb.TERMINATE and node.cannot_terminate is not None:
        return no(
            f"Terminating it would not end it: {node.cannot_terminate}.",
            "Cancel the request that would launch it again, or set `then: stop`.",
        )
    return ok("The cloud can do it.")


def opt_in(case: Case) -> Word:
    """A node goes only as far as its pool says for what it is doing: told about, stopped, or terminated."""
    state, verb = case.machine.activity.state, case.step.verb
    if case.asleep:
        return ok("It does not run.")
    choice, _ = idle.chosen(case.machine, case.observation, case.pool_rules.idle)
    if choice == "terminate" or (choice == "stop" and verb not in {Verb.TERMINATE, Verb.UNPROTECT}):
        return ok(f"The pool says `{choice}` for {state.value} nodes.")
    if choice is None:
        return no(f"The pool says nothing of {state.value} nodes.", "Only idle, parked and stalled ones may ever go.")
    key = {State.PARKED: "parked", State.STALLED: "stalled"}.get(state, "then")
    return no(f"The pool says `{choice}` for {state.value} nodes.", f"Set pools.{case.pool}.idle.{key} for more.")


def owned(case: Case) -> Word:
    """What another system manages is that system's to scale."""
    node = case.machine
    if node.managed_by is not None:
        return no(
            f"It belongs to {node.managed_by}.", "That system must scale it; it would only replace a stopped node."
        )
    if node.group is not None and case.group is None:
        return no(f"Nothing is known of its group {node.group}.", "The cloud must list the group.")
    if node.group is not None and case.step.verb is Verb.START:
        return no("Its group starts its own members.", "Raise the group's desired size.")
    if node.group is not None and (case.step.verb is Verb.STOP or _would_stop(case)):
        return no(
            "A stopped member of an Auto Scaling group is replaced by the group.",
            "Set `then: terminate` for the pool: the member is then terminated together with its place.",
        )
    return ok("No other system owns it.")


def _would_stop(case: Case) -> bool:
    """Whether a notice would lead to a stop."""
    choice, _ = idle.chosen(case.machine, case.observation, case.pool_rules.idle)
    return case.step.verb is Verb.NOTICE and choice == "stop"


def prepaid(case: Case) -> Word:
    """Capacity that is paid for already saves nothing when it is given back."""
    sentence = _PREPAID.get(case.machine.capacity_type)
    if sentence is None:
        return ok("Its hours are paid as they are used.")
    return no(sentence, "Stopping it saves nothing; let others use it, or end the reservation.")


def data_loss(case: Case) -> Word:
    """A stop empties local disks: the pool must say that nothing on them is worth keeping."""
    node, rules = case.machine, case.pool_rules.idle
    if not node.instance_store or case.asleep:
        return ok("It has no local disk that a stop would empty.")
    if rules.instance_store == "discard":
        return ok("Its local disks may be emptied: the pool says so.")
    return no(
        f"Its local disks ({node.instance_type} has instance store) lose their data.",
        f"Set pools.{case.pool}.idle.instance_store: discard, if nothing on them is worth keeping.",
    )


def scale_in_protection(case: Case) -> Word:
    """P20: what somebody else protected from its group's scale-in stays, also where the cloud would not mind."""
    if not case.machine.scale_in_protected:
        return ok("It has no scale-in protection.")
    if case.observation.ledger.shielded(case.step.node_id):
        return ok("Its scale-in protection is gpuwatch's own.")
    return no(
        "Somebody else protects it from its group's scale-in.",
        "Whoever set that protection may take it off (`aws autoscaling set-instance-protection`).",
    )


def group_rules(case: Case) -> Word:
    """A member leaves its group only where the group lets it go and nobody else goes with it."""
    group = case.group
    if case.node is not None and case.node.group is None:
        return ok("It is in no group.")
    if group is None:
        return no("Nothing is known of its group.", "The cloud must list the group.")
    if case.step.verb is Verb.GROW:
        size, adds = int(case.step.arguments["size"]), capacity.adds(case.step)
        if not 0 < size - group.desired <= adds:
            return no(f"It is {group.desired} nodes large: {size} is not {adds} more.", "The next round counts anew.")
        if size > group.max_size:
            return no(f"{size} is above the group's maximum of {group.max_size}.", "Raise its MaxSize.")
        if "Launch" in group.suspended:
            return no("The group's Launch process is suspended.", "Resume it, or start nodes another way.")
        return ok(f"The group takes up to {group.max_size} nodes.")
    leaving = sum(
        1
        for step in case.counts(frozenset({Verb.TERMINATE, Verb.UNPROTECT}))
        if step.node_id != case.step.node_id and (step.node_id in group.node_ids or _in(case, step.node_id, group.id))
    )
    if group.desired - leaving - 1 < group.min_size:
        return no(f"The group's minimum is {group.min_size} of {group.desired}.", "Lower its MinSize.")
    if "Terminate" in group.suspended:
        return no("The group's Terminate process is suspended.", "Resume it.")
    if len(group.zones) > 1 and "AZRebalance" not in group.suspended:
        others = [
            node
            for node in case.observation.fleet.roster(case.pool).nodes
            if node.group == group.id and node.id != case.step.node_id and not node.scale_in_protected
        ]
        listed = {node.id for node in case.observation.fleet.roster(case.pool).nodes}
        if others or not set(group.node_ids) <= listed:
            return no(
                "The group may terminate another member to balance its zones.",
                "Suspend AZRebalance, or wait until gpuwatch has set scale-in protection on the others.",
            )
    return ok("The group lets it go with its place.")


def _in(case: Case, node_id: str, group_id: str) -> bool:
    """Whether the node says that it is in the group, which may not list it yet."""
    node = case.observation.fleet.find(node_id)
    return node is not None and node.group == group_id


def other_ledger(case: Case) -> Word:
    """A node whose newest decision is on record in another ledger is that one's for a day."""
    node, now = case.machine, case.observation.now
    key = node.tags.get(DECISION_TAG, "")
    if key not in case.observation.ledger.foreign:
        return ok("No other ledger decides about it.")
    if not recent(node, now):
        return ok(f"Its tag {DECISION_TAG} names {key}, which this ledger lacks, but that is more than a day old.")
    return no(
        f"Its tag {DECISION_TAG} names {key}, which is not in this ledger: another controller decides about it, or "
        "records were lost.",
        "Run one ledger for a fleet. If no other controller runs, remove the tag, or wait until it is a day old.",
    )


def recent(node: Node, now: datetime) -> bool:
    """Whether the decision in a node's tag is younger than a day; one of an unknown time counts as young."""
    at = _decided_at(node)
    return at is None or now - at < RECENT


def _decided_at(node: Node) -> datetime | None:
    """When that was: the time of its notice or withdrawal; of a node that was launched so, its start."""
    if NOTIFIED_TAG not in node.tags:
        return node.launched_at
    try:
        return datetime.strptime(node.tags[NOTIFIED_TAG].rpartition(" ")[2], _FORM).replace(tzinfo=UTC)
    except ValueError:
        return None
