"""The section `cloud.alibaba`."""

import subprocess
import sys

import pytest

from gpuwatch.clouds.alibaba.settings import AlibabaSettings
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.clouds.settings import CLOUDS, CloudSettings, contradictions

ROLE = "acs:ram::1234567890123456:role/gpuwatch"


def test_the_section_is_in_the_table_of_clouds() -> None:
    """By its name, which is also the extra's."""
    assert CLOUDS["alibaba"] is AlibabaSettings
    assert CloudSettings(provider="alibaba", regions=("cn-shanghai",)).own == AlibabaSettings()


def test_the_settings_load_no_sdk() -> None:
    """A configuration is judged without the extra."""
    code = (
        "import sys, gpuwatch.clouds.settings; print([m for m in sys.modules if m.startswith(('alibabacloud', 'Tea'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    assert out.strip() == "[]"


@pytest.mark.parametrize(
    "arn",
    ["gpuwatch", "arn:aws:iam::123456789012:role/gpuwatch", "acs:ram::x:role/y", "acs:ram::1234:user/gpuwatch"],
)
def test_what_is_no_role_is_told_with_its_key(arn: str) -> None:
    """And what would be right."""
    settings = CloudSettings(
        provider="alibaba", alibaba=AlibabaSettings(accounts={"prod": AccountSettings(role_arn=arn)})
    )

    (found,) = contradictions(settings)

    assert found.keys == (("cloud", "alibaba", "accounts", "prod", "role_arn"),)
    assert repr(arn) in found.wrong
    assert "acs:ram::" in found.right


def test_two_entries_of_one_account_are_told() -> None:
    """Its machines would be listed twice."""
    accounts = {"a": AccountSettings(role_arn=ROLE), "b": AccountSettings(role_arn=f"{ROLE}-2")}

    (found,) = contradictions(CloudSettings(provider="alibaba", alibaba=AlibabaSettings(accounts=accounts)))

    assert "accounts.b is the same account as cloud.alibaba.accounts.a" in found.wrong


def test_the_command_for_people_is_alibabas_own() -> None:
    """It starts what was stopped."""
    assert (
        AlibabaSettings.start_command("i-bp1", "cn-shanghai")
        == "aliyun ecs StartInstance --InstanceId i-bp1 --RegionId cn-shanghai"
    )
    assert AlibabaSettings.start_command("i-bp1", None) == "aliyun ecs StartInstance --InstanceId i-bp1"
