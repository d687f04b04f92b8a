"""Every cluster keeps every sentence of `gpuwatch.kubernetes.Workloads`: one suite, run on each of them."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gpuwatch.clouds import CloudError, NotFoundError, PermitExpiredError, ProtectedError
from gpuwatch.clouds.permit import Permit
from gpuwatch.model.kubernetes import Drain, Target, WorkloadNow
from tests.support.builders.fleet import a_permit
from tests.support.fakes.workload_worlds import WORKLOAD_WORLDS, WorkloadWorld

STOP_AT = datetime(2027, 3, 2, 13, 0, tzinfo=UTC)
# What each kind can be asked that ends its pods by a patch.
PATCHED = [
    ("Deployment", "scale-to-zero"),
    ("StatefulSet", "scale-to-zero"),
    ("ReplicaSet", "scale-to-zero"),
    ("Notebook", "stop"),
    ("Job", "stop"),
]


@pytest.fixture(params=WORKLOAD_WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[WorkloadWorld]:
    """Each cluster in turn."""
    with WORKLOAD_WORLDS[request.param]() as world:
        yield world


def permit(world: WorkloadWorld) -> Permit:
    """One that holds now."""
    return a_permit(world.clock)


def now(world: WorkloadWorld, target: Target) -> WorkloadNow:
    """The workload, asked now."""
    found = world.workloads.workload(target)
    assert found is not None
    return found


def key_of(target: Target) -> str:
    """An intent's; each test has its own."""
    return f"gpuwatch-{target.uid[-8:]}"


def release(world: WorkloadWorld, target: Target, how: str, *, pods: tuple[str, ...] = ()) -> Drain:
    """With a permit that holds."""
    return world.workloads.release(target, how, pods, key_of(target), permit=permit(world))


def test_a_workload_shows_what_it_wants_and_its_pods(world: WorkloadWorld) -> None:
    """Of that uid alone."""
    target = world.make("Deployment", pods=2, replicas=2)
    found = now(world, target)

    assert (found.wants, found.released_by, found.stop_at) == (2, None, None)
    assert [pod.name for pod in found.pods] == ["work-0", "work-1"]
    assert world.workloads.workload(replace(target, uid="another")) is None
    assert world.workloads.workload(replace(target, name="none")) is None


@pytest.mark.parametrize(("kind", "how"), PATCHED)
def test_each_kind_is_ended_by_its_own_means_and_bears_the_key(world: WorkloadWorld, kind: str, how: str) -> None:
    """Once more with the same key is nothing to do."""
    target = world.make(kind)
    assert now(world, target).wants == 1
    for _ in range(2):
        release(world, target, how)

    assert (now(world, target).wants, now(world, target).released_by) == (0, key_of(target))


def test_what_was_wanted_before_is_on_the_object(world: WorkloadWorld) -> None:
    """So that people can undo it."""
    target = world.make("StatefulSet", replicas=3)
    release(world, target, "scale-to-zero")

    assert world.before(target) == "3"


def test_what_wants_no_pods_already_is_left_as_it_is(world: WorkloadWorld) -> None:
    """Somebody else has scaled it: the key is not written."""
    target = world.make("Deployment", replicas=0)
    release(world, target, "scale-to-zero")

    assert now(world, target).released_by is None


def test_what_was_brought_back_can_be_ended_by_another_decision(world: WorkloadWorld) -> None:
    """And not by the same: its people have spoken since."""
    target = world.make("Deployment")
    release(world, target, "scale-to-zero")
    world.scale(target, 1)
    release(world, target, "scale-to-zero")
    assert now(world, target).wants == 1

    world.workloads.release(target, "scale-to-zero", (), "another", permit=permit(world))
    assert (now(world, target).wants, now(world, target).released_by) == (0, "another")


def test_a_delete_asks_the_pods_that_it_names_and_no_others(world: WorkloadWorld) -> None:
    """A budget's refusal is an answer; the Job itself stays."""
    target = world.make("Job", pods=3)
    first, second, _ = now(world, target).pods
    world.budget(second.name)
    found = release(world, target, "delete", pods=(first.uid, second.uid, "gone"))

    assert found.evicted == (str(first),)
    assert list(found.refused) == [str(second)]
    assert found.left == 3
    assert now(world, target).wants == 1


def test_a_pod_by_itself_is_deleted(world: WorkloadWorld) -> None:
    """It is its own workload."""
    target = world.make("Pod")
    if not (found := now(world, target)).pods:
        pytest.fail("its pod is itself")
    told = release(world, target, "delete", pods=(found.pods[0].uid,))

    assert told.evicted == (f"{target.namespace}/work-0",)


