"""A pool that counts GPUs: machines come whole, a floor is met, a maximum is never passed, and doubt adds nothing."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.model.activity import State
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.decision import Observation, Status, Verb
from gpuwatch.model.fleet import NodeReport
from gpuwatch.model.measurement import OffersPast
from gpuwatch.policies import PoolRules, machines
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import NOW, a_notice, a_verdict
from tests.support.builders.gpu_pools import (
    FIRM,
    MIXED,
    SPOT,
    TYPES,
    a_gpu_group,
    an_offer,
    decided,
    gpu_rules,
    launched,
    of_gpus,
)
from tests.support.builders.offers import refused
from tests.support.builders.pending_capacity import an_intent, seen, stopped

EIGHTS = {"eight": FIRM["eight"]}
TAKEN = CloudNotice(kind="spot_interruption", action="terminate", deadline=NOW + timedelta(minutes=2), seen_at=NOW)


def resting(observation: Observation, names: list[str]) -> Observation:
    """The observation after a refusal of these offers a minute ago."""
    known = OffersPast(offers={name: refused() for name in names})
    return replace(observation, offers={"default": known})


@pytest.mark.parametrize(
    ("floor", "rules", "has", "comes"),
    [
        (16, {}, [], {"eight": 2}),  # the first of the settings
        (16, {}, [8], {"eight": 1}),
        (14, {}, [8], {"four": 1, "one": 2}),  # the rest comes on machines that fit
        (12, {}, [8], {"four": 1}),
        (10, {"offers": EIGHTS}, [], {"eight": 2}),  # machines come whole: a floor is met
        (10, {"offers": EIGHTS, "max_gpus": 12}, [], {"eight": 1}),  # and a maximum is never passed
        (16, {"max_gpus": 12}, [], {"eight": 1, "four": 1}),  # growth is cut to the maximum
        (16, {"max_gpus": 13}, [8], {"four": 1, "one": 1}),
        (16, {"max_nodes": 1}, [], {"eight": 1}),  # so many machines at most, too
        (24, {"max_nodes": 3}, [4, 1], {"eight": 1}),
        (16, {"max_gpus": 32}, [8, 8], {}),
        (8, {}, [8, 4], {}),
        (17, {"offers": {"four": FIRM["four"]}}, [8, 8], {"four": 1}),
        (3, {"offers": {"eight": FIRM["eight"], "four": FIRM["four"]}}, [], {"four": 1}),  # the least that is too many
    ],
)  # fmt: skip
def test_machines_come_for_the_gpus_that_are_missing(
    floor: int, rules: dict[str, object], has: list[int], comes: dict[str, int]
) -> None:
    """Larger ones as far as they fit, in the order of the settings, then the one that brings least too many."""
    nodes = [of_gpus(gpus, f"i-{number}") for number, gpus in enumerate(has)]
    assert launched(decided(seen(*nodes), gpu_rules(floor, **rules))) == comes  # type: ignore[arg-type]


def test_what_comes_and_what_cannot_is_said_in_gpus() -> None:
    """How many are missing, on which machines they come, and why not all of them."""
    decision = decided(seen(of_gpus(8, "i-1")), gpu_rules(14))
    assert (decision.unit, decision.target) == ("gpus", 14)
    assert "6 GPUs more are needed: 1 node of 4 from four, 2 nodes of 1 from one." in decision.clamps
    reason = next(step.reason.sentence for step in decision.steps if step.verb is Verb.LAUNCH)
    assert reason == "The pool has 8 GPUs and should have 14."
    short = decided(seen(of_gpus(8, "i-1")), gpu_rules(14, offers=EIGHTS, max_gpus=15))
    assert any("6 more GPUs are needed" in clamp and "max_gpus" in clamp for clamp in short.clamps), short.clamps


@pytest.mark.parametrize(
    ("refused_now", "comes"),
    [
        ([], {"eight": 1}),
        (["eight"], {"four": 2}),  # one machine is replaced by two of half its size
        (["eight", "four"], {"one": 8}),
    ],
)
def test_a_taken_machine_is_replaced_by_its_gpus(refused_now: list[str], comes: dict[str, int]) -> None:
    """What its cloud is about to take does not count; its place is taken by as many GPUs, of any offer."""
    nodes = [of_gpus(8, "i-1"), of_gpus(8, "i-2", cloud_notice=TAKEN)]
    observation = resting(seen(*nodes), refused_now)
    decision = decided(observation, gpu_rules(16))
    assert launched(decision) == comes


def test_what_is_asked_for_in_place_of_a_loss_is_not_asked_for_again() -> None:
    """Two launches of four GPUs that are open are the replacement of one machine of eight."""
    asked = [
        an_intent(Verb.LAUNCH, f"new:default:{n}", Status.ACCEPTED, FIRM["four"].arguments("four", "default"))
        for n in (1, 2)
    ]
    nodes = [of_gpus(8, "i-1"), of_gpus(8, "i-2", cloud_notice=TAKEN)]
    assert launched(decided(seen(*nodes, open_intents=tuple(asked)), gpu_rules(16))) == {}
    assert launched(decided(seen(*nodes, open_intents=tuple(asked[:1])), gpu_rules(16))) == {"four": 1}


def test_what_is_there_tells_more_of_a_type_than_an_offer_does() -> None:
    """An offer says four where the machines have eight: the first of them that is there corrects it."""
    wrong = {"eight": replace(FIRM["eight"], gpus=4)}
    assert launched(decided(seen(), gpu_rules(16, offers=wrong))) == {"eight": 4}
    assert launched(decided(seen(of_gpus(8, "i-1")), gpu_rules(16, offers=wrong))) == {"eight": 1}


def test_nothing_is_added_while_nobody_knows_the_gpus_of_a_machine() -> None:
    """No type of the cloud's table, no word of its agent, no offer of its type: no maximum is kept on a guess."""
    blind = NodeReport(failure="its agent did not answer")
    dark = replace(of_gpus(8, "i-2"), instance_type="x.large", gpu_count=None, signal=blind)
    decision = decided(seen(of_gpus(8, "i-1"), dark), gpu_rules(16, max_gpus=64))
    assert launched(decision) == {}
    assert any("nobody knows the GPUs of i-2 (x.large)" in clamp for clamp in decision.clamps), decision.clamps
    told = replace(dark, signal=NodeReport(verdict=a_verdict("i-2", gpus=4)))
    assert launched(decided(seen(of_gpus(8, "i-1"), told), gpu_rules(16, max_gpus=64))) == {"four": 1}
    named = {**FIRM, "dark": an_offer(4, instance_type="x.large")}
    assert launched(decided(seen(of_gpus(8, "i-1"), dark), gpu_rules(16, offers=named))) == {"four": 1}


