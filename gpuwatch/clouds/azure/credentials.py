"""Credentials by azure-identity's own rules: environment, workload identity, managed identity, `az login`."""

import os

from azure.core.credentials import TokenCredential
from azure.identity import DefaultAzureCredential

from gpuwatch.clouds.azure.settings import AUTHORITIES

_AUTHORITY = "AZURE_AUTHORITY_HOST"


def default_credential(national_cloud: str) -> TokenCredential:
    """The chain; nothing is asked yet. A managed identity comes before the tools of a person who is logged in."""
    authority = os.environ.get(_AUTHORITY) or AUTHORITIES[national_cloud]
    own = not any(authority.removeprefix("https://").startswith(known) for known in AUTHORITIES.values())
    return DefaultAzureCredential(
        authority=authority,
        disable_instance_discovery=own,  # of a private cloud, which Microsoft's own directory does not know
        exclude_shared_token_cache_credential=True,
        exclude_visual_studio_code_credential=True,
        exclude_interactive_browser_credential=True,
    )
