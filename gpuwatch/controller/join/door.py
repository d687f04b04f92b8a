"""The port at which hosts join and renew: TLS 1.3 alone, three paths, and no user.

GET /v1/ca gives the authority's certificate, which the host compares with the fingerprint in its token.
POST /v1/join takes a token and a request for a certificate. POST /v1/renew takes one of ours, in the handshake.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from threading import Lock

import msgspec

from gpuwatch.controller.join.authority import Authority, Issued, digest_of, key_in, key_of
from gpuwatch.controller.join.register import Book, HeldToken, Host, RefusedError, Register
from gpuwatch.controller.join.settings import JoinSettings
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.access import LoginLimiter, client_of
from gpuwatch.runtime.http.request import TEXT, Request, Response
from gpuwatch.runtime.joined import CA_PATH, JOIN_PATH, RENEW_PATH
from gpuwatch.runtime.printable import legible

log = logging.getLogger(__name__)

_LINES = 60  # of refusals, a minute


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a host that joins sends."""

    token: str
    secret: str
    node_id: str
    request: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What it gets: its certificate, and those of the authorities that it believes, in PEM."""

    certificate: str
    authority: str


@dataclass(slots=True, kw_only=True)
class JoinDoor:
    """Answers hosts that join or renew."""

    join: JoinSettings
    register: Register
    clock: Clock
    _limiter: LoginLimiter = field(default_factory=LoginLimiter)
    _turn: Lock = field(default_factory=Lock)
    _said: tuple[int, int] = (0, 0)  # in which minute, and how many lines

    def answer(self, request: Request) -> Response:
        """Answer every request of a host."""
        path = request.target.partition("?")[0]
        known: dict[str, tuple[str, Callable[[Request], Response]]] = {
            CA_PATH: ("GET", self._show),
            JOIN_PATH: ("POST", self._join),
            RENEW_PATH: ("POST", self._renew),
        }
        method, does = known.get(path, ("", _nothing))
        if method and request.method != method:
            return _refuse(HTTPStatus.METHOD_NOT_ALLOWED, f"only {method}", ("Allow", method))
        try:
            return does(request)
        except RefusedError as error:
            self._log(f"A host at {request.client} is not let in: {legible(str(error), 300)}")
            later = (("Retry-After", "10"),) if error.status is HTTPStatus.TOO_MANY_REQUESTS else ()
            return _refuse(error.status, str(error), *later)
        except (OSError, ValueError) as error:
            self._log(f"No host can join or renew: {error}")
            return _refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the controller cannot do so now: see its log")

    def _log(self, words: str) -> None:
        """Say it, unless so much was said in this minute: anybody may knock."""
        minute = int(self.clock.monotonic() // 60)
        with self._turn:
            self._said = (minute, self._said[1] + 1 if self._said[0] == minute else 1)
            lines = self._said[1]
        if lines <= _LINES:
            log.warning("%s%s", words, "; no more of these in this minute" if lines == _LINES else "")

    def _authority(self, now: datetime) -> Authority:
        """As it is now: a successor may sign today, and another controller may have made it."""
        return Authority(self.join, now)

    def _show(self, _request: Request) -> Response:
        return Response(body=self._authority(self.clock.now()).pem.encode(), content_type="application/x-pem-file")

    def _join(self, request: Request) -> Response:
        try:
            asked = msgspec.json.decode(request.body or b"", type=_Asked)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "this is no request to join, or one of over 16 KiB") from error
        now = self.clock.now()
        authority = self._authority(now)
        with self.register.change(now, authority) as book:
            held = self._token(book, asked, request.client, now)
            try:
                key = key_in(asked.request)
            except ValueError as error:
                raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from error
            digest = digest_of(key)
            counts = book.admit(held, asked.node_id, digest, now)
            issued = authority.for_node(key, asked.node_id, now)
            host = Host(node_id=asked.node_id, key=digest, address=request.client, joined_at=now, token=held.id)
            book.note_joined(held, host, issued, counts=counts)
        log.warning("%s has joined from %s with token %s", legible(asked.node_id, 80), request.client, held.id)
        return _certificate_answer(issued, authority)

    def _token(self, book: Book, asked: _Asked, address: str, now: datetime) -> HeldToken:
        """The token, unless too many wrong ones have come from that address."""
        # Whoever has no token's id does not hold up, behind the same NAT, who has one.
        client = f"{client_of(address)} {asked.token if asked.token in book.tokens else ''}"
        at = self.clock.monotonic()
        with self._turn:
            if not self._limiter.allows(client, at):
                words = "too many wrong tokens from this address; try again later"
                raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, words)
            try:
                return book.check_token(asked.token, asked.secret, now)
            except RefusedError:
                self._limiter.note_failure(client, at)
                raise

    def _renew(self, request: Request) -> Response:
        if request.certificate is None:
            raise RefusedError(HTTPStatus.FORBIDDEN, "to renew takes the certificate that was given before")
        now = self.clock.now()
        authority = self._authority(now)
        with self.register.change(now, authority) as book:
            key = key_of(request.certificate)
            host = book.of_key(digest_of(key), now)
            issued = authority.for_node(key, host.node_id, now)
            book.note_issued(host, issued, now)
        log.info("%s has a new certificate until %s", legible(host.node_id, 80), f"{issued.end:%Y-%m-%d %H:%M} UTC")
        return _certificate_answer(issued, authority)


def _certificate_answer(issued: Issued, authority: Authority) -> Response:
    body = msgspec.json.encode(Answer(certificate=issued.pem, authority=authority.believed_pem))
    return Response(body=body, content_type="application/json", headers=(("Cache-Control", "no-store"),))


def _nothing(_request: Request) -> Response:
    raise RefusedError(HTTPStatus.NOT_FOUND, "hosts join and renew here, and nothing else")


def _refuse(status: HTTPStatus, words: str, *headers: tuple[str, str]) -> Response:
    return Response(status=status, body=f"{words}\n".encode(), content_type=TEXT, headers=headers)
