"""Two clusters in one controller, whose nodes, namespaces, workloads and pods have the same names."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.controller.explain import find_node
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.node_row import nodes_page
from gpuwatch.controller.round import Round
from gpuwatch.controller.workload_orders import Kept, UnknownWorkloadError, keep_workload
from gpuwatch.kubernetes.several import SeveralClusters, name_of_node, workloads_of
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.kubernetes import Pod, PodPhase
from gpuwatch.model.placing import PODS, Place, PlacedPod, Room
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from tests.support.builders.clusters import a_cordon, a_gpu_pod, a_kubernetes_node
from tests.support.builders.fleet import RULES
from tests.support.builders.two_clusters import TwoClustersDesk, alice, two_clusters
from tests.support.fakes.cluster import SILENT

IDLE_PODS = IdlePodRules(action="as-annotated", timeout=3600.0, grace_period=600.0, rest=1800.0)
REPORTS = replace(RULES, idle=replace(RULES.idle, action="report"), kubernetes=KubernetesRules(pods=IDLE_PODS))


_ON_NODE_1 = PlacedPod(name="team-a/web-1", namespace="team-a", uid="research-web-1", node="node-1")


def live(desk: TwoClustersDesk, rounds: int) -> list[Round]:
    """So many rounds, a minute each."""
    return [desk.round() for _ in range(rounds)]


def acted(rounds: list[Round]) -> set[tuple[str, Verb]]:
    """What was done, to what."""
    return {(act.review.step.node_id, act.review.step.verb) for each in rounds for act in each.acts}


def changes(desk: TwoClustersDesk) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """What prod and research were asked to change, each by its own names."""
    return tuple({(call, name) for call, name, _ in each.calls} for each in (desk.cluster, desk.other))  # type: ignore[return-value]


def test_an_idle_node_goes_and_its_busy_namesake_stays() -> None:
    """Each change is asked of its own cluster, by the name that it has there."""
    desk = two_clusters(prod=State.BUSY, research=State.IDLE)
    rounds = live(desk, 40)
    prod, research = changes(desk)

    assert prod == set()
    assert {call for call, _ in research} >= {"cordon"}
    assert {name for _, name in research} == {"node-1"}
    assert {node for node, _ in acted(rounds)} == {"i-11"}


def test_a_cluster_that_is_silent_holds_up_itself_alone() -> None:
    """Its nodes are unknown and stay; the other's goes, and the page says which is silent."""
    desk = two_clusters()
    desk.cluster.trouble = SILENT
    rounds = live(desk, 40)
    seen = rounds[-1].observation.fleet
    page = nodes_page(rounds[-1], desk.rulebook)

    assert {node for node, _ in acted(rounds)} == {"i-11"}
    assert changes(desk)[0] == set()
    for machine in ("i-1", "i-2"):
        assert seen.find(machine).activity.state is State.UNKNOWN  # type: ignore[union-attr]
    assert page.kubernetes is not None
    assert page.kubernetes.name == "prod and research"
    assert page.kubernetes.trouble is None
    assert [note for note in page.kubernetes.notes if "prod" in note and "research" not in note]


def test_a_cluster_without_an_answer_is_left_alone_for_the_round_and_the_other_is_not() -> None:
    """A circuit for each: three calls to prod fail slowly, and research's cordon is made in the same round."""
    desk = two_clusters()

    def fault(call: str, _node: str) -> CloudUnavailableError | None:
        return CloudUnavailableError("no answer") if call == "cordon" else None

    desk.cluster.fault = fault
    rounds = live(desk, 40)

    assert ("i-11", Verb.CORDON) in acted(rounds)
    assert not [each for each in changes(desk)[0] if each[0] != "cordon"]
    assert changes(desk)[1]


def test_an_idle_notebook_is_ended_and_its_busy_namesake_is_not() -> None:
    """Told by its own API server, under the id that a single cluster of that name has in the ledger."""
    desk = two_clusters(REPORTS, prod=State.BUSY, research=State.IDLE)
    desk.cluster.bind("node-1", alice("prod"))
    desk.other.bind("node-1", alice("research"))
    rounds = live(desk, 16)
    mine = {(node, verb) for node, verb in acted(rounds) if node.startswith("kube:")}

    assert mine == {
        ("kube:research/team-a/Notebook/alice", Verb.NOTICE),
        ("kube:research/team-a/Notebook/alice", Verb.RELEASE),
    }
    assert desk.cluster.workloads.calls == []
    assert [call for call, _, _ in desk.other.workloads.calls] == ["announce", "release"]


