"""The last question is about one node: what follows for it is what would follow if each node were asked about."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from gpuwatch import guard, policies
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.model.activity import State
from gpuwatch.model.decision import INTERRUPTIBLE_TAG, REMOVAL_STEPS, Decision, LedgerView, Observation, Stopped
from gpuwatch.model.fleet import CapacityType, Fleet, NodeGroup, NodeReport, NodeState
from gpuwatch.model.health import Health
from gpuwatch.model.measurement import Restarts
from gpuwatch.model.money import Price
from gpuwatch.model.orders import Pause
from gpuwatch.model.proposal import step_for
from gpuwatch.model.slurm import SlurmNode, SlurmView
from gpuwatch.model.stops import LastStop, StopAnswer
from gpuwatch.policies import PoolRules
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.idle import StepsOf, each_step, steps_for
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import NOW, a_node, a_notice, a_stop, an_observation
from tests.support.builders.gpu_pools import MIXED, TYPES
from tests.support.builders.kubernetes_views import shown_cluster, shown_node, shown_pod
from tests.support.builders.offers import OFFERS
from tests.support.builders.slurm import KEY, a_report
from tests.support.nightly import examples

IDS = [f"i-{number}" for number in range(5)]
LONG = timedelta(days=30)
BEFORE = NOW - timedelta(days=2)
GROUP = NodeGroup(
    id="g-1", name="trainers", pool="default", min_size=0, max_size=9, desired=3, region="us-east-1", enrolled=True
)
PRICE = Price(usd_per_hour=Decimal(1), as_of=NOW.date(), source="a list")
IDLE = IdleRules(timeout=1800.0, grace_period=600.0, owner_grace_period=600.0)
RULES = PoolRules(warm_up=0.0, idle=IDLE)
GIVEN = PoolRules(
    warm_up=0.0,
    idle=IDLE,
    offers=OFFERS,
    interruptible="any",
    capacity=MixRules(surge=2, give_back_notice=60.0),
    schedule={"always": Window(min_nodes=2)},
)


def our_stop(node_id: str) -> Stopped:
    """A stop two days ago, of which the cloud says that it was ours."""
    return a_stop(node_id, at=BEFORE, answer=StopAnswer(ran=True, earliest=BEFORE, latest=BEFORE))


# What a node is, besides its use: how it is paid for, whose it is, what it belongs to, what its GPUs are like.
KINDS: st.SearchStrategy[dict[str, object]] = st.sampled_from(
    [
        {},
        {},
        {"tags": {INTERRUPTIBLE_TAG: "true"}},
        {"capacity_type": CapacityType.SPOT},
        {"protected": "a tag protects it"},
        {"enrolled": False},
        {"cloud": "other"},
        {"pool": "elsewhere"},
        {"group": "g-1"},
        {"signal": a_report(Health.FAILING, State.BUSY)},
        {"signal": a_report(Health.FAILING, State.IDLE)},
        {"signal": NodeReport(failure="its agent did not answer")},
        {"state": NodeState.STOPPED},
        {"state": NodeState.STOPPED, "last_stop": LastStop(at=BEFORE)},
        {"state": NodeState.STOPPING},
        {"launched_at": NOW - LONG},
        {"kubernetes": shown_node("k-1")},
        {"kubernetes": shown_node("k-1", "", shown_pod("work", gpus=1.0))},
        {"kubernetes": shown_node("k-1", unschedulable=True, cordoned_by="k", cordoned_at=NOW, marked_by="k")},
        {"slurm": SlurmNode(name="s-1", states=("IDLE",))},
        {"slurm": SlurmNode(name="s-1", states=("IDLE", "DRAIN"), reason=f"gpuwatch: it is sick {KEY}")},
        {"instance_type": TYPES[8], "gpu_count": 8},
    ]
)
USES = st.sampled_from([State.BUSY, State.BUSY, State.IDLE, State.IDLE, State.OCCUPIED, State.STALLED, State.UNKNOWN])
NODES = st.builds(
    lambda name, use, held, kind: replace(a_node(name, use, held), **kind),
    st.sampled_from(IDS),  # now and then two have one id
    USES,
    st.sampled_from([0.0, 600.0, 3600.0, 7200.0]),
    KINDS,
)
PLAIN = st.builds(a_node, st.sampled_from(IDS), st.sampled_from([State.IDLE, State.BUSY]))
POOLS = st.sampled_from(
    [
        RULES,
        replace(RULES, min_nodes=2),
        replace(RULES, schedule={"soon": Window(hours="12:05-18:00", min_nodes=3)}),
        replace(RULES, clouds=("",)),
        replace(RULES, health=HealthRules(action="replace"), idle=replace(IDLE, action="terminate")),
        replace(RULES, health=HealthRules(action="drain", max_cordoned_ratio=0.5)),
        replace(RULES, idle=replace(IDLE, stalled="stop", max_age=3600.0, terminate_after=86400.0)),
        replace(RULES, idle=replace(IDLE, timeout="break_even", required_evidence=("gpu*",))),
        replace(RULES, idle=replace(IDLE, timeout="learned")),
        GIVEN,
        replace(GIVEN, schedule={"always": Window(min_nodes=1)}),
        replace(GIVEN, unit="gpus", offers=MIXED, schedule={"always": Window(min_gpus=9)}),
    ]
)
LIMITS = st.sampled_from([Limits(), Limits(mass_idleness_nodes=2, mass_idleness_ratio=0.1, max_stops_per_round=1)])
NOTICED = st.lists(
    st.builds(
        lambda name, age, idle, action: a_notice(name, age=age, idle_seconds=idle, action=action),
        st.sampled_from(IDS),
        st.sampled_from([900.0, 900.0, 900.0, 60.0]),
        st.sampled_from([1800.0, 1800.0, None]),
        st.sampled_from(["stop", "stop", "stop", "terminate"]),
    ),
    max_size=4,
    unique_by=lambda notice: notice.node_id,
)
OBSERVED = st.builds(
    lambda nodes, notices, stopped, paused, starts, queued: Observation(
        now=NOW,
        fleet=Fleet(
            observed_at=NOW, nodes=tuple(nodes), groups=(GROUP,), cluster=shown_cluster(), slurm=SlurmView(power=None)
        ),
        ledger=LedgerView(
            notices=tuple(notices),
            stopped=tuple(our_stop(name) for name in sorted(stopped)),
            pauses=(Pause(pool=None, at=NOW, who="ann", reason="", until=None),) if paused else (),
        ),
        prices={"g6.xlarge": PRICE},
        restarts={"default": starts},
        queued={} if queued is None else {"default": queued},
    ),
    st.lists(st.one_of(NODES, PLAIN), min_size=1, max_size=7),
    NOTICED,
    st.sets(st.sampled_from(IDS), max_size=1),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([Restarts(), Restarts(seconds=240.0, starts=9)]),
    st.sampled_from([None, None, 60.0]),
)


def _decided(observation: Observation, rules: PoolRules, steps_of: StepsOf) -> Decision:
    proposals = policies.propose(observation, "default", rules, steps_of=steps_of)
    return policies.resolve(observation, "default", proposals, rules)


# gpuwatch has stopped it, its last word was that it works, and its pool ends it after a day: it does not hold.
OFF = replace(a_node("i-0", State.BUSY, 0.0), state=NodeState.STOPPED, last_stop=LastStop(at=BEFORE))
ENDS = replace(RULES, idle=replace(IDLE, terminate_after=86400.0))
STOPPED = an_observation(OFF, a_node("i-1"), stopped=(our_stop("i-0"),))


@settings(max_examples=examples(600))
@example(observation=STOPPED, rules=ENDS, limits=Limits(), node_id="i-1")
@given(observation=OBSERVED, rules=POOLS, limits=LIMITS, node_id=st.sampled_from(IDS))
def test_one_node_is_judged_as_if_each_node_were_asked_about(
    observation: Observation, rules: PoolRules, limits: Limits, node_id: str
) -> None:
    """Its step is the very same and no other node's verb differs: whatever policies and guard look at, they say so."""
    each, one = (_decided(observation, rules, steps_of) for steps_of in (each_step, steps_for(node_id)))
    found, again = (step_for(node_id, decision.steps) for decision in (each, one))

    assert again == found
    assert [(step.node_id, step.verb, step.arguments) for step in one.steps] == [
        (step.node_id, step.verb, step.arguments) for step in each.steps
    ]
    assert (one.clamps, one.target) == (each.clamps, each.target)
    if found is None or again is None:
        return
    event(found.verb.value)
    rulebook = Rulebook(pools={"default": rules}, limits=limits, enforce=True)
    granted = tuple(step for step in each.steps if step.verb in REMOVAL_STEPS and step.node_id != node_id)
    frozen = guard.find_bursts(observation, limits)
    answers = [
        guard.judge(guard.case_of(step, observation, "default", rulebook, frozen=frozen, granted=granted))
        for step in (found, again)
    ]
    assert answers[0] == answers[1]
