"""Who is asked for changes, and who gives no answer: the silence of one server says nothing about the others.

Rules, all of them:

1. A server is a region of an account of a cloud, the API server of a Kubernetes cluster, or Slurm's controller.
2. One silent answer may be about its target; two in a row, or one that was waited for, are about the server. After a
   call that removes or adds a machine one is enough: it may have been carried out. Three denied calls in a row are
   about our credentials. Then nothing else is asked of that server in the same round.
3. In the next round it is asked again. One that was waited for then comes after all others, until an answer comes, and
   what such servers may cost in a round is bounded (`turns.py`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from gpuwatch.clouds import CloudError, CloudUnavailableError, ThrottledError
from gpuwatch.model.decision import Status
from gpuwatch.model.fleet import Node, NodeGroup

# A server that says one of these says it to every call.
_SAID_TO_ALL = frozenset({Status.THROTTLED, Status.SKEWED, Status.UNSENT})
_SILENT_AT_MOST = 2
_WAITED_SECONDS = 5.0
_QUICK_SECONDS = 1.0  # what fails within it holds up nobody, whenever it is asked
_MOST_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Who is asked for a change. `kind` names what is not a cloud; the other fields are a machine's."""

    kind: str = ""
    cloud: str = ""
    account: str | None = None
    region: str = ""

    @classmethod
    def that_has(cls, thing: Node | NodeGroup) -> Self:
        """The part of a cloud that is asked about a machine or a group."""
        return cls(cloud=thing.cloud, account=thing.account, region=thing.region)

    @classmethod
    def named_in(cls, arguments: Mapping[str, str]) -> Self:
        """The part of a cloud that a launch with these arguments is asked of."""
        return cls(
            cloud=arguments.get("cloud", ""), account=arguments.get("account"), region=arguments.get("region", "")
        )

    def __str__(self) -> str:
        """Return its name for people."""
        if self.kind:
            return self.kind
        parts = [self.region, f"account {self.account}" if self.account else ""]
        parts.append(f"cloud {self.cloud}" if self.cloud else "")
        return " of ".join(filter(None, parts)) or "the cloud"


API_SERVER = Server(kind="the cluster's API server")
SLURM = Server(kind="Slurm's controller")
NOBODY = Server(kind="nobody")  # nothing is asked


@dataclass(slots=True, kw_only=True)
class _Circuit:
    """What one server has answered in this round."""

    silent: int = 0  # in a row
    denied: int = 0  # in a row
    why: str | None = None  # why nothing else is asked of it


@dataclass(slots=True)
class Circuits:
    """Which servers are left alone in this round, and which gave no answer when they were asked last."""

    lost_seconds: float = 0.0  # for which this round has waited for answers that did not come
    _of: dict[Server, _Circuit] = field(default_factory=dict)
    _slow_since: dict[Server, float] = field(default_factory=dict)  # when it was waited for in vain last; monotonic
    _homes: dict[str, Server] = field(default_factory=dict)  # of the targets of intents that this process has sent
    _in_vain: dict[str, float] = field(default_factory=dict)  # when a target was asked last, and did not do it

    def begin_round(self) -> None:
        """All may be asked again."""
        self._of.clear()
        self.lost_seconds = 0.0

    def note_end(
        self,
        server: Server,
        status: Status,
        detail: str,
        *,
        at: float,
        seconds: float,
        most_denied: float = math.inf,
        most_silent: int = _SILENT_AT_MOST,
    ) -> None:
        """Note how a call to a server ended, which took so long.

        After so many denied, or silent, ones in a row it is left alone. What was not sent says nothing about it.
        """
        if status is Status.CANCELLED:
            return
        circuit = self._of.setdefault(server, _Circuit())
        silent = status is Status.UNAVAILABLE
        circuit.silent = circuit.silent + 1 if silent else 0
        circuit.denied = circuit.denied + 1 if status is Status.DENIED else 0
        if silent or status in _SAID_TO_ALL:
            self.lost_seconds += seconds
        waited = silent and (seconds >= _WAITED_SECONDS or circuit.silent >= most_silent)
        if waited or status in _SAID_TO_ALL or circuit.denied >= most_denied:
            circuit.why = detail
            if seconds >= _QUICK_SECONDS:
                self._slow_since[server] = at
        elif status not in {Status.UNAVAILABLE, Status.DENIED}:
            self._slow_since.pop(server, None)

    def note_silence(self, server: Server, error: CloudError, *, at: float, seconds: float) -> None:
        """Note that a question gave no answer, where that is about its server."""
        if isinstance(error, CloudUnavailableError | ThrottledError):
            status = Status.UNAVAILABLE if isinstance(error, CloudUnavailableError) else Status.THROTTLED
            self.note_end(server, status, str(error), at=at, seconds=seconds)

    def note_answer(self, server: Server) -> None:
        """Note that a question was answered; what is asked of it next may fail all the same."""
        if server in self._of:
            self._of[server].silent = 0

    def why_left_alone(self, server: Server) -> str | None:
        """Why nothing else is asked of it in this round; None: it may be asked."""
        circuit = self._of.get(server)
        return None if circuit is None else circuit.why

    def waited_for(self, server: Server) -> float | None:
        """When it was waited for in vain last; None: it has answered since, or nobody knows otherwise."""
        return self._slow_since.get(server)

    def note_target(self, target: str, server: Server, *, at: float, done: bool) -> None:
        """Remember who was asked about a target; one that did not do what was asked comes after the others."""
        for memory in (self._homes, self._in_vain):
            if len(memory) > _MOST_REMEMBERED:
                memory.clear()
        self._homes[target] = server
        if done:
            self._in_vain.pop(target, None)
        else:
            self._in_vain[target] = at

    def home_of(self, target: str) -> Server:
        """Who was asked about a target; of one that this process has not asked about, a cloud without a name."""
        return self._homes.get(target, Server())

    def asked_in_vain(self, target: str) -> float:
        """When a target was asked last without doing it; those that were never asked come first."""
        return self._in_vain.get(target, -math.inf)
