"""The section `cloud.tencent`, and what can be had of it. The SDK is loaded only by the calls that need it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Annotated, ClassVar

from annotated_types import MinLen

from gpuwatch.clouds import Cloud, CloudError
from gpuwatch.clouds.provider import ProviderSettings
from gpuwatch.clouds.tencent.tag_limits import check_tag_value
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.runtime.clock import Clock

_Text = Annotated[str, MinLen(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TencentAccountSettings:
    """One account of Tencent Cloud by a name for messages, and how it is entered."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    role_arn: Annotated[
        _Text | None,
        Setting("The CAM role to assume, qcs::cam::uin/ACCOUNT:roleName/NAME. None: the credentials' own account."),
    ] = None
    external_id: Annotated[_Text | None, Setting("What the role asks for as its external id.")] = None
    regions: Annotated[tuple[_Text, ...], Setting("Its regions; none given: those of cloud.regions.")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TencentSettings(ProviderSettings):
    """What only Tencent Cloud needs."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    accounts: Annotated[
        dict[str, TencentAccountSettings],
        Setting("Accounts to look at, by a name; none: the one that the credentials belong to."),
    ] = field(default_factory=dict)
    key_file: Annotated[
        _Text | None,
        Setting("The file with ID:SECRET of an API key; read again when it changes. None: the SDK's own credentials."),
    ] = None

    def connect(self, *, fleet: str, clock: Clock, regions: tuple[str, ...], endpoint_url: str | None) -> Cloud:
        """CVM and its Auto Scaling groups."""
        cloud: Cloud = resolve_name("gpuwatch.clouds.tencent.cloud:TencentCloud")(
            fleet=fleet,
            clock=clock,
            regions=regions,
            accounts=self.accounts,
            key_file=self.key_file,
            endpoint_url=endpoint_url,
        )
        return cloud

    def contradictions(self) -> Iterator[Contradiction]:
        """Each account once, by a role that can exist."""
        named: dict[str | None, str] = {}  # by the account's number
        for name, account in self.accounts.items():
            path = ("cloud", "tencent", "accounts", name, "role_arn")
            number = None if account.role_arn is None else account_of(account.role_arn)
            if number == "":
                yield Contradiction(
                    keys=(path,),
                    wrong=f"{account.role_arn!r} is not the name of a CAM role",
                    right="a name such as qcs::cam::uin/100000000001:roleName/gpuwatch",
                )
            elif number in named:
                yield Contradiction(
                    keys=(path,),
                    wrong=f"cloud.tencent.accounts.{name} is the account of cloud.tencent.accounts.{named[number]}",
                    right="one entry for each account, with all its regions",
                )
            named.setdefault(number, name)

    def regions_named(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """The regions of each account."""
        for name, account in self.accounts.items():
            yield from ((("cloud", "tencent", "accounts", name, "regions"), region) for region in account.regions)

    def unfit_tag(self, tag: str, text: str) -> str | None:
        """By Tencent Cloud's own rules."""
        try:
            check_tag_value(tag, text)
        except CloudError as error:
            return str(error)
        return None

    @staticmethod
    def policies(*, fleet: str, regions: Sequence[str], partition: str, scopes: Sequence[str]) -> Mapping[str, str]:
        """Those of CAM."""
        del partition, scopes
        from gpuwatch.clouds.tencent.iam import ROLES, policy, render  # noqa: PLC0415  needed by one command only

        return {f"{role}.json": render(policy(role, fleet=fleet, regions=regions)) for role in ROLES}

    @staticmethod
    def start_command(node_id: str, region: str | None) -> str:
        """By tccli, Tencent Cloud's command line."""
        ids = f"""'["{node_id}"]'""" if "'" not in node_id else f"""'["'{node_id}'"]'"""
        return f"tccli cvm StartInstances --InstanceIds {ids}" + ("" if region is None else f" --region {region}")


def account_of(arn: str) -> str:
    """The account's number in the name of a role; "" if the text is no such name."""
    parts = arn.split(":")
    uin = parts[4] if len(parts) > 5 else ""  # noqa: PLR2004  qcs::cam::uin/ACCOUNT:roleName/NAME has six parts
    number = uin.removeprefix("uin/")
    named = parts[-1].startswith(("roleName/", "role/")) and parts[:3] == ["qcs", "", "cam"]
    return number if named and uin.startswith("uin/") and number.isdigit() else ""
