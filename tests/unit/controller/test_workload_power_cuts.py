"""The power is cut anywhere between notice and settlement: the next controller loses nothing and does nothing twice."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuwatch.clouds import CloudError
from gpuwatch.controller.context import Memory
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.kubernetes import Target, Workload
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from tests.support.builders.clusters import ClusterDesk, a_cluster_desk
from tests.support.builders.fleet import RULES
from tests.support.builders.workloads import a_notebook, its_pod

PODS = IdlePodRules(action="as-annotated", timeout=3600.0, grace_period=600.0, rest=36000.0)
POOL = replace(RULES, idle=replace(RULES.idle, action="report"), kubernetes=KubernetesRules(pods=PODS))
OWNERS = {
    "stop": a_notebook(),
    "delete": Workload(namespace="team-a", kind="Job", name="train", uid="uid-train", idle_action="delete"),
}


class PowerCutError(BaseException):
    """Nothing of the process is left."""


def a_desk(how: str) -> ClusterDesk:
    """A workload on an idle machine."""
    return a_cluster_desk(POOL, its_pod("work-0", OWNERS[how]))


def cut_at_call(desk: ClusterDesk, number: int, *, late: bool) -> None:
    """At so many calls of the API server about workloads: before it has its effect, or before its answer is read."""
    left = [number]

    def cut(_call: str, _about: str) -> CloudError | None:
        left[0] -= 1
        if left[0] == 0:
            raise PowerCutError
        return None

    if late:
        desk.cluster.workloads.lose = cut
    else:
        desk.cluster.workloads.fault = cut


def cut_at_record(monkeypatch: pytest.MonkeyPatch, name: str, number: int, *, late: bool) -> None:
    """At so many records of a kind: before it is written, or right after it."""
    written: Callable[..., object] = getattr(Ledger, name)
    left = [number]

    def cut(*arguments: object, **named: object) -> object:
        left[0] -= 1
        if left[0] == 0 and not late:
            raise PowerCutError
        made = written(*arguments, **named)
        if left[0] == 0:
            raise PowerCutError
        return made

    monkeypatch.setattr(Ledger, name, cut)


def lives_on(desk: ClusterDesk) -> int:
    """Half an hour of rounds; a cut ends a round and all that its process knew. How many cuts there were."""
    cuts = 0
    for _ in range(26):
        try:
            desk.round()
        except PowerCutError:
            cuts += 1
            desk.memory = Memory()
            desk.rest(30.0)
    return cuts


def check(desk: ClusterDesk, how: str) -> None:
    """It was told once, ended once, under a key on record, and nothing is open."""
    owner = OWNERS[how]
    workloads, view = desk.cluster.workloads, desk.ledger.view(desk.clock.now())
    workloads.fault = lambda _call, _about: None
    ends = [(target, key) for call, target, key in workloads.calls if call == "release"]
    assert len(ends) == 1, "ended more than once, or never"
    assert len({key for _, key in ends}) == 1
    assert len(workloads.events) == 1, "its people were told twice, or never"
    assert desk.ledger.identity.foreign([key for _, key in ends]) == ()
    assert (view.notices, view.open_intents) == ((), ())
    assert [(each.verb, each.status) for each in view.recent] == [(Verb.RELEASE, Status.SETTLED)]
    target = Target(namespace="team-a", kind=owner.kind, name=owner.name, uid=owner.uid)
    now = workloads.workload(target)
    assert now is None or now.pods == ()


@pytest.mark.pairwise
@pytest.mark.parametrize("how", OWNERS)
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("number", range(1, 5))
def test_at_each_call_of_the_api_server(how: str, number: int, *, late: bool) -> None:
    """Notice, last question, end, and what came of it."""
    desk = a_desk(how)
    cut_at_call(desk, number, late=late)
    lives_on(desk)

    check(desk, how)


@pytest.mark.pairwise
@pytest.mark.parametrize("how", OWNERS)
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("name", "number"), [("intend", 1), ("intend", 2), ("settle", 1), ("settle", 2), ("settle", 3)]
)
def test_at_each_record_of_the_ledger(
    monkeypatch: pytest.MonkeyPatch, how: str, name: str, number: int, *, late: bool
) -> None:
    """Before it is written, or right after it."""
    desk = a_desk(how)
    cut_at_record(monkeypatch, name, number, late=late)
    lives_on(desk)

    check(desk, how)


def test_the_cuts_are_where_they_are_said_to_be() -> None:
    """A matrix without cuts would prove nothing."""
    desk = a_desk("stop")
    cut_at_call(desk, 3, late=False)

    assert lives_on(desk) == 1
