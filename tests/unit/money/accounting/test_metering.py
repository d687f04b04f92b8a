"""Billed time by what it was used for: what two rounds saw becomes exact milliseconds."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.activity import State, Tally
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import GpuVerdict, Node, NodeReport, NodeState
from gpuwatch.model.health import GpuHealth, Health
from gpuwatch.model.money import Price
from gpuwatch.model.usage import GPU, USES, HourKey, Terms, Use
from gpuwatch.money.accounting.metering import Marks, Metering, meter
from gpuwatch.money.accounting.slices import Calendar, apportion
from tests.support.builders.fleet import NOW, a_node, a_verdict, an_activity, an_observation

RULES = Metering(zone=ZoneInfo("UTC"), tags=("team",))
MINUTE = timedelta(minutes=1)
NO_AGENT = NodeReport(failure="its agent was not reached")


class Meter:
    """A book without a ledger: rounds go in, sums come out."""

    def __init__(self, rules: Metering = RULES, sealed: int = 0) -> None:
        """Empty, or with days that are sealed."""
        self.rules = rules
        self.marks: Marks | None = None
        self.sealed = sealed
        self.terms: dict[Terms, int] = {}
        self.rows: dict[HourKey, list[int]] = {}

    def see(self, at: datetime, *nodes: Node, price: str | None = None) -> dict[HourKey, list[int]]:
        """One round; gives what it added."""
        priced = None if price is None else Price(usd_per_hour=Decimal(price), as_of=date(2026, 1, 1), source="a list")
        kinds = {} if priced is None else {node.instance_type: priced for node in nodes}
        seen: Observation = replace(an_observation(*nodes, now=at), prices=kinds)
        self.marks, added = meter(self.marks, seen, self.rules, self._number, Calendar(self.rules.zone))
        if self.sealed:
            self.marks = replace(self.marks, sealed=self.sealed)
        for key, amounts in added.items():
            before = self.rows.setdefault(key, [0] * len(amounts))
            self.rows[key] = [mine + its for mine, its in zip(before, amounts, strict=True)]
        return added

    def _number(self, terms: Terms) -> int:
        return self.terms.setdefault(terms, len(self.terms) + 1)

    def gpu_seconds(self) -> dict[Use, float]:
        """Of all rows, without zeros."""
        sums = [sum(row[GPU + place] for row in self.rows.values()) for place in range(len(USES))]
        return {use: ms / 1000 for use, ms in zip(USES, sums, strict=True) if ms}

    def billed_seconds(self) -> float:
        """Of all nodes."""
        return sum(sum(row[:GPU]) for row in self.rows.values()) / 1000


def seen(doing: State, held: float, at: datetime, *, gpus: int = 1, **other: object) -> Node:
    """A running node whose GPUs all do the same."""
    verdict = a_verdict("i-1", doing, held, gpus=gpus, age=0.0, at=at)
    node = a_node("i-1", gpu_count=gpus, signal=NodeReport(verdict=verdict))
    return replace(node, **other)  # type: ignore[arg-type]  # any field of a node


def test_the_agents_word_splits_the_time_between_two_rounds() -> None:
    """Idle at noon and busy for 20 s a minute later: 40 s were idle, 20 s useful, of each of two GPUs."""
    book = Meter()
    book.see(NOW, seen(State.IDLE, 600, NOW, gpus=2))
    book.see(NOW + MINUTE, seen(State.BUSY, 20, NOW + MINUTE, gpus=2))

    assert book.gpu_seconds() == {Use.USEFUL: 40.0, Use.IDLE: 80.0}
    assert book.billed_seconds() == 60.0


@pytest.mark.parametrize(
    ("state", "held", "use"),
    [
        (State.IDLE, 600, {Use.IDLE: 60.0}),
        (State.OCCUPIED, 600, {Use.IDLE: 60.0}),
        (State.PARKED, 600, {Use.PARKED: 60.0}),
        (State.STALLED, 600, {Use.STALLED: 60.0}),
        (State.BUSY, 2, {Use.USEFUL: 60.0}),
        (State.IDLE, 10, {Use.IDLE: 10.0, Use.UNKNOWN: 50.0}),
    ],
)
def test_a_state_seen_twice(state: State, held: float, use: dict[Use, float]) -> None:
    """It held throughout if its agent says so; idleness that began anew was something else before, and nobody knows."""
    book = Meter()
    book.see(NOW, seen(state, 600, NOW))
    book.see(NOW + MINUTE, seen(state, held, NOW + MINUTE))

    assert book.gpu_seconds() == use


def test_without_a_word_of_the_agent_nothing_is_known() -> None:
    """A machine whose agent is silent is billed, and its use is unknown."""
    book = Meter()
    book.see(NOW, seen(State.BUSY, 600, NOW))
    book.see(NOW + MINUTE, seen(State.BUSY, 0, NOW, signal=NO_AGENT))

    assert book.gpu_seconds() == {Use.UNKNOWN: 60.0}


def test_a_gpu_that_is_failing_is_down_and_one_that_works_all_the_same_is_useful() -> None:
    """Of two ill GPUs the one that computes is of use."""
    at = NOW + MINUTE
    ill = GpuHealth(state=Health.FAILING, since=NOW - MINUTE)
    gpus = tuple(
        GpuVerdict(uuid=f"GPU-{number}", index=number, activity=an_activity(state, 600, now=at), health=ill)
        for number, state in enumerate([State.UNKNOWN, State.BUSY])
    )
    verdict = replace(a_verdict("i-1", State.BUSY, 600, at=at), gpus=gpus)
    book = Meter()
    book.see(NOW, seen(State.BUSY, 600, NOW, gpus=2))
    book.see(at, a_node("i-1", gpu_count=2, signal=NodeReport(verdict=verdict)))

    assert book.gpu_seconds() == {Use.USEFUL: 60.0, Use.DOWN: 60.0}


def test_a_source_that_tells_no_gpus_apart_tells_of_all_of_them() -> None:
    """Another exporter says that a node is busy and not which GPU: they count as their node does."""
    book = Meter()
    for at in (NOW, NOW + MINUTE):
        doubt = an_activity(State.UNKNOWN, now=at)
        verdict = replace(
            a_verdict("i-1", State.BUSY, 600, at=at), gpus=(GpuVerdict(uuid="?", index=None, activity=doubt),)
        )
        book.see(at, a_node("i-1", gpu_count=4, signal=NodeReport(verdict=verdict)))

    assert book.gpu_seconds() == {Use.USEFUL: 240.0}


def test_between_rounds_too_far_apart_nobody_looked() -> None:
    """Two hours without a controller are billed and silent: neither idle nor useful, though the agent says idle."""
    book, later = Meter(), NOW + timedelta(hours=2)
    book.see(NOW, seen(State.IDLE, 600, NOW))
    book.see(later, seen(State.IDLE, 90_000, later))

    assert book.gpu_seconds() == {Use.SILENT: 7200.0}
    assert {key.begin for key in book.rows} == {int(NOW.timestamp()), int(NOW.timestamp()) + 3600}


def test_energy_is_measured_also_while_nobody_looked() -> None:
    """The counters of the GPUs went on: their joules are those of the silent hours."""
    book, later = Meter(), NOW + timedelta(hours=2)
    for at, joules in ((NOW, 5_000.0), (later, 725_000.5)):
        tally = Tally(
            since=NOW - MINUTE,
            node_seconds={"idle": joules / 100},
            gpu_seconds={"idle": joules / 100},
            joules=joules,
            joules_gpu_seconds=joules / 100,
        )
        node = seen(State.IDLE, 600, at)
        verdict = replace(node.signal.verdict, tally=tally) if node.signal.verdict is not None else None
        book.see(at, replace(node, signal=NodeReport(verdict=verdict)))

    assert book.gpu_seconds() == {Use.SILENT: 7200.0}
    assert [row[-2:] for row in book.rows.values()] == [[360_000, 3_600_000], [360_000, 3_600_000]]


def test_occupied_and_idle_time_add_up() -> None:
    """Of one minute a machine was idle for 20 s, occupied for 30 s and busy for 10 s: 50 s were of no use."""
    book = Meter()
    for at, spent in ((NOW, (100.0, 100.0, 100.0)), (NOW + MINUTE, (120.0, 130.0, 110.0))):
        by_state = dict(zip(("idle", "occupied", "busy"), spent, strict=True))
        tally = Tally(since=NOW - 10 * MINUTE, node_seconds=by_state, gpu_seconds={"busy": sum(spent)})
        verdict = replace(a_verdict("i-1", State.OCCUPIED, 30.0, age=0.0, at=at), tally=tally)
        book.see(at, a_node("i-1", signal=NodeReport(verdict=verdict)))
    (row,) = book.rows.values()

    assert (row[USES.index(Use.IDLE)], row[USES.index(Use.USEFUL)], sum(row[:GPU])) == (50_000, 10_000, 60_000)


def test_a_machine_that_was_started_again_is_billed_from_its_start() -> None:
    """It stopped some time in between: half of what is left of the minutes before counts for the run before."""
    book, later = Meter(), NOW + 4 * MINUTE
    book.see(NOW, seen(State.BUSY, 600, NOW))
    book.see(later, seen(State.BUSY, 30, later, launched_at=NOW + 2 * MINUTE))

    assert book.billed_seconds() == 60 + 120
    assert book.gpu_seconds() == {Use.USEFUL: 30.0, Use.UNKNOWN: 60 + 90.0}


def test_a_machine_started_again_while_nobody_looked_is_billed_from_its_start_alone() -> None:
    """The cloud does not say that it ran before."""
    book, later = Meter(), NOW + timedelta(hours=5)
    book.see(NOW, seen(State.BUSY, 600, NOW))
    book.see(later, seen(State.BUSY, 30, later, launched_at=later - timedelta(hours=1)))

    assert book.gpu_seconds() == {Use.SILENT: 3600.0}


@pytest.mark.parametrize("state", [NodeState.STOPPED, NodeState.STOPPING, NodeState.TERMINATING, None])
def test_a_machine_that_ended_is_billed_half_way(state: NodeState | None) -> None:
    """Stopped, or gone from the list: it ran until some time between the two rounds, and costs nothing after them."""
    book, after = Meter(), NOW + MINUTE
    book.see(NOW, seen(State.IDLE, 600, NOW))
    for at in (after, after + MINUTE, after + timedelta(days=1)):
        book.see(at, *([] if state is None else [seen(State.IDLE, 0, at, state=state, signal=NO_AGENT)]))

    assert book.billed_seconds() == 30.0


def test_a_stopped_machine_that_is_still_billed_costs_as_before() -> None:
    """Its cloud bills it by the hour: so do we, as time of no use; once that ends, nothing is added."""
    meter_, node = Meter(), a_node(signal=NO_AGENT)
    billed = replace(node, state=NodeState.STOPPED, still_billed="it has local disks")
    for number, each in enumerate([node, billed, billed, replace(billed, still_billed=None)]):
        meter_.see(NOW + number * MINUTE, each)
    meter_.see(NOW + 10 * MINUTE, replace(billed, still_billed=None))

    assert meter_.billed_seconds() == 150.0, "two minutes, and half of the one in which it ended"


def test_a_machine_that_the_list_forgot_for_a_round_is_billed_throughout() -> None:
    """It is back with the start that it had: it ran all along, and nothing is billed twice."""
    book = Meter()
    book.see(NOW, seen(State.IDLE, 600, NOW))
    book.see(NOW + MINUTE)
    book.see(NOW + 2 * MINUTE, seen(State.IDLE, 720, NOW + 2 * MINUTE))

    assert book.billed_seconds() == 120.0


def test_a_new_machine_is_billed_from_its_start_and_no_other_before_metering_began() -> None:
    """One launched between two rounds counts from its launch; one that ran for years before does not."""
    book, later = Meter(), NOW + MINUTE
    book.see(NOW)
    book.see(later, seen(State.BUSY, 10, later, launched_at=NOW + timedelta(seconds=20)))
    book.see(later + MINUTE, seen(State.BUSY, 70, later + MINUTE), replace(a_node("i-2"), signal=NO_AGENT))

    assert book.gpu_seconds() == {Use.USEFUL: 10 + 60, Use.UNKNOWN: 30 + 120.0}


def test_a_sealed_day_is_never_billed_again() -> None:
    """A machine that comes into view late is billed from the end of the last sealed day."""
    sealed = datetime(2026, 3, 2, tzinfo=NOW.tzinfo)
    book = Meter(sealed=int(sealed.timestamp() * 1000))
    book.see(NOW - timedelta(days=1))
    book.see(NOW, seen(State.BUSY, 600, NOW, launched_at=NOW - timedelta(hours=20)))

    assert book.billed_seconds() == 12 * 3600
    assert min(key.begin for key in book.rows) == int(sealed.timestamp())


def test_price_and_labels_hold_from_the_round_that_saw_them() -> None:
    """In the middle of an hour the price and the pool change: two rows of that hour, each under its own terms."""
    book = Meter()
    book.see(NOW, seen(State.BUSY, 600, NOW), price="10")
    book.see(NOW + MINUTE, seen(State.BUSY, 660, NOW + MINUTE, tags={"team": "nlp", "x": "y"}), price="12.5")
    book.see(NOW + 3 * MINUTE, seen(State.BUSY, 780, NOW + 3 * MINUTE, pool="other"), price="12.5")
    book.see(NOW + 4 * MINUTE, seen(State.BUSY, 840, NOW + 4 * MINUTE, pool="other"))
    rows = book.rows.items()
    document = {
        (terms.pool, terms.tags, terms.usd_per_hour): sum(row[0] for key, row in rows if key.terms == number)
        for terms, number in book.terms.items()
    }

    assert document == {
        ("default", (), Decimal(10)): 60_000,
        ("default", (("team", "nlp"),), Decimal("12.5")): 120_000,
        ("other", (), Decimal("12.5")): 60_000,
        ("other", (), None): 0,
    }


def test_a_round_metered_twice_and_a_clock_set_back_bill_nothing() -> None:
    """Not after a crash, not at another leader's, not in the hour that the clock shows again."""
    book = Meter()
    book.see(NOW, seen(State.IDLE, 600, NOW))
    book.see(NOW + MINUTE, seen(State.IDLE, 660, NOW + MINUTE))
    before = {key: list(row) for key, row in book.rows.items()}
    for back in (MINUTE, timedelta(0), -timedelta(hours=1), -timedelta(days=400), MINUTE):
        assert book.see(NOW + back, seen(State.IDLE, 660, NOW + back)) == {}
    book.see(NOW + 2 * MINUTE, seen(State.IDLE, 720, NOW + 2 * MINUTE))

    assert before != book.rows
    assert book.gpu_seconds() == {Use.IDLE: 120.0}


