"""PURE: a day, a pool or an owner that cost what its past does not explain, with the machines that made it.

Rules, all of them:

1. Only days that are over are looked at, and none before two weeks are on record.
2. A day is explained if the group has ever cost as much within 91 days, and as much again as its dearest day lay above
   its usual one (more where there are many groups to be unlucky), and 15 %. So a new level is reported on its first day
   and never again, and a group that always varies is left alone. A day is compared with the same day before the end of
   at least three months, where these were apart from all others.
3. What changed because a price did is reported once, as that, and not for each owner. A price has changed where a
   machine had another one before. Machines of one type may differ: own prices, spot prices by zone.
4. What only moved between owners or pools is no anomaly: the fleet must cost at least half of it more.
5. Ten dollars, and 2 % of the fleet's usual day, are the least.
6. A machine stands with one group, the one that rose by most. Others that rose by the same machines are named with it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from math import log10
from statistics import median

from gpuwatch.model.money import format_usd, usd_to_the_cent
from gpuwatch.model.usage import GPU, HOUR_MS, Terms
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.totals import Row, cloud_name

LEAST_DAYS = 14
MACHINES_AT_MOST = 10
_MEMORY = 91
_WEEK = 7
_TOLERANCE = 1.15
_LEAST_USD, _LEAST_RATIO = 10.0, 0.02
_NEW_PRICE = 0.05  # a change that is told
_SAME = 0.5  # of what a group rose by, made by machines that are told of already
_MONTHS = 3
_CHANGED = 0.01  # of a machine's usual day: rounding makes no riser
_DAY = timedelta(days=1)
Price = tuple[str, str, str, str]  # cloud, region, type, capacity
Days = Mapping[date, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """What cost more on a day than its past explains: `what` (`owner mia`), or a kind of machine with a new price.

    `usd_more` is what the day cost above the usual day. `machines` made it, dearest first; `also` are other groups that
    rose by the same ones, `cause` is why, where that is known.
    """

    day: date
    what: str
    usd: Decimal
    usd_usual: Decimal
    usd_more: Decimal
    cause: str | None = None
    machines: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Return the anomaly as a sentence."""
        what = f"{self.what[0].upper()}{self.what[1:]}"
        of = f"{what} cost {format_usd(self.usd)} on {self.day}, {format_usd(self.usd_more)} more than usual"
        also = f" (also {', '.join(self.also)})" if self.also else ""
        why = f": {self.cause}" if self.cause else ""
        left = len(self.machines) - MACHINES_AT_MOST
        named = ", ".join(self.machines[:MACHINES_AT_MOST]) + (f" and {left} more" if left > 0 else "")
        return f"{of}{also}{why}{f'; by {named}' if named else ''}."


@dataclass(slots=True)
class _Book:
    """Dollars by day, of the fleet and of each group, at the prices before the day that is looked at."""

    usd: dict[date, dict[str, float]] = field(default_factory=dict)

    def add(self, day: date, names: Iterable[str], usd: float) -> None:
        mine = self.usd.setdefault(day, {})
        for name in names:
            mine[name] = mine.get(name, 0.0) + usd


FLEET = "the fleet"