def test_local_data_that_nobody_gives_up_is_not_deleted(world: WorkloadWorld) -> None:
    """The refusal names the volume."""
    target = world.make("Job", local_data=True)
    (pod,) = now(world, target).pods
    told = release(world, target, "delete", pods=(pod.uid,))

    assert told.evicted == ()
    assert "scratch" in told.refused[str(pod)]


def test_a_protected_workload_is_refused(world: WorkloadWorld) -> None:
    """At the last moment, too."""
    target = world.make("Deployment")
    world.protect(target)
    with pytest.raises(ProtectedError):
        release(world, target, "scale-to-zero")

    assert now(world, target).wants == 1


def test_volumes_that_would_go_with_the_pods_keep_their_stateful_set(world: WorkloadWorld) -> None:
    """`whenScaled: Delete`: neither notice nor end without consent; a notice that stands can be withdrawn."""
    target = world.make("StatefulSet")
    world.volumes_go(target)
    with pytest.raises(ProtectedError, match="volumes"):
        world.workloads.announce(target, "k", STOP_AT, "Note.", permit=permit(world))
    with pytest.raises(ProtectedError, match="volumes"):
        release(world, target, "scale-to-zero")
    world.workloads.announce(target, "k2", None, "Kept.", permit=permit(world))
    assert now(world, target).wants == 1

    world.give_up(target)
    release(world, target, "scale-to-zero")
    assert now(world, target).wants == 0


def test_another_object_under_the_same_name_is_never_changed(world: WorkloadWorld) -> None:
    """It was made again since."""
    target = world.make("Deployment")
    world.remake(target)
    with pytest.raises(NotFoundError):
        world.workloads.announce(target, "k", STOP_AT, "Note.", permit=permit(world))
    with pytest.raises(NotFoundError):
        release(world, target, "scale-to-zero")
    assert world.workloads.workload(target) is None


@pytest.mark.parametrize(("kind", "how"), [("Deployment", "stop"), ("Notebook", "delete"), ("Job", "scale-to-zero")])
def test_a_kind_is_not_asked_what_it_cannot_do(world: WorkloadWorld, kind: str, how: str) -> None:
    """The error says so, and nothing is changed."""
    target = world.make(kind)
    with pytest.raises(CloudError, match="cannot be asked"):
        release(world, target, how)

    assert now(world, target).wants == 1


def test_an_announcement_is_on_the_object_and_an_event_once(world: WorkloadWorld) -> None:
    """With the time; the withdrawal takes it away, with an Event of its own."""
    target = world.make("Deployment")
    key = key_of(target)
    for _ in range(2):
        world.workloads.announce(target, key, STOP_AT, "It is idle.", permit=permit(world))
    assert now(world, target).stop_at == STOP_AT
    assert world.events(target) == ["It is idle."]

    world.workloads.announce(target, f"{key}-2", None, "It works.", permit=permit(world))
    assert now(world, target).stop_at is None
    assert sorted(world.events(target)) == ["It is idle.", "It works."]


def test_the_end_takes_the_announcement_away(world: WorkloadWorld) -> None:
    """It has come true."""
    target = world.make("Notebook")
    world.workloads.announce(target, key_of(target), STOP_AT, "It is idle.", permit=permit(world))
    release(world, target, "stop")

    assert now(world, target).stop_at is None


def test_nothing_is_sent_once_the_permit_has_expired(world: WorkloadWorld) -> None:
    """Another controller leads."""
    deployment = world.make("Deployment")
    over = replace(permit(world), leads=lambda: False)
    with pytest.raises(PermitExpiredError):
        world.workloads.release(deployment, "scale-to-zero", (), "k", permit=over)
    with pytest.raises(PermitExpiredError):
        world.workloads.announce(deployment, "k", STOP_AT, "Note.", permit=over)
    found = now(world, deployment)

    assert (found.wants, found.stop_at, world.events(deployment)) == (1, None, [])


def test_silence_is_an_error_of_every_call(world: WorkloadWorld) -> None:
    """Never an answer."""
    target = world.make("Deployment")
    world.hush()
    with pytest.raises(CloudError):
        world.workloads.workload(target)
    with pytest.raises(CloudError):
        release(world, target, "scale-to-zero")
    with pytest.raises(CloudError):
        world.workloads.announce(target, "k", STOP_AT, "Note.", permit=permit(world))
