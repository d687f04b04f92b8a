"""HTTP to an API server by urllib3: whole answers, and streams of lines.

A change leaves only while its permit holds (`gpuwatch.clouds.sending`). Nothing is sent twice: urllib3's retries are
off, and no redirect is followed.
"""

import contextlib
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from gpuwatch.clouds.errors import AuthFailedError, CloudUnavailableError
from gpuwatch.clouds.sending import attempt_begins
from gpuwatch.clouds.watched_pools import POOLS
from gpuwatch.kubernetes.credentials import Credentials, Shown
from gpuwatch.kubernetes.kubeconfig import Login
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.network_errors import network_text

_CONNECTIONS = 16  # a stream for each kind of object, and some for questions
_PIECE_BYTES = 65_536


class Stream:
    """The lines of an answer that goes on, as they come."""

    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        """Nothing is read yet."""
        self.status = answer.status
        self._answer = answer

    def body(self) -> bytes:
        """All of it, where it is a refusal."""
        with self:
            return self._answer.data

    def lines(self) -> Iterator[bytes]:
        """Each line that is whole.

        Raises:
            CloudUnavailableError: the stream broke, or there was nothing to read for too long.

        """
        rest = b""
        try:
            for piece in self._answer.stream(_PIECE_BYTES):
                *whole, rest = (rest + piece).split(b"\n")
                yield from (line for line in whole if line)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # ValueError: `stop` closed it while it was being read.
            raise CloudUnavailableError(f"the stream broke ({type(error).__name__})", code="BrokenStream") from None

    def stop(self) -> None:
        """Let its reader stop; any thread may ask."""
        try:
            self._answer.shutdown()
        except (OSError, ValueError, AttributeError, urllib3.exceptions.HTTPError):
            return  # it has ended

    def __enter__(self) -> Self:
        """Use it, then close it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close its connection: what is left in it is of no use."""
        self._answer.close()


class Wire:
    """The connections of one login. `timeout_seconds` holds for opening one, and for each wait for bytes."""

    def __init__(self, login: Login, clock: Clock, timeout_seconds: float) -> None:
        """Nothing is opened yet.

        Raises:
            AuthFailedError: the CA, or the client certificate with its key, is no PEM.

        """
        self.server = login.server
        self.behind_seconds = 0.0  # how far the API server's clock was behind ours in its newest answer
        self._clock = clock
        self.credentials = Credentials(login, clock, timeout_seconds)
        self._login = login
        self._seconds = timeout_seconds
        self._managers: dict[bytes | None, urllib3.PoolManager] = {None: self._manager(login.certificate, login.key)}

    def ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None, shown: Shown
    ) -> tuple[int, bytes]:
        """One request, sent once: status and body of its answer.

        Raises:
            PermitExpiredError: the permit of `sending` does not hold.
            CloudUnavailableError: no whole answer came.

        """
        attempt_begins()
        try:
            answer = self._pool_of(shown).request(
                method, self.server + path, headers={**headers, **shown.headers}, body=body, redirect=False
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _silence(error) from None
        self._compare(answer)
        return answer.status, answer.data

    def stream(self, path: str, headers: Mapping[str, str], shown: Shown, silence_seconds: float) -> Stream:
        """An answer that goes on until the server ends it; raises as `ask`."""
        try:
            answer = self._pool_of(shown).request(
                "GET",
                self.server + path,
                headers={**headers, **shown.headers},
                redirect=False,
                preload_content=False,
                timeout=urllib3.Timeout(connect=self._seconds, read=silence_seconds),
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _silence(error) from None
        self._compare(answer)
        return Stream(answer)

    def _compare(self, answer: urllib3.BaseHTTPResponse) -> None:
        """Its clock and ours; an answer without a date says nothing."""
        with contextlib.suppress(ValueError):
            date = parsedate_to_datetime(answer.headers.get("Date", ""))
            self.behind_seconds = (self._clock.now() - date.astimezone(UTC)).total_seconds()

    def _pool_of(self, shown: Shown) -> urllib3.PoolManager:
        """The connections that show this certificate: a program may make one."""
        found = self._managers.get(shown.certificate)
        if found is None:
            found = self._manager(shown.certificate, shown.key)
            self._managers = {None: self._managers[None], shown.certificate: found}
        return found

    def _manager(self, certificate: bytes | None, key: bytes | None) -> urllib3.PoolManager:
        parts = urlsplit(self.server)
        options: dict[str, Any] = {
            "timeout": urllib3.Timeout(connect=self._seconds, read=self._seconds),
            "retries": False,
            "maxsize": _CONNECTIONS,
        }
        if parts.scheme == "https":
            options["ssl_context"] = _context(self._login, certificate, key)
            if self._login.server_name is not None:
                options |= {"server_hostname": self._login.server_name, "assert_hostname": self._login.server_name}
            if self._login.insecure:
                options |= {"cert_reqs": "CERT_NONE", "assert_hostname": False}
        proxy = self._login.proxy or getproxies().get(parts.scheme)
        bypassed = self._login.proxy is None and proxy_bypass(parts.hostname or "")
        manager = urllib3.ProxyManager(proxy, **options) if proxy and not bypassed else urllib3.PoolManager(**options)
        manager.pool_classes_by_scheme = POOLS
        return manager


def _context(login: Login, certificate: bytes | None, key: bytes | None) -> ssl.SSLContext:
    """Trusts the cluster's CA alone, where there is one. Strict X.509 is off: clusters' own CAs are rarely that."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if login.ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cadata=login.ca.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise AuthFailedError("the certificate-authority of the API server is no PEM", code="BadCA") from None
    if login.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None and key is not None:
        # OpenSSL reads certificates of its own from files alone.
        with tempfile.TemporaryDirectory() as folder:
            both = Path(folder, "client.pem")
            both.touch(mode=0o600)
            both.write_bytes(certificate + b"\n" + key)
            try:
                context.load_cert_chain(both, password=lambda: "")
            except (ssl.SSLError, OSError):
                wrong = "the client certificate for the API server and its key do not fit, or are no PEM"
                raise AuthFailedError(wrong, code="BadCertificate") from None
    return context


def _silence(error: Exception) -> CloudUnavailableError | AuthFailedError:
    """No answer; a certificate that is not believed says so, for people can mend it."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, ssl.SSLCertVerificationError):
            wrong = f"the API server's certificate is not believed: {found.verify_message}"
            return CloudUnavailableError(wrong, code="CertificateNotBelieved")
        found = found.__cause__ or found.__context__ or getattr(found, "reason", None)
        if not isinstance(found, BaseException):
            break
    name = type(error).__name__
    return CloudUnavailableError(network_text(error) or f"no usable answer ({name})", code=name)
