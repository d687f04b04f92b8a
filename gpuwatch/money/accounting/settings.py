"""The settings of `cost:` that accounting reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, ClassVar
from zoneinfo import ZoneInfo, available_timezones

from annotated_types import Ge, MinLen

from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.scope import CostScope

_MISSED_ROUNDS = 3
_SILENT_AFTER_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySettings:
    """Energy factors that no GPU measures. There is no default: without a factor, its figure is not computed."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    host_watts: Annotated[
        Annotated[float, Ge(0)] | None,
        Setting(
            "Power that a running machine draws besides its GPUs, in watts: processors, memory, fans, power supplies."
        ),
    ] = None
    pue: Annotated[
        Annotated[float, Ge(1)] | None,
        Setting("Power usage effectiveness of the building: its energy / that of the machines in it."),
    ] = None
    usd_per_kwh: Annotated[
        Annotated[Decimal, Ge(0)] | None,
        Setting("Price of a kWh of the above, the building's share with it; power of machines of your own."),
    ] = None
    co2e_grams_per_kwh: Annotated[
        Annotated[float, Ge(0)] | None, Setting("Carbon intensity of the electricity, in grams of CO2e per kWh.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSettings:
    """What machines cost and what of it was of use: `gpuwatch cost`."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    timezone: Annotated[
        str,
        Setting("The IANA time zone in which days and months begin, such as Europe/Berlin; set it before the start."),
    ] = "UTC"
    tags: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting(
            "The machines' tags that are kept with what they cost, for `gpuwatch cost --by tag:KEY`, from then on."
        ),
    ] = ("team", "project", "environment", "cost-center")
    scope: Annotated[
        CostScope,
        Setting(
            "Which machines count in costs, waste, budgets, forecasts and savings: `fleet`, those that are enrolled in "
            "this fleet; `account`, all that the clouds show. With `fleet` the others are metered and shown apart."
        ),
    ] = "fleet"
    energy: EnergySettings = field(default_factory=EnergySettings)

    def metering(self, interval_seconds: float, providers: Mapping[str, str] | None = None) -> Metering:
        """How rounds so far apart are metered; `providers` by the names of clouds."""
        silent = max(_SILENT_AFTER_SECONDS, _MISSED_ROUNDS * interval_seconds)
        zone = ZoneInfo(self.timezone)
        return Metering(zone=zone, tags=self.tags, silent_after_seconds=silent, providers=dict(providers or {}))


def contradictions(settings: CostSettings) -> Iterator[Contradiction]:
    """What no single key's bounds can check."""
    if settings.timezone not in available_timezones():
        yield Contradiction(
            keys=(("cost", "timezone"),),
            wrong=f"cost.timezone {settings.timezone!r} is no time zone",
            right="an IANA name such as UTC or Europe/Berlin",
        )
