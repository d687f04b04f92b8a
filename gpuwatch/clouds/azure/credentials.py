"""Credentials by azure-identity's own rules: environment, workload identity, managed identity, `az login`."""

import logging
import os

from azure.core.credentials import TokenCredential
from azure.identity import DefaultAzureCredential

from gpuwatch.clouds.azure.settings import AUTHORITIES

_AUTHORITY = "AZURE_AUTHORITY_HOST"

# It logs a paragraph about each way that did not work, at every try; the error that it raises is what people read.
logging.getLogger("azure.identity").setLevel(logging.ERROR)


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
