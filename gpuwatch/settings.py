"""Every knob of gpuwatch, composed of what each room declares for itself. Imported by shells only.

`gpuwatch.configuration` fills this in from one file and the environment; nothing here loads the validator.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Le, MaxLen, MinLen

from gpuwatch import secrets
from gpuwatch.agent import access
from gpuwatch.agent.knobs import AgentKnobs
from gpuwatch.clouds import knobs as cloud_knobs
from gpuwatch.clouds.knobs import CloudKnobs
from gpuwatch.cost import budget_knobs, report_knobs
from gpuwatch.cost import knobs as cost_knobs
from gpuwatch.cost.budget_knobs import Budget
from gpuwatch.cost.knobs import CostKnobs
from gpuwatch.cost.report_knobs import ReportKnobs
from gpuwatch.guard import DEFAULT_POOL, Limits, Rulebook
from gpuwatch.ledger import knobs as ledger_knobs
from gpuwatch.ledger.knobs import LedgerKnobs
from gpuwatch.model.knobs import STRICT, Contradiction, Knob, Seconds, format_duration
from gpuwatch.notify import knobs as notify_knobs
from gpuwatch.notify.knobs import NotifyKnobs
from gpuwatch.policies import PoolRules, checks
from gpuwatch.policies.schedule import with_dates
from gpuwatch.prices import knobs as price_knobs
from gpuwatch.prices.knobs import PriceKnobs
from gpuwatch.secrets import AwsAccess
from gpuwatch.signals import knobs as signal_knobs
from gpuwatch.signals.knobs import ScrapeKnobs


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerKnobs:
    """What the controller serves of itself."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    metrics: Annotated[
        bool, Knob("Serve what the rounds saw, decided, refused and did at /metrics, for Prometheus.")
    ] = True
    page: Annotated[
        bool, Knob("Serve the fleet's page at / and its API under /api/v1; without users only to this machine itself.")
    ] = True
    operators: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Knob("Users (by password, or by their certificate's common name) who may pause, resume, keep and approve."),
    ] = ()
    names: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Knob("Names by which browsers and others may ask over plain http, beside localhost and addresses."),
    ] = ()
    http_sd: Annotated[
        bool, Knob("Serve the fleet of the last round at /v1/http_sd, for Prometheus' http_sd_configs.")
    ] = False
    host: Annotated[str, MinLen(1), Knob("Address to listen on; beyond loopback it wants TLS and authentication.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Ge(0), Le(65535), Knob("TCP port to listen on; 0 takes any free one.")] = 9461
    tls_certificate: Annotated[
        str | None, Knob("Certificate in PEM, intermediates after it; read again when it changes. None: no TLS.")
    ] = None
    tls_key: Annotated[str | None, Knob("The certificate's private key in PEM, without a passphrase.")] = None
    tls_client_ca: Annotated[
        str | None, Knob("CA certificates in PEM; only clients with a certificate of theirs are served.")
    ] = None
    tls_client_names: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Knob("A client's certificate must have one of these as a subjectAltName. Without any: any of the CA will do."),
    ] = ()
    users_file: Annotated[
        str | None, Knob("Lines of USER:HASH as `htpasswd -B` writes them; only these users are served.")
    ] = None
    insecure: Annotated[
        bool, Knob("Listen beyond loopback also without TLS or without authentication: whoever gets there may ask.")
    ] = False

    @property
    def door(self) -> AgentKnobs:
        """The same door as an agent's."""
        return AgentKnobs(
            host=self.host,
            port=self.port,
            tls_certificate=self.tls_certificate,
            tls_key=self.tls_key,
            tls_client_ca=self.tls_client_ca,
            tls_client_names=self.tls_client_names,
            users_file=self.users_file,
            names=self.names,
            insecure=self.insecure,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole configuration."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    mode: Annotated[
        Literal["observe", "enforce"], Knob("observe: decide and tell, touch nothing. enforce: also act.")
    ] = "observe"
    fleet: Annotated[
        str, MinLen(1), MaxLen(256), Knob("Only machines whose tag gpuwatch:fleet has this value are ever touched.")
    ] = "default"
    interval: Annotated[
        Seconds, Ge(1), Le(3600), Knob("Time from the start of one round of the controller to the next.")
    ] = 60.0
    log_format: Annotated[
        Literal["text", "json"],
        Knob("Log lines of controller and agent: text for people and the journal, json for what collects logs."),
    ] = "text"
    cloud: CloudKnobs = field(default_factory=CloudKnobs)
    signals: ScrapeKnobs = field(default_factory=ScrapeKnobs)
    pools: Annotated[
        dict[str, PoolRules],
        Knob("Rules by pool (tag gpuwatch:pool); a pool that is not listed is left alone. Nothing is inherited."),
    ] = field(default_factory=dict)
    calendars: Annotated[
        dict[str, tuple[Annotated[str, MinLen(1)], ...]],
        Knob("Lists of dates by a name of your choice, such as holidays, for the except_on of schedules' windows."),
    ] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    ledger: LedgerKnobs = field(default_factory=LedgerKnobs)
    cost: CostKnobs = field(default_factory=CostKnobs)
    budgets: Annotated[
        dict[str, Budget], Knob("What a month may cost, by names of your choice; scopes may overlap.")
    ] = field(default_factory=dict)
    prices: PriceKnobs = field(default_factory=PriceKnobs)
    report: ReportKnobs = field(default_factory=ReportKnobs)
    notify: NotifyKnobs = field(default_factory=NotifyKnobs)
    controller: ControllerKnobs = field(default_factory=ControllerKnobs)
    agent: Annotated[AgentKnobs, Knob("What an agent on a GPU host obeys; of all else log_format alone.")] = field(
        default_factory=AgentKnobs
    )

    @property
    def rulebook(self) -> Rulebook:
        """The rules that decisions are made under."""
        pools = {
            name: replace(rules, schedule=with_dates(rules.schedule, self.calendars))
            for name, rules in self.pools.items()
        }
        return Rulebook(pools=pools, limits=self.limits, enforce=self.mode == "enforce")

    @property
    def secrets(self) -> AwsAccess:
        """Where references to secrets in AWS lead: the first region, of the credentials' own account."""
        region = next(iter(self.cloud.regions), None)
        return AwsAccess(profile=self.cloud.profile, region=region, endpoint_url=self.cloud.endpoint_url)

    @property
    def cautions(self) -> tuple[str, ...]:
        """What is in force and no fleet that people use should have, in sentences."""
        return self.limits.cautions

    @property
    def summary(self) -> str:
        """What is in force, in one line."""
        pools = []
        for name in dict.fromkeys((DEFAULT_POOL, *self.pools)):
            idle = self.rulebook.pool(name).idle
            after = idle.after if isinstance(idle.after, str) else format_duration(idle.after)
            pools.append(f"{name} ({idle.then} after {after} idle)")
        rounds = f"fleet {self.fleet}, a round every {format_duration(self.interval)}"
        return f"mode {self.mode}, {rounds}, pools {', '.join(pools)}, ledger {self.ledger.place}"


def regions(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every region that the settings name, and the key that names it."""
    cloud = settings.cloud
    yield from ((("cloud", "regions"), region) for region in cloud.regions)
    for name, account in cloud.accounts.items():
        yield from ((("cloud", "accounts", name, "regions"), region) for region in account.regions)
    for name, rules in settings.pools.items():
        if rules.launch.region is not None:
            yield ("pools", name, "launch", "region"), rules.launch.region


def _pools(settings: Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every pool that another section names, and the key that names it."""
    for name, budget in settings.budgets.items():
        if budget.pool is not None:
            yield ("budgets", name, "pool"), budget.pool
    for name, listener in settings.notify.to.items():
        yield from ((("notify", "to", name, "pools"), pool) for pool in listener.pools)


def contradictions(settings: Settings) -> Iterator[Contradiction]:
    """What no single key's bounds can tell."""
    agent, signals = settings.agent, settings.signals
    if agent.activity.max_gap <= agent.interval:
        gap, interval = format_duration(agent.activity.max_gap), format_duration(agent.interval)
        yield Contradiction(
            keys=(("agent", "activity", "max_gap"), ("agent", "interval")),
            wrong=f"agent.activity.max_gap ({gap}) does not exceed agent.interval ({interval}): no time counts",
            right=f"an agent.activity.max_gap of several intervals, such as {format_duration(10 * agent.interval)}",
        )
    if agent.restart_max < agent.restart_min:
        longest, first = format_duration(agent.restart_max), format_duration(agent.restart_min)
        yield Contradiction(
            keys=(("agent", "restart_max"), ("agent", "restart_min")),
            wrong=f"agent.restart_max ({longest}) is shorter than agent.restart_min ({first})",
            right=f"an agent.restart_max of {first} or more",
        )
    if agent.source == "replay" and agent.capture is None:
        yield Contradiction(
            keys=(("agent", "source"),),
            wrong="agent.source is replay, but agent.capture names no recording",
            right="agent.capture: the file of a recorded probe stream",
        )
    yield from access.contradictions(agent)
    for found in access.contradictions(settings.controller.door):
        keys = tuple(("controller", *key[1:]) for key in found.keys)
        wrong, right = (text.replace("agent", "controller") for text in (found.wrong, found.right))
        yield Contradiction(keys=keys, wrong=wrong, right=right)
    yield from signal_knobs.contradictions(signals)
    yield from ledger_knobs.contradictions(settings.ledger, settings.interval)
    yield from cost_knobs.contradictions(settings.cost)
    yield from budget_knobs.contradictions(settings.budgets, settings.cost.tags)
    yield from report_knobs.contradictions(settings.report)
    yield from notify_knobs.contradictions(settings.notify, require_told=settings.limits.require_told)
    yield from cloud_knobs.contradictions(settings.cloud)
    yield from price_knobs.contradictions(settings.prices)
    yield from secrets.contradictions(settings)
    yield from checks.contradictions(settings.pools, settings.calendars)
    yield from checks.unknown(settings.pools, _pools(settings))
    if settings.fleet != settings.fleet.strip():
        yield Contradiction(
            keys=(("fleet",),),
            wrong=f"{settings.fleet!r} has blanks around it: no machine's tag would ever be the same",
            right=repr(settings.fleet.strip() or "default"),
        )
    waits: dict[tuple[str, ...], float] = {
        ("pools", name, "idle", key): wait for name, rules in settings.pools.items() for key, wait in _waits(rules)
    }
    yield from signal_knobs.of_time(signals, settings.limits.max_verdict_age, agent.interval, waits)
    slowest = signals.timeout + agent.interval
    if settings.limits.max_verdict_age <= slowest:
        age, told = format_duration(settings.limits.max_verdict_age), format_duration(slowest)
        yield Contradiction(
            keys=(("limits", "max_verdict_age"), ("signals", "timeout"), ("agent", "interval")),
            wrong=f"limits.max_verdict_age ({age}) does not exceed signals.timeout + agent.interval ({told}): "
            "good answers would count as stale",
            right=f"a limits.max_verdict_age above {told}",
        )
    urls: dict[tuple[str, ...], str] = {("cloud", "endpoint_url"): settings.cloud.endpoint_url or "http://"}
    urls[("signals", "promql", "url")] = signals.promql.url or "http://"
    urls |= {("signals", "targets", name): url for name, url in signals.targets.items()}
    for path, url in urls.items():
        if not url.startswith(("http://", "https://")):
            yield Contradiction(keys=(path,), wrong=f"{url!r} is no URL", right="a URL such as http://10.0.0.7:9460")


def _waits(rules: PoolRules) -> Iterator[tuple[str, float]]:
    """How long nodes of a pool must have been idle or parked, where that is a time."""
    if isinstance(rules.idle.after, int | float):
        yield "after", rules.idle.after
    if rules.idle.parked != "tell":
        yield "parked_after", rules.idle.parked_after