@pytest.mark.parametrize(
    ("gpus", "floor", "most", "adds"),
    [(8, 16, None, 2), (8, 17, None, 3), (8, 17, 20, 2), (4, 16, None, 4), (8, 100, None, 9)],
)
def test_a_group_grows_by_whole_machines(gpus: int, floor: int, most: int | None, adds: int) -> None:
    """As many as bring the GPUs that are missing, as far as its maximum and the pool's go."""
    decision = decided(
        seen(groups=(a_gpu_group(gpus),)), gpu_rules(floor, offers={"any": an_offer(gpus)}, max_gpus=most)
    )
    (growth,) = [step for step in decision.steps if step.verb is Verb.GROW]
    assert growth.arguments["adds"] == str(adds)


def test_a_group_of_machines_that_nobody_knows_does_not_grow() -> None:
    """Mixed types, or one of which none was ever seen: what is missing is launched."""
    mixed = a_gpu_group(8, instance_type=None)
    decision = decided(seen(groups=(mixed,)), gpu_rules(16))
    assert [step.verb for step in decision.steps] == [Verb.LAUNCH, Verb.LAUNCH]
    alone = decided(seen(groups=(mixed,)), gpu_rules(16, offers={}))
    assert "16 more GPUs are needed and nobody knows the GPUs of the group trainers." in alone.clamps


def test_stopped_machines_start_that_fit_best() -> None:
    """Of those that may be started, the last stopped first, as far as they are not larger than what is missing."""
    nodes = [stopped("i-8", instance_type=TYPES[8], gpu_count=8), stopped("i-4", instance_type=TYPES[4], gpu_count=4)]
    decision = decided(seen(*nodes), gpu_rules(3, start="any"))
    assert [step.node_id for step in decision.steps if step.verb is Verb.START] == ["i-4"]


@pytest.mark.parametrize(
    ("base", "wanted", "comes"),
    [
        (0, 16, {"spot-eight": 2}),
        (8, 16, {"spot-eight": 1, "eight": 1}),
        (2, 16, {"spot-eight": 1, "spot-four": 1, "spot-one": 2, "one": 2}),
        (2, 14, {"spot-eight": 1, "spot-four": 1, "one": 2}),
    ],
)
def test_shares_are_of_gpus(base: int, wanted: int, comes: dict[str, int]) -> None:
    """What is always on demand is; spot has the rest, on the largest machines of one price first."""
    rules = gpu_rules(wanted, offers=MIXED, capacity=MixRules(on_demand_base=base))
    assert launched(decided(seen(), rules)) == comes


def test_no_spot_machine_takes_the_place_of_what_is_always_on_demand() -> None:
    """Two of sixteen GPUs are always on demand, and every machine has eight."""
    eights = {"spot-eight": SPOT["spot-eight"], "eight": FIRM["eight"]}
    rules = gpu_rules(16, offers=eights, capacity=MixRules(on_demand_base=2))
    assert launched(decided(seen(), rules)) == {"spot-eight": 1, "eight": 1}