def a_tally(truth: Sequence[bool], upto: int) -> Tally:
    """What an agent has counted of two GPUs that worked in those seconds; each draws 300 W then, else 60 W."""
    busy = sum(truth[:upto])
    return Tally(
        since=NOW - timedelta(hours=1),
        node_seconds={"busy": 7.0 + busy, "idle": 100.0 + upto - busy},
        gpu_seconds={"busy": 14.0 + 2 * busy, "idle": 200.0 + 2 * (upto - busy)},
        joules=1000.0 + 600 * busy + 120 * (upto - busy),
        joules_gpu_seconds=50.0 + 2 * upto,
    )


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=2, max_size=10), st.data())
def test_any_rounds_give_the_same_seconds(spells: list[int], data: st.DataObject) -> None:
    """However the time is cut into rounds, billed time is exact, and what the agent counted is what comes out."""
    truth = [bool(number % 2) for number, seconds in enumerate(spells) for _ in range(seconds)]
    cuts = data.draw(st.lists(st.integers(1, max(1, len(truth) - 1)), max_size=8, unique=True))
    book = Meter(replace(RULES, zone=ZoneInfo("Asia/Kolkata"), silent_after_seconds=600))
    moments = [0, *sorted(cuts), len(truth)]
    for moment in moments:
        at = NOW + timedelta(minutes=28, seconds=moment)  # across an hour of Kolkata's
        doing = State.BUSY if moment and truth[moment - 1] else State.IDLE
        verdict = a_verdict("i-1", doing, 1.0, gpus=2, at=at)
        signal = NodeReport(verdict=replace(verdict, tally=a_tally(truth, moment)))
        book.see(at, a_node("i-1", gpu_count=2, signal=signal))
    useful = sum(row[GPU] for row in book.rows.values())

    assert book.billed_seconds() == len(truth)
    assert abs(useful - 2000 * sum(truth)) <= 2 * len(moments)
    assert sum(row[-2] for row in book.rows.values()) == 600 * sum(truth) + 120 * (len(truth) - sum(truth))
    assert sum(row[-1] for row in book.rows.values()) == 2000 * len(truth)
    assert all(sum(row[GPU : 2 * GPU]) == 2 * sum(row[:GPU]) for row in book.rows.values())


