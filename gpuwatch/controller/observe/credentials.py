"""How the controller proves who it is to agents and Prometheus, and they to it: TLS, no secret in the clear.

Files are read again when they change. No password is ever part of a message.
"""

import base64
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gpuwatch.controller.observe.agent_errors import connection_text
from gpuwatch.controller.observe.settings import ObserveSettings, PromqlSettings
from gpuwatch.runtime.reloading_file import ReloadingFile
from gpuwatch.runtime.secrets import read_secret, version_of
from gpuwatch.runtime.tls import TlsFiles, client_context

# Ends of handshakes as OpenSSL calls them, and what they mean for the settings.
_REASONS = {
    "CERTIFICATE_VERIFY_FAILED": "its agent's certificate is not believed ({detail}); signals.tls_ca must hold the CA "
    "that signed it, and the certificate the address or name that is asked, or signals.tls_server_name",
    "ALERT_CERTIFICATE_EXPIRED": "its agent says that our certificate is not valid now; renew signals.tls_certificate",
    "CERTIFICATE_REQUIRED": "its agent wants a client certificate; set signals.tls_certificate and signals.tls_key",
    "UNKNOWN_CA": "its agent does not know the CA of our certificate; compare signals.tls_certificate with the agent's "
    "tls_client_ca",
    "WRONG_VERSION_NUMBER": "its agent does not speak TLS; set signals.scheme to http, or give the agent a certificate",
}
_REVOKED = 23  # X509_V_ERR_CERT_REVOKED of OpenSSL
_JOIN_AGAIN = (
    "its agent's certificate was revoked; `gpuwatch join token --node` makes a token with which it joins again "
    "(docs/join.md)"
)
_STATUS = {
    400: "its agent answered HTTP 400: it may speak https only; see signals.scheme",
    401: "its agent refused us (HTTP 401); signals.username and signals.password_file must name a user of the agent",
    403: "its agent does not let us in (HTTP 403); see agent.tls_client_names",
    421: "its agent does not know this host name (HTTP 421); use its address, or add the name to agent.allowed_hosts",
    429: "its agent has seen too many connections or wrong passwords from this address (HTTP 429)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What to show agents in one round. Its text holds no secret: `authorization` is left out."""

    context: ssl.SSLContext | bool  # True: checked as every https is
    authorization: str | None
    in_the_clear: str = ""  # the error where it would be sent without TLS

    def __repr__(self) -> str:
        """Return a text without the password."""
        return "Credentials(…)"

    def header(self, base_url: str) -> dict[str, str]:
        """The header for that agent.

        Raises:
            ValueError: it would carry the password over a network in the clear.

        """
        if self.authorization is None:
            return {}
        parts = urlsplit(base_url)
        if parts.scheme != "https" and not _is_loopback(parts.hostname or ""):
            raise ValueError(self.in_the_clear)
        return {"Authorization": self.authorization}


def credentials_of(settings: ObserveSettings | PromqlSettings) -> ReloadingFile[Credentials]:
    """Made once, and again when a file changes.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not what it should be.

    """
    files = files_of(settings)
    section = files.section
    bearer = None if isinstance(settings, ObserveSettings) else settings.bearer_file
    secret, kind = (bearer, "token") if bearer is not None else (settings.password_file, "password")
    key = f"{section}.{'bearer' if bearer is not None else 'password'}_file"
    remedy = "signals.scheme" if section == "signals" else "another signals.promql.url"

    def make() -> Credentials:
        context = client_context(files) if files.paths else True
        authorization = None
        if secret is not None:
            read = _secret(secret, key, kind)
            authorization = _bearer(read) if bearer is not None else _basic(settings.username, read)
        in_the_clear = f"the {kind} of {key} goes out over https only; set {remedy}"
        return Credentials(context=context, authorization=authorization, in_the_clear=in_the_clear)

    if secret is None:
        return ReloadingFile(files.paths, make)
    return ReloadingFile([*files.paths, Path(secret)], make, lambda: version_of(secret))


def files_of(settings: ObserveSettings | PromqlSettings) -> TlsFiles:
    """The files of its TLS."""
    return TlsFiles(
        section="signals" if isinstance(settings, ObserveSettings) else "signals.promql",
        certificate=_path(settings.tls_certificate),
        key=_path(settings.tls_key),
        ca=_path(settings.tls_ca),
    )


def refusal_of(status: int) -> str:
    """An answer other than 200 in words."""
    return _STATUS.get(status, f"its agent answered HTTP {status}")


def failure_of(error: BaseException) -> str:
    """Why an agent could not be asked, with what to look at where TLS is the reason."""
    found: BaseException | None = error
    while found is not None:
        # aiohttp's errors are ssl.SSLErrors too, without what makes one: that is in the error that they wrap.
        found = getattr(found, "certificate_error", found)
        code = getattr(found, "reason", None) if isinstance(found, ssl.SSLError) else None
        reason = next((each for each in _REASONS if each in (code or "")), None)
        if reason is not None and getattr(found, "verify_code", None) == _REVOKED:
            return _JOIN_AGAIN
        if reason is not None:
            return _REASONS[reason].format(detail=getattr(found, "verify_message", reason))
        found = found.__cause__ or found.__context__
    return connection_text(error)


def _secret(file: str, key: str, kind: str) -> bytes:
    """What the file holds, or what the reference leads to; the end of its last line is no part of it."""
    try:
        secret = read_secret(file).rstrip(b"\r\n")
    except OSError as error:
        raise OSError(f"{key}: {file} cannot be read: {error.strerror}") from error
    if not secret:
        raise ValueError(f"{key}: {file} is empty; write the {kind} into it")
    return secret


def _basic(username: str | None, password: bytes) -> str | None:
    """The value of the header (RFC 7617)."""
    if username is None:
        return None
    return "Basic " + base64.b64encode(username.encode() + b":" + password).decode()


def _bearer(token: bytes) -> str:
    """The value of the header (RFC 6750)."""
    try:
        text = token.decode("ascii")
    except UnicodeDecodeError:
        text = " "
    if not text.isprintable() or " " in text:
        raise ValueError("signals.promql.bearer_file holds more than one token of printable ASCII") from None
    return f"Bearer {text}"


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
