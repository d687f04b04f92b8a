"""The page behind a snooze link: it asks for how long, and writes an order into the ledger when a button is pressed.

1. Looking does nothing: programs that scan mail open every link in it. Only a POST keeps.
2. The link is the right, for the one node and notice that it was signed for. It needs no token against forged requests:
   a person who can make a browser send one to its address knows the address, and so has the right already.
3. It puts off and never hastens: for no longer than the pool allows, and never for less than somebody has said before.
4. Beyond this machine it takes https, for anybody who reads the address on its way may use it; or `insecure`.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl

import msgspec

from gpuwatch.controller.web.call import RefusedError
from gpuwatch.controller.web.headers import FORM
from gpuwatch.controller.web.language import language_of
from gpuwatch.controller.web.schemas import SnoozeOrder
from gpuwatch.controller.web.snooze_link import SNOOZE, Claim, LinkError, read_claim, secret_of
from gpuwatch.controller.web.state import State, UnseenError
from gpuwatch.guard.consent import wants_approval
from gpuwatch.ledger import LedgerError
from gpuwatch.model.decision import REMOVALS, Intent, Stopped, Verb
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.orders import Snooze
from gpuwatch.model.promise import Notice, promise_of
from gpuwatch.model.stops import NOT_PROVED
from gpuwatch.policies import idle, notices
from gpuwatch.runtime.html import render
from gpuwatch.runtime.http.access import is_loopback
from gpuwatch.runtime.http.request import Request, Response
from gpuwatch.runtime.reloading_file import ReloadingFile
from gpuwatch.runtime.secrets import read_secret, version_of
from gpuwatch.runtime.translation import catalogue

log = logging.getLogger(__name__)

_METHODS = "GET, HEAD, POST"
_FORM = "application/x-www-form-urlencoded"
_ECHO = timedelta(seconds=60)  # a wish that adds less than that is the echo of another: a button pressed twice
_CHOICES = ((4 * 3600, "4 hours"), (86_400, "1 day"), (3 * 86_400, "3 days"))
_LEAST_SECONDS = 60.0  # what is left of a cap below this is not worth a button
_GOES = {"stop": "stopped", "terminate": "terminated"}
_AWAY = frozenset({NodeState.STOPPED, NodeState.STOPPING})
_START = "Start it in the cloud's console if you need it: only what was on its own scratch disks is gone."


@dataclass(frozen=True, slots=True, kw_only=True)
class SnoozePage:
    """What it says. `choices` are seconds with their words; `done` is what was done just now."""

    title: str
    text: str = ""
    done: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[tuple[int, str], ...] = ()
    small: str = ""


@dataclass(slots=True, kw_only=True)
class SnoozeLinks:
    """Answers all that is under KEEP; `key` is the secret that links are signed with."""

    state: State
    key: ReloadingFile[bytes]
    insecure: bool = False
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> Response:
        """A page in the reader's language, whatever is wrong."""
        status, page, *more = self._answer(request)
        return _page(status, page, language_of(request.headers.get("accept-language", "")), *more)

    def _answer(self, request: Request) -> tuple[HTTPStatus, SnoozePage, *tuple[tuple[str, str], ...]]:
        try:
            self._let_in(request)
            token = request.target.partition("?")[0].removeprefix(SNOOZE)
            claim = read_claim(self.key.value, token, self.state.clock.now())
            if request.method != "POST":
                found = find_noticed(self.state, claim)
                return HTTPStatus.OK, found if isinstance(found, SnoozePage) else letter(self.state, claim, found)
            order = _order(request)
            with self._turn:
                return self._keep(claim, order)
        except LinkError as error:
            return HTTPStatus.FORBIDDEN, SnoozePage(title="This link does nothing", text=str(error))
        except RefusedError as error:
            allow = () if error.allow is None else (("Allow", error.allow),)
            return error.status, SnoozePage(title="That does not work", text=f"{error}."), *allow
        except (UnseenError, LedgerError) as error:
            text = f"The controller cannot do that now: {error}. Try again in a minute."
            return HTTPStatus.SERVICE_UNAVAILABLE, SnoozePage(title="Not now", text=text)

    def _let_in(self, request: Request) -> None:
        """Rule 4, and no other methods."""
        if not (request.secure or self.insecure or is_loopback(request.client.removeprefix("::ffff:"))):
            raise RefusedError(HTTPStatus.FORBIDDEN, "Beyond the controller's own machine snooze links take https")
        if request.method not in _METHODS.split(", "):
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"Only {_METHODS}", allow=_METHODS)

    def _keep(self, claim: Claim, order: SnoozeOrder) -> tuple[HTTPStatus, SnoozePage]:
        """Do as asked, up to the pool's cap."""
        state, found = self.state, find_noticed(self.state, claim)
        if isinstance(found, SnoozePage):
            return HTTPStatus.CONFLICT, found
        now, who = state.clock.now(), f"link:{claim.whom}"
        left = found.left_seconds(now)
        if not left:
            return HTTPStatus.CONFLICT, letter(state, claim, found)
        until = now + timedelta(seconds=min(order.seconds, left))
        keep = found.snooze
        if keep is None or keep.until < until - _ECHO:  # the newest counts, and must not be the shorter one
            keep = state.ledger.snooze(claim.node_id, who, order.reason, now, until, shortens=False)
            log.warning("%s is kept until %s by %s", claim.node_id, format_time(keep.until), keep.who)
        done = f"Kept until {local_time(state, keep.until)}, on record as by {keep.who}."
        if keep.until > until + _ECHO:
            done += " It was kept for longer than you ask already, and stays so."
        return HTTPStatus.OK, letter(state, claim, replace(found, snooze=keep), done)


