"""P2, P9: no machine or pod goes on an idle time that reaches back before the controller itself last saw it at work.

Two agents of one id may answer for it by turns, or an agent may be put back to an older state.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.observe.seen_at_work import SeenAtWork
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeReport, NodeVerdict
from gpuwatch.model.health import Finding, GpuHealth, Health, Remedy
from gpuwatch.model.verdict import PodVerdict
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.clusters import a_cluster_desk
from tests.support.builders.fleet import NOW, RULES, Desk, a_node, a_verdict, an_activity
from tests.support.builders.light_desk import LightDesk
from tests.support.builders.workloads import its_pod
from tests.support.fakes.scraped_agent import an_agent, encoded
from tests.support.nightly import examples

MINUTE, DAY = 60.0, 86400.0


def verdict_of(desk: Desk, node: Node, state: State, held: float) -> NodeReport:
    """An answer of this moment."""
    return NodeReport(verdict=a_verdict(node.id, state, held, at=desk.clock.now(), age=0.5))


def without_its_gpu(verdict: NodeVerdict) -> NodeVerdict:
    """The same of an agent whose driver has lost the GPU: all else is as it was, and the machine is unknown."""
    found = Finding(code="gpu_lost", health=Health.FAILING, sentence="It is lost.", remedy=Remedy.REBOOT, source="it")
    unknown = an_activity(State.UNKNOWN, 0.0)
    health = GpuHealth(state=Health.FAILING, since=NOW, findings=(found,))
    gpus = tuple(replace(gpu, activity=unknown, health=health) for gpu in verdict.gpus)
    return replace(verdict, activity=unknown, gpus=gpus, without_lost=verdict.activity)


@settings(max_examples=examples(8), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    busy=st.sampled_from([0.02, 0.1, 0.2, 0.5]),
    asked_last=st.booleans(),
    lost=st.booleans(),
)
@example(seed=0, busy=0.1, asked_last=False, lost=False)
@example(seed=0, busy=0.1, asked_last=False, lost=True)
def test_two_agents_by_turns_stop_nothing_that_one_of_them_sees_at_work(
    seed: int, busy: float, *, asked_last: bool, lost: bool
) -> None:
    """One has counted two idle hours, perhaps without a GPU that is lost; the other, however seldom, sees work."""
    rules = replace(RULES, health=HealthRules(action="replace"))
    desk, chance, asked, heard = LightDesk(rules=rules), random.Random(seed), [0], SeenAtWork()

    def answer(node: Node) -> NodeReport:
        asked[0] += 1
        if node.id == "i-2" or asked[0] == 1 or (chance.random() < busy and (asked[0] % 2 == 0 or not asked_last)):
            return verdict_of(desk, node, State.BUSY, 500.0)
        idle = verdict_of(desk, node, State.IDLE, 7200.0 + desk.clock.monotonic())
        return replace(idle, verdict=without_its_gpu(idle.verdict)) if lost and idle.verdict is not None else idle

    desk.fleet.answer = lambda node: heard.hold(node.id, answer(node), desk.clock.uptime())
    for name in ("i-1", "i-2"):
        desk.fleet.put(a_node(name))
    for _ in range(400):
        desk.round()

    assert desk.fleet.stops() == []


@settings(max_examples=examples(4), deadline=None)
@given(seed=st.integers(0, 2**32), busy=st.sampled_from([0.02, 0.1, 0.5]), by_gpu=st.booleans())
@example(seed=0, busy=0.1, by_gpu=False)
@example(seed=0, busy=0.1, by_gpu=True)
def test_no_pod_on_a_busy_machine_ends_while_one_of_two_agents_sees_it_at_work(
    seed: int, busy: float, *, by_gpu: bool
) -> None:
    """The machine is busy with others in every answer; the pod works, on its GPU or besides it, in some."""
    pods = IdlePodRules(action="as-annotated", timeout=3600.0, grace_period=600.0)
    rules = replace(RULES, idle=replace(RULES.idle, action="report"), kubernetes=KubernetesRules(pods=pods))
    pod = its_pod(gpu_uuids=("GPU-i-1-0",))
    desk, chance, heard, asked = a_cluster_desk(rules, pod), random.Random(seed), SeenAtWork(), [0]
    others = an_activity(State.BUSY, 0.0)

    def answer(node: Node) -> NodeReport:
        asked[0] += 1
        works = asked[0] == 1 or chance.random() < busy
        verdict = a_verdict(node.id, State.BUSY, 0.0, gpus=2, at=desk.clock.now())
        if node.id == "i-1":
            idle = an_activity(State.IDLE, 7200.0 + desk.clock.monotonic())
            at_work = others if works else idle
            gpus = (replace(verdict.gpus[0], pods=(str(pod),), activity=at_work if by_gpu else idle), verdict.gpus[1])
            its = (PodVerdict(uid=pod.uid, name=str(pod), activity=idle if by_gpu else at_work),)
            verdict = replace(verdict, gpus=gpus, pods=its, other_pods=())
        return heard.hold(node.id, NodeReport(verdict=verdict, received_at=desk.clock.now()), desk.clock.uptime())

    desk.fleet.answer = answer
    steps = [each for _ in range(100) for each in desk.round().workloads]

    assert {each.use.id for each in steps} == {"kube:prod/team-a/Notebook/alice"}
    assert desk.cluster.workloads.calls == []


@settings(max_examples=examples(8), deadline=None)
@given(
    turns=st.lists(st.tuples(st.sampled_from([State.BUSY, State.IDLE, State.OCCUPIED]), st.integers(1, 90)), max_size=9)
)
def test_an_agent_that_counts_as_it_should_is_never_in_doubt(turns: list[tuple[State, int]]) -> None:
    """Whatever its machine does, and however long."""
    desk, heard = LightDesk(rules=replace(RULES, idle=replace(RULES.idle, action="report"))), SeenAtWork()
    desk.fleet.put(a_node("i-1"))
    for state, minutes in turns:
        desk.fleet.show("i-1", state)
        for _ in range(minutes):
            report = desk.round().observation.fleet.nodes[0].signal
            assert heard.hold("i-1", report, desk.clock.uptime()) is report


def test_agents_that_are_asked_over_http_are_held_to_what_they_said() -> None:
    """Also by the last question, and where a region was not listed for a round; another machine is not in doubt."""
    clock, states = ManualClock(wall=NOW), {"i-1": State.BUSY, "i-2": State.IDLE}

    def rule(name: str) -> Callable[[BaseHTTPRequestHandler], None]:
        def answer(request: BaseHTTPRequestHandler) -> None:
            nonce = parse_qs(urlsplit(request.path).query).get("confirm", [None])[0]
            verdict = a_verdict(name, states[name], 7200.0, at=clock.now(), age=0.0)
            body = encoded(replace(verdict, confirm=nonce, looked_seconds=0.0))
            request.send_response(200)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)

        return answer

    with an_agent(rule("i-1")) as first, an_agent(rule("i-2")) as second:
        asked = ObserveSettings(targets={"i-1": first, "i-2": second})
        source = ScrapeSource(settings=asked, clock=clock, max_age_seconds=30.0)
        nodes = [a_node("i-1"), a_node("i-2")]
        source.observe(nodes)
        clock.advance(60.0)
        states["i-1"] = State.IDLE
        seen = [node.activity for node in source.observe(nodes).nodes]
        confirmed = source.confirm(nodes[0]).verdict
        source.observe(nodes[1:])
        again = source.observe(nodes).nodes[0].activity

    assert [each.state for each in seen] == [State.UNKNOWN, State.IDLE]
    assert "it claims to have been idle for 2h, but it was seen at work 1m" in (seen[0].doubt or "")
    assert confirmed is not None
    assert confirmed.activity.state is State.UNKNOWN
    assert again.state is State.UNKNOWN


@given(gone=st.integers(0, 200))
def test_what_is_remembered_is_bounded_by_the_fleet(gone: int) -> None:
    """Machines that came and went are forgotten."""
    heard = SeenAtWork()
    for number in range(gone):
        heard.hold(f"i-{number}", NodeReport(verdict=a_verdict(f"i-{number}", State.BUSY)), 0.0)
        heard.forget_others(["i-a", "i-b"])

    assert heard.remembered <= 4
