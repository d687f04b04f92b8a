"""Which GPUs a pod has: by processes, by the kubelet's list, and by elimination, never further than what is certain.

The oracle is every world that fits what is seen: all ways to give a node's GPUs to its pods, and what each then does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import Activity, State
from gpuwatch.model.fleet import GpuVerdict, Node, NodeReport, PodVerdict
from gpuwatch.model.kubernetes import Pod, PodPhase
from gpuwatch.policies.kubernetes.gpus_of_pods import holding, pods_by_gpu
from gpuwatch.policies.kubernetes.pod_use import WITHOUT_USE, use_of
from tests.support.builders.fleet import NOW, a_node, a_verdict
from tests.support.builders.kubernetes_views import shown_node, shown_pod

HOUR = 3600.0
WORKS = frozenset({State.BUSY, State.OCCUPIED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asks:
    """A pod: how many devices it was given, the GPUs on which it has processes, and what else is known of it."""

    devices: int | None
    on: tuple[int, ...] = ()
    any_gpu: bool = False
    phase: PodPhase = PodPhase.RUNNING
    system: bool = False


def a_host(
    states: Sequence[State],
    *asks: Asks,
    whole: int | None = -1,
    others: tuple[PodVerdict, ...] | None = (),
    strangers: Sequence[int] = (),
) -> Node:
    """A node whose agent sees these pods' processes, and a stranger's on some GPUs; each GPU is one pod's alone."""
    pods = tuple(
        shown_pod(
            f"p{number}",
            "gpu-1",
            gpus=1.0 if each.devices is None else float(each.devices),
            devices=each.devices,
            uses_any_gpu=each.any_gpu,
            phase=each.phase,
            system=each.system,
        )
        for number, each in enumerate(asks)
    )
    told = tuple(
        GpuVerdict(
            uuid=f"GPU-{index}",
            index=index,
            activity=Activity(state=state, since=NOW, held_seconds=HOUR),
            pods=(
                *(str(pod) for pod, each in zip(pods, asks, strict=True) if index in each.on),
                *(["else/stranger"] if index in strangers else []),
            ),
        )
        for index, state in enumerate(states)
    )
    verdict = replace(a_verdict("i-1", State.BUSY), gpus=told, other_pods=others)
    object_ = shown_node("gpu-1", "i-1", *pods, whole_gpus=len(states) if whole == -1 else whole)
    return replace(a_node("i-1"), gpu_count=len(states), kubernetes=object_, signal=NodeReport(verdict=verdict))


def pod_of(node: Node, number: int) -> Pod:
    """The pod of that number."""
    assert node.kubernetes is not None
    return node.kubernetes.pods[number]


def gpus_of(node: Node, number: int) -> list[int]:
    """The GPUs that a pod has for certain."""
    found = holding(node, pod_of(node, number))
    return [] if found is None else sorted(gpu.index or 0 for gpu in found.sure)


BUSY, IDLE, PARKED, UNKNOWN = State.BUSY, State.IDLE, State.PARKED, State.UNKNOWN
FOUR_BUSY = [BUSY] * 4 + [IDLE] * 4

