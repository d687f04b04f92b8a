"""Which pods of a node are sure to run elsewhere, by the scheduler's rules, and why the others are not."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.placing import (
    HOSTNAME,
    NODE_NAME,
    Disk,
    Needs,
    Place,
    PlacedPod,
    PodTerm,
    Requirement,
    Room,
    Selector,
    Spread,
    Taint,
    Toleration,
)
from gpuwatch.policies.kubernetes.elsewhere import why_stranded
from tests.support.nightly import examples

_ZONE = "topology.kubernetes.io/zone"
_APP = Selector(exact=(("app", "web"),))
_GIB = 2**30


def a_place(name: str, cores: float = 32, *, zone: str = "a", **other: object) -> Place:
    """A node with so many cores, 64 GiB and room for 110 pods; `labels` are more labels of it."""
    labels = {HOSTNAME: name, NODE_NAME: name, _ZONE: zone, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    more = other.pop("labels", {})
    offers = {"cpu": int(cores * 1000), "memory": 64 * _GIB, "pods": 110}
    base = Place(name=name, labels={**labels, **more}, offers=offers)  # type: ignore[dict-item]
    return replace(base, **other)  # type: ignore[arg-type]


def a_pod(name: str, node: str | None, cores: float = 1, *, app: str = "web", **other: object) -> PlacedPod:
    """A pod that requests so many cores; what is left is of its needs, or of itself."""
    own = {key: other.pop(key) for key in ("namespace", "disks", "ends", "labels", "nominated") if key in other}
    needs = replace(Needs(requests=(("cpu", int(cores * 1000)),) if cores else ()), **other)  # type: ignore[arg-type]
    base = PlacedPod(name=name, namespace="team", uid=name, node=node, labels={"app": app}, needs=needs)
    return replace(base, **own)  # type: ignore[arg-type]


def leaving(room: Room, node: str) -> tuple[str, frozenset[str]]:
    """A node with all of its pods."""
    return node, frozenset(pod.uid for pod in room.pods if pod.node == node)


def why(*parts: Place | PlacedPod, node: str = "gpu-3", after: tuple[str, ...] = ()) -> dict[str, str]:
    """Why pods of a node fit nowhere, where these others are promised a place already."""
    room = Room(
        places=tuple(each for each in parts if isinstance(each, Place)),
        pods=tuple(each for each in parts if isinstance(each, PlacedPod)),
    )
    return dict(why_stranded(room, [leaving(room, each) for each in after], [leaving(room, node)], ()))


GPU3 = a_place("gpu-3")


def test_a_pod_with_room_elsewhere_is_sure_of_it() -> None:
    """And one without any is not; the sentence says how much is missing."""
    assert why(GPU3, a_place("cpu-1", 8), a_pod("web", "gpu-3", 4)) == {}
    assert why(GPU3, a_place("cpu-1", 2), a_pod("web", "gpu-3", 4)) == {
        "web": "4 cores are asked for, and the largest free place has 2"
    }
    assert why(GPU3, a_pod("web", "gpu-3", 4)) == {"web": "there is no other node that takes pods and stays"}


def test_what_others_use_is_not_free() -> None:
    """Pods that are ending as well, as long as they are there."""
    busy = [a_pod("a", "cpu-1", 3), a_pod("b", "cpu-1", 3, ends=True)]

    assert "largest free place has 2" in why(GPU3, a_place("cpu-1", 8), *busy, a_pod("web", "gpu-3", 4))["web"]


def test_all_pods_of_a_node_have_to_fit_at_once() -> None:
    """Three of 20 cores each fit where one of them does; with one alone the node may go."""
    cpu = a_place("cpu-1", 30)
    three = [a_pod(f"api-{number}", "gpu-3", 20) for number in range(3)]

    assert len(why(GPU3, cpu, *three)) == 3
    assert why(GPU3, cpu, three[0]) == {}


def test_what_is_promised_to_another_node_is_not_promised_twice() -> None:
    """Of two nodes with one pod each the first in the order of notices goes."""
    parts: list[Place | PlacedPod] = [
        GPU3,
        a_place("gpu-5"),
        a_place("cpu-1", 30),
        a_pod("a", "gpu-3", 20),
        a_pod("b", "gpu-5", 20),
    ]

    assert why(*parts) == {}
    assert why(*parts, node="gpu-5", after=("gpu-3",)) == {
        "b": "20 cores are asked for, and the largest free place has 10"
    }


def test_a_node_that_goes_itself_is_no_place() -> None:
    """Nor are two nodes a place for each other's pods."""
    parts: list[Place | PlacedPod] = [GPU3, a_place("gpu-5"), a_pod("a", "gpu-3", 2), a_pod("b", "gpu-5", 2)]

    assert why(*parts) == {}
    assert "no other node" in why(*parts, after=("gpu-5",))["a"]


