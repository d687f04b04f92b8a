"""The section `cloud.alibaba`, and what can be had of Alibaba Cloud. Its SDK is loaded only by what needs it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Annotated, ClassVar

from annotated_types import MinLen

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.provider import ProviderSettings
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.runtime.clock import Clock

_Text = Annotated[str, MinLen(1)]
_ARN_PARTS = 5  # acs:ram::NUMBER:role/NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """One account of the cloud by a name for messages, and how it is entered."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    role_arn: Annotated[_Text | None, Setting("The RAM role to assume. None: the credentials' own account.")] = None
    external_id: Annotated[_Text | None, Setting("What the role's trust policy asks for as sts:ExternalId.")] = None
    regions: Annotated[tuple[_Text, ...], Setting("Its regions; none given: those of cloud.regions.")] = ()

    @property
    def number(self) -> str | None:
        """The account's number in the role's ARN; None: the role is no such ARN, or no role is set."""
        parts = (self.role_arn or "").split(":")
        role = len(parts) == _ARN_PARTS and parts[:3] == ["acs", "ram", ""] and parts[4].startswith("role/")
        return parts[3] if role and parts[3].isdigit() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlibabaSettings(ProviderSettings):
    """What only Alibaba Cloud needs."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    longest_tag: ClassVar[int] = 128

    accounts: Annotated[
        dict[str, AccountSettings],
        Setting("Accounts to look at, by a name; none: the one that the credentials belong to."),
    ] = field(default_factory=dict)
    profile: Annotated[
        _Text | None, Setting("A profile of `aliyun configure`; without it, the SDK's default credentials.")
    ] = None

    def connect(self, *, fleet: str, clock: Clock, regions: tuple[str, ...], endpoint_url: str | None) -> Cloud:
        """ECS and its scaling groups."""
        cloud: Cloud = resolve_name("gpuwatch.clouds.alibaba.cloud:AlibabaCloud")(
            fleet=fleet,
            clock=clock,
            regions=regions,
            accounts=self.accounts,
            profile=self.profile,
            endpoint_url=endpoint_url,
        )
        return cloud

    def contradictions(self) -> Iterator[Contradiction]:
        """Each account once, by a role that can exist."""
        named: dict[str | None, str] = {}  # by the account's number
        for name, account in self.accounts.items():
            path = ("cloud", "alibaba", "accounts", name, "role_arn")
            if account.role_arn is not None and account.number is None:
                yield Contradiction(
                    keys=(path,),
                    wrong=f"{account.role_arn!r} is no RAM role's ARN",
                    right="an ARN such as acs:ram::1234567890123456:role/gpuwatch",
                )
            elif account.number in named:
                yield Contradiction(
                    keys=(path,),
                    wrong=f"cloud.alibaba.accounts.{name} is the same account as "
                    f"cloud.alibaba.accounts.{named[account.number]}",
                    right="one entry for each account, with all its regions",
                )
            named.setdefault(account.number, name)

    def regions_named(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """The regions of each account."""
        for name, account in self.accounts.items():
            yield from ((("cloud", "alibaba", "accounts", name, "regions"), region) for region in account.regions)

    @staticmethod
    def policies(*, fleet: str, regions: Sequence[str], partition: str, scopes: Sequence[str]) -> Mapping[str, str]:
        """Those of RAM; there are no partitions."""
        del partition, scopes
        from gpuwatch.clouds.alibaba.iam import ROLES, policy, render  # noqa: PLC0415  needed by one command only

        return {f"{role}.json": render(policy(role, fleet=fleet, regions=regions)) for role in ROLES}

    @staticmethod
    def start_command(node_id: str, region: str | None) -> str:
        """By Alibaba's command line."""
        return f"aliyun ecs StartInstance --InstanceId {node_id}" + ("" if region is None else f" --RegionId {region}")