def test_a_snooze_asks_which_of_two_is_meant() -> None:
    """And keeps that one alone; its namesake goes on."""
    desk = two_clusters(REPORTS)
    desk.cluster.bind("node-1", alice("prod"))
    desk.other.bind("node-1", alice("research"))
    wish = Kept(who="ann@desk", reason="a demo", at=desk.clock.now(), seconds=3600.0)
    seen = desk.plan().observation
    with pytest.raises(UnknownWorkloadError, match=r"Several clusters have .*\. Say which: prod/team-a"):
        keep_workload(desk.ledger, seen, desk.rulebook, "team-a/notebook/alice", wish)
    order = keep_workload(desk.ledger, seen, desk.rulebook, "prod/team-a/notebook/alice", wish)
    rounds = live(desk, 3)

    assert order.node_id == "kube:prod/team-a/Notebook/alice"
    assert {node for node, _ in acted(rounds)} == {"kube:research/team-a/Notebook/alice"}


def test_a_machine_that_nodes_of_both_name_is_joined_to_neither() -> None:
    """It has left one for the other, perhaps: nobody knows, and both nodes are named."""
    desk = two_clusters(prod=State.BUSY)
    desk.other.put(a_kubernetes_node("old", cluster="research", uid="old", provider_id="aws:///us-east-1a/i-1"))
    seen = desk.plan().observation.fleet
    machine = find_node(desk.plan(), "i-1")
    assert seen.cluster is not None

    assert machine.kubernetes is None
    assert machine.activity.state is State.UNKNOWN
    assert any("prod/node-1" in note and "research/old" in note for note in seen.cluster.notes)


def test_a_cluster_that_is_taken_out_of_the_settings_leaves_its_nodes_alone() -> None:
    """Also one that is cordoned at that moment: nothing is asked of whom nobody knows, and nothing of the other."""
    desk = two_clusters(research=State.BUSY)
    for _ in range(40):
        if not changes(desk)[0]:
            live(desk, 1)
    before = changes(desk)
    desk.names = ("research",)
    rounds = live(desk, 30)

    assert changes(desk) == before
    assert not {node for node, verb in acted(rounds) if verb in {Verb.TERMINATE, Verb.STOP, Verb.DRAIN}}


def test_the_ledger_gives_back_what_a_round_saw() -> None:
    """Both clusters, their nodes once, and what is the matter with each."""
    desk = two_clusters()
    desk.cluster.trouble = SILENT
    done = desk.round()
    past = desk.ledger.round(desk.ledger.rounds(1)[0].id)
    told, kept = done.observation.fleet.cluster, past.observation.fleet.cluster

    assert told is not None
    assert kept is not None
    assert [(each.name, each.trouble) for each in kept.parts] == [(each.name, each.trouble) for each in told.parts]
    assert {node.name for node in kept.nodes} == {node.name for node in told.nodes}


def test_names_of_before_are_understood() -> None:
    """A ledger of a single cluster's time has bare names, and perhaps another name of the cluster."""
    desk = two_clusters()
    uid = desk.cluster.nodes["node-1"].uid

    for name, node in product(("prod", "kubernetes", ""), ("node-1", "prod/node-1")):
        assert name_of_node(desk.several, name, node, uid) == "prod/node-1"
        assert name_of_node(desk.cluster, name, node, uid) == "node-1"
    assert name_of_node(desk.several, "kubernetes", "node-1", "another's") is None
    assert name_of_node(desk.other, "prod", "prod/node-1", uid) is None
    assert workloads_of(desk.several, "gone") is None
    assert workloads_of(desk.cluster, "prod") is desk.cluster.workloads
    assert desk.several.node("gone/node-1") is None
    known = desk.several.node("research/node-1")
    assert known is not None
    assert (known.name, known.cluster) == ("research/node-1", "research")


def ends(desk: TwoClustersDesk, node_id: str, verb: Verb) -> list[tuple[Status, str]]:
    """How each such step came out in the end."""
    steps = [entry for entry in desk.ledger.history(node_id) if entry.intent.verb is verb]
    return [(entry.outcomes[-1].status, entry.outcomes[-1].detail) for entry in steps]


def unanswered(call: str) -> Callable[[str, str], CloudUnavailableError | None]:
    """Nobody knows whether such a call was carried out; it was."""
    return lambda each, _node: CloudUnavailableError("no answer") if each == call else None


