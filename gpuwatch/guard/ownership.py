"""Rules on who owns the target, and on whether gpuwatch may touch it at all."""

from datetime import UTC, datetime, timedelta

from gpuwatch.guard.case import Case, Finding, Subject, allow, final_verb, refuse
from gpuwatch.model.decision import DECISION_TAG, NOTIFIED_TAG, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Node
from gpuwatch.model.orders import ITSELF
from gpuwatch.model.usage import FLEET_TAG
from gpuwatch.model.verbs import prepared_removal
from gpuwatch.policies import elsewhere, idle, undone
from gpuwatch.policies.kubernetes.obstacles import consents, is_joined

RECENT = timedelta(days=1)
# What only keeps machines and work goes on in a person's pause, too.
KEEPS = frozenset({Verb.PROTECT, Verb.WITHDRAW})
_FORM = "%Y-%m-%dT%H:%M:%SZ"


def observe_only(case: Subject) -> Finding:
    """Refuses everything while the controller only observes, which is the default.

    You see first what gpuwatch would do. Dry run and real round are the same code (P5); only this rule differs.
    `gpuwatch plan` shows each action with this objection and every other, so nothing new appears after the switch.

    Set `mode: enforce` once you trust the plan.
    """
    if case.enforce:
        return allow("This controller enforces.")
    return refuse("This controller only observes.", "Set `mode: enforce` once you trust its plan.")


def paused(case: Subject) -> Finding:
    """Refuses everything in a paused pool, or in all pools.

    In an incident one quick command must prevent all actions. What only keeps machines goes on. A member that goes to
    work is protected against its group's scale-in. The notice of a machine that works again is withdrawn, and
    gpuwatch's cordon on a Kubernetes node is undone. A workload with pods in several pools waits for each of them. The
    pause is in the ledger and survives a restart. A round in progress obeys it, too: the ledger is asked again as the
    last thing before each call leaves. Other notices stay during the pause; afterwards each is withdrawn and given
    again with its whole grace (`no_notice`). Where gpuwatch has paused itself, because its ledger is not the one that
    it wrote, nothing at all is done.

    `gpuwatch resume` ends the pause. A pause with an end time ends by itself, by the controller's clock.
    """
    for pause in case.observation.ledger.pauses:
        if case.step.verb in KEEPS and pause.who != ITSELF:
            continue
        if pause.pool in {None, *case.pools} and (pause.until is None or pause.until > case.observation.now):
            what = "Everything" if pause.pool is None else f"The pool {pause.pool}"
            until = "" if pause.until is None else f" until {pause.until:%Y-%m-%d %H:%M} UTC"
            return refuse(
                f"{what} is paused{until} by {pause.who}: {pause.reason or 'no reason given'}.",
                "`gpuwatch resume` ends it.",
            )
    return allow("Nobody has paused it.")


def not_enrolled(case: Case) -> Finding:
    """Refuses any change of a node or a group without the tag `gpuwatch:fleet`.

    gpuwatch touches only what is enrolled by tag (P3): with opt-out, people lost machines that they had forgotten to
    exclude. Nodes that are not enrolled count neither as coverage nor towards the pool's minimum.

    Tag it `gpuwatch:fleet` with the value of the setting `fleet`. A node in a group needs the tag on the node and on
    the group: the group's own tag is the consent to resize it. A group that EKS, AKS, ACK or TKE marked is grown by
    nobody but its cluster; its members pass as nodes of the configured cluster (`owned`).
    """
    if case.step.verb is Verb.LAUNCH:
        return allow("A new node is enrolled from its launch.")
    if case.node is not None and not case.node.enrolled:
        other = case.node.tags.get(FLEET_TAG)
        return refuse(
            f"It is not enrolled{f': it is of the fleet {other}' if other else ''}.",
            "Tag it gpuwatch:fleet=<your fleet>, if gpuwatch may touch it.",
        )
    if case.group is not None and not consents(case.node, case.group, case.pool_rules.kubernetes):
        return refuse(
            f"Its group {case.group.name} is not enrolled.",
            "Tag the group itself gpuwatch:fleet=<your fleet>, if gpuwatch may resize it.",
        )
    return allow("It is enrolled by its tag.")


