"""Budgets in every round: asks the ledger for what was billed, in part once an hour, and says what has been crossed.

A round asks for the rows of the hour under way alone. Those of the last days are asked for when an hour is whole, and
the forecasts are then made again, one a round. All are asked for when a day begins, and after every pause: then the
round before may have billed time that passed long ago, or another controller may have led.

A round is decided before it has billed its own minute, and shown afterwards: `with_billed` adds that.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

from gpuwatch.ledger import Ledger
from gpuwatch.model.budget import Basis, BudgetState
from gpuwatch.model.decision import Observation
from gpuwatch.model.money import format_usd, usd_to_the_cent
from gpuwatch.model.usage import milliseconds
from gpuwatch.money.accounting.scope import Foreign, counted_terms
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import Billed, Row, totals
from gpuwatch.money.budgets.budget import (
    DAY_SECONDS,
    HISTORY_DAYS,
    Month,
    Past,
    forecast,
    foreign_in_scope,
    is_in_scope,
    past,
    price_running,
    rows_in_scope,
    spent_exactly,
    state,
    unknown,
    unnamed_time,
    with_crossings,
    with_foreign,
)
from gpuwatch.money.budgets.settings import Budget
from gpuwatch.money.budgets.unpriced import Kind, LastPrice, last_prices

log = logging.getLogger(__name__)

_PAUSE = timedelta(minutes=5)  # without one, what is older was billed by the round before
_LATEST = 2**40  # seconds since 1970: no row begins later
_FIRST_DAYS = HISTORY_DAYS + 2  # a row that reaches into them begins no earlier
_LATE_DAYS = 3  # rows older than these change after a pause only


@dataclass(slots=True, kw_only=True)
class Budgeting:
    """The budgets of the settings over one ledger; `logs_crossings`: each crossed threshold is logged once a month."""

    ledger: Ledger
    budgets: Mapping[str, Budget]
    zone: ZoneInfo
    logs_crossings: bool = False
    _spend: SpendBook = field(init=False)
    _until: tuple[datetime, str] | None = None  # up to when `_past` is known, and its month
    _began: datetime | None = None
    _asked: datetime | None = None
    _paused: bool = True
    _old: tuple[int, list[Billed]] = (0, [])  # up to when, and the rows
    _rows: list[Billed] = field(default_factory=list)
    _due: list[str] = field(default_factory=list)  # budgets with a forecast that is to be made again
    _past: dict[str, Past] = field(default_factory=dict)
    _unseen: frozenset[int] = frozenset()  # days before the hour under way, 1 is the last
    _last: dict[Kind, LastPrice] = field(default_factory=dict)
    _foreign: dict[str, Foreign] = field(default_factory=dict)
    _before: dict[str, BudgetState] = field(default_factory=dict)
    _spent: dict[str, Fraction] = field(default_factory=dict)  # not rounded
    _within: bool = False  # whether all that this round bills is of its month

    def __post_init__(self) -> None:
        """Open the spending book of the ledger."""
        self._spend = SpendBook(self.ledger)

    def states(self, observation: Observation) -> tuple[BudgetState, ...]:
        """Every budget in this round; what goes wrong makes them unknown, and stops no round."""
        if not self.budgets:
            return ()
        now = observation.now
        hour = datetime.fromtimestamp(Calendar(self.zone).hour(milliseconds(now - _PAUSE)).begin, UTC)
        month = Month(now=now, edge=hour, zone=self.zone, began=self._began)
        try:
            return self._states(observation, month)
        except Exception:
            log.exception("What is spent of the budgets is not known in this round.")
            self._until = None
            doubt = "the ledger could not be asked, the log says why"
            before = self._before
            return tuple(unknown(name, each, month, before.get(name), doubt) for name, each in self.budgets.items())

    def with_billed(self, found: tuple[BudgetState, ...], billed: Iterable[Row]) -> tuple[BudgetState, ...]:
        """The states with what this round has billed; not in a month's first round, as some of that is of before."""
        if not self._within:
            return found
        rows = [replace(row, terms=counted_terms(row.terms)) for row in billed]
        return tuple(self._with_billed(each, rows) for each in found)

    def _with_billed(self, found: BudgetState, rows: Sequence[Row]) -> BudgetState:
        if found.spent_usd is None or found.name not in self._spent:
            return found
        scope, by_namespace = self.budgets[found.name].scope, self.budgets[found.name].namespace is not None
        mine = [
            row
            for row in rows
            if (row.holder is not None) is by_namespace
            and is_in_scope(scope, row.terms, None if row.holder is None else row.holder.namespace)
        ]
        usd = sum((each.usd for each in totals(mine, lambda _: "").values()), self._spent[found.name])
        more = usd_to_the_cent(usd) - found.spent_usd
        rates = found.present_rate_usd, found.lasting_rate_usd
        present, lasting = (None if rate is None else rate + more for rate in rates)
        return replace(found, spent_usd=found.spent_usd + more, present_rate_usd=present, lasting_rate_usd=lasting)

    def _states(self, observation: Observation, month: Month) -> tuple[BudgetState, ...]:
        now = observation.now
        pause = self._asked is None or not timedelta(0) <= now - self._asked <= _PAUSE
        if pause:
            self._before = {each.name: each for each in self._recorded_states()}
        if pause or self._paused or self._until != (month.edge, month.name):
            self._look_back(month, again=pause or self._paused)
        self._within = self._asked is not None and self._asked >= month.begin
        self._asked, self._paused = now, pause
        month = replace(month, began=self._began)
        self._forecast(month)
        rows = self._billed_rows(int(month.edge.timestamp()), _LATEST)
        running, made = price_running(observation), []
        for name, budget in self.budgets.items():
            self._spent[name] = spent_exactly(self._past[name], rows_in_scope(budget, rows), month)
            found = state(name, budget, month, self._past[name], rows_in_scope(budget, rows), running, self._last)
            found = with_foreign(found, self._foreign[name], foreign_in_scope(budget, rows, month))
            found = with_crossings(found, budget, self._before.get(name), now)
            if self.logs_crossings:
                self._log_crossings(found)
            self._before[name] = found
            made.append(found)
        return tuple(made)

    def _look_back(self, month: Month, *, again: bool) -> None:
        """Everything before the hour under way."""
        edge = int(month.edge.timestamp())
        late = edge - edge % DAY_SECONDS - _LATE_DAYS * DAY_SECONDS
        if again or self._old[0] != late:
            began = self._spend.began()
            self._began = None if began is None else datetime.fromtimestamp(began / 1000, UTC)
            self._old = late, self._billed_rows(edge - _FIRST_DAYS * DAY_SECONDS, late)
        self._rows = [*self._old[1], *self._billed_rows(late, edge)]
        if again or self._until is None or self._until[1] != month.name:
            self._past = {}
        self._past = {
            name: past(
                rows_in_scope(budget, self._rows),
                month,
                self._past[name].ahead if name in self._past else None,
                unnamed_time(budget, self._rows, month),
            )
            for name, budget in self.budgets.items()
        }
        self._foreign = {name: foreign_in_scope(each, self._rows, month) for name, each in self.budgets.items()}
        self._last = last_prices(self._rows)
        self._unseen = self._unseen_days(edge)
        self._due = list(self.budgets)
        self._until = (month.edge, month.name)

    def _unseen_days(self, edge: int) -> frozenset[int]:
        """Days before the edge in which nothing was billed and no round looked: the controller was down."""
        billed = {
            day
            for row in self._rows
            for day in range((edge - row.begin - row.span) // DAY_SECONDS, (edge - row.begin - 1) // DAY_SECONDS + 1)
        }
        known = 0 if self._began is None else (edge - int(self._began.timestamp())) // DAY_SECONDS
        found = set()
        for day in range(min(HISTORY_DAYS, known)):
            begin, end = (datetime.fromtimestamp(edge - each * DAY_SECONDS, UTC) for each in (day + 1, day))
            if day not in billed and not self._spend.has_rounds(begin, end):
                found.add(day + 1)
        return frozenset(found)

    def _billed_rows(self, since: int, until: int) -> list[Billed]:
        """Rows of machines, and where a budget is of a namespace those of namespaces."""
        rows = self._spend.billed_time(since, until)
        if any(budget.namespace is not None for budget in self.budgets.values()):
            rows += self._spend.billed_by_namespace(since, until)
        return rows

    def _forecast(self, month: Month) -> None:
        """Make one forecast that is due, and all that are missing."""
        none = [name for name in self._due if self._past[name].ahead is None]
        for name in none or self._due[:1]:
            budget = self.budgets[name]
            made = forecast(budget, rows_in_scope(budget, self._rows), month, self._unseen)
            self._past[name] = replace(self._past[name], ahead=made)
            self._due.remove(name)

    def _recorded_states(self) -> Iterable[BudgetState]:
        """What the newest round on record knew, so that a restart logs nothing twice."""
        newest = self.ledger.rounds(limit=1)
        return self.ledger.observation(newest[0].id).budgets if newest and newest[0].whole else ()

    def _log_crossings(self, found: BudgetState) -> None:
        """What this round is the first to see."""
        known = self._before.get(found.name)
        old = set() if known is None else {(each.ratio, each.on, each.at) for each in known.crossings}
        for each in found.crossings:
            if (each.ratio, each.on, each.at) not in old:
                log.warning("%s", crossing_line(found, each.ratio, each.on))


def crossing_line(found: BudgetState, ratio: float, on: Basis) -> str:
    """A threshold that was crossed, as a sentence."""
    if on == "actual":
        level = f"{format_usd(found.spent_usd)} are spent in {found.month}"
    elif on == "rate":
        level = f"at the rate of the last three days {found.month} ends at {format_usd(found.lasting_rate_usd)}"
        level += f", as usual at {format_usd(found.forecast_usd)}"
    else:
        level = f"{found.month} is forecast to end at {format_usd(found.forecast_usd)} as usual"
        if found.lower_usd is not None and found.upper_usd is not None:
            level += f" (80 %: {format_usd(found.lower_usd)} to {format_usd(found.upper_usd)})"
    least = f" At least: {found.unpriced_hours:.0f} machine-hours have no known price." if found.unpriced_hours else ""
    changed = f" The fleet has changed: {found.change}." if found.change and on != "actual" else ""
    past_ratio = f"past {ratio:.0%} of {format_usd(found.usd_per_month)}"
    return f"Budget {found.name} ({found.scope}): {level}, {past_ratio}.{changed}{least}"
