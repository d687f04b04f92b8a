"""Rules on where an addition may come from: launches that turn into nodes, and stops that are ours to undo."""

from gpuwatch.guard.case import Case, Finding, allow, refuse
from gpuwatch.model.decision import OpenIntent, Status, Verb
from gpuwatch.model.life import STARTED
from gpuwatch.policies import capacity, lasting, starts
from gpuwatch.policies.places import group_places
from gpuwatch.policies.spot import back
from gpuwatch.policies.spot.records import CAPACITY, OFFER, SPOT
from gpuwatch.policies.spot.settings import INTERRUPTIBLE

_LAUNCHES = frozenset({Verb.LAUNCH})


def unseen(entry: OpenIntent) -> bool:
    """Whether an open launch has had its time to turn into a node, and has not."""
    return entry.last is not None and entry.last.status is Status.UNSEEN


def launch_unseen(case: Case) -> Finding:
    """Refuses a launch while an earlier launch of the pool has brought no node.

    A launch is settled when the cloud lists its machine as a node of the pool; until then the machine counts as
    capacity. After ten minutes without that (a machine type without GPUs, a tag that names another pool, a machine that
    the cloud never shows) nothing more is launched with the same settings (P17). Starts, the growth of groups, and
    other offers of the pool are not affected. Machines that end have their own rule, [launch_lasts](#launch_lasts).

    Terminate the machine, or make it a node of the pool; the rule then passes by itself. Or correct the template or
    `pools.<name>.launch`: with another template, version, region, account or machine type a launch is possible at once,
    but the unseen machine still counts towards `pools.<name>.max_nodes`. One that its cloud has never shown counts as
    a node for twenty minutes only. `gpuwatch resume --pool NAME` goes on without
    the machine, which then no longer counts; a resume of all pools does not.
    """
    ledger, asked = case.observation.ledger, _launch(case.step.arguments)
    for entry in ledger.open_intents:
        if entry.intent.pool == case.pool and unseen(entry) and _launch(entry.intent.arguments) == asked:
            detail = "" if entry.last is None else entry.last.detail
            return refuse(
                f"A launch of the pool brought no node: {detail}.",
                "Terminate that machine or make it a node of the pool, and correct the template or "
                f"pools.{case.pool}.launch; `gpuwatch resume --pool {case.pool}` goes on without it.",
            )
    return allow("What was launched turned into nodes.")


def launch_lasts(case: Case) -> Finding:
    """Refuses a launch, a start, or the growth of a group, while what came of the same source before does not last.

    A machine has not lasted if it ended, stopped or was taken by itself within an hour, or later without ever having
    had work; or if its agent has not answered once in twenty minutes. Reasons are an image that shuts itself down, an
    unusable volume or key, spot that is taken back at once, an agent that is not installed. Pools, subnets and the
    names of offers make no difference: the template, its version, the machine type and the place do (P23).

    After three such machines in a row the settings rest for an hour, doubled each time, a day at most
    (spot that is taken, four hours). Then one machine is launched, and no other before it has lasted for an hour.
    Other offers and groups of the pool are not affected, and take its place.

    A machine that fell back to stopped after three starts in a row, or stopped by itself, rests as well, for as long.
    Reasons are a key of a volume that the cloud may not use, or no stock. Where the cloud says that a start of
    gpuwatch's failed, the stop before it is still gpuwatch's own, and the machine is tried again.

    So does a group that gpuwatch has made larger, if the newest three of its new members ended, stopped or were taken
    within an hour, or later without work. The group fills its places by itself all the same; what it lacks is not
    waited for, and its size is taken back by as many as come from elsewhere ([group_takes_back](#group_takes_back)).
    Members that go while somebody lowers the group's size do not count.

    See in the cloud, or in the machine's console output, why they ended, and correct the template: with another version
    a launch is possible at once. `gpuwatch resume --pool NAME` tries again before the rest is over.
    """
    seen, asked = case.observation, case.step.arguments
    if case.step.verb is Verb.GROW:
        return _members_last(case)
    if case.step.verb is Verb.START:
        asked = {STARTED: case.step.node_id}
    rest, source = lasting.rest_of(seen, asked), lasting.source_of(asked)
    if rest is None and case.step.verb is Verb.LAUNCH and lasting.on_trial(seen, asked):
        others = [each for each in case.counts(_LAUNCHES) if each.node_id != case.step.node_id]
        if any(lasting.source_of(each.arguments) == source for each in others):
            return refuse("What was launched so did not last, and one machine is tried now.", "Wait for an hour.")
    if rest is None:
        return allow("What was launched so, or started, lasts, or nobody knows yet.")
    return refuse(
        f"{rest.sentence}.",
        f"See in the cloud why; `gpuwatch resume --pool {case.pool}` tries again before the rest is over.",
    )


def _members_last(case: Case) -> Finding:
    """The same of a group: the new members that it made."""
    rest = lasting.rest_of_group(case.observation, case.step.node_id)
    if rest is not None:
        return refuse(
            f"{rest.sentence}.",
            f"See in the cloud why; `gpuwatch resume --pool {case.pool}` tries again before the rest is over.",
        )
    if lasting.group_on_trial(case.observation, case.step.node_id):
        coming = case.group is not None and group_places(case.observation, case.group).on_trial
        if coming or capacity.adds(case.step) > 1:
            return refuse("The group's newest members did not last, and one more is tried now.", "Wait for an hour.")
    return allow("What the group has made lasts, or nobody knows yet.")


