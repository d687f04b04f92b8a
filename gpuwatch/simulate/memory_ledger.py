"""A ledger for simulations: the same answers from plain values, without a database, rounds, or a chain.

Rounds ask it what they ask the real one (`gpuwatch.ledger.protocol`); tests hold the two against each other. Its clock
must never go back.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter, itemgetter

from gpuwatch.guard.settings import Rulebook
from gpuwatch.ledger import active_times, scale_in_protection
from gpuwatch.ledger.attempts import attempts, fault, interruption_of, launch_time, open_intent, runs_again, stop_answer
from gpuwatch.ledger.identity import NoIdentity
from gpuwatch.ledger.index_writer import SensorsInMemory
from gpuwatch.ledger.indexes import BESIDE_NOTICES
from gpuwatch.ledger.protocol import HOUR, IntentLedger
from gpuwatch.ledger.records import LedgerError
from gpuwatch.ledger.removals import those_that_matter
from gpuwatch.ledger.views import CHANGES_MACHINES
from gpuwatch.model.cloud_notice import ON_RECORD, Interruption
from gpuwatch.model.decision import (
    FINAL,
    Decision,
    DesiredNodes,
    Done,
    Intent,
    LedgerView,
    Observation,
    OpenIntent,
    Outcome,
    Proposal,
    Review,
    Status,
    Stopped,
    Unreached,
    Verb,
)
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.model.kubernetes import target_of
from gpuwatch.model.orders import Pause
from gpuwatch.model.promise import Notice, promise_of
from gpuwatch.model.proposal import stop_words
from gpuwatch.model.verbs import CLOUD_RECORDS, ENDS_OF_A_STOP
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.lives import launched_machine
from gpuwatch.simulate.caches import changed_places

_when, _number, _written = itemgetter(0), itemgetter(1), attrgetter("at")
_KEPT = timedelta(days=8)  # longer than any window that decisions look back over


class InMemoryLedger(IntentLedger):
    """A `RoundLedger` that lasts as long as its process; it keeps no past rounds, histories or chain."""

    epoch: int | None = 1  # there is one lead

    def __init__(self, ledger_id: str = "simulated") -> None:
        """Nothing is written yet."""
        self._id = ledger_id
        self.identity, self.sensors = NoIdentity(), SensorsInMemory()
        self._number = 0
        self._opened: dict[str, OpenIntent] = {}
        self._outcomes: dict[str, list[Outcome]] = {}  # of the open intents
        self._notices: dict[str, tuple[int, Notice]] = {}  # with its place in time
        self._fleet: Fleet | None = None  # of the newest round
        self._nodes: dict[str, Node] = {}  # of the open intents, by their keys
        self._pools: dict[str, str] = {}  # of the notices, by their keys
        self._grace: dict[str, float] = {}  # of each node's last notice
        self._shields: dict[str, tuple[datetime, datetime | None]] = {}  # since when, and since when it is not listed
        self._stopped: dict[str, Stopped] = {}
        self._stop_names: list[str] = []  # of those nodes, in order
        self._interrupted: dict[str, tuple[datetime, Interruption | None]] = {}  # by node; None: it is over
        self._ended: list[tuple[datetime, int, Done]] = []  # by their ends, with their intents' numbers
        self._recent: tuple[int, int, tuple[Done, ...]] | None = None  # from where up to where, and which
        self._stops_shown: tuple[Stopped, ...] | None = ()  # None after a change
        self._unseen: set[str] = set()  # nodes with a stop that no round has looked at since
        self._wishes: list[DesiredNodes] = []  # by their times
        self._pauses: list[Pause] = []
        self._controls: list[active_times.Control] = []
        self._mode, self._acknowledged = "enforce", list[tuple[str | None, datetime]]()
        self._gaps: dict[str, GapHistory] = {}
        self._unreached: tuple[Unreached, ...] = ()
        self._shown: LedgerView | None = None  # what did not depend on the time; None after a change

    def close(self) -> None:
        """Release nothing: memory holds no files."""

    def lead(self) -> bool:
        """Nobody else can have it."""
        return True

    leading = lead  # as long as it lives

    def leader(self) -> str:
        """Return the name of the one leader."""
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
        """Give the round a number and keep what later rounds need; a simulation is never away."""
        del decisions, reviews
        before, self._fleet, self._gaps = self._fleet, observation.fleet, self._gaps | dict(gaps or {})
        self._wishes.extend(
            DesiredNodes(pool=each.pool, policy=each.policy, at=observation.now, want=each.raw_desired_nodes)
            for each in proposals
            if each.raw_desired_nodes is not None
        )
        for node_id in self._changed_nodes(before, observation.fleet):
            if runs_again(self._stopped[node_id], observation.fleet.find(node_id)):
                self.forget_stop(node_id)
        for node_id, (at, missing) in list(self._shields.items()):
            keeps, since = scale_in_protection.protection_after(observation, node_id, at, missing)
            self._shields[node_id] = (at, since)
            if not keeps:
                del self._shields[node_id]
                self._shown = None
        if rulebook is not None and (mode := active_times.MODES[rulebook.enforce]) != self._mode:
            self._mode = mode
            self._note(mode, None, observation.now)
        self._number += 1
        return self._number

    def _write_intent(self, about: Callable[[str], Intent], round_id: int) -> Intent:
        """Hold the intent open under a key of its own."""
        del round_id
        self._number += 1
        intent = about(f"gpuwatch-{self._id}-{self._number}")
        node = None if self._fleet is None else self._fleet.find(intent.node_id)
        self._opened[intent.key] = open_intent(intent, ())
        self._outcomes[intent.key] = []
        if node is not None:
            self._nodes[intent.key] = node
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
        if intent.verb is Verb.LAUNCH and (made := launched_machine(detail)) is not None:
            self.identity.made.add(made)
        if scale_in_protection.ends(intent.verb, status):
            self._shields.pop(intent.node_id, None)
        if scale_in_protection.begins(intent.verb, status):
            self._shields[intent.node_id] = (at, None)
        if status in FINAL:
            self._nodes.pop(intent.key, None)
            self._end(held, outcome)
        else:
            self._outcomes[intent.key].append(outcome)
            self._opened[intent.key] = open_intent(held, self._outcomes[intent.key])
        self._shown = None
        return outcome

    def note_unreached(self, unreached: Sequence[Unreached]) -> None:
        """Keep what the newest round did not come to."""
        self._unreached = tuple(unreached)

    def pool_of(self, key: str) -> str:
        """The pool of a notice in force."""
        return self._pools[key]

    def node_of(self, key: str) -> Node | None:
        """The node of an open intent as the intent's round saw it."""
        return self._nodes.get(key)

    def forget_stop(self, node_id: str) -> None:
        """Forget our stop of a machine."""
        self._no_longer_stopped(node_id)
        self._shown = None

    def pause(self, pool: str | None, who: str, reason: str, at: datetime, until: datetime | None = None) -> Pause:
        """Somebody's order to do nothing."""
        self._pauses.append(Pause(pool=pool, at=at, who=who, reason=reason, until=until))
        self._note("pause", pool, at, until)
        return self._pauses[-1]

    def resume(self, pool: str | None, who: str, at: datetime) -> tuple[Pause, ...]:
        """Take pauses back and return them."""
        del who
        self._note("resume", pool, at)
        self._pauses = [each for each in self._pauses if pool is not None and each.pool != pool]
        return self.orders(at).pauses

    def acknowledge(self, pool: str | None, who: str, reason: str, at: datetime) -> None:
        """Somebody confirms that a mass idleness is true."""
        del who, reason
        self._acknowledged.append((pool, at))

    def gaps(self) -> dict[str, GapHistory]:
        """What pools know of their idle gaps."""
        return dict(self._gaps)

    def view(self, now: datetime, *, recent: timedelta = HOUR, interval_seconds: float | None = None) -> LedgerView:
        """What decisions may know of the past."""
        del interval_seconds
        since = now - recent
        if self._shown is None:
            self._shown = LedgerView(
                notices=tuple(notice for _, notice in map(self._notices.__getitem__, sorted(self._notices))),
                shields=tuple(sorted(self._shields)),
                open_intents=tuple(self._opened.values()),
                stopped=self._stops(),
            )
        shown = self._shown
        found: dict[str, object] = {
            "recent": self._ended_since(since),
            "wishes": tuple(self._wishes[bisect_right(self._wishes, since, key=_written) :]),
            "pauses": self.orders(now).pauses,
            "unreached": self._unreached,
            "resume_orders": tuple((it.pool, it.at) for it in self._controls if it.verb == "resume" and it.at > since),
            "acknowledged": tuple((pool, at) for pool, at in self._acknowledged if at > since),
            "interruptions": tuple(
                each for _, (at, each) in sorted(self._interrupted.items()) if each is not None and at > now - ON_RECORD
            ),
        }
        if self._controls:
            nothing = tuple(active_times.interruptions_of(self._controls))
            found["resumed"] = active_times.resumed_times(nothing, since, now)
            found["notices"] = tuple(
                replace(
                    notice, interruptions=active_times.touching(nothing, self._pools[notice.key], link, notice.at, now)
                )
                for link, notice in map(self._notices.__getitem__, sorted(self._notices))
            )
        if any(getattr(shown, name) != value for name, value in found.items()):
            self._shown = replace(shown, **found)  # type: ignore[arg-type]  # of its own fields
        return self._shown

    def removals(self, now: datetime) -> LedgerView:
        """What was stopped and ended and may be undone."""
        ended = sorted(self._ended, key=_number)
        resumed = tuple((each.pool, each.at) for each in self._controls if each.verb == "resume")
        return LedgerView(recent=tuple(those_that_matter((done for _, _, done in ended), now)), resume_orders=resumed)

    open_actions = view  # most of it is known from the last time

    def orders(self, now: datetime) -> LedgerView:
        """The pauses in force."""
        return LedgerView(pauses=tuple(each for each in self._pauses if each.until is None or each.until > now))

    def _changed_nodes(self, before: Fleet | None, fleet: Fleet) -> list[str]:
        """The nodes with a stop of ours of which a round shows more than the one before."""
        if before is None or len(before.nodes) != len(fleet.nodes):
            return list(self._stopped)
        changed = {fleet.nodes[place].id for place in changed_places(before.nodes, fleet.nodes)} | self._unseen
        self._unseen.clear()
        return [node_id for node_id in changed if node_id in self._stopped]

    def _no_longer_stopped(self, node_id: str) -> None:
        self._unseen.discard(node_id)
        if self._stopped.pop(node_id, None) is not None:
            del self._stop_names[bisect_left(self._stop_names, node_id)]
            self._stops_shown = None

    def _stops(self) -> tuple[Stopped, ...]:
        """Our stops, by node; the same tuple again while they are the same."""
        if self._stops_shown is None:
            self._stops_shown = tuple(map(self._stopped.__getitem__, self._stop_names))
        return self._stops_shown

    def _note(self, verb: str, pool: str | None, at: datetime, until: datetime | None = None) -> None:
        """An order, or another mode."""
        self._number += 1
        self._controls.append(active_times.Control(id=self._number, at=at, verb=verb, pool=pool, until=until))

    def compact(self, now: datetime) -> int:
        """Forget what no decision looks back to."""
        before, self._recent = now - _KEPT, None
        old = bisect_left(self._ended, before, key=_when)
        matters = set(map(id, those_that_matter((done for _, _, done in self._ended), now)))
        self._ended = [each for place, each in enumerate(self._ended) if place >= old or id(each[2]) in matters]
        self._wishes = self._wishes[bisect_left(self._wishes, before, key=_written) :]
        self._interrupted = {name: each for name, each in self._interrupted.items() if each[0] > now - ON_RECORD}
        return 0

    def _end(self, intent: Intent, outcome: Outcome) -> None:
        """Write down an outcome that is final."""
        del self._opened[intent.key]
        before_it = self._outcomes.pop(intent.key)
        tried = attempts((each.status, each.at) for each in before_it)
        node_id, status = intent.node_id, outcome.status
        if status is Status.SETTLED and intent.verb not in BESIDE_NOTICES:
            if (before := self._notices.pop(node_id, None)) is not None:
                del self._pools[before[1].key]
                if before[1].promise is not None:
                    self._grace[node_id] = before[1].promise.grace_seconds
            if intent.verb is Verb.NOTICE:
                self._number += 1
                self._pools[intent.key] = intent.pool
                notice = Notice(
                    node_id=node_id,
                    key=intent.key,
                    at=outcome.at,
                    promise=promise_of(intent.pool, intent.arguments),
                    why=intent.reason.sentence,
                    target=target_of(intent.arguments),
                )
                self._notices[node_id] = (self._number, notice)
        if status is Status.SETTLED:
            if intent.verb in CLOUD_RECORDS:
                said = interruption_of(intent.verb, node_id, intent.key, intent.pool, outcome.at, intent.arguments)
                self._interrupted[node_id] = (outcome.at, said)
            if intent.verb in ENDS_OF_A_STOP:
                self._no_longer_stopped(node_id)
            if intent.verb is Verb.STOP:
                self._stops_shown = None
                self._unseen.add(node_id)
                insort(self._stop_names, node_id)
                self._stopped[node_id] = Stopped(
                    node_id=node_id,
                    key=intent.key,
                    at=outcome.at,
                    launched_at=launch_time(intent.arguments),
                    asked_at=intent.at,
                    why=stop_words(intent.reason, self._grace.get(node_id)),
                    answer=stop_answer(before_it),
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
                why=intent.reason.sentence,
                code=intent.reason.code,
                fault=fault(status, outcome.detail, [each.status for each in before_it]),
            )
            self._ended.append((outcome.at, int(intent.key.rpartition("-")[2]), done))

    def _ended_since(self, since: datetime) -> tuple[Done, ...]:
        """Those that ended later, by their intents; the same tuple again while they are the same."""
        first = bisect_right(self._ended, since, key=_when)
        known = self._recent
        if known is not None and known[:2] == (first, len(self._ended)):
            return known[2]
        ended = sorted(self._ended[first:], key=_number)
        self._recent = first, len(self._ended), tuple([done for _, _, done in ended])
        return self._recent[2]
