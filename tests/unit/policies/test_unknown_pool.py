"""A pool that the settings do not have: whatever is in it is left alone, and everybody is told."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.cli import render as show
from gpuwatch.controller.node_row import node_rows
from gpuwatch.controller.round import explain_step
from gpuwatch.guard import Rulebook
from gpuwatch.model.activity import State
from gpuwatch.model.decision import REMOVALS, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.slips import edits, fold_text, nearest
from gpuwatch.policies import PoolRules
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import RULES, Desk, a_node
from tests.support.builders.past_steps import a_group

TELL = PoolRules(idle=IdleRules(action="report"))
POOLS = {"prod-inference": TELL, "default": RULES}
SLIPS = [
    "Prod-Inference",
    "prod-inference ",
    " prod-inference",
    "prod_inference",
    "prod-infernce",
    "PROD-INFERENCE",
    "Default",
    "default ",
    "training",
    "",
    "  ",
]


@pytest.mark.parametrize("pool", SLIPS)
def test_a_machine_whose_pool_is_almost_one_of_ours_is_never_stopped(pool: str) -> None:
    """It gets neither a notice nor a stop, under the rules of no other pool."""
    desk = Desk(pools=POOLS)
    desk.fleet.put(a_node("i-1", pool=pool))
    desk.fleet.put(a_node("i-2"))
    for _ in range(30):
        desk.round()

    assert desk.fleet.nodes_["i-1"].state is NodeState.RUNNING
    assert {node_id for call, node_id, _ in desk.fleet.calls if call in {"stop", "tag"}} == {"i-2"}


@pytest.mark.parametrize(
    ("pool", "told"),
    [
        ("Prod-Inference", "The tag gpuwatch:pool is 'Prod-Inference', and the settings have no such pool. "),
        ("prod-inference ", "The tag gpuwatch:pool is 'prod-inference ', and the settings have no such pool. "),
        ("", "The tag gpuwatch:pool is empty."),
    ],
)
def test_status_plan_and_explain_tell_of_it(pool: str, told: str) -> None:
    """The value of the tag, the nearest pool and the remedy are named wherever people look."""
    desk = Desk(pools=POOLS)
    desk.fleet.put(a_node("i-1", pool=pool))
    done = desk.plan()
    told += "The nearest is 'prod-inference'." if pool else ""

    assert [(row.action, row.why) for row in node_rows(done, desk.rulebook)] == [(Verb.HOLD, told)]
    assert list(show.remarks(done, "")) == [f"Warning: pool {pool!r}: 1 node and 0 groups are left alone. {told}"]
    assert show.plan_text(done).startswith(f"Warning: pool {pool!r}: 1 node and 0 groups are left alone. {told}")
    _, review = explain_step(done.observation, done.decisions, done.observation.fleet.nodes[0], desk.rulebook)
    assert [(answer.sentence, answer.remedy) for answer in review.refusals if answer.rule == "unknown_pool"] == [
        (told, "Correct the tag gpuwatch:pool, or add rules for that pool under `pools`.")
    ]


def test_a_pool_taken_out_of_the_settings_holds_its_machines_and_withdraws_their_notices() -> None:
    """Renaming or removing a pool in the file hands nothing over to another pool's rules."""
    desk = Desk(pools={"training": RULES, "default": RULES})
    desk.fleet.put(a_node("i-1", pool="training"))
    desk.round()
    assert desk.plan().observation.ledger.notice("i-1") is not None

    desk.pools = {"train": RULES, "default": RULES}
    for _ in range(30):
        desk.round()

    assert desk.plan().observation.ledger.notice("i-1") is None
    assert not [call for call, _, _ in desk.fleet.calls if call == "stop"]


def test_nothing_is_started_launched_or_grown_in_it() -> None:
    """A floor of the default pool is no reason to start a machine of a pool that nobody knows."""
    floor = replace(
        RULES,
        schedule={"always": Window(min_nodes=3)},
        launch=LaunchRules(template="lt-1", instance_type="g6.xlarge"),
    )
    desk = Desk(pools={"default": floor})
    desk.fleet.put(replace(a_node("i-1", pool="other"), state=NodeState.STOPPED))
    desk.fleet.groups_["g-1"] = a_group(pool="other", node_ids=(), desired=0)
    done = desk.plan()
    decided = next(each for each in done.decisions if each.pool == "other")

    assert [step.verb for step in decided.steps] == [Verb.HOLD]
    assert decided.target is None
    (said,) = (each.reason.sentence for each in done.proposals if each.pool == "other")
    assert said.startswith("1 node and 1 group are left alone. The tag gpuwatch:pool is 'other', and the settings")
    assert said.endswith("have no such pool. There are: default.")


