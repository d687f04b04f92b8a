"""PURE: the wait that is expected to cost least, within what has been saved so far.

Rules, all of them:

1. In each bin of its age the hazard says of every open gap what each wait would cost from here on, under the facts as
   they are; the cheapest is wished for, up to four times the restart's cost.
2. To reclaim before break-even would may lose a restart; to wait for longer than break-even may lose that rental.
   Either is done only where the pool has saved that much already, whatever becomes of its other open gaps.
3. Where it has not, the wait is break-even's. The oldest gaps choose first. Past break-even a wait is promised up to
   the next bin, where it is asked for again.
4. While work has just begun to wait for the pool, the longest wait is wished for, whatever the hazard says.
"""

from collections.abc import Collection
from dataclasses import replace

from gpuwatch.model.decision import Wait
from gpuwatch.policies.idle_timeout.break_even import LONGEST
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.idle_timeout.hazard import BINS, EDGES

_WORTH = 0.01  # of a restart: a shorter extension is none
_NOW_SECONDS = 1e-3  # what is nearer is now: else rounding would let a wait be over that was not paid for
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
    asked = history.open if nodes is None else {name: history.open[name] for name in nodes if name in history.open}
    held = [(gap.since, name) for name, gap in asked.items() if gap.reclaimed is None]
    if not held:
        return {}, history
    gaps, found, spare = dict(history.open), dict[str, Wait](), None
    for since, name in sorted(held):
        gap, age = gaps[name], at - since
        wish = LONGEST * gap.restart if queued else gap.restart if gap.wish is None else gap.wish
        soon, seldom = _QUEUED if queued else _with_reason(_SOON, gap.why), _with_reason(_SELDOM, gap.why)
        if age + _NOW_SECONDS < min(wish, gap.restart):
            found[name] = Wait(seconds=min(wish, gap.restart), why=soon)
            continue
        spare = history.spare(at) if spare is None else spare
        if age < gap.restart:
            early = wish <= age + _NOW_SECONDS
            found[name] = Wait(seconds=max(gap.restart, age + _NOW_SECONDS), why=_POOR if early else soon)
            if early and spare >= gap.restart:
                found[name] = Wait(seconds=age, why=seldom)
                spare -= gap.restart
            continue
        before = max(0.0, gap.promised - gap.charged_seconds(at))
        following = EDGES[min(BINS, gap.bin + 1)] * gap.restart
        longer = min(min(wish, following) - age, spare + before)
        worth = longer >= _WORTH * gap.restart
        found[name] = Wait(seconds=age + longer, why=soon) if worth else Wait(seconds=age, why=seldom)
        promised = gap.charged_seconds(at) + longer if worth else 0.0
        spare -= longer - before if worth else -before
        gaps[name] = replace(gap, promised=promised)
    return found, replace(history, open=gaps)


def _with_reason(words: str, why: str) -> str:
    return f"{words}: {why}" if why else words
