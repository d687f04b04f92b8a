"""What a pod that holds GPUs does with them: said where it is sure, and not known otherwise."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import Activity, State
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import Fleet, GpuVerdict, Node, NodeReport
from gpuwatch.model.kubernetes import Pod, PodPhase
from gpuwatch.policies.kubernetes.pod_use import unused_pods, use_of
from tests.support.builders.fleet import NOW, a_node, a_verdict
from tests.support.builders.kubernetes_views import shown_node, shown_pod
from tests.support.builders.money import a_price

HOUR = 3600.0
Gpu = tuple[State, float, tuple[str, ...]]


def a_host(*gpus: Gpu, state: State = State.BUSY, pods: tuple[Pod, ...] = ()) -> Node:
    """A node whose agent says this of each GPU: its state, for how long, and whose it is."""
    verdict = a_verdict("i-1", state)
    told = tuple(
        GpuVerdict(
            uuid=f"GPU-{number}",
            index=number,
            activity=Activity(state=each, since=NOW, held_seconds=held),
            pods=names,
        )
        for number, (each, held, names) in enumerate(gpus)
    )
    node = replace(a_node("i-1"), gpu_count=len(gpus), kubernetes=shown_node("gpu-1", "i-1", *pods))
    return replace(node, signal=NodeReport(verdict=replace(verdict, gpus=told)))


P = shown_pod("p", "gpu-1", gpus=1.0)
MINE = (str(P),)
OTHERS = ("team/q",)


@pytest.mark.parametrize("state", [State.IDLE, State.PARKED, State.STALLED])
def test_a_pod_does_what_its_gpus_do(state: State) -> None:
    """Whatever the others on its node do; for as long as the one that began last."""
    node = a_host((state, 2 * HOUR, MINE), (state, HOUR, MINE), (State.BUSY, 9 * HOUR, OTHERS))

    assert use_of(node, P, NOW) == (state, HOUR)


@pytest.mark.parametrize(
    ("states", "together"),
    [
        ((State.IDLE, State.BUSY), State.BUSY),
        ((State.IDLE, State.UNKNOWN), State.UNKNOWN),
        ((State.BUSY, State.UNKNOWN), State.UNKNOWN),
        ((State.PARKED, State.STALLED), State.STALLED),
        ((State.IDLE, State.PARKED), State.PARKED),
    ],
)
def test_several_gpus_are_one_use(states: tuple[State, State], together: State) -> None:
    """None of them idle makes the pod idle."""
    node = a_host(*((state, HOUR, MINE) for state in states))

    assert use_of(node, P, NOW)[0] is together


def test_of_two_pods_on_one_busy_gpu_nobody_knows_which() -> None:
    """Time slicing; while the GPU rests, both do."""
    assert use_of(a_host((State.BUSY, HOUR, (*MINE, *OTHERS))), P, NOW) == (State.UNKNOWN, 0.0)
    assert use_of(a_host((State.IDLE, HOUR, (*MINE, *OTHERS))), P, NOW) == (State.IDLE, HOUR)


def test_an_agent_that_names_no_pods_is_believed_where_all_gpus_are_alike() -> None:
    """An older one, or one that cannot ask its kubelet."""
    assert use_of(a_host((State.IDLE, HOUR, ()), (State.IDLE, 2 * HOUR, ())), P, NOW) == (State.IDLE, HOUR)
    assert use_of(a_host((State.IDLE, HOUR, ()), (State.BUSY, HOUR, ())), P, NOW)[0] is State.UNKNOWN
    assert use_of(a_host((State.IDLE, HOUR, OTHERS), (State.IDLE, HOUR, ())), P, NOW)[0] is State.UNKNOWN


def test_a_pod_is_never_idle_for_longer_than_it_exists() -> None:
    """Its GPU may have been idle before it came; one of unknown age has rested for no time."""
    node = a_host((State.IDLE, 20 * HOUR, MINE))

    assert use_of(node, replace(P, created_at=NOW - timedelta(hours=2)), NOW) == (State.IDLE, 2 * HOUR)
    assert use_of(node, replace(P, created_at=NOW + timedelta(hours=2)), NOW) == (State.IDLE, 0.0)
    assert use_of(node, replace(P, created_at=None), NOW) == (State.IDLE, 0.0)


@pytest.mark.parametrize("phase", [PodPhase.PENDING, PodPhase.UNKNOWN])
def test_a_pod_that_does_not_run_is_unknown(phase: PodPhase) -> None:
    """Its images may still be on their way."""
    assert use_of(a_host((State.IDLE, HOUR, MINE)), replace(P, phase=phase), NOW) == (State.UNKNOWN, 0.0)


def test_a_node_that_is_unknown_makes_its_pods_unknown() -> None:
    """And so does one that gives no verdict."""
    node = a_host((State.IDLE, HOUR, MINE), state=State.UNKNOWN)

    assert use_of(node, P, NOW) == (State.UNKNOWN, 0.0)
    assert use_of(replace(node, signal=NodeReport(failure="silent")), P, NOW) == (State.UNKNOWN, 0.0)


_GPUS = st.lists(
    st.tuples(st.sampled_from(list(State)), st.floats(0, 9e5), st.sampled_from([(), MINE, OTHERS, (*MINE, *OTHERS)])),
    min_size=1,
    max_size=4,
)


@given(_GPUS, st.sampled_from(list(State)))
def test_a_pod_without_use_has_no_gpu_that_works(gpus: list[Gpu], state: State) -> None:
    """Of those that are, or may be, its own."""
    says, held = use_of(a_host(*gpus, state=state), P, NOW)

    if says in {State.IDLE, State.PARKED, State.STALLED}:
        own = [each for each in gpus if str(P) in each[2]] or gpus
        assert {each for each, _, _ in own} <= {State.IDLE, State.PARKED, State.STALLED}
        assert held <= min(each for _, each, _ in own)
        assert state is not State.UNKNOWN
    else:
        assert held == 0.0


def test_people_are_told_of_the_most_expensive_first() -> None:
    """Each costs its part of the node's price; those that have rested for less than an hour are not named."""
    names = ("small", "large", "brief", "works")
    small, large, brief, works = (
        shown_pod(name, "gpu-1", gpus=gpus) for name, gpus in zip(names, (1, 4, 1, 1), strict=True)
    )
    node = a_host(
        (State.PARKED, 2 * HOUR, (str(small),)),
        *[(State.IDLE, 2 * HOUR, (str(large),))] * 4,
        (State.IDLE, HOUR - 1, (str(brief),)),
        *[(State.BUSY, HOUR, (str(works),))] * 2,
        pods=(small, large, brief, works, shown_pod("driver", "gpu-1", gpus=1.0, system=True)),
    )
    fleet = Fleet(observed_at=NOW, nodes=(node,))
    observation = Observation(now=NOW, fleet=fleet, prices={"g6.xlarge": a_price("8")})

    found = unused_pods(observation)

    assert [(each.pod.name, each.state, each.usd_per_hour) for each in found] == [
        ("large", State.IDLE, Decimal(4)),
        ("small", State.PARKED, Decimal(1)),
    ]
