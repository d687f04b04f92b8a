"""What is shown to the API server: a token from a file, or one that a program makes, each as long as it holds.

The protocol of such programs: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import base64
import binascii
import json
import os
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gpuwatch.clouds.errors import AuthFailedError
from gpuwatch.kubernetes.kubeconfig import Login, Plugin
from gpuwatch.runtime.clock import Clock

_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
# Kubelets renew a mounted token long before its end; it is read again as often as client-go does.
_FILE_SECONDS = 60.0
_EARLY = timedelta(seconds=60)
_TOKEN_PARTS = 3  # of a JSON Web Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What one request carries, and the client certificate of its connection where a program made one."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)


class Credentials:
    """Those of one login; any thread may ask."""

    def __init__(self, login: Login, clock: Clock, timeout_seconds: float) -> None:
        """Nothing is read or run yet."""
        self._login = login
        self._clock = clock
        self._timeout = timeout_seconds
        self._turn = threading.Lock()
        self._shown: Shown | None = None
        self._read_at = 0.0
        self._expires: datetime | None = None

    @property
    def renewable(self) -> bool:
        """Whether another credential may be had after this one was refused."""
        return self._login.plugin is not None or self._login.token_path is not None

    def show(self) -> Shown:
        """What to show now.

        Raises:
            AuthFailedError: no credential can be had.

        """
        with self._turn:
            if self._shown is None or self._old():
                self._shown, self._expires = self._make_credential()
                self._read_at = self._clock.monotonic()
            return self._shown

    def drop_refused(self, shown: Shown) -> None:
        """This one was refused (401): make another next time."""
        with self._turn:
            if self._shown is shown:
                self._shown = None

    def _old(self) -> bool:
        if self._login.token_path is not None:
            return self._clock.monotonic() - self._read_at >= _FILE_SECONDS
        return self._expires is not None and self._clock.now() >= self._expires - _EARLY

    def _make_credential(self) -> tuple[Shown, datetime | None]:
        login = self._login
        if login.plugin is not None:
            return _run(login.plugin, self._timeout)
        if login.token_path is not None:
            try:
                return _bearing(login.token_path.read_text(encoding="ascii").strip()), None
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or "it holds more than a token"
                raise AuthFailedError(f"{login.token_path} cannot be read: {why}", code="NoToken") from None
        if login.token is not None:
            return _bearing(login.token), None
        if login.basic is not None:
            pair = base64.b64encode(":".join(login.basic).encode()).decode()
            return Shown(headers={"Authorization": f"Basic {pair}"}), None
        return Shown(), None


def _bearing(token: str) -> Shown:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise AuthFailedError("the token for the API server is empty, or no printable ASCII", code="BadToken")
    return Shown(headers={"Authorization": f"Bearer {token}"})


def _run(plugin: Plugin, seconds: float) -> tuple[Shown, datetime | None]:
    """What the program prints, and until when it holds."""
    if plugin.api_version not in _API_VERSIONS:
        known = " and ".join(_API_VERSIONS)
        raise _plugin_error(plugin, f"its apiVersion {plugin.api_version!r} is not known; known are {known}")
    info: dict[str, Any] = {
        "apiVersion": plugin.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": False, **({"cluster": plugin.cluster_info} if plugin.cluster_info else {})},
    }
    environment = {**os.environ, **plugin.environment, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        done = subprocess.run(  # noqa: S603  the administrator's own kubeconfig names it
            [plugin.command, *plugin.arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError:
        raise _plugin_error(plugin, f"there is no such program. {plugin.hint}".strip()) from None
    except OSError as error:
        raise _plugin_error(plugin, f"it cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise _plugin_error(plugin, f"it did not end within {seconds:g}s (kubernetes.timeout)") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise _plugin_error(plugin, f"it ended with {done.returncode}: {(said or ['no word'])[-1][:200]}")
    return _parse_output(plugin, done.stdout)


def _parse_output(plugin: Plugin, output: bytes) -> tuple[Shown, datetime | None]:
    """The credential in a program's output, which is never repeated in an error."""
    try:
        status = json.loads(output)["status"]
        token, certificate, key = (status.get(each) for each in ("token", "clientCertificateData", "clientKeyData"))
        until = status.get("expirationTimestamp")
        expires = None if until is None else datetime.fromisoformat(until)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _plugin_error(plugin, "what it printed is no ExecCredential") from None
    if not token and not (certificate and key):
        raise _plugin_error(plugin, "it printed neither a token nor a certificate with its key")
    if expires is not None and expires.tzinfo is None:
        raise _plugin_error(plugin, "its expirationTimestamp has no time zone")
    headers = dict(_bearing(token).headers) if token else {}
    made = Shown(
        headers=headers,
        certificate=certificate.encode() if certificate else None,
        key=key.encode() if key else None,
    )
    return made, expires


def _plugin_error(plugin: Plugin, why: str) -> AuthFailedError:
    return AuthFailedError(f"the credential plugin {plugin.command} of the kubeconfig: {why}", code="PluginFailed")


def own_pod(token: str | None) -> str | None:
    """The uid of the pod that a service account's token was made for; None: it was made for none.

    https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#schema-for-service-account-private-claims
    """
    parts = (token or "").split(".")
    if len(parts) != _TOKEN_PARTS:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        uid = claims["kubernetes.io"]["pod"]["uid"]
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        return None
    return uid if isinstance(uid, str) else None
