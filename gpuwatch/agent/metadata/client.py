"""A small HTTP client for metadata services: a deadline for each whole request, no name server, proxy or redirect.

A request beyond the machine's own link is refused, so a wrong setting cannot send it anywhere else.
"""

import ipaddress
import socket
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import cast
from urllib.parse import urlsplit

from gpuwatch.agent.metadata.base import MetadataService, Question, TokenScheme
from gpuwatch.model.duration import format_duration
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.address import shown_address
from gpuwatch.runtime.http.deadline import TimedSocket

_LARGEST_BODY_BYTES = 256 * 1024
_RENEW_SECONDS = 60.0  # a token is replaced this long before it ends
_WITHOUT_SECONDS = 600.0  # a service that gave no token is asked without one for this long
_CAUSES: dict[int, str] = {
    HTTPStatus.FORBIDDEN: "disabled",
    HTTPStatus.TOO_MANY_REQUESTS: "throttled",
    HTTPStatus.SERVICE_UNAVAILABLE: "throttled",
}


class MetadataError(Exception):
    """The service could not be asked: a cause for a label, and a sentence."""

    def __init__(self, cause: str, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    body: bytes


class MetadataClient:
    """Asks one metadata service. It keeps nothing but the session token, which appears nowhere else."""

    def __init__(
        self, service: MetadataService, clock: Clock, *, timeout_seconds: float, endpoint: str | None = None
    ) -> None:
        """`endpoint` replaces the cloud's own address."""
        self._service = service
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._endpoint = endpoint or service.endpoint
        self._token: str | None = None  # empty: the service needs none
        self._token_until = 0.0

    def ask(self, question: Question) -> bytes | None:
        """The body of the answer; None if there is nothing now.

        Raises:
            MetadataError: it could not be asked, which says nothing about what it would have answered.

        """
        answer = self._get(question.path)
        if answer.status == HTTPStatus.UNAUTHORIZED and self._service.token is not None:
            self._token = None  # it ended early, or the machine woke up elsewhere: once more with a new one
            answer = self._get(question.path)
        if question.nothing is not None and question.nothing in answer.body:
            return None
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        if answer.status != HTTPStatus.OK:
            raise _refusal_error(answer, question.path)
        return answer.body

    def _get(self, path: str) -> _Answer:
        scheme = self._service.token
        token = "" if scheme is None else self._current_token(scheme)
        headers = {scheme.header: token} if scheme is not None and token else {}
        return self._send("GET", path, headers)

    def _current_token(self, scheme: TokenScheme) -> str:
        """A token that is still valid for a while."""
        now = self._clock.monotonic()
        if self._token is not None and now < self._token_until:
            return self._token
        try:
            answer = self._send("PUT", scheme.path, {scheme.ttl_header: str(scheme.ttl_seconds)})
        except MetadataError as error:
            if error.cause == "timeout" and not scheme.optional:
                raise MetadataError(
                    "hop_limit", f"connections are accepted, but no session token comes: {error.detail}"
                ) from error
            raise
        token = answer.body.decode("latin-1").strip()
        if answer.status != HTTPStatus.OK and scheme.optional:
            token = ""
        elif answer.status != HTTPStatus.OK:
            raise _refusal_error(answer, scheme.path)
        elif not token or not token.isprintable() or not token.isascii():
            raise MetadataError("garbage", f"{scheme.path} gives no usable token")
        held_seconds = scheme.ttl_seconds - _RENEW_SECONDS if token else _WITHOUT_SECONDS
        self._token, self._token_until = token, now + held_seconds
        return token

    def _send(self, method: str, path: str, headers: dict[str, str]) -> _Answer:
        """One request on a connection of its own."""
        address, port = self._address()
        host = f"[{address}]" if ":" in address else address
        fields = {"Host": f"{host}:{port}", **self._service.headers, **headers}
        fields |= {"User-Agent": "gpuwatch", "Accept": "*/*", "Content-Length": "0", "Connection": "close"}
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())])
        where = f"the {self._service.provider} metadata service at {address}"
        until = self._clock.monotonic() + self._timeout_seconds
        try:
            connection = socket.create_connection((address, port), self._timeout_seconds)
        except OSError as error:
            raise MetadataError("unreachable", f"{where} cannot be reached: {error}") from error
        with connection:
            try:
                connection.sendall(f"{head}\r\n\r\n".encode("latin-1"))
                response = HTTPResponse(
                    cast("socket.socket", TimedSocket(connection, self._clock, until)), method=method
                )
                response.begin()
                body = response.read(_LARGEST_BODY_BYTES)
            except TimeoutError as error:
                allowed = format_duration(self._timeout_seconds)
                raise MetadataError("timeout", f"{where} did not answer {path} within {allowed}") from error
            except (OSError, HTTPException, ValueError) as error:
                detail = f"{where} broke off at {path}: {type(error).__name__} {error}"
                raise MetadataError("unreachable", detail) from error
        return _Answer(status=response.status, body=body)

    def _address(self) -> tuple[str, int]:
        """Address and port of the service.

        Raises:
            MetadataError: the endpoint is no plain http URL of an address on this machine's link.

        """
        shown = shown_address(self._endpoint)
        try:
            parts = urlsplit(self._endpoint)
            address = ipaddress.ip_address(parts.hostname or "")
            port = parts.port or 80
        except ValueError as error:
            raise MetadataError("endpoint", f"agent.metadata.endpoint {shown!r}: {error}") from error
        near = address.is_link_local or address.is_loopback or self._endpoint == self._service.endpoint
        if parts.scheme != "http" or parts.path.strip("/") or not near:
            raise MetadataError(
                "endpoint",
                f"agent.metadata.endpoint {shown!r} is not http://ADDRESS[:PORT] on this link; expected"
                f" {self._service.endpoint}",
            )
        return str(address), port


def _refusal_error(answer: _Answer, path: str) -> MetadataError:
    """The error for an HTTP status without an answer."""
    return MetadataError(_CAUSES.get(answer.status, "status"), f"{path} was answered with HTTP status {answer.status}")