def protected(case: Case) -> Finding:
    """Refuses to remove, start or grow what a tag protects.

    The tag `gpuwatch:protect` on a node or its group keeps it (P3). Scale-in protection may still be set, because it
    keeps the group from removing the node. A tag with an end time protects until then. An unreadable time protects
    until it is corrected, also in a snooze tag. A key that is almost right (`gpuwatch:Protect`, `gpuwatch-protect`,
    `gpuwatch:keep`) protects, too. The tag is read again right before the call: a tag set seconds ago counts.

    Remove or correct the tag, or wait until its time is over.
    """
    for each in (case.node, case.group):
        if each is not None and each.protected is not None:
            return refuse(f"It is protected: {each.protected}.", "Remove the tag, or wait until it runs out.")
    return allow("Nothing protects it.")


def snoozed(case: Case) -> Finding:
    """Refuses to remove a node before its snooze ends.

    A snooze is the time in the tag `gpuwatch:snooze-until`, or a Keep on the page (docs/web-ui.md). It is always
    honoured (P8), up to `pools.<name>.idle.max_snooze`: without a cap, a script could renew it for months. The cap
    counts from when the node turned idle, or from when gpuwatch stopped it; any activity restarts the count. A snoozed
    node may be started.

    Remove the tag, or wait.
    """
    until, cap = case.machine.snoozed, case.pool_rules.idle.max_snooze
    if until is None:
        return allow("Nobody has snoozed it.")
    unused = case.machine.activity.held_seconds
    if case.asleep:
        found = case.observation.ledger.stop_of(case.machine.id)
        unused = 0.0 if found is None else (case.observation.now - found.at).total_seconds()
    if unused <= cap:
        return refuse(
            f"It is snoozed until {until}.",
            f"Remove the tag, or wait; it holds for {format_duration(cap)} of idleness at most.",
        )
    return allow(f"It is snoozed until {until}, but a snooze holds for {format_duration(cap)} of idleness at most.")


def left_alone(case: Case) -> Finding:
    """Refuses to remove what somebody has put back twice, within a day, after gpuwatch had stopped or ended it.

    An instance scheduler, a script, a group's own policy or Terraform may want running what gpuwatch wants stopped. The
    war would cost boots and notices all day. So after two stops that were undone, with no use in between, the machine
    is left alone for a day; its owner gets one message. Then it is tried once more, and each time that somebody undoes
    the stop again, it is left alone for twice as long, two weeks at most. A group is left alone as a whole: what counts
    is that its size is raised again after gpuwatch ended members, and that the new ones do not work. A machine is not
    ended for two weeks after that time either, also not by `terminate_after`.

    What is started again once a day is stopped again each time: a day of idleness costs more than a boot. Its owner
    gets a message at the third time in a row, and then each week.

    A quarter of an hour of work (`busy`), in all, makes a start a need: then nothing was undone, and the machine is
    stopped again once it is idle. Starts and growth by gpuwatch itself are no disagreement, nor is a stop that the
    cloud does not ascribe to gpuwatch.

    Turn off what starts the machine or raises the size. `gpuwatch resume --pool NAME` then tries again at once.
    Somebody who wants the machine to stay may protect it by its tag instead.
    """
    why = undone.why_left_alone(case.observation, case.machine, ends=final_verb(case) is Verb.TERMINATE)
    return allow("Nobody has undone its stops.") if why is None else refuse(why, undone.change_of(case.pool))


def unknown_pool(case: Case) -> Finding:
    """Refuses to remove, start or grow anything in a pool that is not in the settings.

    One wrong letter in a tag must not put a machine under another pool's rules (P1). Names are compared letter by
    letter: `Prod-Inference` and `prod_inference` are not `prod-inference`, and a space at the end counts. A machine
    without the tag `gpuwatch:pool` belongs to `default`; an empty tag names no pool. After a pool was renamed or
    removed in the settings, its machines are left alone until their tags follow, and their notices are withdrawn.

    Correct the tag, or add the pool to `pools`. Nothing is inherited: `training: {}` has gpuwatch's own defaults, and a
    YAML anchor shares rules (`training: &usual {...}`, `research: *usual`). `gpuwatch status`, `gpuwatch plan` and
    `gpuwatch doctor controller` (`pool.unknown`) list such pools; `gpuwatch_controller_steps` counts their machines
    under the code `unknown_pool`.
    """
    if case.unknown_pool is None:
        return allow("The settings have its pool.")
    return refuse(case.unknown_pool, "Correct the tag gpuwatch:pool, or add rules for that pool under `pools`.")


