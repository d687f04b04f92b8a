"""Every setting of gpuwatch, composed of what each room declares for itself. Imported by shells only.

`gpuwatch.config` fills this in from one file and the environment; nothing here loads the validator.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Le, MaxLen, MinLen

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.clouds import FLEET_TAG, POOL_TAG, named
from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.config import agent_alone
from gpuwatch.controller.observe import settings as signal_settings
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.slurm import settings as slurm_settings
from gpuwatch.controller.slurm.settings import SlurmSettings
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.kubernetes import settings as kubernetes_settings
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.ledger import settings as ledger_settings
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.currency import Currency
from gpuwatch.model.duration import Seconds, format_duration
from gpuwatch.model.fleet import DEFAULT_POOL
from gpuwatch.model.setting import STRICT, Among, Contradiction, Setting
from gpuwatch.money.accounting import settings as cost_settings
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.budgets import settings as budget_settings
from gpuwatch.money.budgets.settings import Budget
from gpuwatch.money.prices import settings as price_settings
from gpuwatch.money.prices.settings import PriceSettings
from gpuwatch.notify import settings as notify_settings
from gpuwatch.notify.settings import NotifySettings, ReportSettings
from gpuwatch.policies import PoolRules, validation
from gpuwatch.policies.idle_settings import wait_words
from gpuwatch.policies.profiles import PROFILES
from gpuwatch.policies.schedule import with_dates
from gpuwatch.runtime import secrets
from gpuwatch.runtime.http import access, address


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole configuration of agent and controller."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    mode: Annotated[
        Literal["observe", "enforce"], Setting("observe: decide and report, change nothing. enforce: also act.")
    ] = "observe"
    fleet: Annotated[
        str,
        MinLen(1),
        MaxLen(256),
        Setting("Only machines with this value in their tag gpuwatch:fleet are ever touched."),
    ] = "default"
    interval: Annotated[
        Seconds, Ge(1), Le(3600), Setting("Time from the start of one round of the controller to the next.")
    ] = 60.0
    log_format: Annotated[
        Literal["text", "json"],
        Setting("Log lines of controller and agent: text for people and the journal, json for what collects logs."),
    ] = "text"
    cloud: Annotated[CloudSettings, Setting("The cloud, where there is one; several are in `clouds`.")] = field(
        default_factory=CloudSettings
    )
    clouds: Annotated[
        dict[str, CloudSettings],
        MinLen(1),
        Setting("Several clouds by names of your choice, in place of the section `cloud`; all in one fleet."),
    ] = field(default_factory=dict)
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)
    clusters: Annotated[
        dict[str, KubernetesSettings],
        Among("kubernetes"),
        Setting("One of several Kubernetes clusters, by a name of your choice, in place of the keys of a single one."),
    ] = field(default_factory=dict)
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    signals: ObserveSettings = field(default_factory=ObserveSettings)
    pools: Annotated[
        dict[str, PoolRules],
        Setting("Rules by pool (tag gpuwatch:pool); a pool that is not listed is left alone. Nothing is inherited."),
    ] = field(default_factory=dict)
    calendars: Annotated[
        dict[str, tuple[Annotated[str, MinLen(1)], ...]],
        Setting("Lists of dates by a name of your choice, such as holidays, for the except_on of schedules' windows."),
    ] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    cost: CostSettings = field(default_factory=CostSettings)
    budgets: Annotated[
        dict[str, Budget], Setting("What a month may cost, by names of your choice; scopes may overlap.")
    ] = field(default_factory=dict)
    currency: Annotated[
        str,
        Setting("The currency in which money is shown, such as CNY, by its rate in prices.rates."),
    ] = "USD"
    prices: PriceSettings = field(default_factory=PriceSettings)
    report: ReportSettings = field(default_factory=ReportSettings)
    notify: NotifySettings = field(default_factory=NotifySettings)
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    agent: Annotated[AgentSettings, Setting("What an agent on a GPU host obeys; of all else log_format alone.")] = (
        field(default_factory=AgentSettings)
    )

    @property
    def named_clouds(self) -> Mapping[str, CloudSettings]:
        """The clouds by their names, in their order; the one of the section `cloud` has the name ""."""
        return self.clouds or {"": self.cloud}

    @property
    def named_clusters(self) -> Mapping[str, KubernetesSettings]:
        """The Kubernetes clusters by their names, in their order; none where none is to be looked at."""
        return kubernetes_settings.by_name(self.clusters or {"": self.kubernetes})

    @property
    def shown_currency(self) -> Currency:
        """The currency of texts."""
        return price_settings.currency_of(self.prices, self.currency)

    @property
    def rulebook(self) -> Rulebook:
        """The rules that decisions are made under."""
        pools = {
            name: replace(rules, schedule=with_dates(rules.schedule, self.calendars))
            for name, rules in self.pools.items()
        }
        rules = Rulebook(pools=pools, limits=self.limits, enforce=self.mode == "enforce")
        return replace(rules, delivery_seconds=self.notify.delivery_seconds(rules.known))

    @property
    def cautions(self) -> tuple[str, ...]:
        """Warnings about settings that no fleet in use should have."""
        return self.limits.cautions

    @property
    def summary(self) -> str:
        """The most important settings in one line."""
        pools = []
        for name in dict.fromkeys((DEFAULT_POOL, *self.pools)):
            idle = self.rulebook.pool(name).idle
            pools.append(f"{name} ({self.rulebook.pool(name).profile}: {idle.action} after {wait_words(idle)})")
        rounds = f"fleet {self.fleet}, a round every {format_duration(self.interval)}"
        clouds = f", clouds {named.kinds(self.clouds)}" if self.clouds else ""
        return f"mode {self.mode}, {rounds}{clouds}, pools {', '.join(pools)}, ledger {self.ledger.place}"


def launch_regions(settings: Settings) -> Iterator[tuple[tuple[str, ...], str, str | None]]:
    """Every region that a pool launches in: the key that names it, and the cloud where that is named."""
    for name, rules in settings.pools.items():
        if rules.launch.region is not None:
            yield ("pools", name, "launch", "region"), rules.launch.region, rules.launch.cloud
        for offer, each in rules.offers.items():
            if each.region is not None:
                yield ("pools", name, "offers", offer, "region"), each.region, each.cloud


def pool_regions(settings: Settings) -> Iterator[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """Every region, or pattern of regions, in which a pool may grow: the key, and the pool's clouds."""
    for name, rules in settings.pools.items():
        yield from ((("pools", name, "regions"), pattern, rules.clouds) for pattern in rules.regions)


