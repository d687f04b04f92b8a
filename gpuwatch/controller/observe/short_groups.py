"""Since when groups have fewer members than they want, by the clock that no step of the wall clock moves.

A process that has just begun counts from the newest growth that the ledger knows, and otherwise from its first look: so
a restart may make a wait longer, and never shorter.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from gpuwatch.model.decision import LedgerView, Status, Verb
from gpuwatch.model.fleet import NodeGroup

_GROWTHS = frozenset({Verb.GROW})

# Since when each group has been short without a break, by its id: monotonic seconds.
Short = dict[str, float]


def with_short(
    groups: Iterable[NodeGroup], since: Short, ledger: LedgerView, now: datetime, monotonic: float
) -> tuple[NodeGroup, ...]:
    """The groups, each with since when it has been short; `since` is what is kept from round to round.

    While a group's cloud gives no answer it may get its members: the time begins again with the next answer.
    """
    told = tuple(groups)
    short = {group.id: group for group in told if group.seen_now and len(group.node_ids) < group.desired}
    for group_id in since.keys() - short.keys():
        del since[group_id]
    for group in short.values():
        since.setdefault(group.id, monotonic - _asked_seconds_ago(group, ledger, now))
    return tuple(
        replace(group, short_since=now - timedelta(seconds=monotonic - since[group.id])) if group.id in short else group
        for group in told
    )


def _asked_seconds_ago(group: NodeGroup, ledger: LedgerView, now: datetime) -> float:
    """How long ago the size that it has now was asked for by gpuwatch; 0: it was not, or nobody knows."""
    asked = [
        (now - done.at).total_seconds()
        for done in ledger.ended_actions(_GROWTHS)
        if done.status is Status.SETTLED and done.node_id == group.id and int(done.arguments["size"]) >= group.desired
    ]
    return max(0.0, min(asked, default=0.0))
