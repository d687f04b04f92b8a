"""What a keep link leads to: a page that asks for how long, and an order in the ledger once somebody presses a button.

1. Looking does nothing: programs that scan mail open every link in it. Only a POST keeps.
2. The link is the right, for the one node and notice that it was signed for. It needs no token against forged requests:
   whoever can make a browser send one to its address knows the address, and so has the right already.
3. It puts off and never hastens: for no longer than the pool allows, and never for less than somebody has said before.
4. Beyond this machine it takes https, for whoever reads the address on its way may use it; or an explicit `insecure`.
"""

import logging
import threading
from dataclasses import dataclass, field, replace
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl

import msgspec

from gpuwatch.agent.access import is_loopback
from gpuwatch.agent.asked import Request
from gpuwatch.agent.server import Response
from gpuwatch.ledger import LedgerError
from gpuwatch.links import KEEP, Claim, LinkError, claimed, secret_of
from gpuwatch.reread import Reread
from gpuwatch.secrets import read_secret, version_of
from gpuwatch.web.answers import KeepOrder
from gpuwatch.web.api import RefusedError
from gpuwatch.web.letter import Letter, rendered
from gpuwatch.web.noticed import letter, noticed, told
from gpuwatch.web.policy import FORM
from gpuwatch.web.state import State, UnseenError

log = logging.getLogger(__name__)

_METHODS = "GET, HEAD, POST"
_FORM = "application/x-www-form-urlencoded"
_ECHO = timedelta(seconds=60)  # a wish that adds less than that is the echo of another: a button pressed twice


@dataclass(slots=True, kw_only=True)
class KeepLinks:
    """Answers all that is under KEEP; `key` is the secret that links are signed with."""

    state: State
    key: Reread[bytes]
    insecure: bool = False
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> Response:
        """A page, whatever is wrong."""
        try:
            self._let_in(request)
            token = request.target.partition("?")[0].removeprefix(KEEP)
            claim = claimed(self.key.value, token, self.state.clock.now())
            if request.method != "POST":
                found = noticed(self.state, claim)
                return _page(HTTPStatus.OK, found if isinstance(found, Letter) else letter(self.state, claim, found))
            order = _order(request)
            with self._turn:
                return self._keep(claim, order)
        except LinkError as error:
            return _page(HTTPStatus.FORBIDDEN, Letter(title="This link does nothing", text=str(error)))
        except RefusedError as error:
            allow = () if error.allow is None else (("Allow", error.allow),)
            return _page(error.status, Letter(title="That does not work", text=f"{error}."), *allow)
        except (UnseenError, LedgerError) as error:
            text = f"The controller cannot do that now: {error}. Try again in a minute."
            return _page(HTTPStatus.SERVICE_UNAVAILABLE, Letter(title="Not now", text=text))

    def _let_in(self, request: Request) -> None:
        """Rule 4, and no other methods."""
        if not (request.secure or self.insecure or is_loopback(request.client.removeprefix("::ffff:"))):
            raise RefusedError(HTTPStatus.FORBIDDEN, "Beyond the controller's own machine keep links take https")
        if request.method not in _METHODS.split(", "):
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"Only {_METHODS}", allow=_METHODS)

    def _keep(self, claim: Claim, order: KeepOrder) -> Response:
        """Do as asked, up to the pool's cap."""
        state, found = self.state, noticed(self.state, claim)
        if isinstance(found, Letter):
            return _page(HTTPStatus.CONFLICT, found)
        now, who = state.clock.now(), f"link:{claim.whom}"
        left = found.left_seconds(now)
        if not left:
            return _page(HTTPStatus.CONFLICT, letter(state, claim, found))
        until = now + timedelta(seconds=min(order.seconds, left))
        keep = found.keep
        if keep is None or keep.until < until - _ECHO:  # the newest counts, and must not be the shorter one
            keep = state.ledger.keep(claim.node_id, who, order.reason, now, until, shortens=False)
            log.warning("%s is kept until %s by %s", claim.node_id, f"{keep.until:%Y-%m-%d %H:%M} UTC", keep.who)
        done = f"Kept until {told(state, keep.until)}, on record as by {keep.who}."
        if keep.until > until + _ECHO:
            done += " It was kept for longer than you ask already, and stays so."
        return _page(HTTPStatus.OK, letter(state, claim, replace(found, keep=keep), done))


def links_of(named: str | None, state: State, *, insecure: bool) -> KeepLinks | None:
    """As notify.link_key_file says; None where it names nothing, or nothing that can be used, which the log tells."""
    if named is None:
        return None

    def make() -> bytes:
        return secret_of(read_secret(named), f"notify.link_key_file {named}")

    try:
        return KeepLinks(state=state, key=Reread([Path(named)], make, lambda: version_of(named)), insecure=insecure)
    except ValueError as error:
        why = str(error)
    except OSError as error:
        why = f"notify.link_key_file {named} cannot be read: {error.strerror}"
    log.error("Keep links do not work: %s", why)
    return None


def _order(request: Request) -> KeepOrder:
    """What the form says, checked."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"The form's Content-Type must be {_FORM}")
    if request.body is None:
        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "A form of 16 KiB at most, with its Content-Length")
    try:
        pairs = parse_qsl(request.body.decode("ascii"), keep_blank_values=True, max_num_fields=5)
        if len(dict(pairs)) != len(pairs):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "A field is there twice")
        return msgspec.convert(dict(pairs), KeepOrder, strict=False)
    except ValueError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"In the form: {error}") from error


def _page(status: HTTPStatus, shown: Letter, *more: tuple[str, str]) -> Response:
    headers = (*FORM, ("Cache-Control", "no-store"), *more)
    return Response(status=status, body=rendered(shown), content_type="text/html; charset=utf-8", headers=headers)
