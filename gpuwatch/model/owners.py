"""The owner of a process, in words."""

from collections.abc import Iterable

from gpuwatch.model.fleet import Evidence, State, WorkOwner


def named(owner: WorkOwner) -> str:
    """`alice's python3, pid 4711, in session-3.scope`; what is not known is left out."""
    user, process = owner.user, owner.process
    who = (process or "somebody's process") if user is None else f"{user}'s {process or 'process'}"
    pid = "" if owner.pid is None else f", pid {owner.pid}"
    unit = "" if owner.unit is None else f", in {owner.unit}"
    return f"{who}{pid}{unit}"


def owners(evidence: Iterable[Evidence], state: State) -> tuple[WorkOwner, ...]:
    """Of what says so, in the order of the evidence, each once."""
    return tuple(dict.fromkeys(each.owner for each in evidence if each.says is state and each.owner is not None))
