"""The section `cloud`: where machines are looked for and acted on, and the table of clouds."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, get_type_hints

from annotated_types import Ge, MinLen

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.alibaba.settings import AlibabaSettings
from gpuwatch.clouds.aws.settings import AwsSettings
from gpuwatch.clouds.azure.settings import AzureSettings
from gpuwatch.clouds.driver.settings import DriverSettings
from gpuwatch.clouds.gcp.settings import GcpSettings
from gpuwatch.clouds.hosts.settings import HostsSettings
from gpuwatch.clouds.provider import ALL, ProviderSettings
from gpuwatch.clouds.tencent.settings import TencentSettings
from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.model.slips import nearest
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.installed import MissingExtraError, install_command
from gpuwatch.runtime.secrets import NoStores, Stores

_Text = Annotated[str, MinLen(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSettings:
    """Where machines are listed and stopped. Credentials come from the SDK's own chain, never from this file."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    provider: Annotated[_Text, Setting("The cloud; what only this cloud needs is in the section of its name.")] = "aws"
    regions: Annotated[
        tuple[_Text, ...],
        Setting("Regions to look at, or [all]: each that the account may use. None given: the SDK's default region."),
    ] = ()
    endpoint_url: Annotated[_Text | None, Setting("Base URL of the cloud's API, for private endpoints and tests.")] = (
        None
    )
    max_key_age: Annotated[
        Seconds, Ge(86400), Setting("`gpuwatch doctor` warns of an access key or secret of gpuwatch that is older.")
    ] = 90 * 86400.0
    # The table of clouds: one field for each, by its name.
    aws: AwsSettings = field(default_factory=AwsSettings)
    alibaba: AlibabaSettings = field(default_factory=AlibabaSettings)
    azure: AzureSettings = field(default_factory=AzureSettings)
    gcp: GcpSettings = field(default_factory=GcpSettings)
    hosts: HostsSettings = field(default_factory=HostsSettings)
    driver: DriverSettings = field(default_factory=DriverSettings)
    tencent: TencentSettings = field(default_factory=TencentSettings)

    @property
    def own(self) -> ProviderSettings:
        """The section of the cloud that is chosen.

        Raises:
            ValueError: no cloud has that name.

        """
        if self.provider not in CLOUDS:
            raise ValueError(f"no cloud is named {self.provider!r}; there are: {', '.join(sorted(CLOUDS))}")
        own: ProviderSettings = getattr(self, self.provider)
        return own

    @property
    def first_region(self) -> str | None:
        """The region that stands first; None: none is named."""
        return next((region for region in self.regions if region != ALL), None)

    @property
    def everywhere(self) -> bool:
        """Whether each region that an account may use is looked at."""
        return self.provider in CLOUDS and any(region == ALL for _, region in self.regions_written)

    @property
    def regions_written(self) -> list[tuple[tuple[str, ...], str]]:
        """Every region, with the key that names it."""
        return [*((("cloud", "regions"), region) for region in self.regions), *self.own.regions_named()]

    @property
    def secret_stores(self) -> Stores:
        """The stores that references to secrets may lead to."""
        if self.provider not in CLOUDS:
            return NoStores()
        return self.own.secret_stores(regions=self.regions, endpoint_url=self.endpoint_url)


TITLES = {  # of the clouds, for people
    "aws": "AWS",
    "azure": "Azure",
    "gcp": "Google Cloud",
    "alibaba": "Alibaba Cloud",
    "tencent": "Tencent Cloud",
    "hosts": "hosts of your own",
    "driver": "a driver",
}

# What people write who have no cloud.
_WITHOUT_CLOUD = frozenset({"none", "local", "static", "on-prem", "onprem", "on-premises", "bare-metal", "host"})

# The settings of each cloud, by its name.
CLOUDS: dict[str, type[ProviderSettings]] = {
    name: section
    for name, section in get_type_hints(CloudSettings).items()
    if isinstance(section, type) and issubclass(section, ProviderSettings)
}


def connect(cloud: CloudSettings, *, fleet: str, clock: Clock) -> Cloud:
    """The cloud of the settings; nothing is sent yet.

    Raises:
        ValueError: no cloud has that name.
        CloudError: it cannot be set up (no profile, no region).
        ImportError: its extra is not installed.

    """
    try:
        return cloud.own.connect(fleet=fleet, clock=clock, regions=cloud.regions, endpoint_url=cloud.endpoint_url)
    except ImportError as error:
        hint = f"the cloud {cloud.provider!r} needs its extra: {install_command(cloud.provider)} ({error})"
        raise MissingExtraError(hint, name=error.name) from error


def contradictions(cloud: CloudSettings) -> Iterator[Contradiction]:
    """Mistakes that no single key's bounds show."""
    if cloud.provider not in CLOUDS:
        near = nearest(cloud.provider, CLOUDS) or f"one of {', '.join(CLOUDS)}"
        if cloud.provider.strip().lower() in _WITHOUT_CLOUD:
            near = "hosts, for machines without a cloud (docs/clouds/hosts.md)"
        yield Contradiction(keys=(("cloud", "provider"),), wrong=f"no cloud is named {cloud.provider!r}", right=near)
        return
    yield from cloud.own.contradictions()


def unknown_regions(cloud: CloudSettings, launches: Iterable[tuple[tuple[str, ...], str]]) -> Iterator[Contradiction]:
    """Regions that the cloud does not have: of the section `cloud`, and those where pools launch, by their keys."""
    if cloud.provider not in CLOUDS:
        return
    own, launches = cloud.regions_written, list(launches)
    yield from _all_and_more(own)
    names = cloud.own.region_names() if own or launches else None
    for path, region in [*(each for each in own if each[1] != ALL), *launches]:
        looked_at = all(path != other for other, _ in launches)
        if (region in names) if names is not None else (looked_at or region != ALL):
            continue
        near = None if names is None else nearest(region, names)
        if looked_at and region.strip().lower() == ALL:
            right = f"{ALL}, in small letters"
        elif near is not None:
            right = near
        else:
            newer = install_command(cloud.provider, upgrade=True)
            right = f"a region that it has; cloud.provider names another cloud. If the region is new: {newer}"
        yield Contradiction(keys=(path,), wrong=f"{region!r} is no region of {cloud.provider}", right=right)


def _all_and_more(written: Iterable[tuple[tuple[str, ...], str]]) -> Iterator[Contradiction]:
    """All regions, and others by name: one of the two was meant."""
    by_path: dict[tuple[str, ...], list[str]] = {}
    for path, region in written:
        by_path.setdefault(path, []).append(region)
    for path, regions in by_path.items():
        if ALL in regions and len(regions) > 1:
            more = ", ".join(region for region in regions if region != ALL)
            yield Contradiction(
                keys=(path,), wrong=f"{ALL} stands there with other regions ({more})", right=f"[{ALL}], or names alone"
            )


def regionless(cloud: CloudSettings, pools: Iterable[str]) -> Iterator[Contradiction]:
    """Pools that launch, and do not say where, although the settings name no region."""
    if not cloud.everywhere or not cloud.own.launches_name_regions:
        return
    for pool in pools:
        yield Contradiction(
            keys=(("pools", pool, "launch", "region"), ("cloud", "regions")),
            wrong=f"cloud.regions is [{ALL}], and pools.{pool}.launch does not say in which region its template is",
            right=f"pools.{pool}.launch.region as well",
        )