def _clouds(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every cloud that a pool or a budget names, and the key that names it."""
    for name, rules in settings.pools.items():
        yield from ((("pools", name, "clouds"), cloud) for cloud in rules.clouds)
        if rules.launch.cloud is not None:
            yield ("pools", name, "launch", "cloud"), rules.launch.cloud
        for offer, each in rules.offers.items():
            if each.cloud is not None:
                yield ("pools", name, "offers", offer, "cloud"), each.cloud
    for name, budget in settings.budgets.items():
        if budget.cloud is not None:
            yield ("budgets", name, "cloud"), budget.cloud


def _pools(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every pool that another section names, and the key that names it."""
    for name, budget in settings.budgets.items():
        if budget.pool is not None:
            yield ("budgets", name, "pool"), budget.pool
    for name, listener in settings.notify.receivers.items():
        yield from ((("notify", "receivers", name, "pools"), pool) for pool in listener.pools)


def _pools_of_clusters(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every pool that a Kubernetes cluster names, and the key that names it."""
    yield from ((("kubernetes", "pools"), each) for each in settings.kubernetes.pools)
    for name, cluster in settings.clusters.items():
        yield from ((("kubernetes", name, "pools"), each) for each in cluster.pools)


def contradictions(settings: Settings) -> Iterator[Contradiction]:
    """What no single setting's bounds can check."""
    agent, signals = settings.agent, settings.signals
    yield from agent_alone.contradictions(agent)
    yield from access.contradictions(settings.controller, "controller")
    yield from signal_settings.contradictions(signals)
    yield from ledger_settings.contradictions(settings.ledger, settings.interval)
    yield from cost_settings.contradictions(settings.cost)
    yield from budget_settings.contradictions(
        settings.budgets, settings.cost.tags, cluster=bool(settings.named_clusters)
    )
    yield from notify_settings.report_contradictions(settings.report)
    yield from notify_settings.contradictions(
        settings.notify, settings.budgets, require_notification=settings.limits.require_notification
    )
    yield from _of_clouds(settings)
    yield from kubernetes_settings.contradictions(settings.kubernetes)
    yield from kubernetes_settings.of_several(settings.clusters)
    yield from slurm_settings.contradictions(settings.slurm)
    yield from validation.unknown(settings.pools, ((("slurm", "pools"), each) for each in settings.slurm.pools))
    yield from validation.unknown(settings.pools, _pools_of_clusters(settings))
    if not settings.named_clusters:
        yield from validation.without_cluster(settings.pools)
    yield from validation.scaled_by_pods(settings.pools, cluster=bool(settings.named_clusters))
    yield from price_settings.contradictions(settings.prices)
    yield from price_settings.of_shown(settings.prices, settings.currency)
    yield from secrets.contradictions(settings, named.secret_stores(settings.named_clouds).forms)
    yield from validation.contradictions(settings.pools, settings.calendars)
    yield from validation.unknown(settings.pools, _pools(settings))
    if settings.fleet != settings.fleet.strip():
        yield Contradiction(
            keys=(("fleet",),),
            wrong=f"{settings.fleet!r} has blanks around it: no machine's tag would ever be the same",
            right=repr(settings.fleet.strip() or "default"),
        )
    waits: dict[tuple[str, ...], float] = {
        ("pools", name, "idle", key): wait for name, rules in settings.pools.items() for key, wait in _waits(rules)
    }
    waits |= {
        ("pools", name, "kubernetes", "pods", "timeout"): rules.kubernetes.pods.timeout
        for name, rules in settings.pools.items()
        if rules.kubernetes.pods.action != "report"
    }
    yield from signal_settings.of_time(signals, settings.limits.max_verdict_age, agent.interval, waits)
    slowest = signals.timeout + agent.interval
    if settings.limits.max_verdict_age <= slowest:
        age, slow = format_duration(settings.limits.max_verdict_age), format_duration(slowest)
        yield Contradiction(
            keys=(("limits", "max_verdict_age"), ("signals", "timeout"), ("agent", "interval")),
            wrong=f"limits.max_verdict_age ({age}) does not exceed signals.timeout + agent.interval ({slow}): "
            "good answers would count as stale",
            right=f"a limits.max_verdict_age above {slow}",
        )
    for path, url in named.urls(settings.named_clouds).items():
        yield from address.contradictions(path, url)


def _of_clouds(settings: Settings) -> Iterator[Contradiction]:
    """The clouds, and what pools and budgets say about them."""
    clouds = settings.named_clouds
    yield from named.names(settings.clouds)
    yield from named.contradictions(clouds)
    yield from named.unknown(clouds, _clouds(settings))
    launches = [(name, each.launch) for name, each in settings.pools.items() if each.launch.template is not None]
    yield from named.homeless(clouds, ((name, launch.cloud) for name, launch in launches))
    yield from named.regionless(clouds, ((name, launch.cloud, launch.region) for name, launch in launches))
    for name, rules in settings.pools.items():
        yield from named.homeless_offers(clouds, name, rules.clouds, rules.offers)
    tags: list[tuple[tuple[str, ...], str, str, tuple[str, ...]]] = [(("fleet",), FLEET_TAG, settings.fleet, ())]
    tags += [(("pools", name), POOL_TAG, name, rules.clouds) for name, rules in settings.pools.items()]
    yield from named.unfit_tags(clouds, tags)
    for name, rules in settings.pools.items():
        cloud = rules.launch.cloud
        if rules.clouds and cloud in clouds and cloud not in rules.clouds:
            yield Contradiction(
                keys=(("pools", name, "launch", "cloud"), ("pools", name, "clouds")),
                wrong=f"pools.{name}.launch.cloud ({cloud}) is not among pools.{name}.clouds "
                f"({', '.join(rules.clouds)}): its new nodes would be left alone",
                right="one of the pool's clouds",
            )
        yield from _residency(name, rules)


def _residency(name: str, rules: PoolRules) -> Iterator[Contradiction]:
    """Launches that the pool's own regions refuse."""
    here = ("pools", name)
    asked: list[tuple[tuple[str, ...], str | None]] = [
        ((*here, "offers", offer), each.region) for offer, each in rules.offers.items()
    ]
    asked += [((*here, "launch"), rules.launch.region)] if rules.launch.template is not None else []
    for path, region in asked:
        if region and rules.allows(region):
            continue
        wrong = f"is {region!r}, which is not among" if region else "is missing, and must be one of"
        if rules.regions:
            yield Contradiction(
                keys=((*path, "region"), (*here, "regions")),
                wrong=f"{'.'.join(path)}.region {wrong} pools.{name}.regions ({', '.join(rules.regions)})",
                right="one of the pool's regions",
            )


def _waits(rules: PoolRules) -> Iterator[tuple[str, float]]:
    """How long nodes of a pool must be idle or parked, where that is a duration.

    A profile's own wait for parked nodes may be longer than a window of Prometheus proves: they then stay.
    """
    fixed = rules.idle.timeout if rules.idle.fresh_seconds is None else rules.idle.fresh_seconds
    if isinstance(fixed, int | float):
        yield "timeout", fixed
    if rules.idle.parked != "report" and rules.idle.parked_timeout != PROFILES[rules.profile].parked_timeout:
        yield "parked_timeout", rules.idle.parked_timeout