def test_a_promise_that_cannot_be_kept_takes_no_place_from_others() -> None:
    """Its pods stay where they are."""
    parts: list[Place | PlacedPod] = [
        GPU3,
        a_place("gpu-5"),
        a_place("cpu-1", 30),
        a_pod("a", "gpu-3", 20),
        a_pod("b", "gpu-5", 40),
    ]

    assert set(why(*parts, after=("gpu-5",))) == {"b"}


@pytest.mark.parametrize(
    "place",
    [
        a_place("x", closed=True),
        a_place("x", labels={"kubernetes.io/arch": "arm64"}),
        a_place("x", labels={"kubernetes.io/os": "windows"}),
        a_place("x", taints=(Taint(key="team", effect="NoSchedule", value="b"),)),
        a_place("x", offers={"cpu": 32000, "memory": 64 * _GIB, "pods": 0}),
        a_place("x", 0.5),
    ],
)
def test_what_takes_no_pod_is_no_place(place: Place) -> None:
    """Also where the scheduler would say yes, and the image is of another architecture."""
    assert set(why(GPU3, place, a_pod("web", "gpu-3"))) == {"web"}


def test_a_full_node_says_that_it_takes_no_more_pods() -> None:
    """However much of all else it has."""
    full = a_place("x", offers={"cpu": 32000, "pods": 1})

    assert why(GPU3, full, a_pod("a", "x", 0), a_pod("b", "gpu-3", 0))["b"] == "no other node takes one more pod"


def test_tolerations_selectors_and_affinity_decide_where() -> None:
    """As https://kubernetes.io/docs/concepts/scheduling-eviction/ has it."""
    tainted = a_place("x", taints=(Taint(key="team", effect="NoExecute", value="b"),), labels={"disk": "hdd"})
    bears = (Toleration(key="team", operator="Equal", value="b"),)
    not_hdd = ((Requirement(key="disk", operator="NotIn", values=("hdd",)),),)

    assert why(GPU3, tainted, a_pod("web", "gpu-3", tolerations=bears)) == {}
    assert why(GPU3, tainted, a_pod("web", "gpu-3", tolerations=bears, selector=(("disk", "hdd"),))) == {}
    assert "labels" in why(GPU3, tainted, a_pod("web", "gpu-3", tolerations=bears, alternatives=not_hdd))["web"]
    assert "taints" in why(GPU3, tainted, a_pod("web", "gpu-3"))["web"]
    assert why(GPU3, tainted, a_pod("web", "gpu-3", tolerations=(Toleration(operator="Exists"),))) == {}


def test_one_alternative_is_enough_and_an_empty_one_fits_nothing() -> None:
    """A node's name is one of its fields."""
    named = (Requirement(key=NODE_NAME, operator="In", values=("cpu-1",)),)

    assert why(GPU3, a_place("cpu-1"), a_pod("web", "gpu-3", alternatives=((), named))) == {}
    assert why(GPU3, a_place("cpu-2"), a_pod("web", "gpu-3", alternatives=((), named))) != {}


def test_a_volume_is_mounted_in_its_zone_alone() -> None:
    """The sentence names the zone."""
    disk = Disk(name="data", alternatives=((Requirement(key=_ZONE, operator="In", values=("a",)),),), alone=True)
    pod = a_pod("db", "gpu-3", disks=(disk,))

    assert why(GPU3, a_place("cpu-1"), pod) == {}
    assert why(GPU3, a_place("cpu-1", zone="b"), pod) == {"db": "its volume data (a) can be mounted on no other node"}


