"""Who asks Tencent Cloud: a key in a file, the SDK's own credentials, or a role that is assumed with them.

The SDK signs each request with what `get_credential_info` gives at that moment. The permit of a change is checked
after that.
"""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

from tencentcloud.common.credential import (
    CVMRoleCredential,
    DefaultTkeOIDCRoleArnProvider,
    EnvironmentVariableCredential,
    ProfileCredential,
)
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException

from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.clouds.renewal import Renewable
from gpuwatch.clouds.sending import apart
from gpuwatch.clouds.tencent.errors import NO_CREDENTIALS, asking
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.json_document import read_json
from gpuwatch.runtime.reloading_file import ReloadingFile
from gpuwatch.runtime.secrets import read_secret_text, version_of

_METADATA_SECONDS = 5.0
_DIRECT = build_opener(ProxyHandler({}))  # a proxy would answer with the role of its own machine
_ROLE_SECONDS = 7200  # for which a role is assumed
_EARLY_SECONDS = 600.0  # before its end it is assumed anew
_SESSION_NAME = "gpuwatch"  # in CloudAudit

Key = tuple[str, str, str | None]  # id, secret, token


class Keys(Protocol):
    """What the SDK wants of credentials."""

    def get_credential_info(self) -> Key:
        """The key of this moment."""
        ...


class Signer(Keys, Protocol):
    """The same, and what can be done where the cloud does not take a key any more."""

    def renew(self) -> bool:
        """Look for another key than that of this thread's last request; whether there is one."""
        ...


class Renewed:
    """Credentials that are made again where the cloud says that their token has ended."""

    def __init__(self, make: Callable[[], Keys], clock: Clock) -> None:
        """Nothing is asked yet."""
        self._own: Renewable[Keys, Key] = Renewable(make(), lambda _: make(), _key_of, clock)
        self._given = threading.local()

    def get_credential_info(self) -> Key:
        """The key of this moment; raises what the credentials raise."""
        key = self._given.key = self._own.found.get_credential_info()
        return key

    def renew(self) -> bool:
        """Look for another key than that of this thread's last request."""
        key: Key | None = getattr(self._given, "key", None)
        with apart():
            return key is not None and self._own.renew(key)


def _key_of(keys: Keys) -> Key:
    with asking("credentials"):
        return keys.get_credential_info()


@dataclass(frozen=True, slots=True)
class FixedKey:
    """A key pair that does not change."""

    id: str
    secret: str = field(repr=False)

    def get_credential_info(self) -> Key:
        """Return the key pair as it is."""
        return self.id, self.secret, None

    def renew(self) -> bool:
        """There is no other."""
        return False


class KeyFile:
    """ID:SECRET in a file, or where a reference leads; it is read again when it changes."""

    def __init__(self, named: str) -> None:
        self._named = named
        self._file: ReloadingFile[Key] | None = None

    def get_credential_info(self) -> Key:
        """Raises the SDK's exception where the file holds no key."""
        try:
            if self._file is None:
                self._file = ReloadingFile([Path(self._named)], self._read, lambda: version_of(self._named))
            found = self._file.value
        except OSError as error:
            raise TencentCloudSDKException(NO_CREDENTIALS, f"{self._named} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise TencentCloudSDKException(NO_CREDENTIALS, str(error)) from None
        return found

    def _read(self) -> Key:
        key_id, _, secret = read_secret_text(self._named).partition(":")
        if not key_id or not secret:
            raise ValueError(f"{self._named} does not hold a line such as ID:SECRET")
        return key_id, secret, None


class OwnCredentials:
    """The SDK's chain: environment, profile, the role of this machine, the role of this pod in TKE."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._found: Keys | None = None

    def get_credential_info(self) -> Key:
        """Raises the SDK's exception where there are no credentials."""
        with self._turn:
            if self._found is None:
                self._found = _chain()
        return self._found.get_credential_info()


def _chain() -> Keys:
    """As DefaultCredentialProvider of the SDK; the pod first, since its machine may have a role as well."""
    found: Keys | None = EnvironmentVariableCredential().get_credential() or ProfileCredential().get_credential()
    if found is not None:
        return found
    if "TKE_ROLE_ARN" in os.environ:
        pod: Keys = DefaultTkeOIDCRoleArnProvider().get_credential()
        return pod
    return _MachineRole()


_NOWHERE = "neither in the environment (TENCENTCLOUD_SECRET_ID), nor in ~/.tencentcloud/credentials, nor by a role"


class _MachineRole(CVMRoleCredential):  # type: ignore[misc]  # the SDK ships no types
    """The role of this machine. The SDK's own class asks without a time-out and hides that it had no answer."""

    _name = ""

    def get_credential_info(self) -> Key:
        """The role's key of this moment; raises the SDK's exception where there is no answer."""
        try:
            key: Key = super().get_credential_info()
        except (OSError, ValueError, KeyError) as error:
            why = f"there are no credentials, {_NOWHERE} ({type(error).__name__})"
            raise TencentCloudSDKException(NO_CREDENTIALS, why) from None
        return key

    def get_role_name(self) -> str:
        """As the machine's metadata service names it."""
        if not self._name:
            self._name = self._ask_metadata("").strip()
        return self._name

    def update_credential(self) -> None:
        """New credentials, some minutes before the old ones end."""
        if not self._need_refresh():
            return
        answer = read_json(self._ask_metadata(quote(self.get_role_name())))
        self._secret_id, self._secret_key = answer["TmpSecretId"], answer["TmpSecretKey"]
        self._token, self._expired_ts = answer["Token"], answer["ExpiredTime"]

    def _ask_metadata(self, name: str) -> str:
        with _DIRECT.open(self._role_endpoint + name, timeout=_METADATA_SECONDS) as answer:
            text: str = answer.read().decode("utf-8")
            return text


def own_credentials(key_file: str | None, clock: Clock) -> Signer:
    """Those of the file, or those that the SDK finds; nothing is asked yet."""
    return Renewed(lambda: OwnCredentials() if key_file is None else KeyFile(key_file), clock)


class AssumedRole:
    """The credentials of a role in another account: asked for when they are first used, and again before they end."""

    def __init__(
        self, account: AccountSettings, ask: Callable[[Mapping[str, Any]], Mapping[str, Any]], clock: Clock
    ) -> None:
        """`ask` is AssumeRole, as the credentials that may assume it. Nothing is asked yet."""
        self._account, self._ask, self._clock = account, ask, clock
        self._turn = threading.Lock()
        self._key: Key | None = None
        self._ends_at = 0.0

    def get_credential_info(self) -> Key:
        """The role's key of this moment; raises CloudError where there is no answer."""
        with self._turn, apart():
            now = self._clock.now().timestamp()
            if self._key is None or now >= self._ends_at - _EARLY_SECONDS:
                self._key, self._ends_at = self._assume_role()
            return self._key

    def _assume_role(self) -> tuple[Key, float]:
        """Return a role's key and when it ends. Source: STS AssumeRole."""
        wanted: dict[str, Any] = {
            "RoleArn": self._account.role_arn,
            "RoleSessionName": _SESSION_NAME,
            "DurationSeconds": _ROLE_SECONDS,
        }
        if self._account.external_id:
            wanted["ExternalId"] = self._account.external_id
        answer = self._ask(wanted)
        key = answer["Credentials"]
        return (key["TmpSecretId"], key["TmpSecretKey"], key["Token"]), float(answer["ExpiredTime"])
