"""A pool whose work has a deadline: what it wants and says, and which settings are wrong together."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch import policies
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import INTERRUPTIBLE_TAG, Observation, Proposal
from gpuwatch.model.fleet import Node
from gpuwatch.model.measurement import BatchPast
from gpuwatch.policies import PoolRules, batch
from gpuwatch.policies.spot import back
from gpuwatch.policies.spot.batch import BatchRules
from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.policies.spot.settings import Offers
from tests.support.builders.fleet import NOW, RULES, an_observation
from tests.support.builders.offers import OFFERS, SPOT_A, SPOT_B, SURE, a_node_of

HOUR = 3600.0
JOB = BatchRules(
    work=40 * HOUR,
    since=(NOW - timedelta(hours=20)).isoformat(),
    by=(NOW + timedelta(hours=32)).isoformat(),
    nodes=2,
)
POOL = replace(RULES, offers=OFFERS, interruptible="batch", batch=JOB, max_nodes=2)
LEFT = "1d8h left until 2026-03-03 20:00 UTC"
UNKNOWN = "How much of 1d16h is done is not known and counts as none"
SPOT = (a_node_of(SPOT_A, "i-1"), a_node_of(SPOT_B, "i-2"))


def seen(*nodes: Node, done: float | None = 14.0, losses: int = 0, hours: float = 0.0) -> Observation:
    """The fleet so many hours later, with so many hours done; None: not known."""
    known = {} if done is None else {"default": BatchPast(done_seconds=done * HOUR, losses=losses)}
    return replace(an_observation(*nodes, now=NOW + timedelta(hours=hours)), batches=known)


def proposed(observation: Observation, rules: PoolRules = POOL) -> Proposal:
    """What the pool wants for its work."""
    found = batch.propose(observation, "default", rules)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("observation", "nodes", "sentence"),
    [
        (
            seen(*SPOT),
            2,
            f"14h of 1d16h done, {LEFT}, slack 6h: spot only.",
        ),
        (
            seen(SPOT[0], done=13.0),
            2,
            f"13h of 1d16h done, {LEFT}, slack 4h45m: spot first, and on demand at once.",
        ),
        (
            seen(done=30.0, losses=2),
            2,
            f"1d6h of 1d16h done (2 nodes lost), {LEFT}, slack 21h45m: spot only.",
        ),
        (
            seen(done=None),
            2,
            f"{UNKNOWN}, {LEFT}, 8h15m too little: what is missing comes on demand, to the end.",
        ),
        (seen(done=41.0), None, "1d16h of 1d16h done: no nodes are wanted."),
        (seen(hours=-21), None, "The work begins at 2026-03-01 16:00 UTC: no nodes are wanted."),
        (
            seen(hours=33),
            None,
            "14h of 1d16h done, and the deadline 2026-03-03 20:00 UTC is over: no nodes are wanted.",
        ),
    ],
    ids=["under way", "one is missing", "waits", "not known", "done", "not begun", "over"],
)
def test_it_says_how_far_the_work_is(observation: Observation, nodes: int | None, sentence: str) -> None:
    """With what is left, the slack, and what is bought."""
    found = proposed(observation)

    assert found.desired_nodes == nodes
    assert found.reason.sentence == sentence
    assert found.grows == (nodes is not None)


def test_pools_without_a_deadline_want_nothing_of_it() -> None:
    """Neither with offers nor without."""
    assert batch.propose(seen(), "default", RULES) is None
    assert batch.propose(seen(), "default", replace(POOL, interruptible="any", batch=BatchRules())) is None


@pytest.mark.parametrize(
    ("done", "offers"),
    [(30.0, ["spot-a", "spot-b"]), (None, ["sure", "sure"])],
    ids=["with slack", "not known"],
)
def test_what_is_missing_is_launched_by_its_shares(done: float | None, offers: list[str]) -> None:
    """All of it within max_nodes."""
    observation = seen(done=done)
    decision = policies.resolve(observation, "default", policies.propose(observation, "default", POOL), POOL)

    assert [step.arguments["offer"] for step in decision.steps] == offers


def test_how_far_the_work_is_stands_with_the_decision() -> None:
    """So that each page says it of the pool, also while it waits and has no node; a stored round keeps it."""
    observation = seen(done=30.0)
    proposals = policies.propose(observation, "default", POOL)
    decision = policies.resolve(observation, "default", proposals, POOL)
    ledger = Ledger.in_memory()
    past = ledger.round(ledger.record_round(observation, proposals, [decision]))

    assert decision.clamps[0] == f"1d6h of 1d16h done, {LEFT}, slack 21h45m: spot only."
    assert (past.observation.batches, past.decisions[0].clamps) == (observation.batches, decision.clamps)
    ledger.close()


def test_a_pool_of_another_name_is_decided_about_without_a_node() -> None:
    """It may launch, so it is asked in each round."""
    assert Rulebook(pools={"training": POOL}).growing == {"training"}


def test_work_that_is_done_wants_nodes_no_longer() -> None:
    """Nothing is launched, and what still works is not touched."""
    observation = seen(SPOT[0], done=41.0)
    decision = policies.resolve(observation, "default", policies.propose(observation, "default", POOL), POOL)

    assert decision.target is None
    assert not any(step.arguments.get("offer") for step in decision.steps)


def test_a_node_that_works_goes_by_two_consents_alone() -> None:
    """The pool's word batch is one, the machine's tag the other; on demand to the end nothing stands in for spot."""
    firm = a_node_of(SURE, "i-3", tags={INTERRUPTIBLE_TAG: "true"})

    assert back.against(firm, POOL) is None
    assert back.against(replace(firm, tags={}), POOL) is not None
    assert back.stand_ins(seen(firm, done=20.0), "default", 2, POOL) == 1
    assert back.stand_ins(seen(firm, done=None), "default", 2, POOL) == 0


def test_after_the_work_the_pool_has_its_own_shares() -> None:
    """What the pool wants for another reason then comes as `capacity` says."""
    sources = POOL.sources
    assert isinstance(sources, Offers)
    assert sources.mix_now(seen(done=41.0), "default", spot=0, firm=0) == MixRules()


@pytest.mark.parametrize(
    ("rules", "key"),
    [
        (replace(POOL, batch=BatchRules()), "interruptible"),
        (replace(POOL, interruptible="any"), "batch"),
        (replace(POOL, offers={"sure": SURE}), "batch"),
        (replace(POOL, offers={"spot-a": SPOT_A}), "batch"),
        (replace(POOL, max_nodes=1), "batch.nodes"),
        (replace(POOL, capacity=MixRules(spot_share=0.5)), "capacity.spot_share"),
        (replace(POOL, capacity=MixRules(fallback_after=60.0)), "capacity.fallback_after"),
        (replace(POOL, batch=replace(JOB, since=None)), "batch.since"),
        (replace(POOL, batch=replace(JOB, by="2026-11-04")), "batch.by"),
        (replace(POOL, batch=replace(JOB, by=JOB.since)), "batch.by"),
        (replace(POOL, batch=replace(JOB, by="9999-12-31T23:59:59-14:00")), "batch.by"),
    ],
    ids=[
        "no work",
        "any",
        "no spot",
        "no on demand",
        "too many nodes",
        "a share",
        "a wait",
        "no begin",
        "a date",
        "by before since",
        "by beyond the calendar",
    ],
)
def test_what_is_wrong_together_is_named(rules: PoolRules, key: str) -> None:
    """Each by the likeliest culprit, with what would be right."""
    found = list(batch.contradictions(rules, ("pools", "training")))

    assert [".".join(each.keys[0][2:]) for each in found] == [key]
    assert found[0].right


def test_sound_settings_have_no_mistake() -> None:
    """A pool with a deadline, and one without."""
    for rules in (POOL, RULES):
        assert not list(batch.contradictions(rules, ("pools", "training")))
        assert not list(batch.warnings(rules, ("pools", "training")))


def test_work_that_does_not_fit_is_a_warning() -> None:
    """It runs on demand from its begin on, and is late all the same: the settings still load."""
    (found,) = batch.warnings(replace(POOL, batch=replace(JOB, work=52 * HOUR)), ("pools", "training"))

    assert "pools.training.batch.work does not fit: 2d4h and one start of 15m are more than 2d4h" in found.wrong
