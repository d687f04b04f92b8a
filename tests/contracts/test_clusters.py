"""Every cluster keeps every sentence of `gpuwatch.kubernetes.Cluster`: one suite, run on each of them."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from gpuwatch.clouds import CloudError, NotFoundError, PermitExpiredError, ProtectedError
from gpuwatch.clouds.permit import Permit
from gpuwatch.kubernetes import Cluster
from gpuwatch.model.kubernetes import KubernetesNode
from tests.support.builders.fleet import a_permit
from tests.support.fakes.cluster_worlds import CLUSTER_WORLDS, ClusterWorld

NODE = "gpu-node-1"


@pytest.fixture(params=CLUSTER_WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[ClusterWorld]:
    """Each cluster in turn, with one node."""
    with CLUSTER_WORLDS[request.param]() as world:
        world.add_node(NODE)
        yield world


def permit(world: ClusterWorld) -> Permit:
    """One that holds now."""
    return a_permit(world.clock)


def expired(world: ClusterWorld) -> Permit:
    """One that holds no more: another controller leads."""
    return replace(permit(world), leads=lambda: False)


def there(world: ClusterWorld) -> KubernetesNode:
    """The node, asked now."""
    known = world.cluster.node(NODE)
    assert known is not None
    return known


CHANGES: dict[str, Callable[[Cluster, Permit], object]] = {
    "cordon": lambda cluster, holds: cluster.cordon("none", "k", permit=holds),
    "uncordon": lambda cluster, _: cluster.uncordon("none", "k"),
    "mark": lambda cluster, holds: cluster.mark("none", "karpenter", "k", permit=holds),
    "unmark": lambda cluster, _: cluster.unmark("none", "k"),
    "drain": lambda cluster, holds: cluster.drain("none", (), "k", permit=holds),
}


def test_the_view_and_the_question_tell_the_same_of_a_node(world: ClusterWorld) -> None:
    """Name, uid, cluster and pods."""
    world.add_pod("web-1", NODE)
    known = there(world)

    assert (known.name, known.cluster) == (NODE, world.cluster.name)
    assert [str(pod) for pod in known.pods] == ["team-a/web-1"]
    assert world.cluster.node("none") is None


def test_a_cordon_bears_its_key_and_is_the_same_when_asked_again(world: ClusterWorld) -> None:
    """Once more with the same key is nothing to do; its time stays."""
    world.cluster.cordon(NODE, "key-1", permit=permit(world))
    first = there(world)
    world.cluster.cordon(NODE, "key-1", permit=permit(world))

    assert (first.unschedulable, first.cordoned_by) == (True, "key-1")
    assert first.cordoned_at is not None
    assert there(world).cordoned_at == first.cordoned_at


@pytest.mark.parametrize("whose", ["a person", "another decision"])
def test_somebody_elses_cordon_is_refused(world: ClusterWorld, whose: str) -> None:
    """Neither a person's nor one with another key is taken over."""
    if whose == "a person":
        world.cordon(NODE)
    else:
        world.cluster.cordon(NODE, "key-0", permit=permit(world))
    before = there(world)
    with pytest.raises(ProtectedError):
        world.cluster.cordon(NODE, "key-1", permit=permit(world))

    assert there(world) == before


def test_a_marked_node_is_not_cordoned(world: ClusterWorld) -> None:
    """do-not-disrupt keeps it."""
    world.keep(NODE)
    assert there(world).keep is not None
    with pytest.raises(ProtectedError):
        world.cluster.cordon(NODE, "key-1", permit=permit(world))
    assert not there(world).unschedulable


def test_an_own_cordon_is_undone_without_a_trace(world: ClusterWorld) -> None:
    """And once more is success."""
    world.cluster.cordon(NODE, "key-1", permit=permit(world))
    for _ in range(2):
        world.cluster.uncordon(NODE, "key-1")
    known = there(world)

    assert (known.unschedulable, known.cordoned_by, known.cordoned_at) == (False, None, None)


def test_a_persons_cordon_stays(world: ClusterWorld) -> None:
    """That is success."""
    world.cordon(NODE)
    world.cluster.uncordon(NODE, "key-1")

    assert there(world).unschedulable


def test_a_cordon_with_another_key_stays(world: ClusterWorld) -> None:
    """It is of another decision, or of another controller."""
    world.cluster.cordon(NODE, "key-1", permit=permit(world))
    world.cluster.uncordon(NODE, "key-2")

    assert there(world).cordoned_by == "key-1"


def test_a_taint_comes_and_goes_with_its_cordon(world: ClusterWorld) -> None:
    """Its key is that of the cordon; a cordon without one leaves none."""
    world.cluster.cordon(NODE, "key-1", permit=permit(world), taint=True)
    assert there(world).tainted_by == "key-1"
    world.cluster.uncordon(NODE, "key-1")
    assert there(world).tainted_by is None
    world.cluster.cordon(NODE, "key-2", permit=permit(world))
    assert there(world).tainted_by is None


def test_a_taint_is_taken_away_after_a_person_has_uncordoned(world: ClusterWorld) -> None:
    """Pods may come at once, and the rest of what is ours goes when it is asked for."""
    world.cluster.cordon(NODE, "key-1", permit=permit(world), taint=True)
    world.uncordon(NODE)
    known = there(world)
    assert (known.unschedulable, known.cordoned_by, known.tainted_by) == (False, None, "key-1")
    world.cluster.uncordon(NODE, "key-1")
    assert there(world).tainted_by is None


