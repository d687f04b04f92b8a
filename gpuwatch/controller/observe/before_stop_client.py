"""Has the agent of a machine begin the commands that run before its stop: its own answer says how far they are.

What is sent and what comes back is described where it is answered, in agent/before_stop.py.
"""

import asyncio

import msgspec

from gpuwatch.controller.observe.credentials import Credentials, credentials_of
from gpuwatch.controller.observe.plain_http import session as plain_session
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.observe.wall_client import NotDoneError, post
from gpuwatch.model.activity import BeforeStop
from gpuwatch.model.fleet import Node
from gpuwatch.model.verbs import Verb

_STATUS = {
    403: "its agent lets others have them run (HTTP 403); see agent.notice_users and agent.tls_client_names",
    404: "its agent is too old for that (HTTP 404); upgrade it",
    405: "they are switched off meanwhile (HTTP 405)",
}
_NOT_BEGUN = "The commands before its stop could not begin"


def begin_before_stop(settings: ObserveSettings, node: Node, verb: Verb) -> str:
    """Have them begin, and say how far they are; whatever fails is said, and the machine stays. One small request."""
    try:
        return asyncio.run(_begin(settings, credentials_of(settings).value, node, verb))
    except NotDoneError as error:
        return f"{_NOT_BEGUN}: {_STATUS.get(error.status) or error}."
    except (OSError, ValueError) as error:
        return f"{_NOT_BEGUN}: no agent can be asked: {error}."


async def _begin(settings: ObserveSettings, credentials: Credentials, node: Node, verb: Verb) -> str:
    import aiohttp  # noqa: PLC0415  a quarter of a second that only a controller with such agents needs

    action = "terminate" if verb is Verb.TERMINATE else "stop"
    body = msgspec.json.encode({"verb": action})
    async with plain_session(aiohttp.TCPConnector(ssl=credentials.context)) as session:
        answered = await post(session, settings, credentials, node, "/v1/before-stop", body)
    try:
        found = msgspec.json.decode(answered, type=BeforeStop | None)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotDoneError(f"its agent's answer is not valid: {error}") from error
    return "Nothing is to run before its stop any more; it is asked again." if found is None else found.sentence