def find_anomalies(
    day: date,
    times: Iterable[Row],
    today: Iterable[Row],
    lately: Sequence[Row],
    calendar: Calendar,
    began: date,
    unseen: frozenset[date] = frozenset(),
) -> tuple[Anomaly, ...]:
    """What of a day is not explained by the days before it, the dearest first.

    Args:
        day: it must be over.
        times: rows of the day and of those before it, with their begins.
        today: rows of the day by machine.
        lately: rows of the week before it by machine.
        calendar: of the place.
        began: the first day that was metered; it may have been metered in part.
        unseen: days of which nobody knows what ran.

    """
    if (day - began).days <= LEAST_DAYS:
        return ()
    rows = [(calendar.local((row.begin or 0) * 1000).date(), row) for row in times if row.terms.foreign is None]
    before_ours = frozenset(row.node_id or "" for row in lately if row.terms.foreign is not None)
    today = [row for row in today if row.terms.foreign is None]
    lately = [row for row in lately if row.terms.foreign is None]
    prices = _Prices(day, rows, today, lately)
    book = _Book()
    for at, row in rows:
        book.add(at, _groups(row.terms), _usd(row, prices.of_day.get(row.terms) if at == day else None))
    past = [at for number in range(1, 400) if (at := day - number * _DAY) > began and at not in unseen]
    names = {name for mine in book.usd.values() for name in mine}
    floor = max(_LEAST_USD, _LEAST_RATIO * _usual(book.usd, past, FLEET, day))
    risen = {
        name: (usd, usual)
        for name in names
        if (usd := book.usd.get(day, {}).get(name, 0.0)) - (usual := _usual(book.usd, past, name, day)) >= floor
        and usd > _explained_usd(book.usd, past, name, day, len(names))
    }
    fleet_more = book.usd.get(day, {}).get(FLEET, 0.0) - _usual(book.usd, past, FLEET, day)
    machines = _risers(today, lately, prices)
    known = {_place(row.terms) for at, row in rows if at < day - _DAY}
    found = [*_new_prices([row for at, row in rows if at == day], day, prices, floor)]
    found += _without_doubles(day, risen, machines, fleet_more, known, before_ours)
    return tuple(sorted(found, key=lambda each: -each.usd_more))


def _groups(terms: Terms) -> tuple[str, ...]:
    owner = () if terms.owner is None else (f"owner {terms.owner}",)
    return (FLEET, f"pool {terms.pool}", *owner)


def _place(terms: Terms) -> tuple[str, str | None]:
    """The cloud and the account that pays for it."""
    return cloud_name(terms), terms.account


def _price_of(terms: Terms) -> Price:
    return cloud_name(terms), terms.region, terms.instance_type, terms.capacity_type


class _Prices:
    """Rule 3: what an hour of a day's machines cost before it."""

    def __init__(
        self, day: date, rows: Sequence[tuple[date, Row]], today: Sequence[Row], lately: Sequence[Row]
    ) -> None:
        """Of all rows, and of those by machine of the day and of the week before it."""
        last: dict[Terms, int] = {}
        for at, row in rows:
            if at < day and row.terms.usd_per_hour is not None:
                last[row.terms] = max(row.begin or 0, last.get(row.terms, 0))
        self._of_machine: dict[tuple[str, Price], dict[Decimal, int]] = {}  # and when it was paid last
        for row in lately:
            if row.terms.usd_per_hour is not None:
                mine = self._of_machine.setdefault((row.node_id or "", _price_of(row.terms)), {})
                mine[row.terms.usd_per_hour] = last.get(row.terms, 0)
        self._of_kind = _replaced_prices(last, [row.terms for at, row in rows if at == day])
        for row in today:
            kind, usd = _price_of(row.terms), row.terms.usd_per_hour
            old = (
                self.price_before(row.node_id or "", row.terms)
                if (row.node_id or "", kind) in self._of_machine
                else None
            )
            if old is not None and usd is not None and self._of_kind.get((kind, usd)) != usd:
                self._of_kind[kind, usd] = old
        self.of_day = {
            row.terms: old for at, row in rows if at == day and (old := self.price_before("", row.terms)) is not None
        }
        self.of_day |= self._of_terms(today)

    def price_before(self, machine: str, terms: Terms) -> Decimal | None:
        """What a machine cost an hour before; of a new one what others with its price did. None: not known."""
        usd, mine = terms.usd_per_hour, self._of_machine.get((machine, _price_of(terms)), {})
        if usd in mine:
            return usd
        return self.last_price(machine, terms) if mine else self._of_kind.get((_price_of(terms), usd))

    def last_price(self, machine: str, terms: Terms) -> Decimal | None:
        """What a machine cost an hour at last before the day; None: it did not run."""
        mine = self._of_machine.get((machine, _price_of(terms)), {})
        return max(mine, key=lambda usd: mine[usd]) if mine else None

    def _of_terms(self, today: Sequence[Row]) -> dict[Terms, Decimal]:
        """The mean of the machines under the same terms, by their hours."""
        sums: dict[Terms, tuple[Decimal, int]] = {}
        for row in today:
            old, ms = self.price_before(row.node_id or "", row.terms), sum(row.amounts[:GPU])
            usd = row.terms.usd_per_hour if old is None else old
            if usd is not None:
                paid, hours = sums.get(row.terms, (Decimal(0), 0))
                sums[row.terms] = paid + usd * ms, hours + ms
        return {terms: paid / ms for terms, (paid, ms) in sums.items() if ms}