def links_of(named: str | None, state: State, *, insecure: bool) -> SnoozeLinks | None:
    """As notify.link_key_file says; None where it names nothing, or nothing that can be used, which is logged."""
    if named is None:
        return None

    def make() -> bytes:
        return secret_of(read_secret(named), f"notify.link_key_file {named}")

    try:
        return SnoozeLinks(
            state=state, key=ReloadingFile([Path(named)], make, lambda: version_of(named)), insecure=insecure
        )
    except ValueError as error:
        why = str(error)
    except OSError as error:
        why = f"notify.link_key_file {named} cannot be read: {error.strerror}"
    log.error("Snooze links do not work: %s", why)
    return None


def _order(request: Request) -> SnoozeOrder:
    """What the form says, checked."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"The form's Content-Type must be {_FORM}")
    if request.body is None:
        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "A form of 16 KiB at most, with its Content-Length")
    try:
        pairs = parse_qsl(request.body.decode("ascii"), keep_blank_values=True, max_num_fields=5)
        if len(dict(pairs)) != len(pairs):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "A field is there twice")
        return msgspec.convert(dict(pairs), SnoozeOrder, strict=False)
    except ValueError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"In the form: {error}") from error


def _page(status: HTTPStatus, shown: SnoozePage, language: str | None, *more: tuple[str, str]) -> Response:
    """The page; its addresses are relative, so that it works behind whatever path leads here."""
    headers = (*FORM, ("Cache-Control", "no-store"), *more)
    say = str if language is None else catalogue(language).translate
    lang = "en" if language is None else language.replace("_", "-")
    body = render("controller/web/snooze_page.html", page=shown, say=say, lang=lang).encode()
    return Response(status=status, body=body, content_type="text/html; charset=utf-8", headers=headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """A node with a notice in force.

    `goes` is what it would be, at `goes_at` at the earliest if nobody keeps it; None: as things are it stays. Nothing
    keeps it after `cap_at`: a pool's max_snooze counts from when the node was last in use.
    """

    node: Node
    notice: Notice
    goes: str | None
    goes_at: datetime
    cap_at: datetime
    snooze: Snooze | None

    def left_seconds(self, now: datetime) -> float:
        """For how long it may still be kept."""
        left = (self.cap_at - now).total_seconds()
        return left if left >= _LEAST_SECONDS else 0.0

    def kept_until(self, now: datetime) -> datetime | None:
        """Until when the keep in force holds it."""
        until = None if self.snooze is None else min(self.snooze.until, self.cap_at)
        return until if until is not None and until > now else None


def find_noticed(state: State, claim: Claim) -> Noticed | SnoozePage:
    """The node as the last round saw it, under the orders of this moment; or why there is nothing to keep.

    Raises:
        UnseenError: no round has seen the fleet.
        LedgerError: the ledger does not answer.

    """
    seen, orders, now = state.last().observation, state.orders(), state.clock.now()
    node, notice = seen.fleet.find(claim.node_id), orders.notice(claim.node_id)
    if node is None:
        text = "The last look at the cloud did not find it: it has probably been terminated, and cannot be kept."
        return SnoozePage(title=f"{claim.node_id} is not there", text=text)
    tried = orders.open_for(node.id)
    if tried is not None and tried.reached and tried.intent.verb in REMOVALS:
        return _too_late(state, node, tried.intent)
    keep = next((each for each in orders.snoozes if each.node_id == node.id), None)
    if notice is None and keep is not None:  # for whose sake it was taken back: it may be put off for longer
        notice = _given_notice(state, claim)
    if notice is None or notice.key != claim.key:
        return _superseded_page(state, node, notice, orders.stop_of(node.id))
    rules, found = state.rules.pool(node.pool).idle, orders.stop_of(node.id)
    promise = notice.promise
    grace = rules.terminate_grace_period if node.state in _AWAY else rules.grace_period
    goes_at = notice.at + timedelta(seconds=grace) if promise is None else promise.due(notice.at)
    if promise is not None:  # the grace may be longer by now
        now_given = idle.grace_seconds(node, seen, rules, state.rules.pool(node.pool).office)
        left = notices.left_seconds(notice, node, now_given, seen.now)
        goes_at = max(goes_at, seen.now + timedelta(seconds=left))
    goes: str | None = _GOES["terminate"]
    if node.state in _AWAY:
        unused = 0.0 if found is None else (now - found.at).total_seconds()
        if found is not None and rules.terminate_after is not None:
            goes_at = max(goes_at, found.at + timedelta(seconds=rules.terminate_after))
    else:
        goes = _GOES.get(idle.choose_action(node, seen, rules)[0] or "")
        unused = node.activity.held_seconds + (now - seen.now).total_seconds()
        unused = max(unused, (now - notice.at).total_seconds())  # also where its agent does not answer now
    cap_at = now + timedelta(seconds=rules.max_snooze - unused)
    return Noticed(node=node, notice=notice, goes=goes, goes_at=goes_at, cap_at=cap_at, snooze=keep)


def _given_notice(state: State, claim: Claim) -> Notice | None:
    """The notice of a claim, in force or not."""
    intents = (each.intent for each in state.ledger.history(claim.node_id))
    return next(
        (
            Notice(node_id=each.node_id, key=each.key, at=each.at, promise=promise_of(each.pool, each.arguments))
            for each in intents
            if each.key == claim.key
        ),
        None,
    )


def _too_late(state: State, node: Node, intent: Intent) -> SnoozePage:
    """The cloud was asked already."""
    asked = f"The cloud was asked to {intent.verb.value} it at {local_time(state, intent.at)}."
    after = _START if intent.verb is Verb.STOP else "What was on its own disks is gone with it."
    return SnoozePage(title=f"It is too late for {node.name}", text=f"{asked} {after}")


def _superseded_page(state: State, node: Node, notice: Notice | None, stopped: Stopped | None) -> SnoozePage:
    """The link's notice is no longer in force."""
    if notice is not None:
        text = "It has had another notice since. Take the link of the newer message."
    elif node.state in _AWAY:
        who = "It was not gpuwatch that stopped it"
        if stopped is not None:
            doubt = stopped.why_not_ours(node)
            who = f"It was stopped, and {NOT_PROVED}: {doubt}" if doubt is not None else who
            who = f"gpuwatch stopped it at {local_time(state, stopped.at)}" if doubt is None else who
        text = f"{who}. {_START}"
    elif node.state is not NodeState.RUNNING:
        text = f"It is {node.state.value}, and there is no notice to put off."
    else:
        text = "It runs, and its notice has been withdrawn: nothing needs to be done. A new notice would be sent again."
    return SnoozePage(title=f"There is nothing to keep {node.name} from", text=text)


