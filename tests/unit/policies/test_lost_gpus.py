"""A machine of which the driver has lost a GPU goes with its pool's consent, as the rest of it says."""

from dataclasses import replace

import pytest

from gpuwatch.model.activity import Activity, State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import Fleet, GpuVerdict, Node
from gpuwatch.model.health import Finding, GpuHealth, Health, Remedy
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.lost_gpus import judge_fleet, what_is_left
from tests.support.builders.fleet import HOUR, NOW, RULES, Desk, a_node, a_verdict, an_activity

LOST = GpuHealth(
    state=Health.FAILING,
    since=NOW,
    findings=(
        Finding(
            code="gpu_lost",
            health=Health.FAILING,
            sentence="The driver has lost the GPU.",
            remedy=Remedy.REBOOT,
            source="the probe",
        ),
    ),
)
CONSENT = HealthRules(action="replace")


def with_a_lost_gpu(
    node_id: str = "i-1", rest: State = State.IDLE, held: float = 3 * HOUR, *, state: State = State.UNKNOWN
) -> Node:
    """A machine with eight GPUs of which the first is lost; the rest of it has been so for three hours."""
    verdict = a_verdict(node_id, rest if state is State.UNKNOWN else state, held, gpus=8)
    unknown = Activity(state=State.UNKNOWN, since=NOW, held_seconds=0.0, doubt="GPU 0: lost: GPU is lost")
    first = GpuVerdict(uuid="GPU-0", index=0, activity=unknown, health=LOST)
    verdict = replace(verdict, gpus=(first, *verdict.gpus[1:]), without_lost=an_activity(rest, held))
    if state is State.UNKNOWN:
        verdict = replace(verdict, activity=unknown)
    node = a_node(node_id, gpu_count=8)
    return replace(node, signal=replace(node.signal, verdict=verdict))


def states(rules: HealthRules, *nodes: Node) -> list[State]:
    """As what each machine is judged in a pool with these rules."""
    fleet = judge_fleet(Fleet(observed_at=NOW, nodes=nodes), {"default": rules})
    return [node.activity.state for node in fleet.nodes]


@pytest.mark.parametrize("rest", [State.IDLE, State.OCCUPIED, State.PARKED, State.STALLED])
def test_with_consent_it_is_what_the_rest_of_it_is(rest: State) -> None:
    """Each state keeps its own wait and its own grace."""
    assert states(CONSENT, with_a_lost_gpu(rest=rest)) == [rest]


@pytest.mark.parametrize("action", ["tell", "cordon"])
def test_without_consent_it_stays_unknown(action: str) -> None:
    """And the step says what would let it go."""
    rules = HealthRules(action=action)  # type: ignore[arg-type]  # one of the words
    assert states(rules, with_a_lost_gpu()) == [State.UNKNOWN]


@pytest.mark.parametrize("rest", [State.UNKNOWN, State.BUSY])
def test_a_rest_that_works_or_is_not_known_is_never_let_go(rest: State) -> None:
    """Any doubt is doubt about the machine."""
    assert states(CONSENT, with_a_lost_gpu(rest=rest)) == [State.UNKNOWN]


def test_a_machine_that_works_is_busy_whatever_is_lost() -> None:
    """Seven GPUs train on."""
    assert states(CONSENT, with_a_lost_gpu(state=State.BUSY)) == [State.BUSY]


def test_without_a_gpu_that_its_agent_calls_failing_nothing_is_lost() -> None:
    """Two words of one agent that do not agree are a doubt."""
    node = with_a_lost_gpu()
    verdict = node.verdict
    assert verdict is not None
    well = tuple(replace(each, health=None) for each in verdict.gpus)
    assert what_is_left(replace(node, signal=replace(node.signal, verdict=replace(verdict, gpus=well)))) is None


def test_many_machines_that_lose_a_gpu_stay() -> None:
    """A driver is more likely at fault than three of ten machines."""
    few = [with_a_lost_gpu(f"l-{number}") for number in range(2)]
    many = [*few, with_a_lost_gpu("l-2")]
    well = [a_node(f"w-{number}", State.BUSY, HOUR) for number in range(8)]
    assert states(CONSENT, *few, *well)[:2] == [State.IDLE] * 2
    assert states(CONSENT, *many, *well[:7])[:3] == [State.UNKNOWN] * 3


def test_another_gpu_that_is_unknown_keeps_it() -> None:
    """The guard asks about each GPU, whatever the machine is judged as."""
    desk = Desk(rules=replace(RULES, health=CONSENT))
    node = with_a_lost_gpu()
    verdict = node.verdict
    assert verdict is not None
    odd = replace(verdict.gpus[1], activity=verdict.gpus[0].activity)
    verdict = replace(verdict, gpus=(verdict.gpus[0], odd, *verdict.gpus[2:]))
    desk.fleet.put(replace(node, signal=replace(node.signal, verdict=verdict)))
    assert not desk.round().acts


@pytest.mark.parametrize(("action", "verbs"), [("tell", []), ("replace", [Verb.NOTICE, Verb.STOP])])
def test_it_gets_a_notice_that_names_the_gpu_and_is_stopped_after_it(action: str, verbs: list[Verb]) -> None:
    """In real rounds, asked once more at the end; without consent nothing happens to it for ever."""
    health = HealthRules(action=action)  # type: ignore[arg-type]  # one of the words
    desk = Desk(rules=replace(RULES, health=health))
    desk.fleet.put(with_a_lost_gpu())
    for number in range(9):
        desk.fleet.put(a_node(f"w-{number}", State.BUSY, HOUR))
    done, said = list[Verb](), ""
    for minute in range(14):
        desk.fleet.nodes_["i-1"] = replace(
            desk.fleet.nodes_["i-1"], signal=with_a_lost_gpu(held=3 * HOUR + 60.0 * minute).signal
        )
        found = desk.round()
        done += [act.review.step.verb for act in found.acts if act.review.step.node_id == "i-1"]
        said += " ".join(act.review.step.reason.sentence for act in found.acts)
    assert done == verbs
    assert ("Its driver has lost GPU 0: it is failing" in said) is bool(verbs)
