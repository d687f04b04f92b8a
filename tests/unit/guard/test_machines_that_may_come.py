"""What may have been launched counts in every limit, until it is known not to have been."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from gpuwatch.guard import Case, Limits, judge, review
from gpuwatch.guard.settings import OwnerLimits
from gpuwatch.model.decision import Decision, OpenIntent, Status, Verb
from gpuwatch.model.fleet import NodeState
from tests.support.builders.fleet import NOW, a_node
from tests.support.builders.gpu_pools import FIRM, gpu_rules
from tests.support.builders.guard_cases import a_case, a_launch, a_rulebook, priced, with_ledger
from tests.support.builders.guard_cases_gpus import BLIND, TAKEN, coming_back, counted, others
from tests.support.builders.guard_cases_growth import rationed
from tests.support.builders.pending_capacity import ASKED_A, an_intent


def objects(case: Case, rule: str) -> bool:
    """Whether the rule does."""
    return rule in {answer.rule for answer in judge(case).refusals}


def in_doubt(name: str = "new:default:7", status: Status = Status.INTERRUPTED, *, minutes: float = 5.0) -> OpenIntent:
    """A launch whose answer was lost so long ago, and that may be tried again."""
    entry = an_intent(Verb.LAUNCH, name, status, ASKED_A)
    return replace(entry, reached=True, reached_at=NOW - timedelta(minutes=minutes))


NEVER_SHOWN = an_intent(Verb.LAUNCH, "new:default:8", Status.UNSEEN, ASKED_A)
assert NEVER_SHOWN.last is not None
NEVER_SHOWN = replace(
    NEVER_SHOWN,
    last=replace(NEVER_SHOWN.last, at=NOW - timedelta(minutes=11), detail="launched: the cloud does not show it"),
)


@pytest.mark.parametrize(
    ("entry", "counts"),
    [(in_doubt(), True), (NEVER_SHOWN, True), (in_doubt(minutes=11.0), False)],
    ids=["no answer", "never shown", "certainly not"],
)
def test_an_owners_limit_counts_what_may_come(entry: OpenIntent, counts: bool) -> None:
    """Ann has one node and may have two: not a third while the second may be there."""
    case = with_ledger(rationed(a_launch(a_case()), 1, max_nodes=3), open_intents=(entry,))

    assert objects(case, "owner_limit") is counts


def test_the_limit_on_the_price_an_hour_counts_a_launch_in_doubt() -> None:
    """Three nodes at ten dollars, one that may be there, one more: fifty. Asked for again it counts once."""
    case = replace(priced(a_launch(a_case())), limits=Limits(max_usd_per_hour=Decimal(40)))

    assert not objects(case, "hourly_cost_limit")
    assert objects(with_ledger(case, open_intents=(in_doubt(),)), "hourly_cost_limit")
    assert not objects(with_ledger(case, open_intents=(in_doubt("new:default:1"),)), "hourly_cost_limit")


def test_two_launches_that_are_tried_again_in_one_round_both_count_for_their_owner() -> None:
    """Both were throttled, neither is on its way: the second is one more than the first."""
    opened = tuple(an_intent(Verb.LAUNCH, f"new:default:{number}", Status.THROTTLED, ASKED_A) for number in (1, 2))
    case = with_ledger(rationed(a_launch(a_case()), 0, max_nodes=2), open_intents=opened)
    steps = tuple(replace(case.step, node_id=each.intent.node_id, arguments=ASKED_A) for each in opened)
    rules = a_rulebook(case.pool_rules, Limits(per_owner=OwnerLimits(max_nodes=2), max_additions_per_round=99))
    found = review(case.observation, [Decision(pool="default", steps=steps)], rules)

    assert [{answer.rule for answer in each.refusals} for each in found] == [set(), {"owner_limit"}]


def test_a_pool_that_counts_gpus_has_its_surge_once_where_its_maximum_follows_from_its_need() -> None:
    """Three are needed: three and 32 more without a maximum, and eight for spot in the place of another; not 16."""
    case = replace(coming_back(a_case(), 8, 1), wanted=3)

    def with_coming(machines: int) -> Case:
        asked = FIRM["eight"].arguments("eight", "default")
        opened = [an_intent(Verb.LAUNCH, f"new:default:{number}", Status.ACCEPTED, asked) for number in range(machines)]
        return with_ledger(case, open_intents=tuple(opened))

    assert not objects(with_coming(4), "max_gpus")
    assert objects(with_coming(5), "max_gpus")


def test_a_machine_of_unknown_size_that_stopped_by_itself_is_no_zero_in_a_maximum_of_gpus() -> None:
    """Nor is one that its cloud is about to take: nothing is added on a guess."""
    case = counted(a_launch(a_case()), max_gpus=64)
    down = others(case, state=NodeState.STOPPED, tags={"gpuwatch:decision-id": "k"}, signal=BLIND)

    assert not objects(down, "max_gpus")
    assert objects(others(down, gpu_count=None, instance_type="x.large"), "max_gpus")
    taken = others(case, gpu_count=None, instance_type="x.large", cloud_notice=TAKEN, signal=BLIND)
    assert objects(taken, "max_gpus")


def test_no_surge_for_machines_that_are_taken_makes_a_pool_more_than_twice_its_maximum() -> None:
    """In nodes as in GPUs, whatever `surge_nodes` says: the pool had more than its maximum before."""
    nodes = tuple(a_node(f"i-{number}", cloud_notice=TAKEN) for number in range(2))
    case = a_launch(a_case())
    case = replace(case, observation=replace(case.observation, fleet=replace(case.observation.fleet, nodes=nodes)))

    for rules in (replace(case.pool_rules, max_nodes=1, surge_nodes=5), gpu_rules(max_gpus=1, surge_nodes=5)):
        assert {"max_nodes", "max_gpus"} & {answer.rule for answer in judge(replace(case, pool_rules=rules)).refusals}