def letter(state: State, claim: Claim, at: Noticed, done: str = "") -> SnoozePage:
    """The page: what is about to happen, why, and what may be chosen."""
    node, keep, now = at.node, at.snooze, state.clock.now()
    title, text = _headline(state, at, now)
    left = at.left_seconds(now)
    choices = tuple((seconds, words) for seconds, words in _CHOICES if seconds < left)
    if left:
        choices = (*choices, (int(left), f"{format_duration(left)}, as long as its pool allows"))
    else:
        cap = format_duration(state.rules.pool(node.pool).idle.max_snooze)
        text += f" It cannot be kept any longer: its pool allows {cap} after the last use (max_snooze)."
    facts = {
        "Machine": f"{node.name} ({node.id})" if node.name != node.id else node.id,
        "Type": node.instance_type,
        "Pool": node.pool,
        "Owner": node.owner or "",
        "Noticed": local_time(state, at.notice.at),
        "Why": _why(state, at.notice),
        "Kept by": "" if keep is None else f"{keep.who}{f': {keep.reason}' if keep.reason else ''}",
    }
    small = f"With this link the removal of this machine can be put off until {local_time(state, claim.until)}."
    return SnoozePage(title=title, text=text, done=done, facts=facts, choices=choices, small=small)


def _headline(state: State, at: Noticed, now: datetime) -> tuple[str, str]:
    """What is about to happen to the node, and when."""
    name, kept = at.node.name, at.kept_until(now)
    if at.goes is None:
        text = f"The last round saw it as {at.node.activity.state.value}: so it stays, and nothing needs to be done."
        return f"{name} is not about to go", text
    if kept is not None:
        text = f"Until {local_time(state, kept)}. Then it has another notice before it is {at.goes}, unless it is used."
        return f"{name} is kept", text
    text = "It may happen at any moment, unless it is used or kept."
    if at.goes_at > now:
        left = format_duration((at.goes_at - now).total_seconds())
        text = f"At {local_time(state, at.goes_at)} at the earliest, in {left}, unless it is used or kept."
    if wants_approval(state.rules.pool(at.node.pool), at.notice) and state.orders().approval(at.node.id) is None:
        text += " An operator has to approve it first."
    return f"{name} will be {at.goes}", text


def _why(state: State, notice: Notice) -> str:
    """What the notice was given for."""
    history = state.ledger.history(notice.node_id)
    return next((each.intent.reason.sentence for each in history if each.intent.key == notice.key), "")


def local_time(state: State, at: datetime) -> str:
    """A time for people, in the controller's zone."""
    local = at.astimezone(state.zone)
    return f"{local:%H:%M} {local.tzname()} on {local:%A}, {local.day} {local:%B}"
