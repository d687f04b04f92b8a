"""Looks at pods folded over time: what counts, what stops the time, and what starts it again."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity import ActivityRules, Memory, Sample, fold
from gpuwatch.agent.activity.pods import PodLook, PodTracks, fold_pods
from gpuwatch.model.activity import Activity, Evidence, State
from tests.support.builders.fleet import NOW

RULES = ActivityRules()
ALL = frozenset({"processes", "gpu_process_cpu", "cpu", "disk", "network", "connections"})
STATES = st.sampled_from([State.BUSY, State.UNKNOWN, State.IDLE])


def said(name: str, says: State) -> Evidence:
    """One signal's finding."""
    return Evidence(name=name, says=says, observed=None, limit=None, unit="", source="/proc", note="a test")


def a_sample(at: float, *host: Evidence, jump: float = 0.0) -> Sample:
    """The machine so many seconds after the first sample."""
    return Sample(at=NOW + timedelta(seconds=at + jump), monotonic_seconds=100.0 + at, host=host)


def played(*samples: tuple[Sample, PodLook | None]) -> Activity | None:
    """What is said of the one pod after these."""
    memory, tracks = Memory(), PodTracks()
    for sample, look in samples:
        looks = {} if look is None else {"uid": look}
        tracks = fold_pods(tracks, memory, sample, looks, RULES)
        memory = fold(memory, sample, RULES)
    return next((each.activity for each in tracks.verdicts), None)


def pod(*evidence: Evidence, divided: frozenset[str] = ALL) -> PodLook:
    """A look at it."""
    return PodLook(name="team-a/alice", evidence=evidence, divided=divided)


def test_time_without_work_counts_while_the_machine_is_busy() -> None:
    """What can be divided among pods is not held against this one."""
    busy = (said("cpu", State.BUSY), said("network", State.BUSY), said("processes", State.BUSY))
    found = played(*((a_sample(at, *busy), pod(said("cpu", State.IDLE))) for at in range(0, 600, 5)))

    assert found is not None
    assert (found.state, found.held_seconds) == (State.IDLE, 595.0)


def test_what_cannot_be_divided_keeps_each_pod() -> None:
    """A person on the machine; its disks, where the kernel does not count them by group."""
    at_work = a_sample(0.0, said("people", State.BUSY), said("disk", State.BUSY))
    found = played((at_work, pod()))
    assert found is not None
    assert [entry.name for entry in found.evidence] == ["people"]

    found = played((at_work, pod(divided=ALL - {"disk"})))
    assert found is not None
    assert {entry.name for entry in found.evidence} == {"people", "disk"}


def test_a_doubt_about_the_machine_is_a_doubt_about_each_pod() -> None:
    """Also where a neighbour is busy, and the machine's own verdict does not mention the doubt."""
    found = played((a_sample(0.0, said("cpu", State.BUSY), said("people", State.UNKNOWN)), pod()))

    assert found is not None
    assert (found.state, found.doubt) == (State.UNKNOWN, "people: a test")


def test_a_clock_jump_is_a_doubt() -> None:
    """As for the machine."""
    found = played((a_sample(0.0), pod()), (a_sample(5.0, jump=600.0), pod()))

    assert found is not None
    assert found.state is State.UNKNOWN


def test_a_pod_that_is_not_looked_at_any_more_is_dropped_and_begins_anew() -> None:
    """An agent that no longer sees its group says nothing of it."""
    samples = [(a_sample(at), pod()) for at in (0.0, 5.0, 10.0)]
    assert played(*samples, (a_sample(15.0), None)) is None

    found = played(*samples, (a_sample(15.0), None), (a_sample(20.0), pod()))
    assert found is not None
    assert found.held_seconds == 0.0


@given(st.lists(st.tuples(st.floats(0.1, 30.0), STATES), min_size=1, max_size=30))
def test_idle_time_never_exceeds_the_time_since_work_or_a_gap(steps: list[tuple[float, State]]) -> None:
    """P9 for pods: gaps, doubt and work create no idleness."""
    at, since, samples = 0.0, 0.0, []
    for step, (gap, says) in enumerate(steps):
        at += gap
        if says is State.BUSY or step == 0:
            since = at
        samples.append((a_sample(at), pod(said("cpu", says))))
    found = played(*samples)

    assert found is not None
    assert found.state is steps[-1][1]
    assert found.state is not State.IDLE or found.held_seconds <= at - since + 1e-6


def test_verdicts_are_in_the_order_of_uids() -> None:
    """So that a page changes only where a pod does."""
    looks = {uid: replace(pod(), name=None) for uid in ("b", "a")}
    tracks = fold_pods(PodTracks(), Memory(), a_sample(0.0), looks, RULES)

    assert [each.uid for each in tracks.verdicts] == ["a", "b"]