@pytest.mark.parametrize(("shielded", "verb"), [(False, Verb.PROTECT), (True, Verb.HOLD)])
def test_members_of_its_groups_keep_or_get_scale_in_protection(verb: Verb, *, shielded: bool) -> None:
    """Their group must not end what another pool's rules may keep, however idle it is."""
    desk = Desk(pools=POOLS)
    desk.fleet.put(a_node("i-1", pool="other", group="g-1", scale_in_protected=shielded))
    desk.fleet.groups_["g-1"] = a_group(pool="other", node_ids=("i-1",), desired=1)
    done = desk.plan()

    assert [step.verb for each in done.decisions if each.pool == "other" for step in each.steps] == [verb]
    assert all(review.allowed for review in done.reviews if review.step.verb is Verb.PROTECT)


@pytest.mark.parametrize(
    "other",
    [
        {"enrolled": False},
        {"managed_by": "EKS"},
        {"group": None},
        {"group": "g-2"},
        {"state": NodeState.STOPPED},
    ],
)
def test_only_own_members_of_consented_groups_are_shielded(other: dict[str, object]) -> None:
    """What is not ours to touch is not protected either."""
    desk = Desk(pools=POOLS)
    desk.fleet.put(replace(a_node("i-1", pool="other", group="g-1"), **other))  # type: ignore[arg-type]  # its fields
    desk.fleet.groups_["g-1"] = a_group(pool="other", node_ids=("i-1",), desired=1)
    done = desk.plan()

    assert [step.verb for each in done.decisions if each.pool == "other" for step in each.steps] == [Verb.HOLD]


def test_a_group_without_consent_is_left_alone() -> None:
    """Its members are its owner's."""
    desk = Desk(pools=POOLS)
    desk.fleet.put(a_node("i-1", pool="other", group="g-1"))
    desk.fleet.groups_["g-1"] = a_group(pool="other", node_ids=("i-1",), desired=1, enrolled=False)

    assert [step.verb for each in desk.plan().decisions for step in each.steps] == [Verb.HOLD]


def test_the_tag_may_change_between_the_decision_and_the_call() -> None:
    """The last look at the machine goes by the tag that it has then."""
    desk = Desk(pools=POOLS)
    desk.fleet.put(a_node("i-1"))
    while desk.plan().observation.ledger.notice("i-1") is None or not any(
        review.allowed and review.step.verb in REMOVALS for review in desk.plan().reviews
    ):
        desk.round()

    def retag(call: str, node_id: str) -> None:
        if call == "node":
            desk.fleet.put(replace(desk.fleet.nodes_[node_id], pool="Default"))

    desk.fleet.fault = retag
    done = desk.round()

    assert [act.outcome.status.value for act in done.acts] == ["cancelled"]
    assert "'Default'" in done.acts[0].outcome.detail


def test_rules_for_an_unknown_pool_touch_nothing() -> None:
    """Whoever asks the settings for the rules of a pool that they do not have gets none that remove or add."""
    found = Rulebook(pools={"default": RULES}).pool("Default")

    assert (found.idle.action, found.idle.parked, found.idle.stalled) == ("report", "report", "report")
    assert (found.scaling.metrics, found.schedule, found.launch.template) == ({}, {}, None)


@given(pool=st.text() | st.sampled_from(SLIPS), state=st.sampled_from(State), asleep=st.booleans())
def test_only_exact_names_are_pools(pool: str, state: State, *, asleep: bool) -> None:
    """P1: for every other value of the tag, the plan holds nothing but holds."""
    desk = Desk(pools=POOLS)
    desk.fleet.put(a_node("i-1", state, pool=pool))
    if asleep:
        desk.fleet.put(replace(desk.fleet.nodes_["i-1"], state=NodeState.STOPPED))
    decisions = desk.plan().decisions

    assert pool in POOLS or {step.verb for each in decisions for step in each.steps} == {Verb.HOLD}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Prod_Inference", "prod-inference"),
        ("prod-infernce", "prod-inference"),
        ("prdo-inference", "prod-inference"),
        ("defualt", "default"),
        ("b", None),
        ("staging", None),
        ("", None),
    ],
)
def test_the_nearest_name_is_suggested(name: str, found: str | None) -> None:
    """A slip finds what was meant, another word finds nothing."""
    assert nearest(name, ["default", "prod-inference"]) == found


@given(one=st.text(max_size=8), other=st.text(max_size=8))
def test_edits_count_like_a_distance(one: str, other: str) -> None:
    """None from itself, the same both ways, and at most as many as the longer text has characters."""
    assert edits(one, one) == 0
    assert edits(one, other) == edits(other, one) <= max(len(one), len(other))
    assert (edits(one, other) == 0) == (one == other)
    assert fold_text(one) == fold_text(fold_text(one)) or not one.isascii()
