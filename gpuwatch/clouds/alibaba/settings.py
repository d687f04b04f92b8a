"""The section `cloud.alibaba`, and what can be had of Alibaba Cloud. Its SDK is loaded only by what needs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import MinLen

from gpuwatch.clouds.provider import SettingsOfAccounts
from gpuwatch.model.setting import STRICT, Setting

_Text = Annotated[str, MinLen(1)]
_ARN_PARTS = 5  # acs:ram::NUMBER:role/NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class AlibabaSettings(SettingsOfAccounts):
    """What only Alibaba Cloud needs."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    longest_tag: ClassVar[int] = 128
    section: ClassVar[str] = "alibaba"
    adapter: ClassVar[str] = "gpuwatch.clouds.alibaba.cloud:AlibabaCloud"
    role: ClassVar[tuple[str, str]] = ("no RAM role's ARN", "an ARN such as acs:ram::1234567890123456:role/gpuwatch")

    profile: Annotated[
        _Text | None, Setting("A profile of `aliyun configure`; without it, the SDK's default credentials.")
    ] = None

    def _options(self) -> Mapping[str, Any]:
        return {"accounts": self.accounts, "profile": self.profile}

    @staticmethod
    def account_of(arn: str) -> str:
        """The account's number in a role's ARN; "" if the text is no such ARN."""
        parts = arn.split(":")
        role = len(parts) == _ARN_PARTS and parts[:3] == ["acs", "ram", ""] and parts[4].startswith("role/")
        return parts[3] if role and parts[3].isdigit() else ""

    @staticmethod
    def start_command(node_id: str, region: str | None) -> str:
        """By Alibaba's command line."""
        return f"aliyun ecs StartInstance --InstanceId {node_id}" + ("" if region is None else f" --RegionId {region}")