def test_on_demand_takes_the_place_of_spot_of_another_size() -> None:
    """No zone has spot: so many GPUs come on demand, on the machines that fit."""
    observation = resting(seen(of_gpus(8, "i-1", spot=True)), list(SPOT))
    rules = gpu_rules(14, offers={**SPOT, "four": FIRM["four"], "one": FIRM["one"]})
    assert launched(decided(observation, rules)) == {"four": 1, "one": 2}


def a_stand_in(surge: int, *spot: int, refused_now: tuple[str, ...] = ()) -> tuple[Observation, PoolRules]:
    """An idle machine of eight on demand whose notice is over, in a pool of spot; and such spot machines at work."""
    idle = IdleRules(action="terminate", timeout=1800.0, grace_period=600.0)
    nodes = [of_gpus(8, "i-firm")]
    nodes += [of_gpus(gpus, f"i-{number}", spot=True) for number, gpus in enumerate(spot)]
    nodes = nodes[:1] + [replace(each, signal=NodeReport(verdict=a_verdict(each.id, State.BUSY))) for each in nodes[1:]]
    observation = resting(seen(*nodes, notices=(a_notice("i-firm", action="terminate"),)), list(refused_now))
    return observation, gpu_rules(8, offers=MIXED, capacity=MixRules(surge=surge), idle=idle)


@pytest.mark.parametrize(
    ("surge", "spot", "refused_now", "comes", "goes"),
    [
        (1, (), (), {"spot-eight": 1}, False),  # spot of its size comes first
        (1, (), ("spot-eight",), {"spot-four": 2}, False),
        (1, (4,), ("spot-eight",), {"spot-four": 1}, False),  # half of it frees nothing
        (1, (4, 4), (), {}, True),
        (1, (8,), (), {}, True),
        (0, (), (), {}, False),
    ],
)
def test_a_machine_on_demand_goes_once_spot_of_its_size_works(
    surge: int, spot: tuple[int, ...], refused_now: tuple[str, ...], comes: dict[str, int], goes: bool
) -> None:
    """The surge is so many machines of the largest offer; a machine goes whole."""
    observation, rules = a_stand_in(surge, *spot, refused_now=refused_now)
    decision = decided(observation, rules)
    assert launched(decision) == comes
    assert ("i-firm" in {step.node_id for step in decision.steps if step.verb is Verb.TERMINATE}) is goes


def test_no_spot_comes_for_a_machine_that_is_larger_than_the_surge() -> None:
    """It could never go, and both would be paid for."""
    observation, rules = a_stand_in(1)
    small = {name: each for name, each in MIXED.items() if "eight" not in name}
    assert launched(decided(observation, replace(rules, offers=small))) == {}


@pytest.mark.parametrize(
    ("floor", "idle", "go"),
    [
        (8, (8, 8), 1),
        (9, (8, 8), 0),  # one machine less would be fewer GPUs than the floor
        (8, (8, 4), 1),
        (9, (8, 4), 0),
        (4, (8, 4), 1),
        (12, (8, 4, 4, 1), 2),
    ],
)
def test_idle_machines_go_as_far_as_the_floor_in_gpus(floor: int, idle: tuple[int, ...], go: int) -> None:
    """Those that would leave fewer GPUs stay, and smaller ones go in their place."""
    rules = IdleRules(action="terminate", timeout=1800.0, grace_period=600.0)
    nodes = [of_gpus(gpus, f"i-{number}") for number, gpus in enumerate(idle)]
    notices = tuple(a_notice(node.id, action="terminate") for node in nodes)
    observation = seen(*nodes, notices=notices)
    decision = decided(observation, gpu_rules(idle=rules, min_gpus=floor))
    gone = {step.node_id for step in decision.steps if step.verb is Verb.TERMINATE}
    left = sum(node.gpu_count or 0 for node in nodes if node.id not in gone)
    assert (len(gone), left >= floor) == (go, True)
    held = [step.reason.sentence for step in decision.steps if step.reason.code == "min_nodes"]
    assert all("GPUs on running nodes" in each for each in held)


def test_the_size_of_a_pool_is_that_of_its_machines() -> None:
    """What comes counts by its type, and a machine that is about to be taken does not count."""
    asked = an_intent(Verb.LAUNCH, "new:default:1", Status.ACCEPTED, FIRM["four"].arguments("four", "default"))
    nodes = (
        of_gpus(8, "i-1"),
        of_gpus(1, "i-2", cloud_notice=TAKEN),
        of_gpus(8, "i-3", spot=True),
    )
    observation = seen(*nodes, open_intents=(asked,))
    sizes = gpu_rules().sizes(observation.fleet)
    assert (machines.now(observation, "default", sizes), machines.now(observation, "default")) == (20, 3)
    assert machines.unreplaced_count(observation, "default", sizes) == 1
