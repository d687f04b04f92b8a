"""What metrics are made of: the last good round, counts since the process began, and how a family gets its series."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gpuwatch.controller.context import Round
from gpuwatch.controller.timings import Timings
from gpuwatch.guard import Rulebook
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.usage import milliseconds
from gpuwatch.money.accounting.scope import counted_nodes, uncounted_nodes
from gpuwatch.money.accounting.useful_time import gpu_uses
from gpuwatch.money.blocked.blocked import Blocked, blocked_money
from gpuwatch.money.report.saved import SavedByPool
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.metrics.exposition import Labels, Sample
from gpuwatch.runtime.metrics.family import HISTOGRAM, INFO, Family, Histogram

Value = tuple[Labels, float]
Series = Callable[["MetricsState"], Iterable[Value]]
Samples = Callable[["MetricsState"], Iterable[Sample]]
Metric = tuple[Family, Samples]
Certificates = Callable[[], Iterable[tuple[str, datetime]]]
ROUND = "the last round that saw the fleet"
FLEET = "fleet"  # the first label of every family, so that two fleets in one Prometheus are told apart


@dataclass(slots=True, kw_only=True)
class MetricsState:
    """All that pages are made of: the last good round, and counts since the process began."""

    mode: str
    fleet: str
    clock: Clock
    last: Round | None = None
    ended_at: datetime | None = None
    timings: Timings
    rules: Rulebook | None = None  # None: what holds money back is not known
    leading: bool = False
    ledger_ok: bool | None = None  # None before the first round
    certificates: Certificates = tuple
    logins: Callable[[], Mapping[str, int]] = dict
    compared: Mapping[str, Sequence[Value]] = field(default_factory=dict)  # by family, as money.py makes them
    saved: SavedByPool | None = None  # None: the ledger has not been asked yet
    counts: dict[str, dict[tuple[str, ...], float]] = field(default_factory=dict)
    _blocked: tuple[Round, Blocked] | None = None
    _uses: tuple[Round, Sequence[tuple[Node, tuple[str, ...]]]] | None = None

    def count(self, name: str, labels: Iterable[str], by: float = 1) -> None:
        """Add to a counter."""
        counts = self.counts.setdefault(name, {})
        counts[tuple(labels)] = counts.get(tuple(labels), 0) + by

    @property
    def blocked(self) -> Blocked | None:
        """What holds money back, by the last good round; made once for each round, as it is work."""
        last = self.last
        if last is None or self.rules is None:
            return None
        if self._blocked is None or self._blocked[0] is not last:
            self._blocked = last, blocked_money(last.observation, last.decisions, last.reviews, self.rules)
        return self._blocked[1]

    @property
    def uses(self) -> Sequence[tuple[Node, tuple[str, ...]]]:
        """Machines that are billed and in sums, with what each of their GPUs does; made once for each round."""
        last = self.last
        if last is None:
            return ()
        if self._uses is None or self._uses[0] is not last:
            now, nodes = milliseconds(last.observation.now), counted_nodes(last.observation.fleet)
            billed = [
                node for node in nodes if node.state is NodeState.RUNNING or node.billed_though_stopped or node.owned
            ]
            self._uses = last, [(node, gpu_uses(node, now)) for node in billed]
        return self._uses[1]

    @property
    def uncounted(self) -> frozenset[str]:
        """Machines that are in no sum of money."""
        return frozenset() if self.last is None else uncounted_nodes(self.last.observation.fleet)

    @property
    def observation(self) -> Observation | None:
        """What the last good round saw."""
        return None if self.last is None else self.last.observation


def gauge(name: str, labels: tuple[str, ...], text: str, source: str, series: Series) -> Metric:
    """A family that goes up and down, and its series."""
    return _make_metric(_family(name, "gauge", labels, text, source), series)


def info(name: str, labels: tuple[str, ...], text: str, source: str, series: Series) -> Metric:
    """A family with the value 1, which says something by its labels; its name ends in `_info`."""
    return _make_metric(_family(name, INFO, labels, text, source), series)


def counter(name: str, labels: tuple[str, ...], text: str, source: str, series: Series | None = None) -> Metric:
    """A family that counts since the process began: what `MetricsState.count` added, or `series`."""
    key = name.removeprefix("controller_").removesuffix("_total")
    made = series or (lambda state: sorted(state.counts.get(key, {}).items()))
    return _make_metric(_family(name, "counter", labels, text, source), made)


def histogram(
    name: str, labels: tuple[str, ...], text: str, source: str, found: Callable[[Timings], Histogram]
) -> Metric:
    """A family of what is timed."""
    family = _family(name, HISTOGRAM, labels, text, source)
    return family, lambda state: (
        (series, (state.fleet, *values), value) for series, values, value in found(state.timings).samples(family.name)
    )


def _family(name: str, kind: str, labels: tuple[str, ...], text: str, source: str) -> Family:
    return Family(name=f"gpuwatch_{name}", kind=kind, labels=(FLEET, *labels), help=text, source=source)


def _make_metric(family: Family, series: Series) -> Metric:
    return family, lambda state: ((family.name, (state.fleet, *labels), value) for labels, value in series(state))