def test_what_is_not_known_fits_nowhere() -> None:
    """Another scheduler, a claim that nobody may read, one disk of two pods."""
    cpu, shared = a_place("cpu-1"), Disk(name="data", alone=True)

    assert why(GPU3, cpu, a_pod("a", "gpu-3", doubt="its scheduler is volcano"))["a"] == "its scheduler is volcano"
    assert "403" in why(GPU3, cpu, a_pod("a", "gpu-3", disks=(Disk(name="data", doubt="403"),)))["a"]
    pods = [a_pod("a", "gpu-3", disks=(shared,)), a_pod("b", "gpu-3", disks=(shared,))]
    assert set(why(GPU3, cpu, *pods)) == {"a", "b"}


def test_a_port_of_the_host_is_free_once() -> None:
    """Named where it is taken everywhere."""
    port = (("TCP", 443),)

    taken = why(GPU3, a_place("cpu-1"), a_pod("x", "cpu-1", ports=port), a_pod("web", "gpu-3", ports=port))
    assert taken == {"web": "port 443 is taken on each node that it fits"}
    assert (
        why(GPU3, a_place("cpu-1"), a_pod("x", "cpu-1", ports=(("UDP", 443),)), a_pod("web", "gpu-3", ports=port)) == {}
    )


_APART = (PodTerm(topology=HOSTNAME, selector=_APP),)


def test_anti_affinity_of_either_side_keeps_a_pod_away() -> None:
    """Its own against those that are there, and theirs against it."""
    cpu = a_place("cpu-1")

    assert why(GPU3, cpu, a_pod("x", "cpu-1"), a_pod("web", "gpu-3", apart=_APART)) != {}
    assert why(GPU3, cpu, a_pod("x", "cpu-1", app="other", apart=_APART), a_pod("web", "gpu-3")) != {}
    assert why(GPU3, cpu, a_pod("x", "cpu-1", app="other"), a_pod("web", "gpu-3", apart=_APART)) == {}
    elsewhere = a_pod("x", "cpu-1", namespace="b", apart=_APART)
    assert why(GPU3, cpu, elsewhere, a_pod("web", "gpu-3")) == {}


def test_pods_that_must_be_apart_need_a_node_each() -> None:
    """Two replicas on one node cannot both move to one other."""
    pods = [a_pod(f"web-{number}", "gpu-3", apart=_APART) for number in range(2)]

    assert why(GPU3, a_place("cpu-1"), *pods) != {}
    assert why(GPU3, a_place("cpu-1"), a_place("cpu-2"), *pods) == {}


def test_a_pod_leaves_its_own_anti_affinity_behind() -> None:
    """Of a zone, too: nobody else of its kind is there."""
    apart = (PodTerm(topology=_ZONE, selector=_APP),)

    assert why(GPU3, a_place("cpu-1"), a_pod("web", "gpu-3", apart=apart)) == {}


def test_affinity_needs_a_pod_that_stays() -> None:
    """One that moves as well may come up anywhere."""
    near = (PodTerm(topology=HOSTNAME, selector=Selector(exact=(("app", "db"),))),)
    web = a_pod("web", "gpu-3", near=near)

    assert why(GPU3, a_place("cpu-1"), a_pod("db", "cpu-1", app="db"), web) == {}
    assert set(why(GPU3, a_place("cpu-1"), a_pod("db", "gpu-3", app="db"), web)) == {"web"}


def a_spread(**other: object) -> tuple[Spread, ...]:
    """At most one more in a zone than in another."""
    return (replace(Spread(topology=_ZONE, most_skew=1, selector=_APP), **other),)  # type: ignore[arg-type]


def test_an_even_spread_leaves_no_place_in_full_zones() -> None:
    """Where the zone of the node has none left, and is still a zone."""
    others = [a_pod(f"o-{number}", f"cpu-{number}") for number in (1, 2)]
    places = [a_place("gpu-3", zone="c"), a_place("cpu-1", zone="a"), a_place("cpu-2", zone="b")]

    assert "spread" in why(*places, *others, a_pod("web", "gpu-3", spread=a_spread()))["web"]
    assert why(*places, *others, a_pod("web", "gpu-3", spread=a_spread(most_skew=2))) == {}
    assert why(*places, a_place("cpu-3", zone="c"), *others, a_pod("web", "gpu-3", spread=a_spread())) == {}


