"""Dollars of busy hours in which a GPU did little: what is measured counts, what is not is unknown."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Fleet, GpuVerdict, Node, NodeReport, NodeState
from gpuwatch.model.usage import AMOUNTS, GPU, HOUR_MS, JOULES, MEASURED, USES, Use
from gpuwatch.money.accounting.totals import Row
from gpuwatch.money.advice.efficiency import BusyHours, LowUse, by_owner_and_job, by_power, power_limits
from tests.support.builders.fleet import NOW, a_node, a_verdict
from tests.support.builders.money import a_billed_row, a_gpu
from tests.support.nightly import examples

HALF = timedelta(minutes=30)


def a_machine(*gpus: GpuVerdict, owner: str | None = "ann") -> Node:
    """A machine with these GPUs."""
    verdict = replace(a_verdict("i-1", State.BUSY, 60.0, gpus=len(gpus)), gpus=gpus)
    return a_node("i-1", gpu_count=len(gpus), owner=owner, signal=NodeReport(verdict=verdict))


def hours_of(*rounds: Node, usd: str | None = "10", below: float = 0.2) -> dict[str | None, LowUse]:
    """Rounds each half an hour, after one in which the machine was new; by job, null for the owner."""
    found = BusyHours(below=below)
    prices = {} if usd is None else {"i-1": Decimal(usd)}
    for number, node in enumerate((rounds[0], *rounds)):
        at = NOW + number * HALF
        found.see(at, Fleet(observed_at=at, nodes=(node,)), prices)
    return {each.job: each for each in by_owner_and_job(found.sums)}


def test_what_is_missing_is_unknown_and_no_dollar_is_in_idle_and_in_low() -> None:
    """Of two dollars and a half of each GPU's half hour: one low, one not, one unmeasured, one idle."""
    node = a_machine(
        a_gpu(0, State.BUSY, 60.0, active=0.1),
        a_gpu(1, State.BUSY, 60.0, active=0.2),  # exactly at the limit is not below it
        a_gpu(2, State.BUSY, 60.0),
        a_gpu(3, State.IDLE, 60.0, active=0.0),
    )
    [found] = hours_of(node).values()

    assert (found.usd_busy, found.usd_low, found.usd_unknown) == (Decimal("3.75"), Decimal("1.25"), Decimal("1.25"))
    assert (found.gpu_hours_busy, found.gpu_hours_low, found.gpu_hours_unknown) == (1.5, 0.5, 0.5)


def test_the_share_of_time_with_a_kernel_proves_little_use_and_never_much() -> None:
    """It is more than the activity of the multiprocessors: below the limit is proof, above it nothing is known."""
    use = a_gpu(0, State.BUSY, 60.0).use
    assert use is not None
    idle, busy = (
        a_machine(replace(a_gpu(0, State.BUSY, 60.0), use=replace(use, utilization_ratio=ratio)))
        for ratio in (0.1, 1.0)
    )

    assert hours_of(idle)[None].gpu_hours_low == 0.5
    assert hours_of(busy)[None].gpu_hours_low == 0.0
    assert hours_of(busy)[None].gpu_hours_unknown == 0.5


def test_pods_that_share_a_gpu_share_its_dollars() -> None:
    """A quarter each, and the owner once."""
    gpu = replace(a_gpu(0, State.BUSY, 60.0, active=0.1), pods=("a/1", "a/2", "b/1", "b/2"))
    found = hours_of(a_machine(gpu))

    quarter = Decimal("1.25")
    assert found[None].usd_low == Decimal("5.00")
    assert [found[job].usd_low for job in ("a/1", "a/2", "b/1", "b/2")] == [quarter] * 4


def test_no_time_of_a_stop_is_busy() -> None:
    """Busy for half an hour, stopped, and busy again for half an hour: an hour, and not two."""
    busy = a_machine(a_gpu(0, State.BUSY, 60.0, active=0.1))
    stopped = replace(busy, state=NodeState.STOPPED, signal=NodeReport())

    assert hours_of(busy, stopped, busy, busy)[None].gpu_hours_busy == 1.0