def _replaced_prices(last: Mapping[Terms, int], today: Iterable[Terms]) -> dict[tuple[Price, Decimal | None], Decimal]:
    """What an hour of a kind cost before, by its new price, where it had one price that no machine has today."""
    before: dict[Price, tuple[int, set[Decimal]]] = {}
    for terms, at in last.items():
        kind = _price_of(terms)
        newest, usd = before.get(kind, (at, set()))
        if terms.usd_per_hour is not None and at >= newest:
            before[kind] = at, {terms.usd_per_hour, *(usd if at == newest else ())}
    known = {(_price_of(terms), terms.usd_per_hour) for terms in last}
    now: dict[Price, set[Decimal | None]] = {}
    for terms in today:
        now.setdefault(_price_of(terms), set()).add(terms.usd_per_hour)
    return {
        (kind, usd): next(iter(before[kind][1]))
        for kind, found in now.items()
        for usd in found
        if kind in before and len(before[kind][1]) == 1 and not before[kind][1] & found and (kind, usd) not in known
    }


def _usd(row: Row, old: Decimal | None = None) -> float:
    """What a row cost, at another price if there is one."""
    usd = row.terms.usd_per_hour
    return 0.0 if usd is None else float(usd if old is None else old) * sum(row.amounts[:GPU]) / HOUR_MS


def _usual(usd: Days, past: Sequence[date], name: str, day: date) -> float:
    """What such a day usually costs: the middle of the last week, or of this weekday if that is more."""
    week = [usd.get(at, {}).get(name, 0.0) for at in past[:_WEEK]]
    same = [usd.get(at, {}).get(name, 0.0) for at in past if at.weekday() == day.weekday()][:4]
    batch = _same_of_month(usd, past, name, day)
    return median(batch) if batch else max(median(week) if week else 0.0, median(same) if same else 0.0)


def _explained_usd(usd: Days, past: Sequence[date], name: str, day: date, groups: int) -> float:
    """Rule 2: up to what a day costs without a report."""
    known = [usd.get(at, {}).get(name, 0.0) for at in past[:_MEMORY]]
    batch = _same_of_month(usd, past, name, day)
    values = batch or known
    most, usual = max(values, default=0.0), median(values) if values else 0.0
    return (most + (most - usual) * max(1.0, log10(groups))) * _TOLERANCE


def _same_of_month(usd: Days, past: Sequence[date], name: str, day: date) -> list[float]:
    """The same day of earlier months, counted from their ends, where each was apart from all usual days."""
    ends = [at for at in past if _to_end(at) == _to_end(day)]
    values = [usd.get(at, {}).get(name, 0.0) for at in ends][:5]
    others = sorted(usd.get(at, {}).get(name, 0.0) for at in past[:_MEMORY])
    if len(values) < _MONTHS or not others:
        return []
    return values if min(values) > _TOLERANCE * others[int(0.85 * len(others))] else []


def _to_end(day: date) -> int:
    """How many days before the end of its month a day is."""
    after = (day.replace(day=28) + 4 * _DAY).replace(day=1)
    return (after - day).days


