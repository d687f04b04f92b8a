"""A ledger for simulations: the same answers from plain values, without a database, rounds, or a chain.

What decisions may ask of it is what they may ask of the real one; tests hold the two against each other. Its clock must
never go back.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from gpuwatch.guard.rulebook import Rulebook
from gpuwatch.ledger.attempts import attempts, launched, opened, runs_again
from gpuwatch.ledger.book import HOUR, Ledger
from gpuwatch.ledger.entries import LedgerError
from gpuwatch.ledger.identity import NoIdentity
from gpuwatch.ledger.views import CHANGES_MACHINES
from gpuwatch.model.decision import (
    FINAL,
    Decision,
    Done,
    Intent,
    LedgerView,
    Notice,
    Observation,
    OpenIntent,
    Outcome,
    Proposal,
    Reason,
    Review,
    Status,
    Stopped,
    Verb,
    Wish,
)
from gpuwatch.model.orders import Pause
from gpuwatch.policies.timing.history import GapHistory

_ENDS_STOP = frozenset({Verb.STOP, Verb.START, Verb.TERMINATE})
_KEPT = timedelta(days=8)  # longer than any window that decisions look back over


class LeanLedger(Ledger):
    """As long as its process. What people ask of a ledger (past rounds, histories, audits) it does not know."""

    def __init__(self, ledger_id: str = "lean") -> None:
        """Nothing is written yet."""
        self._id = ledger_id
        self.identity = NoIdentity()
        self._number = 0
        self._opened: dict[str, OpenIntent] = {}
        self._outcomes: dict[str, list[Outcome]] = {}  # of the open intents
        self._notices: dict[str, Notice] = {}
        self._pools: dict[str, str] = {}  # of the notices, by their keys
        self._stopped: dict[str, Stopped] = {}
        self._ended: deque[tuple[datetime, int, Done]] = deque()  # in the order of their ends, with their intents'
        self._wishes: deque[Wish] = deque()
        self._pauses: list[Pause] = []
        self._resumed: list[tuple[str | None, datetime]] = []
        self._gaps: dict[str, GapHistory] = {}
        self._shown: LedgerView | None = None  # what did not depend on the time; None after a change

    def close(self) -> None:
        """Nothing is held."""

    def lead(self) -> bool:
        """Nobody else can have it."""
        return True

    def leading(self) -> bool:
        """Likewise."""
        return True

    @property
    def epoch(self) -> int | None:
        """There is one lead."""
        return 1

    def leader(self) -> str:
        """Who leads."""
        return "this process"

    def is_open(self, key: str) -> bool:
        """Whether an intent of that key is open."""
        return key in self._opened

    def record_round(
        self,
        observation: Observation,
        proposals: Sequence[Proposal] = (),
        decisions: Sequence[Decision] = (),
        reviews: Sequence[Review] = (),
        rulebook: Rulebook | None = None,
        *,
        gaps: Mapping[str, GapHistory] | None = None,
    ) -> int:
        """Give the round a number and keep what later rounds need of it."""
        del decisions, reviews, rulebook
        self._gaps |= gaps or {}
        self._wishes.extend(
            Wish(pool=each.pool, policy=each.policy, at=observation.now, want=each.wish)
            for each in proposals
            if each.wish is not None
        )
        for node_id in [name for name, each in self._stopped.items() if runs_again(each, observation.fleet.find(name))]:
            self.forget_stop(node_id)
        self._number += 1
        return self._number

    def intend(  # noqa: PLR0913  as the real one's
        self,
        verb: Verb,
        node_id: str,
        pool: str,
        at: datetime,
        reason: Reason,
        round_id: int,
        *,
        arguments: Mapping[str, str] | None = None,
        owner: str | None = None,
        usd_per_hour: Decimal | None = None,
    ) -> Intent:
        """Hold the intent open under a key of its own."""
        del round_id
        self._number += 1
        intent = Intent(
            key=f"gpuwatch-{self._id}-{self._number}",
            verb=verb,
            node_id=node_id,
            pool=pool,
            at=at,
            reason=reason,
            arguments=dict(arguments or {}),
            owner=owner,
            usd_per_hour=usd_per_hour,
        )
        self._opened[intent.key] = opened(intent, ())
        self._outcomes[intent.key] = []
        self._shown = None
        return intent

    def settle(self, intent: Intent, status: Status, detail: str, at: datetime) -> Outcome:
        """Keep what came of an attempt; a final status closes the intent.

        Raises:
            LedgerError: no such intent is open.

        """
        if intent.key not in self._opened:
            raise LedgerError(f"no intent {intent.key} is open")
        outcome, held = Outcome(key=intent.key, at=at, status=status, detail=detail), self._opened[intent.key].intent
        if status in FINAL:
            self._end(held, outcome)
        else:
            self._outcomes[intent.key].append(outcome)
            self._opened[intent.key] = opened(held, self._outcomes[intent.key])
        self._shown = None
        return outcome

    def pool_of(self, key: str) -> str:
        """The pool of a notice in force."""
        return self._pools[key]

    def forget_stop(self, node_id: str) -> None:
        """Forget it."""
        self._stopped.pop(node_id, None)
        self._shown = None

    def pause(self, pool: str | None, who: str, reason: str, at: datetime, until: datetime | None = None) -> Pause:
        """Somebody's order to do nothing."""
        self._pauses.append(Pause(pool=pool, at=at, who=who, reason=reason, until=until))
        return self._pauses[-1]

    def resume(self, pool: str | None, who: str, at: datetime) -> tuple[Pause, ...]:
        """Take them back."""
        del who
        self._resumed.append((pool, at))
        self._pauses = [each for each in self._pauses if pool is not None and each.pool != pool]
        return self._in_force(at)

    def gaps(self) -> dict[str, GapHistory]:
        """What pools know of their idle gaps."""
        return dict(self._gaps)

    def view(self, now: datetime, *, recent: timedelta = HOUR) -> LedgerView:
        """What decisions may know of the past."""
        since = now - recent
        ended = sorted(self._since(since), key=lambda each: each[1])
        if self._shown is None:
            self._shown = LedgerView(
                notices=tuple(self._notices[name] for name in sorted(self._notices)),
                open_intents=tuple(self._opened.values()),
                stopped=tuple(self._stopped[name] for name in sorted(self._stopped)),
            )
        found = (
            tuple(done for _, _, done in ended),
            tuple(each for each in self._wishes if each.at > since),
            self._in_force(now),
            tuple((pool, at) for pool, at in self._resumed if at > since),
        )
        shown = self._shown
        if (shown.recent, shown.wishes, shown.pauses, shown.resumed) != found:
            made, wishes, pauses, resumed = found
            self._shown = replace(shown, recent=made, wishes=wishes, pauses=pauses, resumed=resumed)
        return self._shown

    def compact(self, now: datetime) -> int:
        """Forget what no decision looks back to."""
        before = now - _KEPT
        while self._ended and self._ended[0][0] < before:
            self._ended.popleft()
        while self._wishes and self._wishes[0].at < before:
            self._wishes.popleft()
        return 0

    def _end(self, intent: Intent, outcome: Outcome) -> None:
        """A final outcome."""
        del self._opened[intent.key]
        tried = attempts((each.status, each.at) for each in self._outcomes.pop(intent.key))
        node_id, status = intent.node_id, outcome.status
        if status is Status.SETTLED:
            before = self._notices.pop(node_id, None)
            if before is not None:
                del self._pools[before.key]
            if intent.verb is Verb.NOTICE:
                self._pools[intent.key] = intent.pool
                self._notices[node_id] = Notice(node_id=node_id, key=intent.key, at=outcome.at)
            if intent.verb in _ENDS_STOP:
                self._stopped.pop(node_id, None)
            if intent.verb is Verb.STOP:
                self._stopped[node_id] = Stopped(
                    node_id=node_id, key=intent.key, at=outcome.at, launched_at=launched(intent.arguments)
                )
        if status is Status.FAILED or intent.verb in CHANGES_MACHINES:
            done = Done(
                key=intent.key,
                verb=intent.verb,
                node_id=node_id,
                pool=intent.pool,
                status=status,
                at=outcome.at,
                owner=intent.owner,
                usd_per_hour=intent.usd_per_hour,
                arguments=intent.arguments,
                detail=outcome.detail,
                reached=status is Status.SETTLED or tried.reached,
                reached_at=tried.reached_at,
                refused=tried.given_up_as_refused(status),
            )
            self._ended.append((outcome.at, int(intent.key.rpartition("-")[2]), done))

    def _since(self, since: datetime) -> Iterator[tuple[datetime, int, Done]]:
        """Those that ended later, the last first."""
        for each in reversed(self._ended):
            if each[0] <= since:
                return
            yield each

    def _in_force(self, now: datetime) -> tuple[Pause, ...]:
        return tuple(each for each in self._pauses if each.until is None or each.until > now)
