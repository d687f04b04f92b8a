"""The parts of a live controller made from the settings, for its rounds and for commands that look at the fleet once.

Those commands run often, and for a moment: nothing here loads what only the daemon needs, its server, its metrics and
its messages.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from zoneinfo import ZoneInfo

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.named import connect, providers, secret_stores
from gpuwatch.config.settings import Settings
from gpuwatch.controller.context import LiveParts, Memory
from gpuwatch.controller.observe import NodeReportSource
from gpuwatch.controller.observe.before_stop_client import begin_before_stop
from gpuwatch.controller.observe.pool_census import CensusTaker
from gpuwatch.controller.observe.power_client import with_agents
from gpuwatch.controller.observe.promql import PromqlSource
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.recall import recall, recall_undated
from gpuwatch.controller.slurm.scontrol import Scontrol
from gpuwatch.controller.timings import Timings, time_calls
from gpuwatch.kubernetes.several import SeveralClusters
from gpuwatch.ledger import Ledger
from gpuwatch.money.accounting.batches import Batches
from gpuwatch.money.accounting.store import Meter
from gpuwatch.money.budgets.tracker import Budgeting
from gpuwatch.money.prices.open import open_book
from gpuwatch.runtime.clock import Clock, SystemClock
from gpuwatch.runtime.secrets import use

SOURCES: dict[str, Callable[..., NodeReportSource]] = {"scrape": ScrapeSource, "promql": PromqlSource.from_settings}


def cloud_of(settings: Settings, clock: Clock, timings: Timings | None = None) -> Cloud:
    """The clouds of the settings as one, each with its calls timed; no request is sent yet.

    Raises:
        CloudError: the profile or the region is missing.
        ImportError: its extra is missing.

    """

    def around(cloud: Cloud, name: str) -> Cloud:
        cloud = with_agents(cloud, settings.signals)
        return cloud if timings is None else time_calls(cloud, name, clock, timings.cloud_calls)

    return connect(settings.named_clouds, fleet=settings.fleet, clock=clock, around=around)


@contextmanager
def assemble_parts(settings: Settings, *, read_only: bool) -> Iterator[LiveParts]:
    """The parts of a live controller; read only for `plan`, `explain` and `status`, which need no ledger yet.

    Raises:
        LedgerError: the ledger is unusable.
        CloudError: the credentials or the region are missing.
        PricesError: the file of own prices is unusable.
        ImportError: an extra is missing.

    """
    use(secret_stores(settings.named_clouds))
    clock, timings = SystemClock(), Timings()
    cloud = cloud_of(settings, clock, timings)
    clusters = {name: each.connect(clock) for name, each in settings.named_clusters.items()}
    unwritten = read_only and settings.ledger.unwritten
    ledger = Ledger.in_memory() if unwritten else Ledger.connect(settings.ledger, read_only=read_only)
    recall(cloud, ledger)
    memory = Memory()
    if read_only:
        recall_undated(memory, ledger, clock)
    batches = {name: each.batch for name, each in settings.rulebook.pools.items() if each.batch.work}
    book = open_book(
        settings.prices, clouds=settings.named_clouds, clock=clock, background=not read_only, fleet=settings.fleet
    )
    metering = settings.cost.metering(settings.interval, providers(settings.named_clouds))
    zone = ZoneInfo(settings.cost.timezone)
    budgets = Budgeting(ledger=ledger, budgets=settings.budgets, zone=zone, logs_crossings=not read_only)
    try:
        yield LiveParts(
            clock=clock,
            cloud=cloud,
            signals=SOURCES[settings.signals.source](
                settings=settings.signals,
                clock=clock,
                max_age_seconds=settings.limits.max_verdict_age,
                confirm_timeout=settings.limits.max_confirmation_age,
                answered=timings.agent_answers.observe,
                taker=None if read_only else CensusTaker(settings.fleet),
            ),
            ledger=ledger,
            memory=memory,
            rules=settings.rulebook,
            meter=Meter(
                ledger, replace(metering, in_hours=tuple((each.begins, each.ends) for each in batches.values()))
            ),
            budgets=budgets.states,
            with_billed=budgets.with_billed,
            batches=Batches(ledger, batches),
            prices=book.price,
            priced_singly=book.named_machines,
            timings=timings,
            begin_before_stop=partial(begin_before_stop, settings.signals),
            interval_seconds=settings.interval,
            observing=settings.signals,
            cluster=SeveralClusters(clusters) if len(clusters) > 1 else next(iter(clusters.values()), None),
            slurm=Scontrol(settings.slurm) if settings.slurm.configured else None,
        )
    finally:
        ledger.close()
        for cluster in clusters.values():
            cluster.close()
