"""How far the work of pools with a deadline is, by what was metered. Nothing is kept: each round asks the ledger."""

import logging
from collections.abc import Iterator, Mapping
from datetime import timedelta

from gpuwatch.ledger import Ledger
from gpuwatch.model.batch import BatchPast
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.usage import EPOCH, GPU, USES, Use, milliseconds
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.policies.spot.batch import BatchRules, Useful, past

log = logging.getLogger(__name__)

_USEFUL = GPU + USES.index(Use.USEFUL)
_THERE = frozenset({NodeState.RUNNING, NodeState.PENDING, NodeState.UNKNOWN})


class Batches:
    """The progress of these pools; of one that cannot be read nothing is known, so that nothing counts as done."""

    def __init__(self, ledger: Ledger, pools: Mapping[str, BatchRules]) -> None:
        """Of an open ledger."""
        self._spend, self._pools = SpendBook(ledger), pools

    def __call__(self, observation: Observation) -> Mapping[str, BatchPast]:
        """What is known of each pool now."""
        found: dict[str, BatchPast] = {}
        for pool, rules in self._pools.items():
            if observation.now < rules.begins:
                continue
            here = [node.id for node in observation.fleet.roster(pool).nodes if node.state in _THERE]
            try:
                found[pool] = past(list(self._useful(pool, rules)), rules, here, observation.now)
            except Exception:
                log.exception("How far the work of the pool %s is cannot be read in this round.", pool)
        return found

    def _useful(self, pool: str, rules: BatchRules) -> Iterator[Useful]:
        since, until = (-(-milliseconds(at) // 1000) for at in (rules.begins, rules.ends))
        for key, terms, amounts in self._spend.each(since, until, pool=pool):
            if terms.gpus:
                begin = EPOCH + timedelta(seconds=key.begin)
                yield Useful(
                    begin=begin,
                    until=begin + timedelta(seconds=key.span),
                    node_id=key.node_id,
                    seconds=amounts[_USEFUL] / 1000 / terms.gpus,
                )
