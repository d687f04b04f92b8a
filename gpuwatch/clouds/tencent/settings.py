"""The section `cloud.tencent`, and what this cloud offers. The SDK is loaded only by the calls that need it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import MinLen

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.provider import SettingsOfAccounts
from gpuwatch.model.setting import STRICT, Setting

_Text = Annotated[str, MinLen(1)]
# What a tag's value takes (cloud.tencent.com/document/product/651/13354).
_TAG_LENGTH = 255
_TAG_SIGNS = re.compile(r"[\w +\-=.:/@()\[\],;><]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TencentSettings(SettingsOfAccounts):
    """What only Tencent Cloud needs."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    section: ClassVar[str] = "tencent"
    adapter: ClassVar[str] = "gpuwatch.clouds.tencent.cloud:TencentCloud"
    role: ClassVar[tuple[str, str]] = (
        "not the name of a CAM role",
        "a name such as qcs::cam::uin/100000000001:roleName/gpuwatch",
    )

    key_file: Annotated[
        _Text | None,
        Setting("The file with ID:SECRET of an API key; read again when it changes. None: the SDK's own credentials."),
    ] = None

    def _options(self) -> Mapping[str, Any]:
        return {"accounts": self.accounts, "key_file": self.key_file}

    @staticmethod
    def account_of(arn: str) -> str:
        """The account's number in the name of a role; "" if the text is no such name."""
        parts = arn.split(":")
        uin = parts[4] if len(parts) > 5 else ""  # noqa: PLR2004  qcs::cam::uin/ACCOUNT:roleName/NAME has six parts
        number = uin.removeprefix("uin/")
        named = parts[-1].startswith(("roleName/", "role/")) and parts[:3] == ["qcs", "", "cam"]
        return number if named and uin.startswith("uin/") and number.isdigit() else ""

    def unfit_tag(self, tag: str, text: str) -> str | None:
        """By Tencent Cloud's own rules."""
        try:
            check_tag_value(tag, text)
        except CloudError as error:
            return str(error)
        return None

    @staticmethod
    def start_command(node_id: str, region: str | None) -> str:
        """By tccli, Tencent Cloud's command line."""
        ids = f"""'["{node_id}"]'""" if "'" not in node_id else f"""'["'{node_id}'"]'"""
        return f"tccli cvm StartInstances --InstanceIds {ids}" + ("" if region is None else f" --region {region}")


def check_tag_value(key: str, value: str) -> None:
    """Hold a text of the settings to it; `key` names the text.

    Raises:
        CloudError: no tag can have that value.

    """
    if len(value) > _TAG_LENGTH or not _TAG_SIGNS.fullmatch(value):
        raise CloudError(
            f"{key}: {value!r} cannot be the value of a tag on Tencent Cloud, which takes up to {_TAG_LENGTH} letters, "
            "digits, blanks and + - = . : / @ ( ) [ ] , ; > < _",
            code="TagValue",
        )
