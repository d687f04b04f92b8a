"""The controller's metrics of its rounds: the fleet as it saw it, what it decided, refused and did.

A series is there while it is true: a node that is gone, a pool that is empty or a price that is not known has no
series. Counters start at zero with the process, as Prometheus expects.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as SampleFamily
from prometheus_client.registry import Collector

from gpuwatch.controller.context import Round
from gpuwatch.controller.metrics import batch as of_batch
from gpuwatch.controller.metrics import fleet as of_fleet
from gpuwatch.controller.metrics import interruptions as of_interruptions
from gpuwatch.controller.metrics import kubernetes as of_kubernetes
from gpuwatch.controller.metrics import launched
from gpuwatch.controller.metrics import money as of_money
from gpuwatch.controller.metrics import replacement as of_replacement
from gpuwatch.controller.metrics import rounds as of_rounds
from gpuwatch.controller.metrics import slurm as of_slurm
from gpuwatch.controller.metrics.state import Certificates, MetricsState
from gpuwatch.controller.timings import Timings
from gpuwatch.guard import Rulebook
from gpuwatch.model.budget import BudgetState
from gpuwatch.model.fleet import Fleet
from gpuwatch.money.accounting.totals import Row
from gpuwatch.money.report.progress import ComparedEnds
from gpuwatch.money.report.saved import SavedByPool
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.request import Response
from gpuwatch.runtime.metrics.exposition import Exposition, Sample, as_families, renames
from gpuwatch.runtime.metrics.family import Family, table_md
from gpuwatch.runtime.metrics.process import ProcessFigures, process_families

log = logging.getLogger(__name__)

COLLECTED = (
    *of_rounds.FAMILIES,
    *of_fleet.FAMILIES,
    *of_money.FAMILIES,
    *of_kubernetes.FAMILIES,
    *of_slurm.FAMILIES,
    *of_interruptions.FAMILIES,
    *launched.FAMILIES,
    *of_replacement.FAMILIES,
    *of_batch.FAMILIES,
)
BY_NAME: dict[str, Family] = {
    family.name: family for family in (*(family for family, _ in COLLECTED), *process_families("the controller"))
}


class ControllerMetrics(Collector):
    """Makes pages from each round; a custom collector of prometheus_client."""

    def __init__(
        self,
        mode: str,
        fleet: str,
        clock: Clock,
        certificates: Certificates = tuple,
        *,
        timings: Timings | None = None,
        rules: Rulebook | None = None,
        own_process: bool = False,
    ) -> None:
        """Before the first round. `certificates` yields when those of a setting end; `timings` are the controller's.

        `rules` are those of its rounds; without them, what holds money back is not known. `own_process` adds CPU and
        memory of the running process, which only a real controller has to itself.
        """
        self._state = MetricsState(
            mode=mode, fleet=fleet, clock=clock, certificates=certificates, timings=timings or Timings(), rules=rules
        )
        self._process = ProcessFigures() if own_process else None
        self._exposition = Exposition(BY_NAME)
        self._lock, self._rendering = threading.Lock(), threading.Lock()
        self._failing: set[str] = set()  # families that cannot be made, as the log has them
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    @property
    def rounds(self) -> int:
        """How many rounds there were."""
        with self._lock:
            return int(sum(self._state.counts.get("rounds", {}).values()))

    @property
    def leading(self) -> bool:
        """Whether this controller led in its last round."""
        with self._lock:
            return self._state.leading

    def round(self, done: Round | None, seconds: float, *, leading: bool = True, ledger_ok: bool = True) -> None:
        """A round is over: done, in trouble, failed (None), or another controller's (not leading, its ledger well)."""
        with self._lock:
            state = self._state
            state.leading, state.ledger_ok = leading, ledger_ok
            state.count("rounds", (_result(done, leading=leading or not ledger_ok),))
            if leading:
                state.timings.rounds.observe(seconds)
            if done is None or done.trouble is not None:
                return
            state.last, state.ended_at = done, state.clock.now()
            for review in done.reviews:
                for answer in review.refusals:
                    state.count("refusals", (review.pool, answer.rule, review.step.verb.value))
            for act in done.acts:
                state.count("actions", (act.review.pool, act.review.step.verb.value, act.outcome.status.value))
            of_interruptions.count(state, done.records)
            of_kubernetes.count(state, done)
            for outcome in done.settled:
                state.count("intents_settled", (outcome.status.value,))

    def count_billed(self, rows: Iterable[Row]) -> None:
        """A round has billed this."""
        with self._lock:
            of_money.count(self._state, rows)

    def compare(self, found: ComparedEnds | None) -> None:
        """The first weeks of metering against the last ones, from now on; None: there are less than two weeks."""
        figures = {} if found is None else of_money.week_figures(found)
        with self._lock:
            self._state.compared = figures

    def tell_savings(self, found: SavedByPool) -> None:
        """What stops and terminations save, from now on."""
        with self._lock:
            self._state.saved = found

    def message(self, destination: str, event: str, result: str) -> None:
        """A message about an event was delivered, or was not."""
        with self._lock:
            self._state.count("notifications", (destination, event, result))

    def watch_logins(self, failures: Callable[[], Mapping[str, int]]) -> None:
        """Count failed log-ins by result from now on."""
        with self._lock:
            self._state.logins = failures

    @property
    def rules(self) -> Rulebook | None:
        """Of its rounds; None: not known."""
        return self._state.rules

    @property
    def fleet(self) -> Fleet | None:
        """The fleet of the last round that saw it."""
        with self._lock:
            seen = self._state.observation
            return None if seen is None else seen.fleet

    @property
    def budgets(self) -> tuple[BudgetState, ...]:
        """The budgets in that round."""
        with self._lock:
            seen = self._state.observation
            return () if seen is None else seen.budgets

    def page(self, accept: str = "") -> Response:
        """All families, in the text format of Prometheus or of OpenMetrics."""
        encoder, content_type = choose_encoder(accept)
        with self._state.timings.scrapes.time_body(self._state.clock), self._rendering:
            if renames(content_type):
                body = encoder(self._registry)
            else:
                body = self._exposition.page(self._samples(), openmetrics="openmetrics" in content_type)
        return Response(body=body, content_type=content_type)

    def collect(self) -> Iterable[SampleFamily]:
        """What prometheus-client renders: every family that has a series now."""
        return list(as_families(BY_NAME, self._samples()).values())

    def _samples(self) -> list[Sample]:
        """Every sample; a round waits for these, and not for the page made from them."""
        with self._lock:
            found = [sample for family, samples in COLLECTED for sample in self._family_samples(family.name, samples)]
        return found if self._process is None else [*found, *self._process.samples()]

    def _family_samples(self, name: str, samples: Callable[[MetricsState], Iterable[Sample]]) -> list[Sample]:
        """The samples of one family; where they cannot be made it is left out, and all others are served."""
        try:
            found = list(samples(self._state))
        except Exception:
            if name not in self._failing:
                log.exception("The metric %s cannot be made, and is not served", name)
            self._failing.add(name)
            return []
        self._failing.discard(name)
        return found


