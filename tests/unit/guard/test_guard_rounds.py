"""The guard's way from a step to its case, and what it counts from one step to the next."""

from dataclasses import replace

from gpuwatch.guard import Limits, case_of, review
from gpuwatch.model.decision import Decision, Observation, Step, Verb
from gpuwatch.policies import capacity
from tests.support.builders.fleet import RULES, a_node, a_notice, an_observation
from tests.support.builders.guard_cases import a_case, a_rulebook, with_group
from tests.support.builders.past_steps import a_done, a_group, a_step

RULEBOOK = a_rulebook(RULES, Limits())


def test_a_case_holds_what_its_step_is_about() -> None:
    """A node with its group, a group alone, or neither for a launch."""
    seen = with_group(a_case()).observation
    free = a_case().observation

    def held(step: Step, observation: Observation = seen) -> tuple[bool, bool]:
        case = case_of(step, observation, "default", RULEBOOK, frozen=None)
        return case.node is not None, case.group is not None

    assert held(a_step("i-1")) == (True, True)
    assert held(a_step("i-1"), free) == (True, False)
    assert held(a_step("g-1", Verb.GROW)) == (False, True)
    assert held(a_step("new:default:1", Verb.LAUNCH)) == (False, False)
    assert held(a_step("i-404")) == (False, False)


def test_only_what_is_allowed_and_changes_machines_counts_against_the_next() -> None:
    """A refused stop and a notice use up no limit."""
    nodes = tuple(a_node(f"i-{n}") for n in range(3))
    observation = an_observation(*nodes, notices=(a_notice("i-1"), a_notice("i-2")))
    steps = (a_step("i-0"), a_step("i-1", Verb.NOTICE), a_step("i-2"))
    rules = a_rulebook(RULES, Limits(max_stops_per_round=1))

    reviews = review(observation, [Decision(pool="default", steps=steps)], rules)

    assert [each.allowed for each in reviews] == [False, True, True]


def test_a_launch_is_the_same_try_with_the_same_arguments_only() -> None:
    """What failed in one subnet may be asked for in another."""
    step = replace(a_step("new:default:1", Verb.LAUNCH), arguments={"subnet": "a"})
    done = replace(a_done("new:default:1"), verb=Verb.LAUNCH, arguments={"subnet": "b"})

    assert not capacity.same_try(done, step)
    assert capacity.same_try(replace(done, node_id="new:default:7", arguments={"subnet": "a"}), step)
    assert not capacity.same_try(replace(done, verb=Verb.GROW, arguments={"subnet": "a"}), step)
    assert capacity.same_try(replace(a_done(a_group().id), verb=Verb.GROW), a_step("g-1", Verb.GROW))
    assert capacity.pool_of_launch(a_step("new:default:1", Verb.GROW)) is None
