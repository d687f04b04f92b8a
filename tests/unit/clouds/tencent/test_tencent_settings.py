"""The section `cloud.tencent`: mistakes in it, and the command that people copy."""

import subprocess
import sys

import pytest

from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.clouds.tencent.settings import TencentSettings

ROLE = "qcs::cam::uin/100000000001:roleName/gpuwatch"


@pytest.mark.parametrize(
    ("arn", "number"),
    [
        (ROLE, "100000000001"),
        ("qcs::cam::uin/100000000001:role/4611686018427397919", "100000000001"),
        ("qcs::cam::uin/:roleName/gpuwatch", ""),
        ("arn:aws:iam::123456789012:role/gpuwatch", ""),
        ("gpuwatch", ""),
        ("qcs::cam::uin/100000000001:user/gpuwatch", ""),
    ],
)
def test_the_account_is_in_the_name_of_a_role(arn: str, number: str) -> None:
    """Anything else is no role."""
    assert TencentSettings.account_of(arn) == number


def test_a_role_that_cannot_exist_and_an_account_twice_are_mistakes() -> None:
    """Each with the key, and what would be right."""
    settings = TencentSettings(
        accounts={
            "a": AccountSettings(role_arn=ROLE),
            "b": AccountSettings(role_arn=ROLE),
            "c": AccountSettings(role_arn="gpuwatch"),
            "d": AccountSettings(),
        }
    )

    found = {each.keys[0][3]: each.wrong for each in settings.contradictions()}

    assert found == {
        "b": "cloud.tencent.accounts.b is the same account as cloud.tencent.accounts.a",
        "c": "'gpuwatch' is not the name of a CAM role",
    }


def test_every_region_is_named_with_its_key() -> None:
    """For the messages."""
    settings = TencentSettings(accounts={"a": AccountSettings(regions=("ap-guangzhou",))})

    assert list(settings.regions_named()) == [(("cloud", "tencent", "accounts", "a", "regions"), "ap-guangzhou")]


@pytest.mark.parametrize("node_id", ["ins-12345678", "'ins odd'"])
def test_the_command_that_starts_a_machine_is_one_for_a_shell(node_id: str) -> None:
    """Tccli takes a list as JSON; the id comes quoted."""
    command = TencentSettings.start_command(node_id, "ap-guangzhou")

    program = "import json, sys; print(json.loads(sys.argv[4])[0], *sys.argv[1:4], *sys.argv[5:])"
    shell = f'tccli() {{ "{sys.executable}" -c "{program}" "$@"; }}; {command}'
    said = subprocess.run(["bash", "-c", shell], check=True, capture_output=True, text=True).stdout
    assert said == f"{node_id.strip(chr(39))} cvm StartInstances --InstanceIds --region ap-guangzhou\n"


def test_settings_load_no_sdk() -> None:
    """`gpuwatch config check` works without the extra."""
    program = "import sys, gpuwatch.clouds.settings; print('tencentcloud' in sys.modules, 'requests' in sys.modules)"

    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout

    assert said == "False False\n"
