"""Google's credentials by google-auth, and the token that they give; a token is fetched before a change, never within.

Without a file they are found as every program of Google finds them: GOOGLE_APPLICATION_CREDENTIALS, the file of
`gcloud auth application-default login`, the service account of the machine.
"""

import json
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import google.auth
import google.auth.transport.urllib3
import urllib3
from google.auth import compute_engine, exceptions, external_account, impersonated_credentials
from google.oauth2 import credentials as user_credentials
from google.oauth2 import service_account

from gpuwatch.clouds import AuthFailedError, ClockSkewError, CloudError, CloudUnavailableError
from gpuwatch.clouds.errors import ADVICE
from gpuwatch.clouds.recording import note_exchange
from gpuwatch.clouds.sending import attempt_begins
from gpuwatch.clouds.watched_pools import POOLS
from gpuwatch.runtime.network_errors import network_text
from gpuwatch.runtime.secrets import read_secret_text

# HTTP to Google's APIs by urllib3, which google-auth uses for its tokens too.
#
# A change leaves only while its permit holds (`gpuwatch.clouds.sending`), and nothing is sent twice: urllib3's retries
# are off, and no redirect is followed.

CONNECT_SECONDS, READ_SECONDS = 5.0, 20.0
_CONNECTIONS = 16


class Wire:
    """The connections to one address, through the proxy that the environment names for it."""

    def __init__(
        self, url: str, *, connect_seconds: float = CONNECT_SECONDS, read_seconds: float = READ_SECONDS
    ) -> None:
        """Nothing is opened yet."""
        self._options = {
            "timeout": urllib3.Timeout(connect=connect_seconds, read=read_seconds),
            "retries": False,
            "maxsize": _CONNECTIONS,
        }
        self.manager = self._manager(url)
        self.manager.pool_classes_by_scheme = POOLS

    def _manager(self, url: str) -> urllib3.PoolManager:
        parts = urlsplit(url)
        options: dict[str, Any] = dict(self._options)
        if parts.scheme == "https":
            options["ssl_context"] = ssl.create_default_context()
        proxy = getproxies().get(parts.scheme)
        if proxy and not proxy_bypass(parts.hostname or ""):
            return urllib3.ProxyManager(proxy, **options)
        return urllib3.PoolManager(**options)

    def ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> "Heard":
        """Send one request, once.

        Raises:
            PermitExpiredError: the permit of `sending` does not hold.
            CloudUnavailableError: no whole answer came.

        """
        attempt_begins()
        try:
            answer = self.manager.request(method, url, headers=dict(headers), body=body, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            name = type(error).__name__
            words = network_text(error, url) or f"no usable answer ({name})"
            raise CloudUnavailableError(words, code=name) from None
        told = {name.lower(): value for name, value in answer.headers.items()}
        note_exchange("gcp", method, url, status=answer.status, headers=told, body=answer.data, sent=body)
        return Heard(answer.status, told, answer.data)


class Heard:
    """An answer as it came; the names of headers are in small letters."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body


_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
# Of a service account's key, whose request for a token is signed by this machine's clock: "Invalid JWT: Token must be
# a short-lived token (60 minutes) and in a reasonable timeframe".
_NOT_OF_NOW = "reasonable timeframe"
_TOKENS = "https://oauth2.googleapis.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What proves who we are: the id of a service account's key, or something that ends by itself (None).

    `unknown` says why neither is known.
    """

    account: str | None
    key_id: str | None = None
    unknown: str = ""


class Credentials:
    """One identity for all projects; nothing is read or asked before the first call."""

    def __init__(self, file: Path | None = None, *, given: Any = None) -> None:  # noqa: ANN401  google-auth's own
        """`given` are credentials that somebody has made already."""
        self._file = file
        self._found: tuple[Any, str | None] | None = None if given is None else (given, None)
        self._lock = threading.Lock()
        self._wire = Wire(_TOKENS)

    @property
    def project(self) -> str | None:
        """The project that the credentials name.

        Raises:
            AuthFailedError: there are no credentials.

        """
        with self._lock:
            return self._load()[1]

    @property
    def name(self) -> str | None:
        """The service account's address; None: they are a person's, and do not tell."""
        with self._lock:
            found = self._load()[0]
        name = getattr(found, "service_account_email", None)
        return name if isinstance(name, str) and "@" in name else None

    @property
    def proof(self) -> Proof:
        """Whether a long-lived key proves who we are, also where it only impersonates another account.

        Raises:
            AuthFailedError: there are no credentials.

        """
        with self._lock:
            found = self._load()[0]
        while isinstance(found, impersonated_credentials.Credentials):
            found = found._source_credentials  # noqa: SLF001  google-auth shows it to nobody
        name = getattr(found, "service_account_email", None)
        account = name if isinstance(name, str) and "@" in name else None
        if isinstance(found, service_account.Credentials):
            return Proof(account=account, key_id=str(found.signer.key_id))
        if isinstance(found, user_credentials.Credentials):
            return Proof(account=account, unknown="they are a person's login, and Google does not say how old it is")
        if isinstance(found, compute_engine.Credentials | external_account.Credentials):
            return Proof(account=account)
        return Proof(account=account, unknown=f"they are of another kind ({type(found).__name__})")

    def headers(self) -> dict[str, str]:
        """What proves who asks; the token is renewed before it expires.

        Raises:
            AuthFailedError: there are no credentials, or Google does not take them.
            CloudUnavailableError: no token could be fetched.

        """
        headers: dict[str, str] = {}
        with self._lock:
            found, _ = self._load()
            try:
                found.before_request(_request(self._wire), "GET", "", headers)
            except exceptions.TransportError as error:
                raise CloudUnavailableError("no token could be fetched", code=type(error).__name__) from None
            except exceptions.GoogleAuthError as error:  # its text may quote what the token's service answered
                if getattr(error, "retryable", False):
                    raise CloudUnavailableError("no token could be fetched", code=type(error).__name__) from None
                raise _unusable(error) from None
        return headers

    def forget(self) -> None:
        """Google does not take the token any more: the next call fetches another."""
        with self._lock:
            if self._found is not None and getattr(self._found[0], "token", None) and self._found[0].expiry is not None:
                self._found[0].token = None

    def _load(self) -> tuple[Any, str | None]:
        if self._found is None:
            try:
                if self._file is None:
                    self._found = google.auth.default(scopes=_SCOPES)
                else:
                    self._found = _from_file(self._file)
            except (exceptions.GoogleAuthError, OSError, ValueError) as error:
                raise _unusable(error) from None
        return self._found


def _request(wire: Wire) -> Any:  # noqa: ANN401  google-auth's own
    return google.auth.transport.urllib3.Request(wire.manager)  # type: ignore[no-untyped-call]


def _from_file(file: Path) -> tuple[Any, str | None]:
    """A service account's key; google-auth advises against guessing the kind of a file that somebody names."""
    make: Any = service_account.Credentials.from_service_account_info
    found = make(json.loads(read_secret_text(str(file))), scopes=_SCOPES)
    return found, found.project_id


def _unusable(error: Exception) -> CloudError:
    name = type(error).__name__
    if _NOT_OF_NOW in str(error):
        return ClockSkewError(f"Google gives no token to a request of this time; {ADVICE}", code=name)
    return AuthFailedError(
        f"no usable credentials of Google Cloud ({name}); set GOOGLE_APPLICATION_CREDENTIALS or "
        "cloud.gcp.credentials_file, give this machine a service account, or run `gcloud auth application-default "
        "login`. `gcloud auth application-default print-access-token` tries them",
        code=name,
    )
