"""PURE: the figures of a report on any stretch of days, out of what the ledger metered, intended and saw.

All sums are exact; cents are made last, by largest remainders, so that the lines of every slicing add up to the same
whole. What is not known is named and never filled in.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

from gpuwatch.model.budget import BudgetState
from gpuwatch.model.currency import display_currency
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.usage import GPU, Terms, Use
from gpuwatch.money.accounting.savings import Saved
from gpuwatch.money.accounting.settings import EnergySettings
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.totals import (
    BY_HOLDER,
    TAG,
    Billed,
    Energy,
    Row,
    Total,
    energy,
    grouping,
    money_parts,
    totals,
    whole,
)
from gpuwatch.money.blocked.blocked import Blocked
from gpuwatch.money.forecast.machines import fleet_days
from gpuwatch.money.forecast.month_end import MonthEnd, month_end, year_ahead
from gpuwatch.money.forecast.series import DAY_SECONDS, Series
from gpuwatch.money.report.anomalies import Anomaly
from gpuwatch.money.report.health_share import HealthShare
from gpuwatch.money.report.inventory import Inventory
from gpuwatch.money.report.period import Period
from gpuwatch.money.report.progress import Progress
from gpuwatch.money.storage import StorageRow
from gpuwatch.policies.replacement import Loss

SLICES = ("cloud", "pool", "owner", "account", "type", "region", "capacity", "node")
_DAY = timedelta(days=1)
_FORMS = {"hour": "%H:%M", "day": "%Y-%m-%d", "month": "%Y-%m"}
_MOST_DAYS = 62  # beyond, steps are months
LEAD_DAYS = 14  # before a day's report, for its chart


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One group of a slicing; its cents, of the currency of texts, add up with those of the others to the whole's."""

    name: str
    total: Total
    cents: int
    wasted_cents: int
    unproven_cents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One hour, day or month of the chart: it begins at (seconds since 1970)."""

    label: str
    begin: int
    total: Total


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRecord:
    """One action: an intent and its outcome."""

    at: datetime
    verb: Verb
    status: Status
    node_id: str
    pool: str
    owner: str | None
    why: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Somebody's pause, resume or acknowledgement."""

    at: datetime
    verb: str
    pool: str | None
    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many actions had that result."""

    verb: Verb
    status: Status
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """What gpuwatch did: how many by verb and final status, the newest of them, and what people ordered.

    `sick_machines` are those that were terminated while a GPU was failing, in pools that replace them.
    """

    counts: tuple[Count, ...] = ()
    newest: tuple[ActionRecord, ...] = ()
    orders: tuple[Order, ...] = ()
    sick_machines: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How many there were, and the stretches of time too long to know what happened; the longest first."""

    count: int = 0
    gaps: tuple[tuple[datetime, datetime], ...] = ()

    @property
    def gap_seconds(self) -> float:
        """The length of all gaps."""
        return sum((end - begin).total_seconds() for begin, end in self.gaps)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceDays:
    """The days of the prices: list prices change, and old ones mislead.

    `age_days` is of the oldest, on the day of the report. The source that priced the most machine time is the first.
    """

    oldest: date
    newest: date
    age_days: int
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that a report is made of.

    `times` are rows by time, of the period and of what lies before it. Budgets are as the period's last round saw
    them, the inventory as the newest one does.
    """

    period: Period
    now: datetime
    nodes: Sequence[Row]
    times: Sequence[Row]
    held: Sequence[Row] = ()  # the period's rows by who held the GPUs in a Kubernetes cluster; empty without one
    began: datetime | None = None
    cut: bool = False
    unseen: frozenset[date] = frozenset()  # days without a row in which there was no round either
    tags: tuple[str, ...] = ()
    factors: EnergySettings = field(default_factory=EnergySettings)
    rounds: Rounds = field(default_factory=Rounds)
    saved: Saved = field(default_factory=Saved)
    actions: Actions = field(default_factory=Actions)
    inventory: Inventory | None = None
    health: HealthShare | None = None  # of the period; None: no GPU ran in a round that is kept whole
    blocked: Blocked | None = None  # as the inventory; None: no round is kept whole
    budgets: tuple[BudgetState, ...] = ()
    progress: Progress | None = None  # None: less than two weeks are metered
    storage: tuple[StorageRow, ...] | None = None  # when the report is made; None: the cloud was not asked
    anomalies: tuple[Anomaly, ...] = ()  # of the last day that is over


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The figures of one stretch of days."""

    facts: Facts
    whole: Total
    cents: int
    wasted_cents: int
    unproven_cents: int
    slices: Mapping[str, tuple[Line, ...]]  # what wasted the most first
    compared: Total  # of the period's days that are over, as many as `before` has
    before: Total | None  # None: nothing was metered then
    before_days: Period
    steps: tuple[Step, ...]
    days: tuple[Step, ...]  # of a day's report: the two weeks up to it
    energy: Energy
    month: MonthEnd | None
    year: tuple[MonthEnd, ...]
    no_forecast: str | None
    prices: PriceDays | None  # None: no machine of the period has a known price

    @property
    def unit(self) -> str:
        """What one of the steps is: an hour, a day or a month."""
        return _unit(self.facts.period.days)

    @property
    def over(self) -> bool:
        """Whether the period has ended."""
        return self.facts.now.timestamp() >= self.facts.period.until

    @property
    def month_is_over(self) -> bool:
        """Whether the last day that is over was the last of `month`."""
        period = self.facts.period
        return min(period.after, self.facts.now.astimezone(period.zone).date()).day == 1


