"""Every knob of gpuwatch, composed of what each room declares for itself. Imported by shells only.

`gpuwatch.configuration` fills this in from one file and the environment; nothing here loads the validator.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, MaxLen, MinLen

from gpuwatch.agent import access
from gpuwatch.agent.knobs import AgentKnobs
from gpuwatch.guard import Limits
from gpuwatch.model.knobs import STRICT, Contradiction, Knob, Seconds, format_duration
from gpuwatch.policies import PoolRules
from gpuwatch.signals import knobs as signal_knobs
from gpuwatch.signals.knobs import ScrapeKnobs

DEFAULT_POOL = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudKnobs:
    """Where machines are listed and stopped. Credentials come from the SDK's own chain, never from this file."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    provider: Annotated[Literal["aws"], Knob("The cloud.")] = "aws"
    regions: Annotated[
        tuple[Annotated[str, MinLen(1)], ...], Knob("Regions to look at; none given: the SDK's default region.")
    ] = ()
    profile: Annotated[
        Annotated[str, MinLen(1)] | None, Knob("The SDK's named profile; without it, the SDK's default credentials.")
    ] = None
    endpoint_url: Annotated[
        Annotated[str, MinLen(1)] | None, Knob("Base URL of the cloud's API, for private endpoints and tests.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerKnobs:
    """Where intents and outcomes are written down."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    path: Annotated[str, MinLen(1), Knob("The SQLite file; its directory must exist and be writable.")] = (
        "/var/lib/gpuwatch/ledger.db"
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
    interval: Annotated[Seconds, Ge(1), Knob("Time from the start of one round of the controller to the next.")] = 60.0
    cloud: CloudKnobs = field(default_factory=CloudKnobs)
    signals: ScrapeKnobs = field(default_factory=ScrapeKnobs)
    pools: Annotated[
        dict[str, PoolRules],
        Knob("Rules by pool (tag gpuwatch:pool); one not listed here follows `default`. Nothing is inherited."),
    ] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    ledger: LedgerKnobs = field(default_factory=LedgerKnobs)
    agent: Annotated[AgentKnobs, Knob("What an agent on a GPU host obeys; it needs no other section.")] = field(
        default_factory=AgentKnobs
    )

    def pool(self, name: str) -> PoolRules:
        """The rules of a pool; one that is not listed follows `default`, which exists even when not written."""
        return self.pools.get(name) or self.pools.get(DEFAULT_POOL) or PoolRules()

    @property
    def summary(self) -> str:
        """What is in force, in one line."""
        pools = []
        for name in dict.fromkeys((DEFAULT_POOL, *self.pools)):
            idle = self.pool(name).idle
            pools.append(f"{name} ({idle.then} after {format_duration(idle.after)} idle)")
        rounds = f"fleet {self.fleet}, a round every {format_duration(self.interval)}"
        return f"mode {self.mode}, {rounds}, pools {', '.join(pools)}, ledger {self.ledger.path}"


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
    yield from signal_knobs.contradictions(signals)
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
    urls |= {("signals", "targets", name): url for name, url in signals.targets.items()}
    for path, url in urls.items():
        if not url.startswith(("http://", "https://")):
            yield Contradiction(keys=(path,), wrong=f"{url!r} is no URL", right="a URL such as http://10.0.0.7:9460")
