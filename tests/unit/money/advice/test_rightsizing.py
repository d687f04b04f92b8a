"""Machines that are larger than what was measured on them."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import Activity, State
from gpuwatch.model.fleet import Fleet, GpuVerdict, Node, NodeReport, NodeVerdict
from gpuwatch.money.advice import rightsizing
from gpuwatch.money.advice.rightsizing import Sizing
from tests.support.builders.fleet import NOW, a_node
from tests.support.builders.money import a_gpu, an_offer

DAY = timedelta(days=1)
WEEK = 7 * DAY
STEP = timedelta(minutes=30)
P4D = an_offer("p4d.24xlarge", memory_gib=40, usd="22")
HALF = an_offer("p4d.half", gpus=4, memory_gib=40, usd="12")
USD = {"p4d.24xlarge": Decimal(22), "p4d.half": Decimal(12)}


def a_machine(at: datetime, *gpus: GpuVerdict, state: State = State.BUSY) -> Node:
    """A node of eight A100 as seen at that moment."""
    verdict = NodeVerdict(
        schema=1,
        node_id="i-1",
        agent_version="0",
        at=at,
        age_seconds=0.0,
        interval_seconds=1.0,
        activity=Activity(state=state, since=None, held_seconds=60.0),
        gpus=gpus,
    )
    return a_node("i-1", instance_type="p4d.24xlarge", gpu_count=8, signal=NodeReport(verdict=verdict))


def days(count: float, node: object) -> Iterator[tuple[datetime, Fleet]]:
    """So many days of rounds; `node` makes the machine of a moment."""
    for number in range(int(count * DAY / STEP) + 1):
        at = NOW + number * STEP
        yield at, Fleet(observed_at=at, nodes=(node(at),))  # type: ignore[operator]


def half_used(at: datetime) -> Node:
    """Four of eight GPUs work, the other four have been idle since the begin."""
    idle = (at - NOW).total_seconds()
    return a_machine(
        at,
        *(a_gpu(index, State.BUSY, 60.0, memory=0.9, active=0.9) for index in range(4)),
        *(a_gpu(index, State.IDLE, idle) for index in range(4, 8)),
    )


def recommended(history: Iterator[tuple[datetime, Fleet]], over: timedelta = WEEK) -> tuple[Sizing, ...]:
    """What is advised."""
    return rightsizing.advice(rightsizing.see_rounds(history), over, (P4D, HALF), USD)


def test_gpus_that_nobody_used_are_told_with_the_machine_that_would_do_and_what_it_saves() -> None:
    """4 of 8 GPUs unused for 12 days: the machine with four of them costs $10 an hour less."""
    (advice,) = recommended(days(12, half_used))

    assert advice.sentence == "4 of 8 GPUs unused for 12 days: p4d.half has 4 of them"
    assert advice.gpus == (4, 5, 6, 7)
    assert advice.usd_per_month == Decimal(7300)


def test_gpus_unused_for_less_than_asked_are_not_told() -> None:
    """Six days are no week."""
    assert recommended(days(6, half_used)) == ()


def test_a_long_idle_time_counts_from_the_agents_own_clock_though_the_record_is_short() -> None:
    """One round of a GPU that is idle for twelve days is enough."""

    def long_idle(at: datetime) -> Node:
        return a_machine(at, a_gpu(0, State.BUSY, 60.0), a_gpu(1, State.IDLE, 12 * 86400.0))

    assert recommended(days(0, long_idle))[0].sentence.startswith("1 of 2 GPUs unused for 12 days")


def test_a_node_that_is_idle_as_a_whole_gets_no_advice_here() -> None:
    """The idle policy speaks of it."""

    def idle(at: datetime) -> Node:
        return a_machine(at, a_gpu(0, State.IDLE, 30 * 86400.0), state=State.IDLE)

    assert recommended(days(8, idle)) == ()


def test_a_parked_or_unknown_gpu_is_never_unused() -> None:
    """Memory that somebody holds is use; doubt is not idleness."""

    def doubtful(at: datetime) -> Node:
        return a_machine(
            at,
            a_gpu(0, State.BUSY, 60.0),
            a_gpu(1, State.PARKED, 30 * 86400.0),
            a_gpu(2, State.UNKNOWN, 30 * 86400.0),
        )

    assert [each for each in recommended(days(8, doubtful)) if each.kind == "unused_gpus"] == []


def test_small_peaks_are_told_as_the_smallest_slice_that_holds_them_with_a_fifth_to_spare() -> None:
    """4 GiB and a tenth of the multiprocessors are a 1g.5gb slice; 5 GiB are no more."""

    def small(at: datetime) -> Node:
        return a_machine(
            at,
            a_gpu(0, State.BUSY, 60.0, memory=0.1, active=0.10),
            a_gpu(1, State.BUSY, 60.0, memory=0.125, active=0.10),
            a_gpu(2, State.BUSY, 60.0, memory=0.1, active=0.20),
            a_gpu(3, State.BUSY, 60.0, memory=0.9, active=0.10),
        )

    advice = recommended(days(8, small))

    assert [(each.gpus, each.better) for each in advice] == [((0,), "1g.5gb"), ((1,), "2g.10gb"), ((2,), "2g.10gb")]
    assert "held at most 4.0 GiB in 8 days, at most 10% of its multiprocessors" in advice[0].sentence


def small_model(at: datetime) -> Node:
    """Two GPUs of which each holds 8 GiB and a tenth of its multiprocessors."""
    return a_machine(at, *(a_gpu(index, State.BUSY, 60.0, memory=0.2, active=0.1) for index in range(2)))


SMALL = (
    an_offer("t4.two", gpus=2, model="T4", memory_gib=16, usd="2"),
    an_offer("a10g.two", gpus=2, model="A10G", memory_gib=24, usd="4"),
    an_offer("l4.two", gpus=2, model="L4", memory_gib=24, usd="3"),
    an_offer("l4.one", gpus=1, model="L4", memory_gib=24, usd="1"),
    an_offer("a10g.slice", gpus=2, model="A10G", memory_gib=8, usd="1"),
)
SMALL_USD = {**USD, **{offer.instance_type: offer.price_per_hour or Decimal(0) for offer in SMALL}}


def test_a_smaller_model_must_hold_the_peaks_in_memory_work_and_bandwidth() -> None:
    """The T4 has no bfloat16, one L4 is too few, a slice lacks memory: two L4 are the cheapest that do."""
    found = rightsizing.advice(rightsizing.see_rounds(days(8, small_model)), WEEK, (P4D, *SMALL), SMALL_USD)
    [smaller] = [each for each in found if each.kind == "smaller_type"]

    assert (smaller.better, smaller.usd_per_month) == ("l4.two", Decimal(19 * 730))
    assert (
        "held at most 8.0 GiB each in 8 days, at most 10% of their multiprocessors: l4.two (2 x L4)" in smaller.sentence
    )


def test_what_a_commitment_covers_saves_nothing() -> None:
    """A stop or a smaller machine leaves it to be paid; the rest of the price is saved."""
    pasts = rightsizing.see_rounds(days(8, small_model))
    half, whole = (
        next(
            each
            for each in rightsizing.advice(pasts, WEEK, (P4D, *SMALL), SMALL_USD, {"p4d.24xlarge": Decimal(share)})
            if each.kind == "smaller_type"
        )
        for share in ("0.5", "1")
    )

    assert half.usd_per_month == Decimal(8 * 730)
    assert whole.usd_per_month is None
    assert "a commitment covers the price of this machine" in whole.sentence


def test_a_slice_saves_nothing_by_itself() -> None:
    """Six sevenths of a GPU at $2.75 an hour are free for others."""

    def small(at: datetime) -> Node:
        return a_machine(at, a_gpu(0, State.BUSY, 60.0, memory=0.1, active=0.10))

    [slice_of, *_] = [each for each in recommended(days(8, small)) if each.kind == "mig"]

    assert slice_of.usd_per_month is None
    assert slice_of.usd_shared_per_month == Decimal("2.75") * 6 / 7 * 730


def test_a_slice_without_known_activity_says_so_and_one_without_known_memory_is_not_advised() -> None:
    """Memory is a must; the multiprocessors' activity is told where it is missing."""

    def partly(at: datetime) -> Node:
        return a_machine(at, a_gpu(0, State.BUSY, 60.0, memory=0.1), a_gpu(1, State.BUSY, 60.0, active=0.1))

    (advice,) = recommended(days(8, partly))

    assert advice.gpus == (0,)
    assert "its multiprocessors' activity is not known" in advice.sentence


