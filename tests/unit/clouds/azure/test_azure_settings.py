"""The section `cloud.azure`: what is refused before anything is asked."""

import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.azure.client import default_credential
from gpuwatch.clouds.azure.settings import AzureSettings, SubscriptionSettings, TemplateSettings, with_ids
from gpuwatch.clouds.settings import CloudSettings, connect
from gpuwatch.runtime.clock import ManualClock
from tests.support.paths import ROOT

ID = "11111111-1111-4111-8111-111111111111"


def test_a_subscription_is_named_once_and_by_its_id() -> None:
    """A name is no id, and one subscription twice would be one fleet counted twice."""
    settings = AzureSettings(
        subscriptions={
            "a": SubscriptionSettings(id="Research"),
            "b": SubscriptionSettings(id=ID),
            "c": SubscriptionSettings(id=ID.upper()),
        }
    )

    wrong = [each.wrong for each in settings.contradictions()]

    assert wrong == [
        "'Research' is no subscription's id",
        "cloud.azure.subscriptions.c is the same subscription as cloud.azure.subscriptions.b",
    ]


def test_a_template_is_in_a_subscription_that_is_there() -> None:
    """By its name in the settings."""
    whole = TemplateSettings(body="/etc/gpu.json", resource_group="rg")
    settings = AzureSettings(
        subscriptions={"a": SubscriptionSettings(id=ID)},
        templates={
            "good": whole,
            "elsewhere": replace(whole, subscription="another"),
            "half": replace(whole, body=None),
        },
    )

    assert [found.wrong for found in settings.contradictions()] == [
        "'another' is not among cloud.azure.subscriptions",
        "cloud.azure.templates.half has no body",
    ]


def test_without_a_subscription_there_is_no_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty fleet would look like one; the environment's own subscription is taken."""
    monkeypatch.delenv("AZURE_SUBSCRIPTION_ID", raising=False)
    with pytest.raises(CloudError, match="no subscription is known"):
        connect(CloudSettings(provider="azure"), fleet="lab", clock=ManualClock())

    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", ID)
    assert with_ids({})["default"].id == ID
    assert with_ids({"a": SubscriptionSettings(regions=("eastus",))})["a"].id == ID
    connect(CloudSettings(provider="azure"), fleet="lab", clock=ManualClock())


def test_the_settings_load_no_sdk() -> None:
    """Every command reads them."""
    code = (
        "import sys, gpuwatch.clouds.settings; print([m for m in sys.modules if m.startswith(('azure', 'requests'))])"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.strip() == "[]"


def test_a_machine_is_started_by_its_id() -> None:
    """Azure's command line wants a path, and finds it; what is no id of Azure's is quoted for the shell."""
    assert AzureSettings.start_command(ID, "eastus") == (
        f"az vm start --ids $(az vm list --query \"[?vmId=='{ID}'].id\" -o tsv)"
    )
    odd = AzureSettings.start_command('"; reboot', None)
    assert shlex.split(odd.partition("$(")[2])[4] == "[?vmId=='\"; reboot'].id"


def test_the_roles_can_be_exported() -> None:
    """`gpuwatch export iam --provider azure` writes those of iam/azure/."""
    files = AzureSettings.policies(fleet="lab", regions=(), partition="aws", scopes=())

    roles = ("observe", "reclaim", "terminate", "scale", "launch", "shield", "scan")
    assert set(files) == {f"{role}.json" for role in roles}
    assert all((ROOT / "iam" / "azure" / name).read_text() == text for name, text in files.items())


@pytest.mark.parametrize("cloud", ["public", "china", "government"])
def test_each_national_cloud_has_its_own_authority(cloud: str) -> None:
    """No token of one is asked of another's directory."""
    assert default_credential(cloud) is not None
