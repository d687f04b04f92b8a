"""Budgets that pass a threshold: one message to each of their receivers, also over restarts, without Prometheus.

What was passed is in each round's budgets, what was sent is in the ledger's messages. A message that did not arrive is
tried again until the month ends.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from gpuwatch.ledger import Ledger
from gpuwatch.model.budget import BudgetState, Crossing
from gpuwatch.money.accounting.scope import counted_scope
from gpuwatch.money.budgets.settings import Budget
from gpuwatch.notify.budget_message import BudgetMessage, highest, share
from gpuwatch.notify.delivery import Due, Outbox, Record, key_of
from gpuwatch.notify.settings import NotifySettings, addresses, slack_of
from gpuwatch.notify.transports.base import Delivery
from gpuwatch.runtime.backoff import Backoff
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

BUDGET = "budget"  # the event's name, and the first word of the messages' keys
_FIRST_WAIT_SECONDS = 15.0
_LONGEST_WAIT_SECONDS = 600.0


@dataclass(slots=True, kw_only=True)
class BudgetNotices:
    """Sends messages to the receivers of each budget; `states` are those of the last round, empty before it.

    `count` gets the receiver, the event and the result of each message.
    """

    notify: NotifySettings
    budgets: Mapping[str, Budget]
    fleet_name: str
    zone: ZoneInfo
    clock: Clock
    states: Callable[[], Sequence[BudgetState]]
    count: Callable[[str, str, str], None] = lambda *_: None
    outbox: Outbox = field(init=False)
    _told: set[tuple[str, str]] = field(default_factory=set)  # what the ledger is known to have: key, receiver

    def __post_init__(self) -> None:
        """Nothing has failed yet."""
        backoff: Backoff[object] = Backoff(
            clock=self.clock, first_seconds=_FIRST_WAIT_SECONDS, longest_seconds=_LONGEST_WAIT_SECONDS
        )
        self.outbox = Outbox(clock=self.clock, backoff=backoff)

    def pending(self) -> bool:
        """Whether a receiver may still lack a message."""
        return any(True for _ in self._waiting())

    def deliver(self, ledger: Ledger) -> None:
        """Send what a receiver does not have yet: one message for each budget and receiver."""
        waiting = list(self._waiting())
        keys = {_key(state, each) for state, _, crossings in waiting for each in crossings}
        current = {_key(state, each) for state in self.states() for each in state.crossings}
        self._told = {told for told in self._told if told[0] in current} | ledger.messages.recorded_messages(keys)
        for state, name, _ in waiting:
            left = self._crossings_left(state, name)
            if left and not self.outbox.send(ledger, self._due(state, name, left)):
                self.count(name, BUDGET, "failed")

    def _waiting(self) -> Iterator[tuple[BudgetState, str, Sequence[Crossing]]]:
        """Each budget and receiver with thresholds that the receiver may not know of."""
        for state in self.states():
            budget = self.budgets.get(state.name)
            for name in () if budget is None else budget.notify:
                left = self._crossings_left(state, name)
                if left and not self.outbox.waits(name, state.name):
                    yield state, name, left

    def _crossings_left(self, state: BudgetState, name: str) -> tuple[Crossing, ...]:
        """Thresholds of the budget that this receiver does not know yet; nothing while spending is not known."""
        if state.doubt is not None:
            return ()
        wanted = [each for each in state.crossings if each.ratio in state.thresholds]
        return tuple(each for each in wanted if (_key(state, each), name) not in self._told)

    def _due(self, state: BudgetState, name: str, crossings: tuple[Crossing, ...]) -> Due:
        top = highest(crossings)
        return Due(
            receiver=name,
            transport=self.notify.receivers[name].transport,
            what=f"message that budget {state.name} is past {share(top)}",
            make=partial(self._delivery, state, name, crossings),
            records=partial(self._records, state, name, crossings),
            group=state.name,
        )

    def _delivery(self, state: BudgetState, name: str, crossings: tuple[Crossing, ...]) -> Delivery:
        receiver, owner, now = self.notify.receivers[name], state.scope.owner, self.clock.now()
        to, copies = addresses(receiver, owner, self.notify)
        member = slack_of(owner, self.notify)
        message = BudgetMessage(
            state=state,
            crossings=crossings,
            fleet=self.fleet_name,
            made_at=now,
            zone=self.zone,
            page=self.notify.url,
            language=self.notify.language,
        )
        return Delivery(
            key=key_of(BUDGET, name, *sorted(_key(state, each) for each in crossings)),
            at=now,
            day=now.astimezone(self.zone).date(),
            content=message,
            to=to,
            copies=copies,
            mentions=() if member is None else (member,),
        )

    def _records(
        self, state: BudgetState, name: str, crossings: Sequence[Crossing], at: datetime, where: str
    ) -> list[Record]:
        """One record for each threshold in the message."""
        self.count(name, BUDGET, "reached")
        keys = [_key(state, each) for each in crossings]
        self._told |= {(key, name) for key in keys}

        def record(key: str, ledger: Ledger) -> None:
            ledger.messages.keep(key, name, at, reached=True, detail=where)

        return [partial(record, key) for key in keys]


def _key(state: BudgetState, crossing: Crossing) -> str:
    """The same for one threshold of one budget's sum in one month and scope, and for no other."""
    whole = f"${state.usd_per_month:,.2f}"  # in dollars, in whatever currency people read it
    scope = " of the account" if counted_scope() == "account" else ""
    return f"{BUDGET} {state.name}: {share(crossing)} of {whole} {crossing.on} in {state.month}{scope}"
