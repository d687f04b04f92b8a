"""The last question before a workload's pods are ended: whoever objects, or does not answer, keeps all of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.controller.context import LiveParts
from gpuwatch.controller.target_workload import WorkloadTarget, remember_workloads
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Intent, Observation, OpenIntent, Outcome, Reason, Review, Status, Verb
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.model.kubernetes import Pod, Target, WorkloadNow
from gpuwatch.policies.kubernetes.idle_pods import WorkloadStep, steps
from tests.support.builders.fleet import NOW, Desk
from tests.support.builders.workloads import BY_POOL, RULEBOOK, a_host, a_notebook, its_notice, its_pod, seen
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.workloads import FakeWorkloads

IDLE, BUSY = State.IDLE, State.BUSY
ALICE = Target(namespace="team-a", kind="Notebook", name="alice", uid="uid-alice")


@dataclass(slots=True)
class World:
    """Alice's notebook, idle on a machine of the fleet, decided to be stopped; then things change."""

    desk: Desk
    cluster: FakeCluster
    workloads: FakeWorkloads
    observation: Observation
    step: WorkloadStep

    def veto(self) -> str | None:
        """The last question's answer."""
        return WorkloadTarget(self.parts).objection(self.observation, self.review, ())

    @property
    def review(self) -> Review:
        """The guard allows it."""
        return Review(step=self.step.step, pool="default", answers=())

    @property
    def parts(self) -> LiveParts:
        """The controller's, with the default limits."""
        return replace(self.desk.parts, cluster=self.cluster, rules=RULEBOOK)

    def now(self, **change: object) -> None:
        """The workload is otherwise now."""
        self.workloads.put(replace(self.workloads.shown[ALICE.uid], **change))  # type: ignore[arg-type]  # its fields

    def pod_now(self, **change: object) -> None:
        """Its pod is."""
        self.now(pods=(replace(bound(its_pod()), **change),))  # type: ignore[arg-type]  # its fields


def bound(pod: Pod) -> Pod:
    """On the first machine."""
    return replace(pod, node="node-1")


@pytest.fixture
def world() -> World:
    """Nobody objects yet."""
    desk = Desk()
    host = a_host(1, (its_pod(), IDLE))
    desk.fleet.put(host)
    cluster = FakeCluster(clock=desk.clock)
    cluster.workloads = workloads = FakeWorkloads(clock=desk.clock)
    workloads.put(WorkloadNow(target=ALICE, wants=1, pods=(bound(its_pod()),)))
    observation = seen(host, notices=(its_notice(),))
    (step,) = steps(observation, BY_POOL)
    assert step.verb is Verb.RELEASE
    remember_workloads(desk.parts, (step,))
    return World(desk, cluster, workloads, observation, step)


def test_where_nobody_objects_it_goes(world: World) -> None:
    """Everybody was asked."""
    assert world.veto() is None


def works(world: World) -> None:
    """Somebody has come back a moment ago."""
    world.desk.fleet.put(a_host(1, (its_pod(), BUSY)))


def silent_agent(world: World) -> None:
    """Its agent does not answer."""
    world.desk.fleet.answer = lambda _: NodeReport(failure="its agent did not answer within 5s")


def late_agent(world: World) -> None:
    """It answers with what it saw a minute ago."""
    verdict = a_host(1, (its_pod(), IDLE)).verdict
    assert verdict is not None
    world.desk.fleet.answer = lambda _: NodeReport(verdict=replace(verdict, age_seconds=60.0))


def stopped_machine(world: World) -> None:
    """Somebody has stopped the machine."""
    world.desk.fleet.put(a_host(1, (its_pod(), IDLE), state=NodeState.STOPPED))


def unenrolled_machine(world: World) -> None:
    """Its tag is gone."""
    world.desk.fleet.put(a_host(1, (its_pod(), IDLE), enrolled=False))


def silent_server(world: World) -> None:
    """The API server does not answer."""
    world.workloads.fault = lambda _call, _about: CloudUnavailableError("no answer")


def paused(world: World) -> None:
    """An order of this moment."""
    world.desk.ledger.pause(None, "ann", "", NOW)