STATES = st.sampled_from(list(State))
ROUNDS = st.lists(
    st.tuples(
        st.integers(-400, 4000),  # seconds since the round before: the clock may be set back
        st.sampled_from([NodeState.RUNNING, NodeState.RUNNING, NodeState.STOPPED, NodeState.PENDING, None]),
        st.integers(0, 5000),  # launched so many seconds ago
        st.booleans(),
        STATES,
        st.integers(0, 3000),
        st.integers(0, 3),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(ROUNDS)
def test_whatever_rounds_see_no_moment_is_billed_twice_and_all_parts_add_up(
    rounds: list[tuple[int, NodeState | None, int, bool, State, int, int]],
) -> None:
    """Parts are never negative, each row's GPUs add up to its node, and nothing is billed beyond its hour."""
    book, at = Meter(), NOW
    for passed, state, launched, known, doing, held, gpus in rounds:
        at += timedelta(seconds=passed)
        start = at - timedelta(seconds=launched) if known else None
        nodes = [] if state is None else [seen(doing, held, at, gpus=gpus, state=state, launched_at=start)]
        book.see(at, *nodes)
    by_hour: dict[int, int] = {}
    for key, row in book.rows.items():
        assert min(row) >= 0
        gpus = next(terms.gpus for terms, number in book.terms.items() if number == key.terms)
        assert sum(row[GPU : 2 * GPU]) == gpus * sum(row[:GPU])
        by_hour[key.begin] = by_hour.get(key.begin, 0) + sum(row[:GPU])

    assert all(ms <= 3_600_000 for ms in by_hour.values())


@settings(deadline=None)
@given(st.integers(0, 10**9), st.dictionaries(st.integers(0, 6), st.integers(0, 10**6), min_size=1))
def test_what_is_divided_adds_up(whole: int, shares: dict[int, int]) -> None:
    """By largest remainders: the parts are the whole, and none is off by one or more."""
    parts = apportion(whole, shares)
    total = sum(shares.values())

    assert sum(parts.values()) == (whole if total else 0)
    assert all(abs(part * total - whole * shares[name]) < total for name, part in parts.items())


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", date(2026, 3, 29), 23),
        ("Europe/Berlin", date(2026, 10, 25), 25),
        ("Europe/Berlin", date(2026, 2, 28), 24),
        ("America/Sao_Paulo", date(2018, 11, 4), 23),  # its midnight is skipped
        ("Asia/Kolkata", date(2026, 12, 31), 24),
    ],
)
def test_a_day_has_the_hours_that_its_clocks_show(zone: str, day: date, hours: int) -> None:
    """Also those of daylight saving, and the hours of a zone half an hour off begin on its own hour."""
    calendar = Calendar(ZoneInfo(zone))
    begin = calendar.midnight(day)
    bucket, at, count = calendar.day(begin * 1000), begin * 1000, 0
    while at < bucket.end * 1000:
        hour = calendar.hour(at)
        assert hour.begin * 1000 == at
        at, count = hour.end * 1000, count + 1

    assert (bucket.begin, bucket.end - bucket.begin, count) == (begin, hours * 3600, hours)
