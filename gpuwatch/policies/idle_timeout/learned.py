"""PURE: the wait that is expected to cost least, within what has been saved so far.

Rules, all of them:

1. Of every open gap the pool's tables say what each wait would cost from here on; the cheapest is wished for, up to
   four times the restart's cost.
2. To reclaim before break-even would may lose a restart; to wait for longer than break-even may lose that rental.
   Either is done only where the pool has saved that much already, whatever becomes of its other open gaps.
3. Where it has not, the wait is break-even's. The oldest gaps choose first.
4. While work has just begun to wait for the pool, the longest wait is wished for, whatever the tables say.
"""

from collections.abc import Collection
from dataclasses import replace

from gpuwatch.model.decision import Wait
from gpuwatch.policies.idle_timeout.break_even import LONGEST
from gpuwatch.policies.idle_timeout.gap_history import Gap, GapHistory
from gpuwatch.policies.idle_timeout.hazard import best_wait, chances

_WORTH = 0.01  # of a restart: a shorter extension is none
_SOON = "nodes like it are often needed again soon"
_SELDOM = "nodes like it are seldom needed again soon"
_QUEUED = "work waits for the pool"
_POOR = "stopping sooner than break-even takes savings that the pool does not have yet"


def waits(
    history: GapHistory, at: float, nodes: Collection[str] | None = None, *, queued: bool = False
) -> tuple[dict[str, Wait], GapHistory]:
    """How long idle nodes are to be idle in all, and the history with what was promised to them.

    `queued` is whether work began to wait for the pool lately.
    The answers hold together: reclaim every node that has been idle for its wait, now, and ask again in every round. A
    wait that is not over may change.
    """
    spare, gaps = history.spare(at), dict(history.open)
    found: dict[str, Wait] = {}
    asked = history.open.keys() if nodes is None else history.open.keys() & set(nodes)
    for name in sorted(asked, key=lambda name: (gaps[name].since, name)):
        gap = gaps[name]
        if gap.reclaimed is None:
            found[name], promised, spent = _wait(history, gap, at, spare, queued=queued)
            gaps[name] = replace(gap, promised=promised)
            spare -= spent
    return found, replace(history, open=gaps)


def _wait(history: GapHistory, gap: Gap, at: float, spare: float, *, queued: bool) -> tuple[Wait, float, float]:
    """A gap's wait, the promise in it, and what both take of the spare; a promise given up is given back."""
    restart, age = gap.restart, at - gap.since
    longest, soon = max(age, LONGEST * restart), _QUEUED if queued else _SOON
    tables = [history.tables[name] for name in gap.tables if name in history.tables]
    wish = longest if queued else best_wait(chances(tables), restart, age, longest)
    if age < restart:
        if wish > age:
            return Wait(seconds=min(wish, restart), why=soon), 0.0, 0.0
        if spare < restart:
            return Wait(seconds=restart, why=_POOR), 0.0, 0.0
        return Wait(seconds=age, why=_SELDOM), 0.0, restart
    charged = gap.charged(at)
    before = max(0.0, gap.promised - charged)
    longer = min(wish - age, spare + before)
    if longer < _WORTH * restart:
        return Wait(seconds=age, why=_SELDOM), 0.0, -before
    return Wait(seconds=age + longer, why=soon), charged + longer, longer - before