def _risers(today: Iterable[Row], lately: Iterable[Row], prices: _Prices) -> list[tuple[float, str, Terms]]:
    """Machines that cost more than a day of the week before, with how much more; the dearest first."""
    usual: dict[str, float] = {}
    for row in lately:
        old = prices.last_price(row.node_id or "", row.terms)
        usual[row.node_id or ""] = usual.get(row.node_id or "", 0.0) + _usd(row, old) / _WEEK
    cost: dict[tuple[str, Terms], float] = {}
    for row in today:
        key = (row.node_id or "", row.terms)
        cost[key] = cost.get(key, 0.0) + _usd(row, prices.price_before(*key))
    found = [(usd - usual.get(name, 0.0), name, terms) for (name, terms), usd in cost.items()]
    return sorted(
        (each for each in found if each[0] > _CHANGED * usual.get(each[1], 0.0)), key=lambda each: (-each[0], each[1])
    )


def _without_doubles(
    day: date,
    risen: Mapping[str, tuple[float, float]],
    machines: Sequence[tuple[float, str, Terms]],
    fleet_more: float,
    known: set[tuple[str, str | None]],
    enrolled: frozenset[str],
) -> list[Anomaly]:
    """Rules 4 and 6."""
    told: dict[str, int] = {}
    found: list[Anomaly] = []
    order = sorted(risen, key=lambda name: (name == FLEET, -round(risen[name][0] - risen[name][1], 2), name))
    for name in order:
        usd, usual = risen[name]
        mine = [(more, machine, terms) for more, machine, terms in machines if name in _groups(terms)]
        whole = sum(more for more, _, _ in mine)
        twice = [(more, machine) for more, machine, _ in mine if machine in told]
        if name == FLEET and found:
            continue
        if whole and sum(more for more, _ in twice) >= _SAME * whole:
            place = told[twice[0][1]]
            found[place] = replace(found[place], also=(*found[place].also, name))
            continue
        if fleet_more < _SAME * (usd - usual):
            continue
        told |= {machine: len(found) for _, machine, _ in mine}
        found.append(
            _anomaly(
                day,
                name,
                usd,
                usual,
                cause=_cause(mine, known, enrolled),
                machines=tuple(dict.fromkeys(machine for _, machine, _ in mine)),
            )
        )
    return found


def _cause(
    risers: Sequence[tuple[float, str, Terms]], known: set[tuple[str, str | None]], enrolled: frozenset[str]
) -> str | None:
    """Why machines that were there before count now: they were enrolled, or their account was connected."""
    ours = sum(machine in enrolled for _, machine, _ in risers)
    if 2 * ours > len(risers):
        return f"{ours} machine{'s' * (ours != 1)} that ran before, too, {'were' if ours != 1 else 'was'} enrolled"
    new = {place for _, _, terms in risers if (place := _place(terms)) not in known}
    named = ", ".join(sorted(account or cloud for cloud, account in new))
    return f"{named} was not metered before" if new else None


def _anomaly(
    day: date, what: str, usd: float, usual: float, cause: str | None, machines: tuple[str, ...] = ()
) -> Anomaly:
    cost, before = (usd_to_the_cent(Decimal(str(each))) for each in (usd, usual))
    return Anomaly(
        day=day, what=what, usd=cost, usd_usual=before, usd_more=cost - before, cause=cause, machines=machines
    )


def _new_prices(today: Sequence[Row], day: date, prices: _Prices, floor: float) -> Iterator[Anomaly]:
    """Rule 3: kinds of machines that cost another price than on the days before."""
    kinds: dict[Price, list[Row]] = {}
    for row in today:
        kinds.setdefault(_price_of(row.terms), []).append(row)
    for kind, rows in kinds.items():
        both = [(_usd(row), _usd(row, prices.of_day.get(row.terms))) for row in rows]
        paid, usual = (sum(each) for each in zip(*both, strict=True))
        changed = [(now, then) for now, then in both if then and abs(now / then - 1) >= _NEW_PRICE]
        if changed and paid - usual >= floor:
            now, then = (sum(each) for each in zip(*changed, strict=True))
            cause = f"its price is {now / then - 1:+.0%}, the hours are as they were"
            yield _anomaly(day, f"{kind[2]} in {kind[1]}", paid, usual, cause)
