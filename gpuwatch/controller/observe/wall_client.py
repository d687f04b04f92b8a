"""Has agents write notices on the terminals of their hosts. Each failure is a sentence.

What is sent and what comes back is described where it is answered, in agent/wall.py.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from gpuwatch.controller.observe.credentials import Credentials, credentials_of, failure_of, refusal_of
from gpuwatch.controller.observe.plain_http import body_of
from gpuwatch.controller.observe.plain_http import session as plain_session
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.model.bounds import BoundedInt, BoundedText
from gpuwatch.model.decision import Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.printable import legible

if TYPE_CHECKING:
    import aiohttp

__all__ = ["HostNote", "NotDoneError", "post", "send_to_hosts"]

_LARGEST_ANSWER_BYTES = 262_144  # a thousand terminals, each with its reason
_MOST_REASONS = 3
_LONGEST_REASONS = 500  # characters
_STATUS = {
    400: "its agent does not understand it (HTTP 400): it is of another version, or speaks https only",
    403: "its agent lets others have notices written (HTTP 403); see agent.notice_users and agent.tls_client_names",
    404: "its agent is too old to write on terminals; upgrade it",
    405: "its agent does not write on terminals: it is too old, or its agent.wall is false",
    429: "its agent has written on the terminals less than a minute ago, or turned us away (HTTP 429)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNote:
    """The text for people on a host: its stop at `stop_at`; None: the notice of that key is withdrawn."""

    node: Node
    key: str
    stop_at: datetime | None
    verb: Literal[Verb.STOP, Verb.TERMINATE] = Verb.STOP


class NotDoneError(Exception):
    """An agent has not done what it was asked; the message says why, `status` is of its HTTP answer, 0 without one."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent answers, as far as it is read."""

    reached: BoundedInt
    refused: dict[BoundedText, BoundedText] = {}
    doubts: tuple[BoundedText, ...] = ()


def send_to_hosts(settings: ObserveSettings, clock: Clock, notes: Sequence[HostNote]) -> list[str | None]:
    """Have each note written on its host, all at once; per note None, or why nobody there could read it.

    A withdrawal is done when the agent knows it, even if nobody was there. Cost: one small request a note.
    """
    if not notes:
        return []
    try:
        credentials = credentials_of(settings).value
    except (OSError, ValueError) as error:
        return [f"no agent can be asked: {error}"] * len(notes)
    return asyncio.run(_send_all(settings, clock.now(), notes, credentials))


async def _send_all(
    settings: ObserveSettings, now: datetime, notes: Sequence[HostNote], credentials: Credentials
) -> list[str | None]:
    """One session for all, so many at the same time."""
    import aiohttp  # noqa: PLC0415  a quarter of a second that only a controller with notices needs

    limit = asyncio.Semaphore(settings.concurrency)
    connector = aiohttp.TCPConnector(limit=settings.concurrency, ssl=credentials.context)

    async def send(note: HostNote) -> str | None:
        if note.node.state is NodeState.RUNNING and note.stop_at is not None and note.stop_at <= now:
            return "its time has come"
        async with limit:
            try:
                body = await post(session, settings, credentials, note.node, "/v1/notice", _body(note))
            except NotDoneError as error:
                return _STATUS.get(error.status) or str(error)
        return _why_not(body, note)

    async with plain_session(connector) as session:
        return list(await asyncio.gather(*(send(note) for note in notes)))


async def post(
    session: "aiohttp.ClientSession",
    settings: ObserveSettings,
    credentials: Credentials,
    node: Node,
    path: str,
    body: bytes,
) -> bytes:
    """Post JSON to the agent of a machine and return its answer.

    Raises:
        NotDoneError: it did not do it.

    """
    import aiohttp  # noqa: PLC0415  as above

    base = settings.base_url(node)
    if node.state is not NodeState.RUNNING:
        raise NotDoneError(f"it is {node.state.value}")
    if base is None:
        raise NotDoneError("the cloud reports no address for it; set signals.targets")
    try:
        async with (
            asyncio.timeout(settings.timeout),
            session.post(
                f"{base}{path}",
                data=body,
                headers={"Content-Type": "application/json", **credentials.header(base)},
                allow_redirects=False,
                server_hostname=settings.server_name(node),
            ) as response,
        ):
            if response.status != 200:  # noqa: PLR2004  HTTP
                raise NotDoneError(refusal_of(response.status), response.status)
            return await body_of(response, _LARGEST_ANSWER_BYTES)
    except TimeoutError:
        raise NotDoneError(f"its agent did not answer within {format_duration(settings.timeout)}") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NotDoneError(failure_of(error)) from error


def _body(note: HostNote) -> bytes:
    """What the agent is sent."""
    if note.stop_at is None:
        return msgspec.json.encode({"key": note.key, "withdrawn": True})
    return msgspec.json.encode({"key": note.key, "stop_at": note.stop_at, "verb": note.verb.value})


def _why_not(body: bytes, note: HostNote) -> str | None:
    """Why nobody could read it; None: somebody could."""
    try:
        reply = msgspec.json.decode(body[:_LARGEST_ANSWER_BYTES], type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"its agent's answer is not valid: {error}"
    if reply.reached > 0 or note.stop_at is None:
        return None
    reasons = [*(f"{name}: {why}" for name, why in reply.refused.items()), *reply.doubts]
    more = [f"{len(reasons) - _MOST_REASONS} more"] if len(reasons) > _MOST_REASONS else []
    seen = ", ".join([*reasons[:_MOST_REASONS], *more]) or "nobody is logged in"
    return f"no terminal was reached: {legible(seen, _LONGEST_REASONS)}"