def test_a_node_that_was_seen_too_little_is_told_as_such() -> None:
    """Two days of a week, and rounds of which a third are unknown, are no ground for advice."""

    def busy(at: datetime) -> Node:
        return a_machine(at, a_gpu(0, State.BUSY, 60.0, memory=0.1, active=0.1))

    def blind(at: datetime) -> Node:
        if (at - NOW) // STEP % 3 == 0:
            return a_node("i-1", instance_type="p4d.24xlarge", signal=NodeReport(failure="no answer"))
        return busy(at)

    short, unknown = recommended(days(2, busy)), recommended(days(8, blind))

    assert [each.sentence for each in short] == ["nothing is advised: it was watched for 2d of 7d"]
    assert [each.kind for each in unknown] == ["unknown"]


def test_a_gpu_that_was_replaced_is_forgotten() -> None:
    """Its uuid is gone from the newest verdict."""

    def replaced(at: datetime) -> Node:
        old = at < NOW + DAY
        return a_machine(
            at, a_gpu(0, State.BUSY, 60.0), a_gpu(1 if old else 2, State.IDLE if old else State.BUSY, 9 * 86400.0)
        )

    assert [each for each in recommended(days(8, replaced)) if each.kind == "unused_gpus"] == []


@given(
    used=st.lists(st.booleans(), min_size=1, max_size=8),
    rounds=st.integers(1, 20),
    late=st.integers(0, 19),
)
def test_a_gpu_that_worked_within_the_time_is_never_called_unused(used: list[bool], rounds: int, late: int) -> None:
    """Whenever it worked, and whatever its idle clock says."""
    history = []
    for number in range(rounds):
        at = NOW + number * STEP
        gpus = [
            a_gpu(index, State.BUSY if works and number == late % rounds else State.IDLE, 40 * 86400.0)
            for index, works in enumerate(used)
        ]
        history.append((at, Fleet(observed_at=at, nodes=(a_machine(at, *gpus),))))
    named = {index for each in recommended(iter(history), DAY) for index in each.gpus if each.kind == "unused_gpus"}

    assert named.isdisjoint({index for index, works in enumerate(used) if works})