def make_report(facts: Facts) -> Report:
    """Return the report of these facts."""
    period = facts.period
    alike, before = period.part_that_is_over(facts.now).same_part(period)
    calendar = Calendar(period.zone)
    parts = _by_labels(facts.nodes)
    tags = [f"{TAG}{name}" for name in facts.tags if any(name in dict(row.terms.tags) for row, _ in parts)]
    slices = {by: lines(merge_totals(parts, grouping(by, calendar))) for by in (*SLICES, *tags)}
    if any(row.holder is not None for row in facts.held):
        slices |= {by: lines(totals(facts.held, grouping(by, calendar))) for by in BY_HOLDER}
    times = _by_time(facts.times)
    total = whole(each for _, each in parts)
    (whole_cents, _), (wasted_cents, _), (unproven_cents, _) = money_parts({"": total}, display_currency().cent)
    earlier = [each for begin, each in times.items() if before.since <= begin < before.until]
    within = {begin: each for begin, each in times.items() if period.since <= begin < period.until}
    month, year, trouble = _forecasts(facts, times, calendar)
    lead = calendar.midnight(period.after - LEAD_DAYS * _DAY)
    recent = {begin: each for begin, each in times.items() if lead <= begin < period.until}
    return Report(
        facts=facts,
        whole=total,
        cents=whole_cents,
        wasted_cents=wasted_cents,
        unproven_cents=unproven_cents,
        slices=slices,
        compared=whole(each for begin, each in times.items() if alike.since <= begin < alike.until),
        before=whole(earlier) if earlier else None,
        before_days=before,
        steps=_steps(within, period.days, calendar),
        days=_steps(recent, LEAD_DAYS, calendar) if period.days == 1 else (),
        energy=energy(total, facts.factors),
        month=month,
        year=year,
        no_forecast=trouble,
        prices=price_days(facts.nodes, facts.now.date()),
    )


def _unit(days: int) -> str:
    """What a chart of so many days has a bar for."""
    return "hour" if days == 1 else "day" if days <= _MOST_DAYS else "month"


def merge_totals(parts: Iterable[tuple[Row, Total]], group: Callable[[Row], str]) -> dict[str, Total]:
    """The totals of groups, out of those of their parts."""
    found: dict[str, list[Total]] = {}
    for row, total in parts:
        found.setdefault(group(row), []).append(total)
    return {name: whole(totals) for name, totals in found.items()}


def lines(groups: Mapping[str, Total]) -> tuple[Line, ...]:
    """With their cents, what wasted the most first."""
    (_, cents), (_, wasted), (_, unproven) = money_parts(groups, display_currency().cent)
    made = [
        Line(name=name, total=each, cents=cents[name], wasted_cents=wasted[name], unproven_cents=unproven[name])
        for name, each in groups.items()
    ]
    return tuple(sorted(made, key=_worst_first))


def _worst_first(line: Line) -> tuple[int, int, int, str]:
    useful = line.total.gpu_ms_by_use[Use.USEFUL]
    return -line.wasted_cents, useful - line.total.gpu_ms, -line.cents, line.name