def test_a_zone_that_takes_nobody_counts_unless_taints_do() -> None:
    """With `nodeTaintsPolicy: Honor` it is no domain any more; `minDomains` makes up for it."""
    others = [a_pod(f"o-{number}", f"cpu-{number}") for number in (1, 2)]
    places = [a_place("gpu-3", zone="c"), a_place("cpu-1", zone="a"), a_place("cpu-2", zone="b")]

    assert why(*places, *others, a_pod("web", "gpu-3", spread=a_spread(by_taints=True))) == {}
    three = a_spread(by_taints=True, least_domains=3)
    assert why(*places, *others, a_pod("web", "gpu-3", spread=three)) != {}


def test_a_place_that_others_may_take_is_not_sure() -> None:
    """The scheduler may give the large place to the small pod: then the large one waits."""
    pods = [a_pod("large", "gpu-3", 20), a_pod("small", "gpu-3", 4)]

    assert why(GPU3, a_place("cpu-1", 20), a_place("cpu-2", 4), *pods) == {
        "large": "other pods that move, or wait, may take the places that it fits"
    }
    assert why(GPU3, a_place("cpu-1", 24), *pods) == {}
    assert why(GPU3, a_place("cpu-1", 28), a_place("cpu-2", 28), *pods) == {}


def test_a_pod_that_waits_may_take_the_place() -> None:
    """The scheduler takes it first; one that fits nowhere takes none."""
    cpu = a_place("cpu-1", 8)

    assert why(GPU3, cpu, a_pod("waits", None, 6), a_pod("web", "gpu-3", 4)) != {}
    assert why(GPU3, cpu, a_pod("waits", None, 60), a_pod("web", "gpu-3", 4)) == {}


def test_room_that_the_scheduler_makes_for_another_pod_is_not_free() -> None:
    """What is left of its node is that pod's own, also before the pods that make room have gone."""
    cpu, victim = a_place("cpu-1", 8), a_pod("victim", "cpu-1", 4, ends=True)
    nominated = a_pod("urgent", None, 8, nominated="cpu-1")

    assert why(GPU3, cpu, victim, a_pod("web", "gpu-3", 4)) == {}
    assert why(GPU3, cpu, victim, nominated, a_pod("web", "gpu-3", 4)) != {}
    assert why(GPU3, cpu, victim, nominated, a_place("cpu-2", 12), a_pod("web", "gpu-3", 4)) == {}


_CORES = st.sampled_from([0, 1, 2, 4, 8])


@given(st.lists(_CORES, min_size=1, max_size=4), st.lists(_CORES, min_size=1, max_size=4), st.data())
@settings(max_examples=examples(60))
def test_what_is_sure_fits_in_whatever_order_and_place_the_scheduler_chooses(
    pods: list[int], places: list[int], data: st.DataObject
) -> None:
    """Played through: a scheduler that chooses badly leaves none of them without a place."""
    movers = [a_pod(f"p-{number}", "gpu-3", cores) for number, cores in enumerate(pods)]
    others = [a_place(f"n-{number}", cores) for number, cores in enumerate(places)]
    if why(GPU3, *others, *movers):
        return
    free = {each.name: each.offers["cpu"] for each in others}
    for pod in data.draw(st.permutations(movers)):
        cores = dict(pod.needs.requests).get("cpu", 0)
        fitting = [name for name, left in free.items() if left >= cores]
        assert fitting, (pods, places)
        free[data.draw(st.sampled_from(fitting))] -= cores


@given(st.lists(_CORES, min_size=1, max_size=4), st.lists(_CORES, max_size=4), _CORES)
@settings(max_examples=examples(60))
def test_one_more_place_strands_nobody(pods: list[int], places: list[int], more: int) -> None:
    """Room is never a reason to stay."""
    movers = [a_pod(f"p-{number}", "gpu-3", cores) for number, cores in enumerate(pods)]
    others = [a_place(f"n-{number}", cores) for number, cores in enumerate(places)]

    if not why(GPU3, *others, *movers):
        assert not why(GPU3, *others, a_place("more", more), *movers)