def other_cloud(case: Subject) -> Finding:
    """Refuses to remove, start or grow anything in a cloud that its pool does not name, and to end pods there.

    `pools.<name>.clouds` names the clouds that a pool is for; without it the pool is for all. A tag `gpuwatch:pool` may
    be set in any cloud, and a slip must not put a machine under rules that were written for others (P1). Such a machine
    is left alone, and its notice is withdrawn.

    Correct the tag, or add the cloud to `pools.<name>.clouds`.
    """
    for place in case.places:
        why = elsewhere.foreign(place, case.rules_of(place.pool).clouds, case.name_subject(place))
        if why is not None:
            return refuse(why, f"Correct the tag gpuwatch:pool, or add the cloud to pools.{place.pool}.clouds.")
    return allow("Its pool is for its cloud.")


def owned(case: Case) -> Finding:
    """Refuses to change what another system manages.

    This is a group without consent, and what EKS, Batch, SageMaker and the like manage; of a group with consent it is
    stopping or starting a member. A node of the configured Kubernetes cluster passes in a pool with
    `pools.<name>.kubernetes.node_owner: gpuwatch`, although EKS, GKE, AKS, ACK or TKE marked it. A group terminates and
    replaces a stopped member: nothing is saved and the disk is lost. Members are removed by name only. Lowering the
    group's size would let the cloud choose the wrong node. Members of a group that the cloud does not list stay.

    Use the scale-down of that system. For a group with consent set `pools.<name>.idle.action: terminate`, which removes
    a member together with its place; with `action: stop` a member does not even get a notice. To start members, raise
    the group's desired size.
    """
    node = case.machine
    if node.managed_by is not None and not is_joined(node, case.pool_rules.kubernetes):
        return refuse(
            f"It belongs to {node.managed_by}.", "That system must scale it; it would only replace a stopped node."
        )
    if node.group is not None and case.group is None:
        return refuse(f"Its group {node.group} is unknown.", "The cloud must list the group.")
    if node.group is not None and case.step.verb is Verb.START:
        return refuse("Its group starts its own members.", "Raise the group's desired size.")
    verb = prepared_removal(case.step.verb, case.step.arguments)
    if node.group is not None and (verb is Verb.STOP or _would_stop(case)):
        return refuse(
            "A stopped member of an Auto Scaling group is replaced by the group.",
            "Set `action: terminate` for the pool: the member is then terminated together with its place.",
        )
    return allow("No other system owns it.")


def _would_stop(case: Case) -> bool:
    """Whether a notice would lead to a stop."""
    choice, _ = idle.choose_action(case.machine, case.observation, case.pool_rules.idle)
    return case.step.verb is Verb.NOTICE and choice == "stop"


def other_ledger(case: Case) -> Finding:
    """Refuses any change of a node that another ledger has decided about within a day.

    Two controllers with two ledgers do not see each other's notices, limits and pauses (P16). The node's tag
    `gpuwatch:decision-id` names a decision. If this ledger lacks it, a second controller is at work, or records were
    lost, as after a restore. The controller that tagged a node first keeps it. The day counts from the tag
    `gpuwatch:notified-at`, or from the node's start; an unreadable time counts as recent. Tags are read again right
    before each removal.

    Run one ledger for a fleet. If there is no other controller, remove the tag, or wait until it is a day old. If this
    ledger never decided anything, or lacks a decision of its own, all pools are paused as well:
    docs/ledger.md#what-survives-what.
    """
    node, now = case.machine, case.observation.now
    key = node.tags.get(DECISION_TAG, "")
    if key not in case.observation.ledger.foreign:
        return allow("No other ledger decides about it.")
    if not recent(node, now):
        return allow(f"Its tag {DECISION_TAG} names {key}, which this ledger lacks; but the tag is over a day old.")
    return refuse(
        f"Its tag {DECISION_TAG} names {key}, which is not in this ledger: another controller decides about it, or "
        "records were lost.",
        "Run one ledger for a fleet. If no other controller runs, remove the tag, or wait until it is a day old.",
    )


def recent(node: Node, now: datetime) -> bool:
    """Whether the decision in a node's tag is younger than a day; one of an unknown time counts as young."""
    at = _decision_time(node)
    return at is None or now - at < RECENT


def _decision_time(node: Node) -> datetime | None:
    """When that was: the time of its notice or withdrawal; of a node that was launched so, its start."""
    if NOTIFIED_TAG not in node.tags:
        return node.launched_at
    try:
        return datetime.strptime(node.tags[NOTIFIED_TAG].rpartition(" ")[2], _FORM).replace(tzinfo=UTC)
    except ValueError:
        return None
