"""What namespaces cost adds up to what machines cost, to the cent and to the last fraction, whatever a life brings."""

import tempfile
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import Activity, State
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import GpuVerdict, Node, NodeReport, NodeState
from gpuwatch.model.usage import AMOUNTS, GPU
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import Total, grouping, totals, whole
from gpuwatch.money.report import cost, proof
from gpuwatch.money.report.period import Period
from tests.support.builders.fleet import NOW, a_node, a_verdict
from tests.support.builders.kubernetes_views import shown_cluster, shown_node, shown_pod
from tests.support.builders.money import a_round
from tests.support.nightly import examples

UTC = ZoneInfo("UTC")
RULES = Metering(zone=UTC)
ALWAYS = (0, 2**40)
STATES = st.sampled_from([State.BUSY, State.IDLE, State.PARKED, State.UNKNOWN])
# A pod: its namespace, the GPUs that it requests, its age in seconds.
PODS = st.lists(st.tuples(st.sampled_from(["nlp", "cv"]), st.sampled_from([0.142857, 1.0, 3.0]), st.integers(0, 400)))


@st.composite
def a_life(draw: st.DrawFn) -> list[Observation]:
    """Rounds of two machines; the first is a node in most of them, the second in none."""
    made, at = [], NOW.replace(minute=58)
    for _ in range(draw(st.integers(2, 6))):
        at += timedelta(seconds=draw(st.sampled_from([30, 60, 61, 400])))
        states = draw(st.lists(STATES, min_size=3, max_size=3))
        pods = [
            shown_pod(f"p-{number}", "gpu-1", gpus=gpus, namespace=space, created_at=at - timedelta(seconds=age))
            for number, (space, gpus, age) in enumerate(draw(PODS))
        ]
        known = shown_node("gpu-1", "i-1", *pods, gpus=draw(st.sampled_from([None, 2.0, 3.0, 30.0])))
        names = [str(pod) for pod in pods] or ["nlp/unseen"]
        gpus = tuple(
            GpuVerdict(
                uuid=f"GPU-{index}",
                index=index,
                activity=Activity(state=state, since=None, held_seconds=9000.0),
                pods=tuple(draw(st.lists(st.sampled_from(names), max_size=2, unique=True))),
            )
            for index, state in enumerate(states)
        )
        node = a_node("i-1", gpu_count=3)
        signal = NodeReport(verdict=replace(a_verdict("i-1", State.BUSY, 9000.0, gpus=3, at=at), gpus=gpus))
        state = draw(st.sampled_from([NodeState.RUNNING, NodeState.STOPPED]))
        node = replace(node, state=state, signal=signal, kubernetes=known if draw(st.booleans()) else None)
        made.append(shown(at, draw(st.booleans()), [node, a_node("i-2", gpu_count=2)][draw(st.integers(0, 1)) :]))
    return made


def shown(at: object, trouble: bool, nodes: list[Node]) -> Observation:
    """One round at an odd price."""
    seen = a_round(at, *nodes, usd="9.87")  # type: ignore[arg-type]  # a time
    known = [node.kubernetes for node in nodes if node.kubernetes is not None]
    cluster = shown_cluster(*known, trouble="It is silent." if trouble else None)
    return replace(seen, fleet=replace(seen.fleet, cluster=cluster))


def by_pool(book: SpendBook) -> Total:
    """What machines were billed."""
    return whole(totals(book.rows(*ALWAYS), lambda row: row.terms.pool).values())


@given(life=a_life())
@settings(max_examples=examples(25), deadline=None)
def test_every_slicing_by_holder_is_all_that_was_billed(life: list[Observation]) -> None:
    """GPU time of each use, machines' time and money; nobody holds a negative time, and the proof agrees."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.open(Path(folder) / "ledger.db")
        book = SpendBook(ledger)
        for seen in life:
            book.meter(seen, RULES)
        machines, rows = by_pool(book), book.rows_by_holder(*ALWAYS)
        period = Period(zone=UTC, first=NOW.date(), after=NOW.date() + timedelta(days=2))
        for by in ("namespace", "workload", "workload-owner"):
            total = whole(totals(rows, grouping(by, Calendar(UTC))).values())
            report = cost.cost_report(book, period, by)

            assert (total.usd, total.node_ms) == (machines.usd, machines.node_ms)
            assert total.amounts[GPU:] == machines.amounts[GPU:]
            assert proof.prove_report(book, report).wrong == []
            assert sum((each.usd for each in report.groups.values()), Fraction(0)) == machines.usd
        assert all(min(row.amounts) >= 0 and len(row.amounts) == len(AMOUNTS) for row in rows)
        ledger.close()
