"""A budget shortens the wait of idle machines, and changes nothing else about who may go; it may stop growth."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch import policies
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits, Rulebook, review
from gpuwatch.guard.rate_limits import month_budget
from gpuwatch.model.activity import State
from gpuwatch.model.budget import BudgetState, Scope
from gpuwatch.model.decision import REMOVALS, Observation, Verb, Wait
from gpuwatch.model.fleet import Node
from gpuwatch.model.promise import Notice
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.idle_timeout import node_wait
from tests.support.builders.fleet import RULES, Desk, a_node, a_notice, an_observation
from tests.support.builders.guard_cases import a_case
from tests.support.builders.money import a_hurry, a_state, budgeted

ENDS = REMOVALS | {Verb.NOTICE}


def said(observation: Observation, rules: PoolRules = RULES) -> dict[str, tuple[Verb, str]]:
    """What the idle policy says of each node."""
    proposals = policies.propose(observation, "default", rules)
    return {step.node_id: (step.verb, step.reason.sentence) for each in proposals for step in each.steps}


def under(observation: Observation, *budgets: BudgetState) -> Observation:
    """The observation with these budgets, and nothing remembered of it without them."""
    return replace(observation, fleet=replace(observation.fleet), budgets=budgets)


def test_an_idle_machine_of_the_scope_gets_its_notice_sooner_and_the_sentence_says_why() -> None:
    """Twelve minutes are enough instead of thirty, and the budget is named."""
    plain = an_observation(a_node("i-1", held=720.0))
    hurried = under(plain, a_hurry(600.0))

    assert said(plain)["i-1"] == (Verb.HOLD, "It has been idle for 12m of 30m.")
    assert said(hurried)["i-1"] == (
        Verb.NOTICE,
        "It has been idle for 12m, longer than 10m instead of 30m (the budget ml is forecast at 112%).",
    )


def test_what_waits_can_follow_from_leaves_out_budgets_that_hasten_nothing() -> None:
    """What was spent changes each round; the wait that a budget asks for does not."""
    hurry = a_hurry(600.0)

    assert node_wait.in_force((a_state(blocked=None), hurry)) == ((hurry.scope, hurry.hastening),)
    assert node_wait.in_force((a_state(),)) == ()


def test_before_the_shorter_wait_is_over_the_machine_is_told_what_is_left_of_it() -> None:
    """Five of ten minutes."""
    verb, sentence = said(under(an_observation(a_node("i-1", held=300.0)), a_hurry(600.0)))["i-1"]

    assert verb is Verb.HOLD
    assert sentence == "It has been idle for 5m of 10m instead of 30m (the budget ml is forecast at 112%)."


@pytest.mark.parametrize(
    "scope",
    [Scope(pool="training"), Scope(owner="ann"), Scope(account="1"), Scope(tag=("team", "b")), Scope(cloud="us")],
)
def test_a_machine_outside_the_scope_waits_as_ever(scope: Scope) -> None:
    """Each part of a scope tells machines apart."""
    node = a_node("i-1", held=720.0, owner="bob", account="2", tags={"team": "a"}, cloud="bj")

    assert said(under(an_observation(node), a_hurry(600.0, scope=scope)))["i-1"][0] is Verb.HOLD


def test_of_several_budgets_the_shortest_wait_holds_and_none_makes_it_longer() -> None:
    """A wait that is shorter anyway stays, and is not put down to the budget."""
    node = a_node("i-1", held=200.0)
    both = (a_hurry(900.0), a_hurry(120.0, name="b"))
    quick = replace(RULES, idle=replace(RULES.idle, timeout=150.0))

    assert node_wait.hastened_wait(both, node, 1800.0) == 120.0
    assert node_wait.hastened_wait((a_hurry(900.0),), node, 150.0) == 150.0
    assert said(under(an_observation(node), a_hurry(900.0)), quick)["i-1"][1] == (
        "It has been idle for 3m20s, longer than 2m30s."
    )


def test_no_budget_gives_notice_within_a_minute() -> None:
    """Whatever a round on record says."""
    assert node_wait.hastened_wait((a_hurry(1.0),), a_node(), 1800.0) == 60.0


def test_a_wait_that_takes_a_price_nobody_knows_stays_unknown() -> None:
    """break_even without a price removes nothing, budget or not."""
    rules = replace(RULES, idle=replace(RULES.idle, timeout="break_even", restart_usd=Decimal(1)))

    assert said(under(an_observation(a_node("i-1")), a_hurry()), rules)["i-1"][0] is Verb.HOLD


def test_a_learned_wait_is_hastened_too() -> None:
    """Its bound does not hold meanwhile; the sentence names both."""
    rules = replace(RULES, idle=replace(RULES.idle, timeout="learned"))
    seen = replace(an_observation(a_node("i-1", held=720.0)), waits={"i-1": Wait(seconds=2400.0, why="learned")})

    assert said(under(seen, a_hurry()), rules)["i-1"] == (
        Verb.NOTICE,
        "It has been idle for 12m, longer than 10m instead of 30m (the budget ml is forecast at 112%).",
    )


def test_what_is_said_of_a_machine_follows_a_budget_that_comes_and_goes() -> None:
    """Nothing that was said under it is kept for a round without it, for the very same machines."""
    seen = an_observation(a_node("i-1", held=720.0))
    verbs = [said(replace(seen, budgets=each))["i-1"][0] for each in ((), (a_hurry(),), (a_state(),), (a_hurry(),))]

    assert verbs == [Verb.HOLD, Verb.NOTICE, Verb.HOLD, Verb.NOTICE]


def test_the_grace_after_the_notice_stays_whole() -> None:
    """A machine is stopped after the shorter wait and the pool's own grace, no sooner."""
    desk = Desk()
    desk.fleet.put(a_node("i-1", held=0.0))
    parts = replace(desk.parts, budgets=lambda _: (a_hurry(300.0),))
    waited = 0
    while not desk.fleet.stops() and waited < 60:
        step(parts)
        desk.rest(60.0)
        waited += 1

    assert 15 <= waited <= 17


