"""TLS contexts for both ends, from files that the configuration names: 1.2 at least, 1.3 wherever both can or must.

Every error names the setting and the file; OpenSSL's own messages rarely do.
"""

import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_REVOCATIONS = b"-----BEGIN X509 CRL-----"
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # forward secret, as all of TLS 1.3 are


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Files in PEM, and whether TLS 1.2 is refused; `section` and the `_key` names appear in errors."""

    section: str
    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    ca_key: str = "tls_ca"
    only_1_3: bool = False

    @property
    def paths(self) -> tuple[Path, ...]:
        """Those that are set."""
        return tuple(path for path in (self.certificate, self.key, self.ca) if path is not None)


def server_context(files: TlsFiles) -> "ssl.SSLContext":
    """For a server; with a CA, clients must show a certificate from it.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not what it should be.

    """
    context = _hardened_context(ssl.PROTOCOL_TLS_SERVER)
    if files.only_1_3:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    _identify(context, files)
    if files.ca is not None:
        _trust(context, files)
        context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["http/1.1"])
    context.sslsocket_class = _server_socket()
    return context


def client_context(files: TlsFiles) -> "ssl.SSLContext":
    """For a client, which checks the server's name; without a CA those of the system are trusted.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not what it should be.

    """
    context = _hardened_context(ssl.PROTOCOL_TLS_CLIENT)
    if files.ca is None:
        context.load_default_certs()
    else:
        _trust(context, files)
    if files.certificate is not None:
        _identify(context, files)
    return context


@cache
def _server_socket() -> "type[ssl.SSLSocket]":
    """The class of a server's connections; made when it is needed, for `ssl` is loaded only then."""

    class ServerSocket(ssl.SSLSocket):
        """Closes its connection at its own end.

        `wrap_socket` fails without closing it where the client has already reset the connection.
        """

        def __del__(self) -> None:
            """Close it; nothing happens to one that is closed."""
            self.close()

    return ServerSocket


def _hardened_context(side: int) -> "ssl.SSLContext":
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def _identify(context: "ssl.SSLContext", files: TlsFiles) -> None:
    """Load the certificate and its key."""
    certificate, key = files.certificate, files.key
    if certificate is None or key is None:
        raise ValueError(f"{files.section}.tls_certificate and {files.section}.tls_key are set together or not at all")
    _check_readable(f"{files.section}.tls_certificate", certificate)
    _check_readable(f"{files.section}.tls_key", key)
    try:
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            wrong = f"{files.section}.tls_key {key} is not the key of {files.section}.tls_certificate {certificate}"
            raise ValueError(wrong) from error
        wrong = f"{certificate} and {key} are not a certificate and its key in PEM ({error.reason or error})"
        raise ValueError(f"{files.section}.tls_certificate, {files.section}.tls_key: {wrong}") from error
    except _EncryptedError as error:
        wrong = f"{key} is encrypted, and a service cannot type its passphrase; write it without one"
        raise ValueError(f"{files.section}.tls_key: {wrong}") from error


def _trust(context: "ssl.SSLContext", files: TlsFiles) -> None:
    """Load the CA that signs the other side's certificate."""
    if files.ca is None:
        return
    name = f"{files.section}.{files.ca_key}"
    _check_readable(name, files.ca)
    try:
        context.load_verify_locations(files.ca)
    except ssl.SSLError as error:
        raise ValueError(f"{name}: {files.ca} holds no certificate in PEM ({error.reason or error})") from error
    if _REVOCATIONS in files.ca.read_bytes():  # OpenSSL has read the list, and looks at it only when it is told to
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _check_readable(key: str, path: Path) -> None:
    """Say which file it is that cannot be read, which OpenSSL does not."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise OSError(f"{key}: {path} cannot be read: {error.strerror}") from error


class _EncryptedError(Exception):
    """OpenSSL asked for a passphrase."""


def _no_passphrase() -> str:
    raise _EncryptedError