def _result(done: Round | None, *, leading: bool) -> str:
    if not leading:
        return "waiting"
    if done is None:
        return "failed"
    return "done" if done.trouble is None else "trouble"


def families() -> tuple[Family, ...]:
    """The catalogue, in the order of the page."""
    return tuple(BY_NAME.values())


_PAGE = """# Metrics of the controller

Generated by `make docs`; do not edit.

Served at `/metrics` of the controller's port (`controller.metrics`), as text for Prometheus and OpenMetrics. A series
is there while it is true: a machine that is gone, a pool that is empty or a price that is not known has no series.
Gauges are of the last round that saw the fleet; `gpuwatch_controller_last_round_timestamp_seconds` says when that was.
Counters start at zero with the process. The agents' own metrics are in [METRICS.md](METRICS.md).

Histograms have at most twelve buckets, and few series: none is by machine or pool. Their quantiles are estimates:
`histogram_quantile(0.99, sum by (operation, le) (rate(gpuwatch_controller_cloud_call_duration_seconds_bucket[10m])))`.
Prometheus 3 makes native histograms of them if the scrape says `convert_classic_histograms_to_nhcb: true`.

"""


def render_md() -> str:
    """Return the text of docs/CONTROLLER_METRICS.md."""
    return _PAGE + "\n".join(table_md(families())) + "\n"