VETOES: dict[str, tuple[Callable[[World], None], str]] = {
    "it works": (works, "It works"),
    "silent agent": (silent_agent, "did not answer"),
    "late agent": (late_agent, "is 1m old"),
    "stopped machine": (stopped_machine, "does not show it running"),
    "unenrolled machine": (unenrolled_machine, "not enrolled"),
    "silent API server": (silent_server, "gives no answer"),
    "paused": (paused, "paused"),
    "made again": (lambda world: world.workloads.shown.clear(), "of that uid any more"),
    "stopped by its owner": (lambda world: world.now(wants=0), "wants no pods"),
    "another pod": (lambda world: world.pod_now(uid="uid-new"), "others now"),
    "one pod more": (lambda world: world.now(pods=(bound(its_pod()), its_pod("alice-1"))), "others now"),
    "moved": (lambda world: world.pod_now(node="node-2"), "others now"),
    "protected": (lambda world: world.pod_now(protected="an annotation"), "protected"),
    "snoozed": (
        lambda world: world.pod_now(workload=a_notebook(snoozed_until=NOW + timedelta(hours=1))),
        "snoozed",
    ),
    "consent withdrawn": (lambda world: world.pod_now(workload=a_notebook(idle_action=None)), "idle-action"),
}


@pytest.mark.parametrize("name", VETOES)
def test_whatever_has_changed_since_is_a_veto(world: World, name: str) -> None:
    """In words for the ledger."""
    befalls, why = VETOES[name]
    befalls(world)
    found = world.veto()

    assert found is not None
    assert why in found


def ended(key: str = "key-1") -> Intent:
    """The intent of its end."""
    observation = seen(a_host(1, (its_pod(), IDLE)), notices=(its_notice(),))
    (step,) = steps(observation, BY_POOL)
    reason = Reason(code="expired", sentence="It was idle.")
    return Intent(
        key=key,
        verb=Verb.RELEASE,
        node_id=step.use.id,
        pool="default",
        at=NOW,
        reason=reason,
        arguments=step.arguments,
    )


def open_end(last: Status | None = Status.ACCEPTED, **arguments: str) -> OpenIntent:
    """Its end, not settled yet."""
    intent = replace(ended(), arguments={**ended().arguments, **arguments})
    outcome = None if last is None else Outcome(key=intent.key, at=NOW, status=last, detail="")
    return OpenIntent(intent=intent, attempts=1, last=outcome, reached=True)


def settled(world: World, entry: OpenIntent) -> Status | None:
    """What became of it."""
    found = WorkloadTarget(world.parts).outcome_of(entry)
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("now", "status"),
    [
        ({"wants": 0, "released_by": "key-1", "pods": ()}, Status.SETTLED),
        ({"wants": 0, "released_by": "key-1"}, None),
        ({"wants": 1, "released_by": "key-1"}, Status.SETTLED),
        ({"wants": 1}, Status.INTERRUPTED),
        ({"wants": 0, "released_by": "key-0", "pods": ()}, Status.INTERRUPTED),
    ],
    ids=["done", "its pods are ending", "brought back", "nothing was sent", "another decision"],
)
def test_what_the_api_server_shows_settles_it(world: World, now: dict[str, object], status: Status | None) -> None:
    """By the key on the object."""
    world.now(**now)

    assert settled(world, open_end()) is status


def test_pods_that_never_end_do_not_keep_it_open(world: World) -> None:
    """A finalizer may hold them for days."""
    world.now(wants=0, released_by="key-1")
    world.desk.clock.advance(601.0)

    assert settled(world, open_end()) is Status.SETTLED


def test_a_workload_that_is_gone_is_settled(world: World) -> None:
    """Nothing of it is left to end."""
    world.workloads.shown.clear()

    assert settled(world, open_end()) is Status.SETTLED


@pytest.mark.parametrize(
    ("pods", "status"),
    [
        (("alice-0", "alice-1"), Status.INTERRUPTED),
        (("alice-0",), Status.SETTLED),
        ((), Status.SETTLED),
    ],
)
def test_a_delete_without_an_answer_is_settled_by_its_pods(world: World, pods: tuple[str, ...], status: Status) -> None:
    """Where each of them is there and none ends, nothing was asked: the same may be tried again."""
    world.now(pods=tuple(map(its_pod, pods)))

    assert settled(world, open_end(None, how="delete", uids="uid-alice-0 uid-alice-1")) is status


def test_a_delete_of_which_one_pod_ends_was_asked(world: World) -> None:
    """An eviction shows at once."""
    world.now(pods=(its_pod(), its_pod("alice-1", ends_at=NOW)))

    assert settled(world, open_end(None, how="delete", uids="uid-alice-0 uid-alice-1")) is Status.SETTLED


def test_without_a_cluster_in_the_settings_nothing_is_asked(world: World) -> None:
    """What may have happened counts."""
    parts = replace(world.parts, cluster=None)

    assert WorkloadTarget(parts).objection(world.observation, world.review, ()) is not None
    assert WorkloadTarget(parts).outcome_of(open_end()) == (Status.FAILED, "no Kubernetes cluster is in the settings")
