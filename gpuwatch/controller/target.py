"""What steps are about: one class for each kind of target says how it is asked, and what became of what was asked.

`targets.py` chooses the class, once, by a step's verb and id. Everything else in the controller asks the target.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import ClassVar

from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.circuits import Server
from gpuwatch.controller.context import ControllerContext
from gpuwatch.model.decision import SETTLE_TIMEOUT, Intent, Observation, OpenIntent, Review, Status, Step
from gpuwatch.model.promise import arguments_of
from gpuwatch.model.verbs import ASKED_A_LAST_TIME, REMOVALS

# What is known of an intent: its status from now on and why; None where only time will tell.
Found = tuple[Status, str] | None

_UNANSWERED = (Status.UNAVAILABLE, "no answer is on record: it may have been carried out")


class Target(ABC):
    """One kind of thing that steps change: a machine, a pool, a group, a node of a cluster or of Slurm, a workload."""

    # After so many denied calls in a row nothing else is asked of their server in the same round.
    most_denied: ClassVar[float] = 3

    def __init__(self, parts: ControllerContext) -> None:
        """Nothing is asked yet."""
        self._parts = parts

    @abstractmethod
    def ask(self, intent: Intent, observation: Observation, permit: Permit) -> tuple[Status, str]:
        """Make the call that the intent's verb stands for; say what the answer leaves in the ledger.

        Raises:
            CloudError: as cloud, cluster or Slurm raises it.

        """

    @abstractmethod
    def outcome_of(self, entry: OpenIntent) -> Found:
        """Find out what became of an open intent, from what its server shows now.

        Raises:
            CloudError: no answer.

        """

    def servers(self, observation: Observation, step: Step) -> tuple[Server, ...]:
        """Return who is to make the change, and then who else is asked before it."""
        thing = observation.fleet.find(step.node_id) or observation.fleet.group(step.node_id)
        return (Server() if thing is None else Server.that_has(thing),)

    def objection(self, _observation: Observation, review: Review, _tried: tuple[Step, ...]) -> str | None:
        """Ask everybody a last time; say why the step is not to be taken after all, None: nobody objects.

        `_tried` are the changes made earlier in this round: they count against the limits. Where nobody can be asked,
        a step that needs this question is not taken.
        """
        return f"nobody can be asked a last time before a {review.step.verb.value}"

    def arguments(self, _observation: Observation, review: Review, _now: datetime) -> Mapping[str, str]:
        """Return what goes with the intent."""
        return review.step.arguments

    def owner_and_price(self, observation: Observation, step: Step) -> tuple[str | None, Decimal | None]:
        """Say who owns the target and what its hour costs, for the limits of the hours to come."""
        node, group = observation.fleet.find(step.node_id), observation.fleet.group(step.node_id)
        kind = node.kind if node is not None else group.instance_type if group is not None else None
        price = observation.prices.get(kind or step.arguments.get("instance_type", ""))
        return None if node is None else node.owner, None if price is None else price.limit_usd_per_hour


class NodeTarget(Target):
    """A machine's node in a cluster or in Slurm: that server is asked for all of it; its answers are of now."""

    most_denied = 1

    def __init__(self, parts: ControllerContext, machine: Target) -> None:
        """Nothing is asked yet; `machine` is asked a last time before its node gets no more work, or its pods go."""
        super().__init__(parts)
        self._machine = machine

    @abstractmethod
    def _server(self, step: Step) -> Server:
        """Return the server that has the node."""

    def servers(self, observation: Observation, step: Step) -> tuple[Server, ...]:
        """Return the server that has the node; before a removal the machine's cloud is asked, too."""
        asked = self._machine.servers(observation, step) if step.verb in ASKED_A_LAST_TIME else ()
        own = self._server(step)
        return (own, *(each for each in asked if each != own))

    def objection(self, observation: Observation, review: Review, tried: tuple[Step, ...]) -> str | None:
        """Ask about the machine as before its removal."""
        return self._machine.objection(observation, review, tried)


def not_served(entry: OpenIntent, why: str) -> tuple[Status, str]:
    """End an intent of a server that the settings no longer name; what may have been carried out was not in vain."""
    return Status.FAILED if entry.reached else Status.CANCELLED, why


def not_yet(parts: ControllerContext, entry: OpenIntent, detail: str) -> Found:
    """Say what a change is that a cloud does not show: an accepted one, and a removal without an answer, have time."""
    last, removal = entry.last, entry.intent.verb in REMOVALS
    if removal and entry.unanswered:
        return _UNANSWERED
    patient = last is not None and (last.status is Status.ACCEPTED or (removal and last.status is Status.UNAVAILABLE))
    if last is not None and patient and parts.clock.now() - last.at <= SETTLE_TIMEOUT:
        return None
    return Status.INTERRUPTED, detail


def promise_arguments(
    parts: ControllerContext, arguments: Mapping[str, str], now: datetime, pool: str, *, approval: bool
) -> dict[str, str]:
    """Return what a notice in that pool with these arguments promises, if it is given now."""
    return arguments_of(
        arguments["action"],
        grace_seconds=float(arguments["grace_seconds"]),
        idle_seconds=float(arguments["idle_seconds"]) if "idle_seconds" in arguments else None,
        at=now,
        approval=approval,
        heard=parts.rules.limits.require_notification,
        delivery_seconds=parts.rules.delivery_seconds.get(pool),
        owner=arguments.get("owner"),
    )
