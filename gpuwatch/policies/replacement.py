"""PURE: a machine that was terminated while its GPU was failing comes back as a new one, once.

Rules, all of them:

1. Only in a pool with `health.action: replace`, and only for what gpuwatch itself has terminated, with all that every
   removal needs: proven idle, notice, limits. The termination's record says since when its GPU was failing.
2. Whatever has come to the pool since a loss, or is on its way, is its replacement, for whatever reason it came: two
   never come for one. What failed to come is tried again, until the loss is a day old. Where the pool counts GPUs, as
   many of these come as were lost, on machines of whatever size.
3. Within a day at most `health.max_replacements_per_day` come. None comes while too many of the pool are sick, the
   losses of the day included: a new machine with the same fault would follow.
4. Where the load decides how many nodes there are (`scaling`), it alone does: a new node comes if one is needed.
5. A replacement is an addition like any other: the guard's limits, budgets and `max_nodes` hold.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuwatch.model.bounds import time_on_record
from gpuwatch.model.decision import ADDITIONS, Done, Observation, Status, Step, Verb
from gpuwatch.model.fleet import Node
from gpuwatch.model.health import Health
from gpuwatch.policies import capacity
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.kubernetes import obstacles
from gpuwatch.policies.machines import came_since
from gpuwatch.policies.sizes import NODES, Sizes

WINDOW_SECONDS = 86400.0
# The arguments of the termination of a sick machine: since when a GPU of it was failing, and what kind of machine.
FAILING_SINCE, KIND, CLOUD = "failing_since", "instance_type", "cloud"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A sick machine that was terminated: since when it was failing, when it had gone, and when another came for it.

    `came_at` None: none has come yet, or none was to come.
    """

    node_id: str
    pool: str
    cloud: str
    instance_type: str
    failing_since: datetime
    gone_at: datetime
    came_at: datetime | None = None

    @property
    def seconds(self) -> float | None:
        """From "failing" to "replaced"."""
        return None if self.came_at is None else (self.came_at - self.failing_since).total_seconds()


def losses(dones: Iterable[Done]) -> tuple[Loss, ...]:
    """Every sick machine that was terminated, oldest first, each with the first node that came to its pool since."""
    ordered = sorted((each for each in dones if each.status is Status.SETTLED), key=lambda each: each.at)
    came = [
        (each.pool, each.at)
        for each in ordered
        if each.verb in ADDITIONS
        for _ in range(capacity.adds_of(each.verb, each.arguments))
    ]
    found = []
    for done in ordered:
        if done.verb is not Verb.TERMINATE or FAILING_SINCE not in done.arguments:
            continue
        match = next(((pool, at) for pool, at in came if pool == done.pool and at >= done.at), None)
        if match is not None:
            came.remove(match)
        found.append(
            Loss(
                node_id=done.node_id,
                pool=done.pool,
                cloud=done.arguments.get(CLOUD, ""),
                instance_type=done.arguments.get(KIND, ""),
                failing_since=time_on_record(done.arguments[FAILING_SINCE]) or done.at,
                gone_at=done.at,
                came_at=None if match is None else match[1],
            )
        )
    return tuple(found)


def note_sick_ends(steps: tuple[Step, ...], observation: Observation, rules: HealthRules) -> tuple[Step, ...]:
    """The steps of a pool, each termination of a sick machine with what its replacement needs to know."""
    if rules.action != "replace":
        return steps
    return tuple([_note_sick_end(step, observation) for step in steps])


def _note_sick_end(step: Step, observation: Observation) -> Step:
    """The step; of the termination of a sick machine with what its replacement needs to know."""
    node = observation.fleet.find(step.node_id) if step.verb is Verb.TERMINATE else None
    if node is None or obstacles.sick(node) is None:
        return step
    since = failing_since(node) or observation.now
    about = {FAILING_SINCE: since.isoformat(), KIND: node.instance_type, CLOUD: node.cloud or ""}
    return Step(
        node_id=step.node_id,
        verb=step.verb,
        reason=step.reason,
        change=step.change,
        arguments={**step.arguments, **about},
    )


def failing_since(node: Node) -> datetime | None:
    """Since when the first of its GPUs is failing; None: none is, or nobody knows since when."""
    gpus = () if node.verdict is None else node.verdict.gpus
    health = [gpu.health for gpu in gpus if gpu.health is not None and gpu.health.state is Health.FAILING]
    return min((each.since for each in health if each.since is not None), default=None)


def owed_replacements(observation: Observation, pool: str, rules: HealthRules, sizes: Sizes = NODES) -> tuple[int, str]:
    """How much is to come for sick machines, in what the pool counts, and a sentence on what keeps more from coming."""
    if rules.action != "replace":
        return 0, ""
    gone = _ended_sick(observation, pool, sizes)
    unmatched = _unmatched_losses(gone, came_since(observation, pool, sizes))
    missing = len(unmatched)
    if not missing:
        return 0, ""
    members = observation.fleet.roster(pool).members
    ailing = sum(
        obstacles.sick(node) is not None for node in observation.fleet.roster(pool).nodes if node.id in members
    )
    there = len(members) + len(gone)
    if ailing + len(gone) > math.ceil(rules.max_failing_ratio * there):
        return 0, (
            f"{ailing + len(gone)} of {there} nodes were failing within a day: none is replaced before people have "
            "looked for a common cause."
        )
    left = max(0, rules.max_replacements_per_day - (len(gone) - missing))
    if missing > left:
        short = f"{missing} sick nodes are to be replaced; health.max_replacements_per_day allows {left} more."
        return sum(unmatched[:left]), short
    return sum(unmatched), ""


def _ended_sick(observation: Observation, pool: str, sizes: Sizes) -> list[tuple[datetime, int]]:
    """When sick machines of the pool were terminated, oldest first, and how much each counted."""
    since = observation.now - timedelta(seconds=WINDOW_SECONDS)
    return sorted(
        (done.at, sizes.kind(done.arguments.get(KIND)) or 0)
        for done in observation.ledger.recent
        if done.pool == pool
        and done.verb is Verb.TERMINATE
        and done.status is Status.SETTLED
        and FAILING_SINCE in done.arguments
        and since < done.at <= observation.now
    )


def _unmatched_losses(gone: list[tuple[datetime, int]], came: list[tuple[datetime, float]]) -> list[int]:
    """Rule 2: what each loss lacks of what came since and is not another's replacement; without what lacks nothing."""
    rest, left = list[int](), list(came)
    for lost, size in gone:
        missing = float(size)
        for number, (at, brings) in enumerate(left):
            part = min(missing, brings) if at >= lost else 0.0
            missing, left[number] = missing - part, (at, brings - part)
        if missing > 0:
            rest.append(int(missing))
    return rest