# What a real node shows, what a pod is then said to do, and who would be hurt otherwise.
CASES: dict[str, tuple[Node, dict[int, tuple[list[int], State]]]] = {
    "A works on four of eight, B of four shows none: B has the others": (
        a_host(FOUR_BUSY, Asks(devices=4, on=(0, 1, 2, 3)), Asks(devices=4)),
        {0: ([0, 1, 2, 3], BUSY), 1: ([4, 5, 6, 7], IDLE)},
    ),
    "two are nobody's: which two are B's is open, and all four rest": (
        a_host(FOUR_BUSY, Asks(devices=4, on=(0, 1, 2, 3)), Asks(devices=2)),
        {1: ([], IDLE)},
    ),
    "A shows two of its four: B may have the other two, which work": (
        a_host(FOUR_BUSY, Asks(devices=4, on=(0, 1)), Asks(devices=4)),
        {0: ([0, 1], BUSY), 1: ([], UNKNOWN)},
    ),
    "no process is seen: A or B has those that work": (
        a_host(FOUR_BUSY, Asks(devices=4), Asks(devices=4)),
        {0: ([], UNKNOWN), 1: ([], UNKNOWN)},
    ),
    "three idle pods beside a busy one, which has what is which of them is not known": (
        a_host([BUSY, IDLE, IDLE, IDLE], Asks(devices=1, on=(0,)), Asks(devices=1), Asks(devices=1)),
        {1: ([], IDLE), 2: ([], IDLE)},
    ),
    "one free GPU works for nobody that is seen: it may be B's": (
        a_host([BUSY, BUSY, IDLE, IDLE], Asks(devices=1, on=(0,)), Asks(devices=1)),
        {1: ([], UNKNOWN)},
    ),
    "a privileged pod on a GPU that it was not given says nothing of the others": (
        a_host([BUSY, IDLE], Asks(devices=1, on=(0,), any_gpu=True), Asks(devices=1)),
        {1: ([], UNKNOWN)},
    ),
    "a pod that requests no GPU computes on B's": (
        a_host([BUSY, IDLE], Asks(devices=1, on=(1,)), Asks(devices=1), strangers=[0]),
        {1: ([0], UNKNOWN)},
    ),
    "time slicing: B may have a share of the busy GPU": (
        a_host([BUSY, IDLE], Asks(devices=1, on=(0,)), Asks(devices=1), whole=8),
        {0: ([0], BUSY), 1: ([], UNKNOWN)},
    ),
    "time slicing: B holds memory on the idle GPU, and has one share": (
        a_host([BUSY, PARKED], Asks(devices=1, on=(0,)), Asks(devices=1, on=(1,)), whole=8),
        {1: ([1], PARKED)},
    ),
    "time slicing: B has two shares, and shows one": (
        a_host([BUSY, PARKED], Asks(devices=1, on=(0,)), Asks(devices=2, on=(1,)), whole=8),
        {1: ([1], UNKNOWN)},
    ),
    "one pod of the node asks for a part that the device plugin does not count": (
        a_host([BUSY, IDLE], Asks(devices=1, on=(0,)), Asks(devices=None), Asks(devices=1)),
        {2: ([], UNKNOWN)},
    ),
    "the plugin has fewer GPUs than the agent sees": (
        a_host([BUSY, IDLE, IDLE], Asks(devices=1, on=(0,)), Asks(devices=2), whole=2),
        {1: ([], UNKNOWN)},
    ),
    "two pods on one GPU that is one pod's alone: something is wrong": (
        a_host([BUSY, IDLE], Asks(devices=1, on=(0,)), Asks(devices=1, on=(0,))),
        {0: ([0], UNKNOWN), 1: ([0], UNKNOWN)},
    ),
    "a pod on more GPUs than it requests: something is wrong": (
        a_host([BUSY, BUSY, IDLE], Asks(devices=1, on=(0, 1)), Asks(devices=2)),
        {1: ([], UNKNOWN)},
    ),
    "more is requested than there is: the API server is behind": (
        a_host([BUSY, IDLE], Asks(devices=1, on=(0,)), Asks(devices=1), Asks(devices=1)),
        {1: ([], UNKNOWN)},
    ),
    "a pod that is being made may not have its GPU yet": (
        a_host([BUSY, IDLE], Asks(devices=1, on=(0,)), Asks(devices=1, phase=PodPhase.PENDING)),
        {1: ([], UNKNOWN)},
    ),
    "pods of the system hold GPUs, too": (
        a_host([BUSY, IDLE, IDLE], Asks(devices=1, on=(0,), system=True), Asks(devices=2)),
        {1: ([1, 2], IDLE)},
    ),
    "idle and parked GPUs that may be B's: it waits as the longer one does": (
        a_host([BUSY, PARKED, IDLE], Asks(devices=1, on=(0,)), Asks(devices=1)),
        {1: ([], PARKED)},
    ),
    "the driver has lost the GPU that may be B's": (
        a_host([BUSY, UNKNOWN, IDLE], Asks(devices=1, on=(0,)), Asks(devices=1)),
        {1: ([], UNKNOWN)},
    ),
    "a container that a person began outside Kubernetes works on what is B's": (
        a_host([BUSY, BUSY], Asks(devices=1, on=(0,)), Asks(devices=1)),
        {0: ([0], BUSY), 1: ([1], UNKNOWN)},
    ),
    "HAMi: ten shares of each card, and A's work on the first says nothing of B on the second": (
        a_host([BUSY, PARKED], Asks(devices=1, on=(0,)), Asks(devices=1, on=(1,)), Asks(devices=1, on=(0,)), whole=20),
        {0: ([0], UNKNOWN), 1: ([1], PARKED), 2: ([0], UNKNOWN)},
    ),
    "the kubelet's list names who has a GPU, and leaves nobody out": (
        a_host([BUSY, IDLE, IDLE], Asks(devices=1, on=(0,)), Asks(devices=None, on=(1,)), Asks(devices=1), others=None),
        {0: ([0], BUSY), 1: ([1], IDLE), 2: ([], UNKNOWN)},
    ),
}


def test_a_pod_that_has_ended_and_that_the_kubelet_still_lists_has_no_part_in_a_gpu() -> None:
    """The API server shows it no more, so the work is that of the pod which has the GPU now."""
    node = a_host([BUSY, IDLE], Asks(devices=1, on=(0,)), Asks(devices=1, on=(1,)), others=None, strangers=[0])

    assert use_of(node, pod_of(node, 0), NOW)[0] is BUSY
    assert pods_by_gpu(node) == {"GPU-0": ("team/p0",), "GPU-1": ("team/p1",)}