@pytest.mark.parametrize("owner", ["karpenter", "cluster-autoscaler"])
def test_a_mark_bears_its_key_and_goes_without_a_trace(world: ClusterWorld, owner: str) -> None:
    """Both may be asked for twice; another key takes nothing away."""
    for _ in range(2):
        world.cluster.mark(NODE, owner, "key-1", permit=permit(world))
    marked = there(world)
    assert marked.marked_by == "key-1"
    assert marked.keep is not None
    world.cluster.unmark(NODE, "key-2")
    assert there(world).marked_by == "key-1"
    for _ in range(2):
        world.cluster.unmark(NODE, "key-1")
    assert (there(world).marked_by, there(world).keep) == (None, None)


def test_a_persons_mark_is_neither_written_over_nor_taken_away(world: ClusterWorld) -> None:
    """It is theirs."""
    world.keep(NODE)
    with pytest.raises(ProtectedError):
        world.cluster.mark(NODE, "karpenter", "key-1", permit=permit(world))
    world.cluster.unmark(NODE, "key-1")
    known = there(world)
    assert (known.marked_by, known.keep is None) == (None, False)


def test_a_drain_asks_those_that_it_names_and_no_others(world: ClusterWorld) -> None:
    """Pods of DaemonSets stay, and so does what came since."""
    named = world.add_pod("web-1", NODE)
    daemon = world.add_pod("dcgm-1", NODE, daemon=True)
    world.cluster.cordon(NODE, "key-1", permit=permit(world))
    world.add_pod("late-1", NODE)
    drain = world.cluster.drain(NODE, (named, daemon), "key-2", permit=permit(world))

    assert drain.evicted == ("team-a/web-1",)
    assert drain.refused == {}
    kept = {pod.name for pod in there(world).pods if pod.ends_at is None}
    assert kept == {"dcgm-1", "late-1"}


def test_a_budgets_refusal_is_an_answer(world: ClusterWorld) -> None:
    """429: that pod stays and says why, the other goes."""
    uids = tuple(world.add_pod(name, NODE) for name in ("web-1", "web-2"))
    world.budget("web-1")
    world.cluster.cordon(NODE, "key-1", permit=permit(world))
    drain = world.cluster.drain(NODE, uids, "key-2", permit=permit(world))

    assert drain.evicted == ("team-a/web-2",)
    assert "disruption budget" in drain.refused["team-a/web-1"]
    assert drain.left >= 1


def test_a_pod_that_came_under_the_same_name_stays(world: ClusterWorld) -> None:
    """A drain names uids."""
    old = world.add_pod("web-0", NODE)
    world.cluster.cordon(NODE, "key-1", permit=permit(world))
    new = world.replace_pod("web-0", NODE)
    world.cluster.drain(NODE, (old,), "key-2", permit=permit(world))

    assert [pod.uid for pod in there(world).pods if pod.ends_at is None] == [new]


def test_local_data_goes_only_with_consent(world: ClusterWorld) -> None:
    """An emptyDir volume would be lost."""
    uid = world.add_pod("web-1", NODE, local_data=True)
    world.cluster.cordon(NODE, "key-1", permit=permit(world))
    drain = world.cluster.drain(NODE, (uid,), "key-2", permit=permit(world))

    assert drain.evicted == ()
    assert "would be lost" in drain.refused["team-a/web-1"]


def test_nothing_is_drained_without_our_cordon(world: ClusterWorld) -> None:
    """Neither where nobody cordoned it nor under a person's cordon."""
    uid = world.add_pod("web-1", NODE)
    for _ in range(2):
        with pytest.raises(ProtectedError):
            world.cluster.drain(NODE, (uid,), "key-1", permit=permit(world))
        world.cordon(NODE)

    assert [pod.ends_at for pod in there(world).pods] == [None]


def test_without_a_permit_nothing_is_sent(world: ClusterWorld) -> None:
    """Neither a cordon nor an eviction."""
    uid = world.add_pod("web-1", NODE)
    with pytest.raises(PermitExpiredError):
        world.cluster.mark(NODE, "karpenter", "key-1", permit=expired(world))
    assert there(world).marked_by is None
    with pytest.raises(PermitExpiredError):
        world.cluster.cordon(NODE, "key-1", permit=expired(world))
    assert not there(world).unschedulable
    world.cluster.cordon(NODE, "key-1", permit=permit(world))
    with pytest.raises(PermitExpiredError):
        world.cluster.drain(NODE, (uid,), "key-2", permit=expired(world))
    assert [pod.ends_at for pod in there(world).pods] == [None]


@pytest.mark.parametrize("change", CHANGES)
def test_a_node_that_is_not_there_is_not_found(world: ClusterWorld, change: str) -> None:
    """Each change says so."""
    with pytest.raises(NotFoundError):
        CHANGES[change](world.cluster, permit(world))


def test_a_node_that_was_made_again_is_another(world: ClusterWorld) -> None:
    """It has another uid, and no cordon of ours."""
    world.cluster.cordon(NODE, "key-1", permit=permit(world))
    before = there(world)
    world.remake_node(NODE)

    assert there(world).uid != before.uid
    assert not there(world).unschedulable


def test_silence_is_an_error_and_a_trouble(world: ClusterWorld) -> None:
    """The question raises; the view never does."""
    world.cluster.view()
    world.hush()
    with pytest.raises(CloudError):
        world.cluster.node(NODE)
    assert world.cluster.view() is not None
