"""Nodes of Slurm: the last look at one, its drain for its health or before its end, and what became of that."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.answers import note_silence
from gpuwatch.controller.circuits import SLURM, Server
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.slurm import SlurmCluster
from gpuwatch.controller.slurm.join import nodes_off, wanted_nodes, with_wish
from gpuwatch.controller.target import Found, NodeTarget, not_served
from gpuwatch.model.decision import Intent, Observation, OpenIntent, Status, Step, Verb
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.slurm import SlurmNode
from gpuwatch.policies.slurm_sick import CAUSE, NODE, UNDOES

_NO_SLURM = "no Slurm cluster is in the settings"
_DRAINS = frozenset({Verb.SLURM_DRAIN, Verb.CORDON})


class SlurmNodeTarget(NodeTarget):
    """A machine's node in Slurm: its controller is asked for all of it; its answers are of now."""

    def _server(self, _step: Step) -> Server:
        return SLURM

    def ask(self, intent: Intent, _observation: Observation, permit: Permit) -> tuple[Status, str]:
        """Drain the node, or end our drain."""
        slurm, name = self._parts.slurm, intent.arguments[NODE]
        if slurm is None:
            raise NotFoundError(_NO_SLURM)
        try:
            if intent.verb in _DRAINS:
                slurm.drain(name, intent.arguments[CAUSE], intent.key, permit=permit)
            else:
                slurm.resume(name, intent.arguments[UNDOES], permit=permit)
        except NotFoundError as error:
            # An earlier attempt may have been carried out: what Slurm shows then says so.
            ended = _outcome_shown(self._parts, intent)
            return ended or (Status.CANCELLED, f"there is nothing to do: {error}")
        # Its answers are of now: what it does not show a round later, a person has undone.
        with suppress(CloudError):
            return _outcome_shown(self._parts, intent) or (Status.ACCEPTED, "Slurm accepted it")
        return Status.ACCEPTED, "Slurm accepted it"

    def outcome_of(self, entry: OpenIntent) -> Found:
        """Find out what Slurm shows of an open drain, or of the end of one."""
        if self._parts.slurm is None:
            return not_served(entry, _NO_SLURM)
        if not entry.counts:
            return None
        return _outcome_shown(self._parts, entry.intent) or (Status.INTERRUPTED, "Slurm does not show it")


def machine_in_slurm(parts: ControllerContext, node: Node, seen: SlurmNode | None, fleet: Fleet) -> Node | str:
    """Return the machine with its node as Slurm shows it now; or why that is no ground for a removal.

    `seen` is the node that the decision rests on; a stopped machine has no jobs to ask about. The jobs that wait now
    are asked for as well: of `fleet` it is known which other machines run.
    """
    if seen is None or seen.doubt is not None or node.state is NodeState.STOPPED:
        return node if node.slurm is seen else replace(node, slurm=seen)
    if parts.slurm is None:
        return _NO_SLURM
    asked = parts.clock.monotonic()
    try:
        known = parts.slurm.node(seen.name)
        wanted = {} if known is None else _wanted_now(parts.slurm, known, fleet, parts.clock.now())
    except CloudError as error:
        note_silence(parts, SLURM, error, asked)
        return f"Slurm gives no answer about it: {error}"
    return f"Slurm has no node {seen.name} any more" if known is None else replace(node, slurm=with_wish(known, wanted))


def _wanted_now(slurm: SlurmCluster, known: SlurmNode, fleet: Fleet, now: datetime) -> Mapping[str, str]:
    """Whether somebody waits for the node at this moment; where others may serve, all nodes are looked at."""
    queue = slurm.queue()
    alone = wanted_nodes(queue, [known], (), now)
    return alone and wanted_nodes(queue, slurm.nodes(), nodes_off(fleet), now)


def _outcome_shown(parts: ControllerContext, intent: Intent) -> Found:
    """Say how the intent ends by what Slurm shows now; None: it is not done."""
    slurm, name = parts.slurm, intent.arguments[NODE]
    known = None if slurm is None else slurm.node(name)
    if known is None:
        return Status.CANCELLED, f"Slurm has no node {name} any more"
    if known.doubt is not None:
        return None
    if intent.verb in _DRAINS:
        return (Status.SETTLED, f"Slurm shows {name} {known.state}") if known.drained_by == intent.key else None
    stands = known.drained_by == intent.arguments[UNDOES]
    return None if stands else (Status.SETTLED, f"Slurm shows {name} {known.state}, without that drain")