def test_a_claim_names_the_gpus_of_its_pod() -> None:
    """By their uuids; while the agent does not see one of them, the pod may have any."""
    node = a_host([BUSY, IDLE, IDLE], Asks(devices=None), Asks(devices=None))
    its = replace(pod_of(node, 0), gpu_uuids=("GPU-1", "GPU-2"))
    strange = replace(pod_of(node, 1), gpu_uuids=("GPU-1", "GPU-9"))

    assert use_of(node, its, NOW)[0] is IDLE
    assert use_of(node, strange, NOW)[0] is UNKNOWN


@pytest.mark.parametrize("case", CASES)
def test_a_pod_has_the_gpus_that_it_has_for_certain(case: str) -> None:
    """And does what it does in every world that fits what is seen."""
    node, expected = CASES[case]

    assert {number: (gpus_of(node, number), use_of(node, pod_of(node, number), NOW)[0]) for number in expected} == {
        number: (gpus, state) for number, (gpus, state) in expected.items()
    }


_ASKS = st.builds(
    Asks,
    devices=st.integers(1, 3),
    on=st.sets(st.integers(0, 3), max_size=3).map(lambda found: tuple(sorted(found))),
    any_gpu=st.sampled_from([False, False, False, True]),
    phase=st.sampled_from([PodPhase.RUNNING, PodPhase.RUNNING, PodPhase.PENDING]),
)
_STATES = st.lists(st.sampled_from([BUSY, IDLE, PARKED, UNKNOWN, State.STALLED]), min_size=1, max_size=4)


def worlds(count: int, asks: Sequence[Asks]) -> Iterator[tuple[frozenset[int], ...]]:
    """All ways to give GPUs to pods that fit: one that does not run yet may have none."""

    def give(number: int, left: frozenset[int]) -> Iterator[tuple[frozenset[int], ...]]:
        if number == len(asks):
            yield ()
            return
        its = asks[number]
        amounts = {its.devices or 0} | ({0} if its.phase is PodPhase.PENDING else set())
        for amount in amounts:
            for chosen in map(frozenset, combinations(sorted(left), amount)):
                if its.any_gpu or set(its.on) <= chosen:
                    yield from ((chosen, *rest) for rest in give(number + 1, left - chosen))

    yield from give(0, frozenset(range(count)))


@given(_STATES, st.lists(_ASKS, min_size=1, max_size=3), st.lists(st.integers(0, 3), max_size=1))
def test_no_pod_is_named_for_a_gpu_that_in_some_world_is_anothers(
    states: list[State], asks: list[Asks], strangers: list[int]
) -> None:
    """Nor is one without use that in some world works, or is not known."""
    asks = [replace(each, on=tuple(gpu for gpu in each.on if gpu < len(states))) for each in asks]
    node = a_host(states, *asks, strangers=strangers)
    possible = list(worlds(len(states), asks))
    for number, its in enumerate(asks):
        has = [world[number] for world in possible]
        trusted = not its.any_gpu and bool(has)
        if trusted:
            assert set(gpus_of(node, number)) <= frozenset.intersection(*has)
        state = use_of(node, pod_of(node, number), NOW)[0]
        if state in WITHOUT_USE:
            may_have = {gpu for world in has for gpu in world} if has else set(range(len(states)))
            assert all(states[gpu] in WITHOUT_USE for gpu in {*may_have, *its.on})
        if state is BUSY and trusted:
            assert all(any(states[gpu] in WORKS for gpu in world) for world in has)


@given(_STATES, st.lists(_ASKS, min_size=1, max_size=3))
def test_a_gpu_is_named_for_all_that_have_it_or_left_open(states: list[State], asks: list[Asks]) -> None:
    """Money is divided by these names, so one that is missing must be a doubt, and no free GPU."""
    asks = [replace(each, on=tuple(gpu for gpu in each.on if gpu < len(states))) for each in asks]
    node = a_host(states, *asks)
    possible = list(worlds(len(states), asks))
    for uuid, names in pods_by_gpu(node).items():
        gpu = int(uuid.removeprefix("GPU-"))
        if not names:
            assert not any(gpu in chosen for world in possible for chosen in world)


@given(_STATES, st.lists(_ASKS, min_size=1, max_size=3), st.integers(0, 2), st.integers(0, 3))
def test_less_that_is_seen_never_makes_more_certain(
    states: list[State], asks: list[Asks], which: int, gpu: int
) -> None:
    """A process that nobody sees hides no work: who was not without use does not become so for it."""
    asks = [replace(each, on=tuple(each_gpu for each_gpu in each.on if each_gpu < len(states))) for each in asks]
    number = which % len(asks)
    fewer = [
        replace(each, on=tuple(g for g in each.on if g != gpu)) if n == number else each for n, each in enumerate(asks)
    ]
    if not list(worlds(len(states), asks)):
        return  # it contradicts itself
    before, after = a_host(states, *asks), a_host(states, *fewer)
    for place in range(len(asks)):
        if use_of(after, pod_of(after, place), NOW)[0] in WITHOUT_USE:
            assert use_of(before, pod_of(before, place), NOW)[0] in WITHOUT_USE