def price_days(rows: Iterable[Row], today: date) -> PriceDays | None:
    """What the rows were priced by; None: none has a price."""
    weights: dict[str, int] = {}
    days = set()
    for row in rows:
        if row.terms.price_as_of is not None:
            days.add(row.terms.price_as_of)
            source = row.terms.price_source or "a source that is not known"
            weights[source] = weights.get(source, 0) + sum(row.amounts[:GPU])
    if not days:
        return None
    return PriceDays(
        oldest=min(days),
        newest=max(days),
        age_days=(today - min(days)).days,
        sources=tuple(sorted(weights, key=lambda name: -weights[name])),
    )


def _by_labels(rows: Iterable[Row]) -> list[tuple[Row, Total]]:
    """One total for each node under one set of labels: prices change often, labels do not."""
    unpriced: dict[Terms, Terms] = {}
    found: dict[tuple[str | None, Terms], Total] = {}
    for row in rows:
        labels = unpriced.get(row.terms)
        if labels is None:
            labels = replace(row.terms, usd_per_hour=None, price_as_of=None, price_source=None)
            unpriced[row.terms] = labels
        found.setdefault((row.node_id, labels), Total()).add(row)
    return [(Row(terms=labels, amounts=(), node_id=node_id), total) for (node_id, labels), total in found.items()]


def _by_time(rows: Iterable[Row]) -> dict[int, Total]:
    """One total for each hour or day, in order."""
    found: dict[int, Total] = {}
    for row in rows:
        found.setdefault(row.begin or 0, Total()).add(row)
    return dict(sorted(found.items()))


def _steps(times: Mapping[int, Total], days: int, calendar: Calendar) -> tuple[Step, ...]:
    """Hours of a day, days of up to two months, months of more. Of a sealed day no hours are known: it is one step."""
    form = _FORMS[_unit(days)]
    found: dict[tuple[str, int], list[Total]] = {}
    begins: dict[tuple[str, int], int] = {}
    for begin, total in times.items():
        local = calendar.local(begin * 1000)
        key = local.strftime(form), local.fold if days == 1 else 0  # an hour that clocks show twice is two steps
        found.setdefault(key, []).append(total)
        begins.setdefault(key, begin)
    return tuple(
        Step(label=label, begin=begins[label, fold], total=whole(each)) for (label, fold), each in found.items()
    )


def _forecasts(
    facts: Facts, times: Mapping[int, Total], calendar: Calendar
) -> tuple[MonthEnd | None, tuple[MonthEnd, ...], str | None]:
    """Where the month of the last day ends, and the year after it, from whole days; or why not.

    Days are the steps, and local ones: their dates stand for them as if all had 24 hours.
    """
    if facts.began is None:
        return None, (), "nothing is metered yet"
    today = facts.now.astimezone(facts.period.zone).date()
    end = min(facts.period.after, today)
    began = facts.began.astimezone(facts.period.zone)
    day = began.date()
    usd: dict[date, Fraction] = {}
    for begin, total in times.items():
        local = calendar.local(begin * 1000).date()
        usd[local] = usd.get(local, Fraction(0)) + total.usd
    first = min(usd, default=day)
    partial = began.timestamp() > calendar.midnight(day)
    values: list[float | None] = []
    day = first = max(day, first)
    while day < end:
        unknown = day in facts.unseen or (partial and day == began.date())
        values.append(None if unknown else float(usd.get(day, Fraction(0))))
        day += _DAY
    series = Series(start=_as_utc(first), step_seconds=DAY_SECONDS, values=tuple(values))
    # A period that has ended is reported as of its last moment, not of the next month's first.
    at = _as_utc(end) - timedelta(microseconds=1)
    try:
        years = year_ahead(series, at)
    except ValueError as error:
        return None, (), str(error)
    edge, now = calendar.midnight(end), calendar.local(calendar.midnight(end) * 1000) - timedelta(microseconds=1)
    unseen = frozenset(number for number, value in enumerate(values) if value is None)
    begins = calendar.midnight((end - _DAY).replace(day=1))
    spent = sum((total.usd for begin, total in times.items() if begins <= begin < edge), Fraction(0))
    fleet = fleet_days(_by_day(facts.times, calendar), edge, (end - first).days, unseen)
    return month_end(fleet, spent, now), years, None


def _by_day(rows: Iterable[Row], calendar: Calendar) -> Iterator[Billed]:
    """What machines were billed on each local day; of a sealed one no hours are known."""
    for row in rows:
        day = calendar.day((row.begin or 0) * 1000)
        yield Billed(begin=day.begin, span=day.end - day.begin, terms=row.terms, node_ms=sum(row.amounts[:GPU]))


def _as_utc(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
