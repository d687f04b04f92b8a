"""Why an agent gave no verdict: one word for tables, a sentence for the record, and the remedy.

The sentence alone is kept with a round. Word and remedy are found by it, so that past rounds have them, too.
"""

import errno
from dataclasses import dataclass
from typing import Any

ASKED_IN_VAIN = "its agent could not be asked"

_NO_ROUTE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ETIMEDOUT})
_RESET = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})
_HUNG_UP = ("ServerDisconnectedError", "ClientConnectionResetError", "ClientPayloadError")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentError:
    """A kind of failure. `marks`: its sentence has one of these parts."""

    word: str
    marks: tuple[str, ...]
    remedy: str


# The first one whose mark is found counts.
KINDS = (
    AgentError(
        word="refused",
        marks=("refuses connections",),
        remedy="Start its agent (`systemctl start gpuwatch-agent` on the node), or let `signals.port` and "
        "`agent.host` agree: an agent that listens on 127.0.0.1 only hears nobody else.",
    ),
    AgentError(
        word="unreachable",
        marks=("there is no route to", "cannot be resolved"),
        remedy="Check address, subnet and security group: the controller must reach the agent's port (9460). "
        "`signals.targets` can name another address.",
    ),
    AgentError(
        word="timeout",
        marks=("did not answer within",),
        remedy="Let the security group pass the agent's port (9460) from the controller, then run "
        "`gpuwatch doctor agent` on the node: a host that hangs answers nobody.",
    ),
    AgentError(
        word="no-address",
        marks=("reports no address for it",),
        remedy="Set `signals.targets`: node id or name, and the agent's URL.",
    ),
    AgentError(
        word="not-asked",
        marks=("there was no time to ask", "its agent was not asked"),
        remedy="It comes first in the next round. Mend agents that time out, or raise `signals.concurrency`.",
    ),
    AgentError(
        word="TLS",
        marks=("certificate", "does not speak TLS", "it may speak https only"),
        remedy="Compare `signals.scheme` and `signals.tls_*` with the agent's `agent.tls_*`.",
    ),
    AgentError(
        word="login",
        marks=("HTTP 401", "HTTP 403", "HTTP 421", "HTTP 429", "no agent can be asked"),
        remedy="Check `signals.username` and `signals.password_file`, and who the agent lets in.",
    ),
    AgentError(
        word="stale",
        marks=("its verdict is stale", "its newest sample is"),
        remedy="Check that the agent runs (`gpuwatch doctor agent` on the node), and both clocks.",
    ),
    AgentError(
        word="hung-up",
        marks=("it closed the connection",),
        remedy="Read the agent's log (`journalctl -u gpuwatch-agent`) and look for a proxy on the way.",
    ),
    AgentError(
        word="version",
        marks=("speaks verdict schema", "too old to confirm"),
        remedy="Upgrade the older one of agent and controller.",
    ),
    AgentError(
        word="wrong-node",
        marks=("another node than was asked", "share the name"),
        remedy="Give each node its own name, or set `agent.node_id` to the instance id.",
    ),
    AgentError(
        word="bad-answer",
        marks=("agent answered HTTP", "agent's answer is", "the answer ", "its agent cannot be asked", ASKED_IN_VAIN),
        remedy="Check what listens at the agent's address: another program, a proxy, or a broken agent.",
    ),
)


def kind_of(failure: str | None) -> AgentError | None:
    """The kind of a failure's sentence; None without a failure, and if the failure is not the agent's."""
    if failure is None or "Prometheus" in failure:
        return None
    return next((kind for kind in KINDS if any(mark in failure for mark in kind.marks)), None)


def connection_text(error: BaseException) -> str:
    """An error of a connection as a sentence without the library's own words."""
    where = _place(error)
    number = getattr(error, "errno", None)
    if type(error).__name__ == "ClientConnectorDNSError":
        return f"{ASKED_IN_VAIN}: the name {getattr(error, 'host', '')!r} cannot be resolved"
    if number == errno.ECONNREFUSED:
        return f"{ASKED_IN_VAIN}: {where} refuses connections"
    if number in _NO_ROUTE:
        return f"{ASKED_IN_VAIN}: there is no route to {where}"
    if type(error).__name__ in _HUNG_UP or number in _RESET:
        return f"{ASKED_IN_VAIN}: it closed the connection before its answer was whole"
    words = getattr(error, "strerror", None) or str(error)
    return f"{ASKED_IN_VAIN}: {_plain(words) or type(error).__name__}"


def _place(error: Any) -> str:  # noqa: ANN401  aiohttp is not imported here
    """The address that was asked."""
    host, port = getattr(error, "host", None), getattr(error, "port", None)
    if not host:
        return "its address"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _plain(words: object) -> str:
    return " ".join(str(words).split())