def test_open_steps_of_a_cluster_without_a_name_settle_once_it_has_one() -> None:
    """They were written for `kubernetes`; the settings have `kubernetes.prod` and a namesake now."""
    desk = two_clusters(research=State.BUSY)
    desk.call_prod("kubernetes")
    desk.cluster.lose = unanswered("cordon")
    for _ in range(40):
        if not desk.cluster.calls:
            desk.round()
    desk.call_prod("prod")
    desk.cluster.lose = unanswered("nothing")
    live(desk, 20)

    assert ends(desk, "i-1", Verb.CORDON) == [(Status.SETTLED, "the API server shows it cordoned")]
    assert ends(desk, "i-1", Verb.TERMINATE)
    assert [call for call, _, _ in desk.cluster.calls] == ["cordon"]
    assert desk.other.calls == []


def test_open_steps_for_workloads_of_a_cluster_without_a_name_settle_once_it_has_one() -> None:
    """Its notice is closed under the old name, its annotation goes, and a new one with all of its grace follows."""
    desk = two_clusters(REPORTS, research=State.BUSY)
    desk.call_prod("kubernetes")
    desk.cluster.bind("node-1", alice("prod"))
    desk.other.bind("node-1", alice("research"))
    desk.cluster.workloads.lose = unanswered("announce")
    for _ in range(20):
        if not desk.cluster.workloads.calls:
            desk.round()
    desk.call_prod("prod")
    desk.cluster.workloads.lose = unanswered("nothing")
    rounds = live(desk, 30)
    former = "kube:kubernetes/team-a/Notebook/alice"

    assert ends(desk, former, Verb.NOTICE) == [(Status.SETTLED, "its annotation shows it")]
    assert [call for call, _, _ in desk.cluster.workloads.calls] == ["announce", "announce", "announce", "release"]
    assert {each for each in acted(rounds) if each[1] is Verb.RELEASE} == {
        ("kube:prod/team-a/Notebook/alice", Verb.RELEASE)
    }
    assert desk.other.workloads.calls == []


def test_what_people_keep_stays_kept_when_its_cluster_gets_another_name() -> None:
    """The order names the cluster as it was called then; perhaps a namesake is kept with it."""
    desk = two_clusters(REPORTS, research=State.BUSY)
    desk.call_prod("kubernetes")
    desk.cluster.bind("node-1", alice("prod"))
    wish = Kept(who="ann@desk", reason="a demo", at=desk.clock.now(), seconds=3600.0)
    keep_workload(desk.ledger, desk.plan().observation, desk.rulebook, "team-a/notebook/alice", wish)
    desk.call_prod("prod")

    assert acted(live(desk, 55)) == set()
    assert acted(live(desk, 30)) >= {("kube:prod/team-a/Notebook/alice", Verb.RELEASE)}


@pytest.mark.parametrize("verb", ["cordon", "drain"])
def test_open_steps_of_a_cluster_that_is_in_the_settings_no_more_are_not_said_to_be_done(verb: str) -> None:
    """Nobody can be asked; the other has a node of that name, which is another."""
    desk = two_clusters(research=State.BUSY)
    desk.cluster.bind("node-1", replace(a_gpu_pod("web-1"), uid="prod-web-1"))
    desk.cluster.lose = unanswered(verb)
    for _ in range(60):
        if verb not in {call for call, _, _ in desk.cluster.calls}:
            desk.round()
    desk.names = ("research",)
    live(desk, 3)

    assert ends(desk, "i-1", Verb(verb)) == [(Status.FAILED, "no cluster of the settings has the node prod/node-1")]
    assert desk.other.calls == []


def test_a_pod_that_waits_in_one_cluster_wants_no_node_of_the_other() -> None:
    """However well it would fit there."""
    desk = two_clusters()
    waiting = replace(a_gpu_pod("waits"), phase=PodPhase.PENDING, unschedulable="0/2 nodes are available")
    view = desk.several.view()
    assert view.home_of_pending == {}
    shown = desk.other.view()
    desk.other = _Showing(desk.other, replace(shown, pending=(waiting,)))  # type: ignore[assignment]
    view = desk.several.view()

    assert view.home_of_pending == {waiting.uid: "research"}
    assert [each.pending for each in view.parts] == [(), (waiting,)]


class _Showing:
    """A cluster that shows this."""

    def __init__(self, cluster: object, view: object) -> None:
        self._cluster, self._view = cluster, view

    def view(self) -> object:
        return self._view


