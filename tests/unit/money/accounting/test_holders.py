"""Whose GPU time of a Kubernetes node was: requests and use apart, and nothing lost in between."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import Activity, State
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import GpuVerdict, NodeReport
from gpuwatch.model.kubernetes import KubernetesNode, Pod
from gpuwatch.model.usage import AMOUNTS, GPU, JOULES, NOT_SEEN, UNALLOCATED, USES, Holder, HourKey, Terms, Use
from gpuwatch.money.accounting.holders import divide_amounts, held_rows, rows_by_holder
from gpuwatch.money.accounting.useful_time import Mark, mark_of
from tests.support.builders.fleet import NOW, a_node, a_verdict
from tests.support.builders.kubernetes_views import shown_cluster, shown_node, shown_pod
from tests.support.builders.money import a_round

MINUTE_MS = 60_000
USEFUL, IDLE, SILENT = (USES.index(use) for use in (Use.USEFUL, Use.IDLE, Use.SILENT))
KEY = HourKey(begin=0, node_id="i-1", terms=1, span=3600)
TERMS = Terms(
    pool="default",
    owner=None,
    account=None,
    region="r",
    instance_type="t",
    capacity_type="on_demand",
    gpus=8,
    usd_per_hour=Decimal(8),
    price_as_of=None,
    price_source=None,
)


def seen(known: KubernetesNode | None, *gpus: GpuVerdict, trouble: str | None = None) -> Observation:
    """One machine with 8 GPUs, which is that node."""
    verdict = replace(a_verdict("i-1", State.BUSY, 9000.0, gpus=8), gpus=gpus)
    node = a_node("i-1", gpu_count=8, signal=NodeReport(verdict=verdict), kubernetes=known)
    made = a_round(NOW, node)
    shown = shown_cluster(*(() if known is None else (known,)), trouble=trouble)
    return replace(made, fleet=replace(made.fleet, cluster=shown))


def a_gpu(index: int, state: State, *pods: str) -> GpuVerdict:
    """One that these pods were given."""
    activity = Activity(state=state, since=None, held_seconds=9000.0)
    return GpuVerdict(uuid=f"GPU-{index}", index=index, activity=activity, pods=pods)


def minute(**uses: int) -> list[int]:
    """A minute of the machine, of which so many of its GPUs were used like that."""
    amounts = [0] * len(AMOUNTS)
    amounts[0] = MINUTE_MS
    for use, gpus in uses.items():
        amounts[GPU + USES.index(Use(use))] = gpus * MINUTE_MS
    return amounts


def told(
    observation: Observation, amounts: list[int], before: Mapping[str, str] | None = None
) -> dict[str, dict[str, int]]:
    """Minutes of GPUs by namespace and use."""
    marks: dict[str, Mark] = {node.id: mark_of(node, 0, 1) for node in observation.fleet.nodes}
    parts, _ = held_rows({KEY: amounts}, observation, marks, before or {})
    found: dict[str, dict[str, int]] = {}
    for key, columns in parts.items():
        by_use = found.setdefault(key.holder.namespace, {})
        for use, amount in zip(USES, columns, strict=True):
            if amount:
                by_use[use.value] = by_use.get(use.value, 0) + round(amount / MINUTE_MS, 3)  # type: ignore[assignment]
    return found


def pod(name: str, gpus: float, namespace: str, created_at: datetime = NOW - timedelta(days=1)) -> Pod:
    """On that node."""
    return shown_pod(name, "gpu-1", gpus=gpus, namespace=namespace, created_at=created_at)


def test_a_pod_pays_for_what_it_requests_and_its_use_is_its_own() -> None:
    """Of 8 GPUs two pods request 3 each; one works, one rests, and two GPUs are requested by nobody."""
    known = shown_node("gpu-1", "i-1", pod("train-0", 3.0, "nlp"), pod("idle-0", 3.0, "cv"))
    gpus = [a_gpu(index, State.BUSY, "nlp/train-0") for index in range(3)]
    gpus += [a_gpu(index, State.IDLE, "cv/idle-0") for index in range(3, 6)]
    gpus += [a_gpu(index, State.IDLE) for index in range(6, 8)]

    found = told(seen(known, *gpus), minute(useful=3, idle=5))

    assert found == {"nlp": {"useful": 3}, "cv": {"idle": 3}, UNALLOCATED: {"idle": 2}}


def test_use_of_a_gpu_that_nobody_requests_is_of_nobody() -> None:
    """Somebody works past Kubernetes: the pod that rests does not get that for its own."""
    known = shown_node("gpu-1", "i-1", pod("idle-0", 4.0, "cv"))
    gpus = [a_gpu(index, State.IDLE, "cv/idle-0") for index in range(4)]
    gpus += [a_gpu(index, State.BUSY) for index in range(4, 8)]

    assert told(seen(known, *gpus), minute(useful=4, idle=4)) == {"cv": {"idle": 4}, UNALLOCATED: {"useful": 4}}


def test_without_names_of_gpus_use_is_divided_in_proportion() -> None:
    """An agent without the kubelet's word: half of the GPUs worked, so half of each part did."""
    known = shown_node("gpu-1", "i-1", pod("a", 4.0, "nlp"), pod("b", 2.0, "cv"))
    gpus = [a_gpu(index, State.BUSY if index < 4 else State.IDLE) for index in range(8)]

    assert told(seen(known, *gpus), minute(useful=4, idle=4)) == {
        "nlp": {"useful": 2, "idle": 2},
        "cv": {"useful": 1, "idle": 1},
        UNALLOCATED: {"useful": 1, "idle": 1},
    }


