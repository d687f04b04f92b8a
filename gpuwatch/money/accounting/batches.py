"""How far the work of pools with a deadline is, by what was metered.

Each round asks the ledger. What hours that are over add up to is remembered, a few numbers by hour and by node, as long
as the ledger proves that their rows have not changed. So the answer is always that of reading all rows again.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.measurement import BatchPast
from gpuwatch.model.usage import AMOUNTS, EPOCH, GPU, USES, HourKey, Terms, Use, milliseconds
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.policies.spot.batch import BatchRules, Useful, Worked, past_of, work_of_rows

log = logging.getLogger(__name__)

_USEFUL = GPU + USES.index(Use.USEFUL)
_THERE = frozenset({NodeState.RUNNING, NodeState.PENDING, NodeState.UNKNOWN})
_STILL_METERED_S = 3600  # hours that ended later are read in each round: rows of them still change
_Row = tuple[HourKey, Terms, list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Closed:
    """A pool's rows that begin before `until` (seconds since 1970), which all end by then."""

    until: int
    proof: tuple[int, int, int]
    worked: Worked


class Batches:
    """The progress of these pools; of one that cannot be read nothing is known, so that nothing counts as done."""

    def __init__(self, ledger: Ledger, pools: Mapping[str, BatchRules]) -> None:
        """Of an open ledger."""
        self._spend, self._pools = SpendBook(ledger), pools
        self._closed: dict[str, _Closed] = {}

    def __call__(self, observation: Observation) -> Mapping[str, BatchPast]:
        """What is known of each pool now."""
        found: dict[str, BatchPast] = {}
        for pool, rules in self._pools.items():
            if observation.now < rules.begins:
                continue
            here = {node.id for node in observation.fleet.roster(pool).nodes if node.state in _THERE}
            try:
                found[pool] = past_of(self._work_of_rows(pool, rules, observation.now), rules, here, observation.now)
            except Exception:
                log.exception("How far the work of the pool %s is cannot be read in this round.", pool)
        return found

    def _work_of_rows(self, pool: str, rules: BatchRules, now: datetime) -> Worked:
        """What all rows say, of which only those are read that are not closed."""
        since, until = (_seconds(at) for at in (rules.begins, rules.ends))
        with self._spend.snapshot():
            closed = self._closed.get(pool)
            if closed is None or closed.proof != self._proof(pool, since, closed.until):
                closed = _Closed(until=since, proof=self._proof(pool, since, since), worked=Worked())
            rows = list(self._spend.each(closed.until, until, pool=pool))
        end = _closed_until(closed.until, rows, _seconds(now) - _STILL_METERED_S)
        over = [row for row in rows if row[0].begin < end]
        days, count, amount = closed.proof
        self._closed[pool] = closed = _Closed(
            until=end,
            proof=(days, count + len(over), amount + sum(amounts[_USEFUL] for _, _, amounts in over)),
            worked=closed.worked.then(work_of_rows(_useful(over), rules)),
        )
        return closed.worked.then(work_of_rows(_useful(rows[len(over) :]), rules))

    def _proof(self, pool: str, since: int, until: int) -> tuple[int, int, int]:
        return self._spend.proof(since, until, pool, AMOUNTS[_USEFUL])


def _seconds(at: datetime) -> int:
    """Since 1970, rounded up."""
    return -(-milliseconds(at) // 1000)


def _closed_until(begin: int, rows: Iterable[_Row], limit: int) -> int:
    """The latest time up to `limit` that lies in none of the rows, which are in the order of their begins."""
    end = reach = begin
    for key, _, _ in rows:
        if key.begin >= reach:
            end = reach
        reach = max(reach, key.begin + key.span)
        if reach > limit:
            return end
    return reach


def _useful(rows: Iterable[_Row]) -> Iterator[Useful]:
    """What machines of ours did; a foreign one is in the pool by its tag alone, and its work is another's."""
    for key, terms, amounts in rows:
        if terms.gpus and terms.foreign is None:
            begin = EPOCH + timedelta(seconds=key.begin)
            yield Useful(
                begin=begin,
                until=begin + timedelta(seconds=key.span),
                node_id=key.node_id,
                seconds=amounts[_USEFUL] / 1000 / terms.gpus,
            )