def test_without_a_price_there_are_hours_and_no_dollars() -> None:
    """And a hole of more than an hour between two rounds is nobody's."""
    node = a_machine(a_gpu(0, State.BUSY, 60.0, active=0.1))
    [found] = hours_of(node, usd=None).values()
    late = BusyHours()
    for at in (NOW, NOW + timedelta(hours=2)):
        late.see(at, Fleet(observed_at=at, nodes=(node,)), {"i-1": Decimal(10)})

    assert (found.usd_low, found.gpu_hours_low, found.gpu_hours_unpriced) == (None, 0.5, 0.5)
    assert late.sums == {}


MODELS = {"g6.xlarge": "L4"}


def an_hour(watts: float | None, *, useful: float = 1.0, owner: str = "ann") -> Row:
    """An hour of a machine with one L4, which is rated at 72 W."""
    row = a_billed_row(useful, 1 - useful, pool="default", owner=owner)
    amounts = list(row.amounts)
    if watts is not None:
        amounts[JOULES], amounts[MEASURED] = int(watts * 3600), HOUR_MS
    return replace(row, amounts=amounts)


def test_power_of_busy_hours_by_the_rated_one() -> None:
    """Low, not low, without a reading; an hour that was busy in part is judged by all of its energy."""
    found = {
        owner: (each.gpu_hours_low, each.gpu_hours_unknown)
        for owner, row in {
            "low": an_hour(20, owner="low"),
            "well": an_hour(60, owner="well"),
            "missing": an_hour(None, owner="missing"),
            "part, low": an_hour(10, useful=0.5, owner="part, low"),
            "part": an_hour(40, useful=0.5, owner="part"),
        }.items()
        for each in by_power([row], MODELS)
    }

    assert found == {
        "low": (1.0, 0.0), "well": (0.0, 0.0), "missing": (0.0, 1.0), "part, low": (0.5, 0.0), "part": (0.0, 0.5),
    }  # fmt: skip
    assert by_power([an_hour(20)], {})[0].gpu_hours_unknown == 1.0, "a model without a rated power proves nothing"


@given(st.lists(st.tuples(st.sampled_from([None, 5.0, 30.0, 70.0]), st.floats(0.01, 1)), min_size=1, max_size=20))
@settings(max_examples=examples(50))
def test_low_and_unknown_are_parts_of_what_is_busy(hours: list[tuple[float | None, float]]) -> None:
    """In hours and in dollars; idle time is in none of them."""
    rows = [an_hour(watts, useful=useful) for watts, useful in hours]
    [found] = by_power(rows, MODELS)
    useful = sum(row.amounts[GPU + USES.index(Use.USEFUL)] for row in rows)

    assert abs(found.gpu_hours_busy - useful / HOUR_MS) < 1e-9
    assert found.gpu_hours_low + found.gpu_hours_unknown <= found.gpu_hours_busy + 1e-9
    assert found.usd_busy is not None
    assert found.usd_low is not None
    assert found.usd_low <= found.usd_busy
    assert len(AMOUNTS) == len(rows[0].amounts)


def test_a_gpu_with_a_lowered_power_limit_is_judged_by_its_limit() -> None:
    """27 W of 72 are below 40 %, of a limit of 50 W they are not; a limit above the rated power changes nothing."""
    limited = {watts: a_limited(watts) for watts in (50.0, 500.0)}
    found = {
        watts: by_power([replace(an_hour(27), node_id="i-1")], MODELS, limits=power_limits(fleet, {}))[0].gpu_hours_low
        for watts, fleet in limited.items()
    }

    assert found == {50.0: 0.0, 500.0: 1.0}
    assert power_limits(limited[500.0], power_limits(limited[50.0], {})) == {"i-1": 50.0}


def a_limited(watts: float) -> Fleet:
    """One machine whose GPU has that limit of power."""
    gpu = a_gpu(0, State.BUSY, 60.0)
    assert gpu.use is not None
    return Fleet(observed_at=NOW, nodes=(a_machine(replace(gpu, use=replace(gpu.use, power_limit_watts=watts))),))