def test_without_a_hurry_a_break_even_wait_is_explained_by_what_a_restart_costs() -> None:
    """Only idle machines' waits are, and a pool's own time needs no reason."""
    even = replace(RULES, idle=replace(RULES.idle, timeout="break_even", parked="stop", parked_timeout=600.0))
    idle, parked = a_node("i-1", held=720.0), a_node("i-2", State.PARKED, 720.0)
    document = said(an_observation(idle, parked), even)

    assert document["i-1"][1] == "It has been idle for 12m, longer than 10m (a restart costs 10m)."
    assert document["i-2"][1].endswith("for 12m, longer than 10m.")


def test_the_guard_says_which_budgets_it_has_asked() -> None:
    """Those that block growth, for what they cover; without one it says so."""
    words = [month_budget(case)[1] for case in (a_case(), budgeted(a_case(), blocked=None), budgeted(a_case()))]

    assert words == [
        "No month's budget blocks its growth.",
        "The month's budget allows it: ml.",
        "$5,120.00 of the $5,000.00 of the budget ml are spent in 2026-03.",
    ]


STATES = st.sampled_from(list(State))


@st.composite
def fleets(draw: st.DrawFn) -> Observation:
    """Up to six machines in any state, some with a notice, protected, snoozed, or somebody else's."""
    nodes: list[Node] = []
    notices: list[Notice] = []
    for number in range(draw(st.integers(1, 6))):
        node = a_node(f"i-{number}", draw(STATES), draw(st.floats(0.0, 7200.0)))
        nodes.append(
            replace(
                node,
                enrolled=draw(st.booleans()),
                protected=draw(st.sampled_from([None, "a tag"])),
                managed_by=draw(st.sampled_from([None, None, "EKS"])),
                owner=draw(st.sampled_from([None, "ann"])),
            )
        )
        if draw(st.booleans()):
            notices.append(a_notice(node.id, age=draw(st.floats(0.0, 3600.0))))
    return an_observation(*nodes, notices=tuple(notices))


BUDGETS = st.lists(
    st.builds(
        lambda seconds, owner: a_hurry(seconds, scope=Scope(owner=owner)),
        st.floats(60.0, 3600.0),
        st.sampled_from([None, "ann"]),
    ),
    max_size=3,
)


def allowed(observation: Observation) -> dict[str, Verb]:
    """What policy and guard together would do to let nodes go."""
    rules = Rulebook(pools={"default": RULES}, limits=Limits(max_stops_per_hour_ratio=1.0), enforce=True)
    proposals = policies.propose(observation, "default", RULES)
    decision = policies.resolve(observation, "default", proposals, RULES)
    reviews = review(observation, (decision,), rules)
    return {each.step.node_id: each.step.verb for each in reviews if each.allowed and each.step.verb in ENDS}


@given(fleets(), BUDGETS)
def test_budgets_let_go_of_nothing_but_machines_idle_for_the_shorter_wait(
    seen: Observation, budgets: list[BudgetState]
) -> None:
    """P8: what a budget adds to those that go, or are told, is idle, enrolled, nobody's else, and waited its minute."""
    hurried = under(seen, *budgets)
    plain = allowed(seen)
    for node_id, verb in allowed(hurried).items():
        node = seen.fleet.find(node_id)
        assert node is not None
        assert node.activity.state is State.IDLE, f"{node_id} is {node.activity.state}"
        if plain.get(node_id) != verb:
            wait = node_wait.hastened_wait(
                budgets, node, RULES.idle.timeout if isinstance(RULES.idle.timeout, float) else None
            )
            assert wait is not None
            assert wait >= 60.0
            assert node.activity.held_seconds >= wait, f"{node_id} was idle for {node.activity.held_seconds} s only"
            assert node.enrolled
            assert node.protected is None
            assert node.managed_by is None


@given(fleets(), BUDGETS)
def test_no_machine_that_is_not_idle_hears_of_a_budget(seen: Observation, budgets: list[BudgetState]) -> None:
    """Busy, occupied, parked, stalled and unknown ones get the very same steps."""
    plain, hurried = said(seen), said(under(seen, *budgets))
    others = [node.id for node in seen.fleet.nodes if node.activity.state is not State.IDLE]

    assert {name: hurried[name] for name in others} == {name: plain[name] for name in others}


@pytest.mark.parametrize("state", [State.OCCUPIED, State.PARKED, State.STALLED])
def test_somebodys_machine_waits_its_own_time(state: State) -> None:
    """A process lives or memory is held: that is not what budgets hasten."""
    rules = PoolRules(idle=IdleRules())
    young, old = a_node("i-1", state, 57599.0), a_node("i-2", state, 57600.0)
    document = said(under(an_observation(young, old), a_hurry()), rules)

    assert (document["i-1"][0], document["i-2"][0]) == (Verb.HOLD, Verb.NOTICE)
