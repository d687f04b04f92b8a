"""Secrets in a cloud's own stores: Parameter Store and Secrets Manager of AWS."""

from dataclasses import dataclass
from importlib import import_module

from gpuwatch.runtime.secrets import unread

# Store -> what asks it; loaded when a reference names the store, because its SDK is an extra.
_STORES = {"ssm": "gpuwatch.clouds.aws.secrets", "secretsmanager": "gpuwatch.clouds.aws.secrets"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretStores:
    """Whose stores are asked, and where; None is the SDK's own default."""

    profile: str | None = None
    region: str | None = None
    endpoint_url: str | None = None

    def fetch(self, store: str, name: str) -> bytes:
        """The secret; raises OSError."""
        try:
            fetched = import_module(_STORES[store]).fetched
        except ImportError as error:
            raise unread(f"{store}:{name}", f"a part is missing ({error}); pip install 'gpuwatch[aws]'") from None
        made: bytes = fetched(store, name, profile=self.profile, region=self.region, endpoint_url=self.endpoint_url)
        return made