@given(
    theirs=st.lists(st.sampled_from(["node-1", "node-2", "node-3"]), unique=True),
    pods=st.lists(st.sampled_from(["web-1", "train-1", "alice-0"]), unique=True),
    silent=st.booleans(),
    copied=st.booleans(),
    cordoned=st.booleans(),
    state=st.sampled_from([State.BUSY, State.IDLE, State.UNKNOWN]),
)
def test_what_is_decided_about_one_cluster_is_what_it_would_be_alone(
    theirs: list[str], pods: list[str], *, silent: bool, copied: bool, cordoned: bool, state: State
) -> None:
    """Whatever the other has under the same names, and whatever is the matter with it (P22)."""
    alone, both = two_clusters(), two_clusters(research=state)
    alone.names = ("prod",)
    for desk in (alone, both):
        desk.cluster.bind("node-1", a_gpu_pod("train-1", group="team-a/train", release="train"))
    both.other.nodes.clear()
    first = "uid-" if copied else "r-"  # a cluster that was restored from a copy of the other has its uids
    for name in theirs:
        made = a_kubernetes_node(
            name, cluster="research", uid=f"{first}{name}", provider_id=f"aws:///us-east-1a/i-1{name[-1]}"
        )
        both.other.put(a_cordon(made) if cordoned else made)
        both.other.bind(
            name,
            *(replace(a_gpu_pod(each, group="team-a/train", release="train"), uid=f"{first}{each}") for each in pods),
        )
    both.other.trouble = SILENT if silent else None
    told = [
        {
            (step.node_id, step.verb, step.reason.code)
            for each in desk.plan().decisions
            for step in each.steps
            if step.node_id in {"i-1", "i-2"}
        }
        for desk in (alone, both)
    ]

    assert told[0] == told[1]


def test_both_names_are_asked_side_by_side_and_one_that_is_alone_is_not_renamed() -> None:
    """A single cluster is what it always was."""
    desk = two_clusters()
    single = SeveralClusters({"prod": desk.cluster}).view()

    assert [node.name for node in desk.cluster.view().nodes] == ["node-1", "node-2"]
    assert [node.name for node in single.nodes] == ["prod/node-1", "prod/node-2"]
    assert {node.name for node in desk.several.view().nodes} == {
        *("prod/node-1", "prod/node-2", "research/node-1", "research/node-2")
    }


@pytest.mark.parametrize(("prods_room", "own_room"), [(9, 0), (9, None), (0, 9)])
def test_pods_need_room_in_their_own_cluster(prods_room: int, own_room: int | None) -> None:
    """However much the other has: no pod moves there. None: nobody knows."""
    desk = two_clusters(prod=State.BUSY)
    desk.other.bind("node-1", replace(a_gpu_pod("web-1"), uid="research-web-1"))
    desk.cluster.space, desk.other.space = (
        Room(places=(Place(name="node-1"), Place(name="spare", offers={PODS: room or 0})), pods=(_ON_NODE_1,))
        for room in (prods_room, own_room)
    )
    desk.other.shows_room = own_room is not None
    live(desk, 40)

    assert ("drain" in {call for call, _ in changes(desk)[1]}) == bool(own_room)


def test_a_drain_moves_pods_of_its_own_node_alone() -> None:
    """By their uids, from the node that bears the name."""
    desk = two_clusters(prod=State.BUSY)
    mine: Pod = replace(a_gpu_pod("web-1"), uid="research-web-1")
    desk.other.bind("node-1", mine)
    desk.cluster.bind("node-1", replace(mine, uid="prod-web-1"))
    rounds = live(desk, 60)

    assert [pod.uid for pod in desk.other.evicted] == ["research-web-1"]
    assert desk.cluster.evicted == []
    ended = [act.outcome.status for each in rounds for act in each.acts if act.review.step.verb is Verb.TERMINATE]
    assert ended
    assert set(ended) <= {Status.ACCEPTED, Status.SETTLED}


def test_each_cluster_has_its_own_metrics() -> None:
    """Which of them is up, and what its pods want."""
    desk = two_clusters()
    desk.cluster.trouble = SILENT
    metrics = ControllerMetrics("observe", "test", desk.clock)
    metrics.round(desk.plan(), 0.1)
    page = metrics.page("").body.decode()

    assert re.search(r'gpuwatch_kube_up\{[^}]*kube_cluster="prod"[^}]*\} 0\.0', page)
    assert re.search(r'gpuwatch_kube_up\{[^}]*kube_cluster="research"[^}]*\} 1\.0', page)
    for name in ("prod", "research"):
        assert re.search(rf'gpuwatch_kube_unjoined_nodes\{{[^}}]*kube_cluster="{name}"[^}}]*\}} 0\.0', page)
        assert re.search(rf'gpuwatch_kube_allocatable_gpus\{{[^}}]*kube_cluster="{name}"[^}}]*\}} 2\.0', page)
