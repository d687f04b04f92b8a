"""P4, P17: each machine of a pool counts once, in one place, whoever asks: policies, maximums, money, owners."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.guard import Case, Limits
from gpuwatch.guard.owner_limits import owner_limit
from gpuwatch.guard.pool_bounds import max_gpus, max_nodes
from gpuwatch.guard.rate_limits import hourly_cost_limit
from gpuwatch.guard.settings import OwnerLimits
from gpuwatch.model.decision import Observation, Verb
from gpuwatch.model.life import PoolMachines
from gpuwatch.model.money import Price
from gpuwatch.policies import PoolRules
from gpuwatch.policies.capacity import additions, adds
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.machines import now, pool_machines
from gpuwatch.policies.spot import back
from tests.support.builders.fleet import NOW
from tests.support.builders.guard_cases import a_case
from tests.support.builders.machine_stories import OFFERS, STORIES, observed
from tests.support.builders.past_steps import a_step

RULES = PoolRules(interruptible="any", offers=OFFERS)
NODES = ("present", "taken", "leaving", "stopped")
EXPECTED = ("coming", "doubtful", "late")
MOST = 99
pools = st.lists(st.tuples(st.sampled_from(sorted(STORIES)), st.booleans()), max_size=8)


def told(named: Sequence[tuple[str, bool]]) -> Counter[str]:
    """How many machines are in each place, by their stories."""
    return Counter(place for name, _ in named for place in STORIES[name].places)


def counted(found: PoolMachines) -> Counter[str]:
    """The same by the count."""
    return Counter({name: len(getattr(found, name)) for name in (*NODES, *EXPECTED)})


def least(finding: Callable[[int], bool]) -> int:
    """The smallest limit by which one more machine is allowed."""
    return next(limit for limit in range(MOST) if not finding(limit))


def one_more(observation: Observation, rules: PoolRules = RULES) -> Case:
    """The launch of one more machine."""
    step = replace(a_step("new:default:99", Verb.LAUNCH), arguments={"instance_type": "g6.xlarge"})
    return replace(a_case(), step=step, node=None, observation=observation, pool_rules=rules)


@given(named=pools)
def test_every_machine_is_in_exactly_one_place(named: list[tuple[str, bool]]) -> None:
    """Whatever happened to it, and to others of its pool; no node is in two places."""
    found = pool_machines(observed(named), "default")

    assert +counted(found) == +told(named)
    ids = [node.id for name in NODES for node in getattr(found, name)]
    ids += [each.name for each in found.coming if each.name.startswith("i-")]
    assert len(ids) == len(set(ids))


@given(named=pools)
def test_policies_have_one_view_of_a_pool(named: list[tuple[str, bool]]) -> None:
    """Its size, how spot and on demand divide, and what else of on demand is only coming."""
    observation, places = observed(named), told(named)
    has = back.nodes_now(observation, "default", RULES)

    assert now(observation, "default") == places["present"] + places["coming"]
    assert has.spot_working + has.spot_coming + has.on_demand == now(observation, "default")
    assert has.on_demand - has.on_demand_coming + has.spot_working <= places["present"]


@given(named=pools)
def test_maximums_of_nodes_and_of_gpus_see_the_same_machines(named: list[tuple[str, bool]]) -> None:
    """All that is there or coming, may come all the same, or stopped by itself; what is taken passes on its place."""
    observation, places = observed(named), told(named)
    counts = places["present"] + sum(places[name] for name in (*EXPECTED, "stopped"))
    nodes = least(lambda most: max_nodes(one_more(observation, replace(RULES, max_nodes=most)))[0])
    gpus = least(lambda most: max_gpus(one_more(observation, replace(RULES, unit="gpus", max_gpus=most)))[0])

    assert nodes == gpus
    assert nodes >= counts + 1
    assert nodes == counts + 1 or places["taken"]


@given(named=pools)
def test_limits_in_money_and_of_owners_see_all_that_is_paid_for_or_may_be(named: list[tuple[str, bool]]) -> None:
    """What goes is paid for until it is gone, and so is what may have been launched."""
    observation, places = observed(named), told(named)
    price = Price(usd_per_hour=Decimal(1), as_of=NOW.date(), source="a test")
    priced = one_more(replace(observation, prices={"g6.xlarge": price}))
    paid = sum(places[name] for name in ("present", "taken", "leaving", *EXPECTED))

    def too_dear(usd: int) -> bool:
        return hourly_cost_limit(replace(priced, limits=Limits(max_usd_per_hour=Decimal(usd))))[0]

    def too_many(most: int) -> bool:
        return owner_limit(replace(priced, limits=Limits(per_owner=OwnerLimits(max_nodes=most))))[0]

    elsewhere = sum(node.pool != "default" for node in observation.fleet.nodes)  # it runs there, and is waited for here
    assert paid + 1 <= least(too_dear) <= paid + 1 + elsewhere
    if observation.fleet.roster("default").nodes:  # by them the owner of what comes is known
        assert least(too_many) >= paid + 1


@given(named=pools, target=st.integers(0, 12), same=st.booleans())
def test_what_is_added_brings_a_pool_to_its_size_and_no_further(
    named: list[tuple[str, bool]], target: int, *, same: bool
) -> None:
    """A launch that may have happened is asked for again first, or, under other settings, counts."""
    observation, places = observed(named), told(named)
    launch = RULES.sources if same else LaunchRules(template="lt-new", instance_type="g6.xlarge")
    steps = additions(observation, "default", target, launch)
    again = sum(
        step.node_id in {each.name for each in pool_machines(observation, "default").doubtful} for step in steps
    )

    brought = sum(map(adds, steps)) - again
    assert now(observation, "default") + brought + places["doubtful"] <= max(
        target, now(observation, "default") + places["doubtful"]
    )
