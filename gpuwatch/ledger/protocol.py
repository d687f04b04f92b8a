"""What a controller's rounds need of a ledger, whatever keeps it. People ask `Ledger` for more: history and audit."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Protocol

from gpuwatch.guard.settings import Rulebook
from gpuwatch.model.decision import (
    Decision,
    Intent,
    LedgerView,
    Observation,
    Outcome,
    Proposal,
    Reason,
    Review,
    Status,
    Unreached,
    Verb,
)
from gpuwatch.model.fleet import Node
from gpuwatch.model.orders import Pause
from gpuwatch.model.sensors import SensorRecord
from gpuwatch.policies.idle_timeout.gap_history import GapHistory

HOUR = timedelta(hours=1)  # how far back limits look


class LedgerIdentity(Protocol):
    """Whether a ledger may be trusted, and which decisions on the fleet's machines are not its own."""

    @property
    def trouble(self) -> str | None:
        """Why nothing may be done by this ledger now. None: it may be used."""
        ...

    @property
    def doubt(self) -> str | None:
        """How the ledger differs from what was left here; the controller then begins paused. None: it does not."""
        ...

    def begin_paused(self) -> None:
        """The pause for `doubt` is on record: from here on the ledger counts as it is."""
        ...

    def foreign(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Those of these decisions that are not on record here, in order."""
        ...

    def launched_machines(self, node_ids: Iterable[str]) -> tuple[str, ...]:
        """Those of these machines that this ledger launched, in order; their launches are over."""
        ...

    def objections(self, foreign: Collection[str]) -> Iterator[str]:
        """Why these foreign decisions make a controller begin paused, each reason once."""
        ...


class SensorMemory(Protocol):
    """Which drivers, agents and images machines were seen at work with."""

    def read(self) -> SensorRecord | None:
        """What is known; None: nothing yet."""
        ...

    def keep(self, record: SensorRecord) -> None:
        """Put it in the place of what was known."""
        ...


class IntentLedger(Protocol):
    """What keeps intents: each ledger allocates keys in its own way, and they say the same."""

    def intend(  # noqa: PLR0913  an intent says all of itself
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
        """Write down what is about to be done, under a key of its own."""

        def about(key: str) -> Intent:
            return Intent(
                key=key,
                verb=verb,
                node_id=node_id,
                pool=pool,
                at=at,
                reason=reason,
                arguments=dict(arguments or {}),
                owner=owner,
                usd_per_hour=usd_per_hour,
            )

        return self._write_intent(about, round_id)

    @abstractmethod
    def _write_intent(self, about: Callable[[str], Intent], round_id: int) -> Intent:
        """Allocate a key, and keep the intent about which all else is known."""


class RoundLedger(IntentLedger, Protocol):
    """What a round reads before it decides, and writes before and after it acts."""

    @property
    def identity(self) -> LedgerIdentity:
        """Which ledger this is."""
        ...

    @property
    def sensors(self) -> SensorMemory:
        """What machines were seen at work with."""
        ...

    @property
    def epoch(self) -> int | None:
        """The number of this process's lead; None while it does not lead."""
        ...

    def close(self) -> None:
        """Release what the ledger holds."""
        ...

    def lead(self) -> bool:
        """Whether this process leads; it takes the lead where nobody has it. Never raises."""
        ...

    def leading(self) -> bool:
        """Whether this process leads at this moment. Never raises."""
        ...

    def leader(self) -> str:
        """Host and process of the controller that leads, or led last."""
        ...

    def view(self, now: datetime, *, recent: timedelta = HOUR, interval_seconds: float | None = None) -> LedgerView:
        """What decisions may know of the past."""
        ...

    def removals(self, now: datetime) -> LedgerView:
        """What was stopped and ended in the last weeks and may be undone, as `recent`; asked once by a process."""
        ...

    def open_actions(self, now: datetime) -> LedgerView:
        """What settling must know of the past: the open intents, and when people resumed lately."""
        ...

    def orders(self, now: datetime) -> LedgerView:
        """The pauses and snoozes in force, and nothing else: it is asked right before each call to the cloud."""
        ...

    def gaps(self) -> dict[str, GapHistory]:
        """What pools that learn their waits know of their idle gaps."""
        ...

    def pool_of(self, key: str) -> str:
        """The pool of a notice in force."""
        ...

    def node_of(self, key: str) -> Node | None:
        """The node of an intent as the intent's round saw it; None: no longer known, or it was there no node."""
        ...

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
        """Keep what later rounds need of this one; gives the round's number."""
        ...

    def settle(self, intent: Intent, status: Status, detail: str, at: datetime) -> Outcome:
        """Write down what came of an attempt; a final status closes the intent."""
        ...

    def note_unreached(self, unreached: Sequence[Unreached]) -> None:
        """Keep what the newest round allowed and did not come to, in the place of what an earlier one did not."""
        ...

    def forget_stop(self, node_id: str) -> None:
        """Forget our stop of a node that no longer exists."""
        ...

    def pause(self, pool: str | None, who: str, reason: str, at: datetime, until: datetime | None = None) -> Pause:
        """Somebody's order to do nothing; `pool` None is all."""
        ...

    def compact(self, now: datetime) -> int:
        """Drop what is too old to matter; gives how many records."""
        ...
