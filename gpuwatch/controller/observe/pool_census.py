"""What the controller says to agents about their pool, and counts of what they hand over.

Rules, all of them:

1. Every ten minutes each agent is asked what it runs. An answer is counted at once and kept by nobody.
2. Every question names the census of the node's pool; what it says goes along only to an agent that has another. One
   that would say nearly the same takes the place of none.
3. In a round a verdict rests on a census that this controller gave in the last 15 minutes, or on none. In a
   confirmation it rests on the one that the question named. Anything else is unknown.
4. After a restart no census is named until the first round has counted: agents keep theirs for 15 minutes.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from gpuwatch.model.fleet import Node, NodeReport, NodeState, NodeVerdict
from gpuwatch.model.pool_programs import PoolPrograms, PoolTally, census_id, salt_of

_COUNT_SECONDS = 600.0
_KEPT_SECONDS = 900.0  # by agents, without a question
_NO_CENSUS = "none"
_FOREIGN = "its agent goes by what another controller says of its pool; only one controller may ask it"
_UNHEARD = "its agent has not heard yet what its pool's machines have in common"


@dataclass(frozen=True, slots=True)
class _Census:
    """What was counted of a pool, its text, and the id of that."""

    counted: PoolPrograms
    text: str
    id: str


class CensusTaker:
    """What was counted of each pool of a fleet; for one thread."""

    def __init__(self, fleet: str) -> None:
        """Nothing was counted so far."""
        self._salt = salt_of(fleet)
        self._censuses: dict[str, _Census] = {}  # by pool
        self._replaced: dict[tuple[str, str], float] = {}  # by pool and id: until when they count
        self._tallies: dict[str, PoolTally] | None = None  # only while a round counts
        self._began_at: float | None = None
        self._counted_at: float | None = None
        self._without: set[str] = set()  # nodes whose agents have another census than their pool
        self._believes_any = True

    def begin_round(self, nodes: Collection[Node], at: float) -> None:
        """Begin a round over these nodes; it counts if ten minutes have passed since one did."""
        self._began_at = at if self._began_at is None else self._began_at
        self._believes_any = at - self._began_at < _KEPT_SECONDS
        self._replaced = {key: until for key, until in self._replaced.items() if until > at}
        self._without &= {node.id for node in nodes}
        counts = self._counted_at is None or at - self._counted_at >= _COUNT_SECONDS
        self._tallies = {} if counts else None

    def query(self, node: Node) -> str:
        """What is added to a question to that node's agent."""
        census, asked = self._censuses.get(node.pool), f"fleet={self._salt}"
        if self._counted_at is not None:
            asked += f"&census={_NO_CENSUS if census is None else census.id}"
        if census is not None and node.id in self._without:
            asked += f"&pool={census.text}"
        return asked if self._tallies is None else f"{asked}&count=1"

    def take(self, node: Node, report: NodeReport, *, confirms: bool) -> NodeReport:
        """The report, once what was handed over is counted; a failure where it rests on a census that was not given."""
        verdict = report.verdict
        if self._tallies is not None and not confirms and node.state is NodeState.RUNNING:
            self._tallies.setdefault(node.pool, PoolTally()).add(None if verdict is None else verdict.programs)
        if verdict is None or verdict.programs is None:
            self._without.discard(node.id)
            return report
        census, used = self._censuses.get(node.pool), verdict.programs.census
        if census is not None and used != census.id:
            self._without.add(node.id)
        else:
            self._without.discard(node.id)
        given = used == (None if census is None else census.id)
        if not given and (confirms or not (used is None or self._believes_any or (node.pool, used) in self._replaced)):
            return NodeReport(failure=_FOREIGN if used is not None else _UNHEARD)
        return replace(report, verdict=replace(verdict, programs=None))

    def end_round(self, at: float) -> None:
        """Make the censuses, if this round counted."""
        tallies, self._tallies = self._tallies, None
        if not tallies:
            return
        self._counted_at = at
        before, self._censuses = self._censuses, {}
        for pool, tally in tallies.items():
            said, old = tally.census(), before.get(pool)
            if said is not None and (old is None or not said.is_nearly(old.counted)):
                self._censuses[pool] = _Census(said, said.text, census_id(said.text))
            elif said is not None and old is not None:
                self._censuses[pool] = old
        for pool, old in before.items():
            if self._censuses.get(pool) is not old:
                self._replaced[pool, old.id] = at + _KEPT_SECONDS


def judged_alone(verdict: NodeVerdict) -> str | None:
    """Why a verdict is doubtful for a source that says nothing to agents of their pool; None: it is not."""
    return None if verdict.programs is None or verdict.programs.census is None else _FOREIGN