def test_parts_of_shared_gpus_count_as_parts() -> None:
    """Eight GPUs in time slices of ten: a pod with one of the 80 slices pays for a tenth of a GPU."""
    known = shown_node("gpu-1", "i-1", pod("a", 1.0, "nlp"), gpus=80.0)

    assert told(seen(known), minute(idle=8)) == {"nlp": {"idle": 0.1}, UNALLOCATED: {"idle": 7.9}}


def test_no_pod_pays_for_time_before_it_was_made() -> None:
    """One that is 15 seconds old has a quarter of the minute; before that nobody had these GPUs."""
    young = pod("a", 8.0, "nlp", created_at=NOW - timedelta(seconds=15))

    assert told(seen(shown_node("gpu-1", "i-1", young)), minute(useful=8)) == {
        "nlp": {"useful": 2},
        UNALLOCATED: {"useful": 6},
    }


def test_silent_time_is_of_nobody_that_was_seen() -> None:
    """While no round looked, pods may have come and gone."""
    known = shown_node("gpu-1", "i-1", pod("a", 8.0, "nlp"))
    amounts = minute(useful=4, silent=4)

    assert told(seen(known), amounts) == {NOT_SEEN: {"silent": 4}, "nlp": {"useful": 4}}


def test_a_cluster_in_trouble_says_nothing_of_its_pods() -> None:
    """Its nodes stay its nodes, also those that it cannot show any more; machines of no cluster are in no row."""
    known = shown_node("gpu-1", "i-1", pod("a", 8.0, "nlp"))
    nothing: dict[str, dict[str, int]] = {}

    assert told(seen(known, trouble="It is silent."), minute(useful=8)) == {NOT_SEEN: {"useful": 8}}
    assert told(seen(None, trouble="It is silent."), minute(useful=8), {"i-1": "k"}) == {NOT_SEEN: {"useful": 8}}
    assert told(seen(None, trouble="It is silent."), minute(useful=8)) == nothing
    assert told(seen(None), minute(useful=8), {"i-1": "k"}) == nothing


def test_the_last_moments_of_a_machine_stay_with_its_cluster() -> None:
    """It is no longer listed, and which pods it had then is not known; the next round has forgotten it."""
    empty = a_round(NOW)
    gone = replace(empty, fleet=replace(empty.fleet, nodes=(), cluster=shown_cluster()))
    parts, clusters = held_rows({KEY: minute(unknown=8)}, gone, {}, {"i-1": "k"})

    assert [key.holder for key in parts] == [Holder("k", NOT_SEEN)]
    assert clusters == {}


AMOUNT = st.integers(0, 3_600_000 * 8)
USE_WEIGHTS = st.dictionaries(st.integers(0, len(USES) - 1), st.integers(0, 10**6), max_size=3)


@given(
    columns=st.lists(AMOUNT, min_size=len(USES), max_size=len(USES)),
    claims=st.lists(st.tuples(st.integers(1, 8 * 10**6), USE_WEIGHTS), min_size=1, max_size=9),
)
def test_uses_and_parts_both_add_up(columns: list[int], claims: list[tuple[int, dict[int, int]]]) -> None:
    """Of each use all is given away and no more; each has its part of the whole, to the millisecond."""
    weights, whole = [weight for weight, _ in claims], sum(columns)
    found = divide_amounts(columns, weights, [wants for _, wants in claims])

    assert [sum(column) for column in zip(*found, strict=True)] == columns
    assert all(amount >= 0 for parts in found for amount in parts)
    assert all(
        abs(sum(parts) - whole * weight / sum(weights)) < 1 for parts, weight in zip(found, weights, strict=True)
    )


@given(
    gpus=st.integers(1, 8),
    node_ms=st.integers(0, 3_600_000),
    joules=st.integers(0, 10**9),
    shares=st.lists(st.integers(0, 100), min_size=1, max_size=6),
)
def test_what_holders_cost_adds_up_to_what_the_machine_cost(
    gpus: int, node_ms: int, joules: int, shares: list[int]
) -> None:
    """Every amount, and with it money to the last fraction of a cent; what no holder has is of no cluster."""
    amounts = [0] * len(AMOUNTS)
    amounts[0], amounts[GPU + IDLE], amounts[JOULES] = node_ms, gpus * node_ms, joules
    parts = {
        Holder("k", f"n-{number}"): [gpus * node_ms * share // (100 * len(shares)) * (use == IDLE) for use in range(7)]
        for number, share in enumerate(shares)
    }
    rows = list(rows_by_holder(replace(TERMS, gpus=gpus), amounts, parts))

    assert [sum(column) for column in zip(*(row.amounts for row in rows), strict=True)][GPU:] == amounts[GPU:]
    assert sum(sum(row.amounts[:GPU]) for row in rows) == node_ms
    assert all(min(row.amounts) >= 0 for row in rows)
