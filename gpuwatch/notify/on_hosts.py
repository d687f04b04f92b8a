"""Pure: what a host's own terminals are told."""

from collections.abc import Mapping

from gpuwatch.ledger.messages import Event
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import Fleet, NodeState
from gpuwatch.notify.message import About, due_at, verb_of
from gpuwatch.signals.terminals import HostNote


def runs(event: Event, fleet: Fleet) -> bool:
    """Whether there is a host whose agent can be asked."""
    node = fleet.find(event.node_id)
    return node is not None and node.state is NodeState.RUNNING


def host_note(event: Event, about: About, notices: Mapping[str, str]) -> HostNote:
    """Of a notice, or that it is withdrawn; where it depends what will be done, the worse is said."""
    node = about.fleet.find(event.node_id)
    if node is None:
        raise ValueError(f"{event.node_id} is not in the fleet")
    if event.verb is Verb.WITHDRAW:
        return HostNote(node=node, key=notices[event.key], stop_at=None)
    due = due_at(event, about)
    if verb_of(event, about) is Verb.STOP:
        return HostNote(node=node, key=event.key, stop_at=due, verb=Verb.STOP)
    return HostNote(node=node, key=event.key, stop_at=due, verb=Verb.TERMINATE)
