"""Asks agents about the power of their hosts: which machine each is, and to switch it off.

What is sent and what comes back is described where it is answered, in agent/power.py.
"""

import asyncio
import errno
import threading

import msgspec

from gpuwatch.clouds import Cloud, CloudError, CloudUnavailableError, NotSentError
from gpuwatch.controller.observe.credentials import Credentials, credentials_of
from gpuwatch.controller.observe.plain_http import session as plain_session
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.observe.wall_client import NotDoneError, post
from gpuwatch.model.fleet import Node
from gpuwatch.model.power import PowerAnswer, PowerQuestion
from gpuwatch.runtime.reloading_file import ReloadingFile

_STATUS = {
    403: "it lets others ask (HTTP 403); see agent.notice_users and agent.tls_client_names",
    404: "it is too old to say (HTTP 404); upgrade it",
}
_NO_AGENT = "NoAgent"  # our own code
# Nothing answers at its address. A connection that is refused is: by a host that runs.
_NOBODY_THERE = frozenset({errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT})


def with_agents(cloud: Cloud, settings: ObserveSettings) -> Cloud:
    """The same cloud; hosts of one's own can ask their agents from now on."""
    by_agents = getattr(cloud, "by_agents", None)
    if by_agents is not None:
        by_agents(PowerAsker(settings))
    return cloud


class PowerAsker:
    """Asks one agent at a time; several threads may."""

    def __init__(self, settings: ObserveSettings) -> None:
        """Nothing is asked yet."""
        self._settings, self._turn = settings, threading.Lock()
        self._credentials: ReloadingFile[Credentials] | None = None

    def __call__(self, node: Node, question: PowerQuestion, seconds: float | None) -> PowerAnswer:
        """The agent's answer, within so many seconds; it must name its host.

        Raises:
            NotSentError: it could not be asked.
            CloudUnavailableError: it gave no answer at all, or an unusable one: it may have done what it was asked.
            CloudError: something answers there that is no agent of that host, or does not let us ask.

        """
        try:
            with self._turn:
                if self._credentials is None:
                    self._credentials = credentials_of(self._settings)
            body = asyncio.run(self._ask(self._credentials.value, node, question, seconds))
            found = msgspec.json.decode(body, type=PowerAnswer)
        except NotDoneError as error:
            if error.status:
                raise CloudError(f"its agent: {_STATUS.get(error.status, error)}", code=f"HTTP{error.status}") from None
            silent = error.__cause__ is None or getattr(error.__cause__, "errno", None) in _NOBODY_THERE
            kind = CloudUnavailableError if silent or question.off else CloudError
            raise kind(str(error), code=_NO_AGENT) from None
        except TimeoutError:
            raise CloudUnavailableError("its agent did not answer in time", code=_NO_AGENT) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise CloudUnavailableError(f"its agent's answer is not valid: {error}", code=_NO_AGENT) from None
        except (OSError, ValueError) as error:
            raise NotSentError(f"no agent can be asked: {error}", code=_NO_AGENT) from None
        if found.node_id not in {node.id, node.name}:
            raise CloudError(f"the answer is from {found.node_id!r}, another host than was asked", code=_NO_AGENT)
        return found

    async def _ask(self, credentials: Credentials, node: Node, question: PowerQuestion, seconds: float | None) -> bytes:
        import aiohttp  # noqa: PLC0415  a quarter of a second that only a controller with power control needs

        body = msgspec.json.encode(question)
        async with (
            asyncio.timeout(seconds),
            plain_session(aiohttp.TCPConnector(ssl=credentials.context)) as session,
        ):
            return await post(session, self._settings, credentials, node, "/v1/power", body)
