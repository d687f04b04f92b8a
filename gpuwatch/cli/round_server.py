"""The controller's socket, at which `gpuwatch status` gets the last round instead of looking itself.

Nothing is made before somebody asks, and nodes are sent some at a time: rounds take no longer for it, and no memory.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from socketserver import BaseRequestHandler

import msgspec

from gpuwatch import __version__
from gpuwatch.cli.last_round import Head, Question, socket_beside
from gpuwatch.cli.quotas import Found
from gpuwatch.cli.render import show_round
from gpuwatch.controller.context import LiveParts, Round
from gpuwatch.controller.node_row import each_row
from gpuwatch.controller.web.state import State, UnseenError
from gpuwatch.ledger import LedgerError
from gpuwatch.model.duration import format_duration
from gpuwatch.runtime.unix_socket import UnixServer

log = logging.getLogger(__name__)

_MODE = 0o600  # what is shown is for the controller's user, and root
_LARGEST_QUESTION_BYTES = 4096
_PATIENCE_SECONDS = 5.0  # for one part of an answer
_AT_ONCE = 200  # nodes
_OLD_INTERVALS = 3  # a round that is older is none of now
_LIMITS_SECONDS = 300.0  # for so long the limits of the account are not asked for again


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRound:
    """The newest round of a controller, for those who have the same settings: `fingerprint` is of these."""

    state: State
    parts: LiveParts
    fingerprint: str
    ask_limits: Callable[[], Found]

    def answer(self, asked: Question) -> Iterator[object]:
        """The parts of the answer: a head, then the nodes, then the limits of the account."""
        try:
            done, age = self._newest(asked)
            head = show_round(self.parts, self._with_orders(done), whole=False)
        except (UnseenError, LedgerError) as error:
            yield Head(trouble=str(error))
            return
        yield Head(looked=head, age_seconds=age)
        rows = each_row(done, self.parts.rules)
        while some := list(islice(rows, _AT_ONCE)):
            yield some
        yield self.state.seldom("limits", _LIMITS_SECONDS, self.ask_limits)

    def _newest(self, asked: Question) -> tuple[Round, float]:
        """The round and its age, if it may be shown to who asks; else raises UnseenError."""
        if asked.version != __version__:
            raise UnseenError(f"it runs gpuwatch {__version__}, this is {asked.version}; restart it")
        if not asked.settings or asked.settings != self.fingerprint:
            raise UnseenError("it has other settings: the file or a variable differs from what it read; reload it")
        done, age = self.state.newest()
        if age > _OLD_INTERVALS * self.parts.interval_seconds:
            raise UnseenError(f"its last round is {format_duration(age)} old")
        return done, age

    def _with_orders(self, done: Round) -> Round:
        """The round with the pauses in force now: somebody may have ordered one since."""
        ledger = replace(done.observation.ledger, pauses=self.state.orders().pauses)
        return replace(done, observation=replace(done.observation, ledger=ledger))


class RoundServer(UnixServer):
    """Answers `gpuwatch status` on this machine."""

    def __init__(self, ledger: Path, last: LastRound) -> None:
        """Listen next to the ledger.

        Raises:
            OSError: it cannot, or another controller does.

        """
        self.last = last
        super().__init__(socket_beside(ledger), _Handler, mode=_MODE, whose="controller")


class _Handler(BaseRequestHandler):
    """The handler of one question."""

    server: RoundServer

    def handle(self) -> None:
        """Read a question and answer it."""
        self.request.settimeout(_PATIENCE_SECONDS)
        try:
            asked = msgspec.json.decode(self.request.recv(_LARGEST_QUESTION_BYTES), type=Question)
        except ValueError:
            return
        for part in self.server.last.answer(asked):
            self.request.sendall(msgspec.json.encode(part) + b"\n")


def serve_rounds(ledger: Path, last: LastRound) -> RoundServer | None:
    """The socket, served; None: it cannot be made, and `status` looks itself then."""
    try:
        server = RoundServer(ledger, last)
    except OSError as error:
        log.info("`gpuwatch status` here cannot be shown the controller's rounds: %s: %s", socket_beside(ledger), error)
        return None
    server.start()
    return server