def gives_way(case: Case) -> Finding:
    """Refuses to launch spot in the place of a node on demand that may not go.

    Spot that takes the place of a node on demand is launched first, and both are paid for until that node is gone. If a
    rule refuses to remove the node, and spot would not change that, no spot is launched for it (P17). Such rules are
    about local disks in use, a missing backtest, another ledger, a protection, or a missing approval.

    Remove what is in the way of the node, as the sentence says; or set `pools.<name>.capacity.surge: 0`, and the pool
    does not come back to spot.
    """
    if case.step.reason.code != back.CODE:
        return allow("It is not launched on top of what is wanted.")
    if case.surge is not None and case.surge.left > 0:
        return allow("A node on demand goes in its place.")
    against = "" if case.surge is None else case.surge.against
    return refuse(
        f"No further node on demand may go in its place{f'; {against}' if against else '.'}",
        f"See to that, or set pools.{case.pool}.capacity.surge: 0.",
    )


def cloud_silent(case: Case) -> Finding:
    """Refuses to add nodes while a cloud that the pool may use gives no answer, and nothing is known about it.

    A region or a cloud that gives no answer has the machines that it showed last, also after a restart: they count, and
    nothing is launched in their place (P17). If neither the controller nor the ledger has seen it yet, nobody knows how
    many nodes the pool has. Examples are the first start with wrong credentials, a new region and a lost ledger.

    Correct the credentials or the region, or wait for an answer. `pools.<name>.clouds` names the clouds that a pool is
    for: then the others do not matter to it.
    """
    clouds = case.pool_rules.clouds
    unknown = [each for each in case.observation.fleet.silent if not each.known]
    mine = [each for each in unknown if not clouds or not each.cloud or each.cloud in clouds]
    if not mine:
        return allow("What every cloud of the pool has is known.")
    return refuse(
        f"Nobody knows what the pool has in {mine[0].name}, which has never answered: {mine[0].reason}.",
        f"Correct its settings or credentials, wait, or name the pool's clouds in pools.{case.pool}.clouds.",
    )


def residency(case: Case) -> Finding:
    """Refuses to add a node outside the regions that its pool names.

    `pools.<name>.regions` says where data and models may be (GDPR, a contract, an export rule). A node that runs
    elsewhere is not touched for it: `gpuwatch status` shows where it is. A launch must name its region, because the
    default, the first of `cloud.regions`, may change without anybody thinking of the pool.

    Name a region that the pool allows in `pools.<name>.launch`, or add the region to `pools.<name>.regions`.
    """
    allowed = case.pool_rules.regions
    if not allowed:
        return allow("Its pool is for all regions.")
    target = case.node or case.group
    region = case.step.arguments.get("region") if target is None else target.region
    if region is not None and case.pool_rules.allows(region):
        return allow(f"Its region, {region}, is one of the pool's.")
    listed = f"pools.{case.pool}.regions ({', '.join(allowed)})"
    if target is None:
        where = "No region is given for the launch" if region is None else f"The launch is in {region}"
        return refuse(f"{where}, and {listed} must have it.", f"Set pools.{case.pool}.launch.region to one of them.")
    return refuse(f"It is in {region}, which is not among {listed}.", "Add the region there, if data may be in it.")


def interruptible(case: Case) -> Finding:
    """Refuses to launch spot capacity for a pool with work that must not be interrupted.

    The cloud takes spot back within minutes, whatever protects or keeps the machine. The settings refuse spot offers of
    such a pool; this rule holds for launches that were asked for under other settings, too.

    Set `pools.<name>.interruptible: any` if the work may be interrupted, or name offers on demand.
    """
    spot = case.step.arguments.get(CAPACITY) == SPOT
    if not spot or case.pool_rules.interruptible in INTERRUPTIBLE:
        return allow("It is not spot." if not spot else "The pool's work may be interrupted.")
    return refuse(
        "It is spot, and the pool's work must not be interrupted.",
        f"Set pools.{case.pool}.interruptible: any, or name an offer on demand.",
    )


def start_consent(case: Case) -> Finding:
    """Refuses to start a node that gpuwatch did not stop.

    Somebody who stopped a machine may not want it back. For scaling, a schedule or work that waits, gpuwatch starts a
    node only if gpuwatch stopped it, by the cloud's own word (`not_stopped_by_us`), and nobody has started it since. A
    machine that its owner starts, and stops again, is the owner's. Where the cloud does not say when it was started
    last (Azure, Tencent Cloud), so is one that no controller saw for more than ten minutes since.

    Start it yourself, or set `pools.<name>.start: any`, which permits every stopped node of the pool to be started. A
    node that is stopped again after such a start is not started again within the hour. A host of your own that somebody
    else switched off is never started.
    """
    why = starts.not_to_start(case.observation, case.machine, case.pool_rules.start)
    if why is None:
        return allow("It may be started.")
    key = f"pools.{case.pool}.start"
    settable = case.pool_rules.start == "own" and not case.machine.owned
    remedy = f"Start it yourself, or set {key}: any." if settable else "Start it yourself."
    return refuse(f"gpuwatch may not start it: {why}.", remedy)


def _launch(arguments: object) -> dict[str, str]:
    """What was asked for, wherever it was tried."""
    known = dict(arguments) if isinstance(arguments, dict) else {}
    return {name: value for name, value in known.items() if name not in {"subnet", OFFER}}
