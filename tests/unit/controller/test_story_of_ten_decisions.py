"""Decisions of different kinds, as people read them: explain, the page, the audit log, and what its owner is sent.

The golden file is there to be read aloud against the facts that stand above each decision.
"""

import re
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from gpuwatch.cli.explain_text import explain_text
from gpuwatch.clouds import CloudError, CloudUnavailableError
from gpuwatch.controller.explain import node_page
from gpuwatch.controller.node_row import node_rows
from gpuwatch.controller.operations import trail_text
from gpuwatch.controller.round import Round
from gpuwatch.controller.web.fleet_view import actions
from gpuwatch.guard import Limits
from gpuwatch.ledger.audit_log import Asked
from gpuwatch.model.activity import State
from gpuwatch.model.decision import INTERRUPTIBLE_TAG, Verb
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.model.money import Price
from gpuwatch.model.stops import LastStop
from gpuwatch.notify.formats import as_text
from gpuwatch.notify.message import MessageContext, compose_message
from gpuwatch.policies import PoolRules
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import NOW, RULES, Desk, FakeFleet, a_node
from tests.support.builders.offers import OFFERS
from tests.support.fakes.failing_images import FailingImages
from tests.support.fakes.neighbours import Neighbour
from tests.support.fakes.spot_market import SpotMarket
from tests.support.golden_text import check

PRICE = Price(usd_per_hour=Decimal("0.80"), as_of=NOW.date(), source="a list")
_KEY = re.compile(r"gpuwatch-memory-\d+-\w+")


def a_desk(
    *, rules: PoolRules = RULES, fleet: type[FakeFleet] = FakeFleet, limits: Limits | None = None, **cloud: object
) -> Desk:
    """The machine of ann, which has been idle for two hours, with the default limits."""
    desk = Desk(rules=rules, limits=limits or Limits(), prices={"g6.xlarge": PRICE})
    desk.fleet = fleet(clock=desk.clock, **cloud)  # type: ignore[arg-type]
    desk.fleet.put(a_node("i-1", owner="ann"))
    return desk


def minutes(desk: Desk, count: int) -> Round:
    """So many rounds, a minute apart; gives the last one."""
    for _ in range(count - 1):
        desk.round()
    return desk.round()


def told(desk: Desk, done: Round, node_id: str = "i-1") -> str:
    """The newest message about a machine, to its owner."""
    events = [each for each in desk.ledger.messages.events(NOW - timedelta(days=9)) if each.node_id == node_id]
    context = MessageContext(
        fleet=done.observation.fleet,
        fleet_name="lab",
        rules=desk.rulebook,
        start_command=lambda _cloud, node_id, _region: f"start {node_id}",
        zone=ZoneInfo("UTC"),
        now=events[-1].at if events else NOW,
        notices={each.key: each for each in desk.ledger.view(desk.clock.now()).notices},
    )
    return as_text(compose_message(events[-1:], context)) if events else "nothing"


def page(desk: Desk, done: Round, node_id: str) -> list[str]:
    """What the page says: of the machine, of its pool, and of what was done last."""
    row = next(each for each in node_rows(done, desk.rulebook) if each.id == node_id)
    acts = [f"{each.verb}: {each.status}, {each.why} {each.detail}" for each in actions(done) if each.target == node_id]
    clamps = [clamp for each in done.decisions if each.pool == row.pool for clamp in each.clamps]
    return [f"{row.action}: {row.why}", *clamps, *acts[:1]]


def scene(title: str, desk: Desk, done: Round, node_id: str) -> str:
    """All that is said of one decision."""
    node = done.observation.fleet.find(node_id)
    assert node is not None
    explained = node_page(done, desk.rulebook, desk.ledger, node, done.observation.ledger, round_id=None)
    parts = {
        "explain": explain_text(explained).split("\n\n")[1].split("\n"),
        "page": page(desk, done, node_id),
        "audit log": trail_text(desk.ledger.trail.traces(Asked(limit=2, node_id=node_id))).split("\n"),
        "mail": told(desk, done, node_id).split("\n"),
    }
    lines = [f"## {title}", ""]
    for name, said in parts.items():
        lines += [f"{name}:", *(f"    {each}" if each else "" for each in said)]
    return _KEY.sub("KEY", "\n".join(lines))


def a_stop() -> tuple[Desk, Round, str]:
    """It is idle, it has its notice, nobody uses it for ten minutes more."""
    desk = a_desk()
    return desk, minutes(desk, 14), "i-1"


def a_snooze() -> tuple[Desk, Round, str]:
    """A minute after the notice ann types `gpuwatch snooze 4h`."""
    desk = a_desk()
    desk.round()
    now = desk.clock.now()
    desk.ledger.snooze("i-1", "ann@host", "a demo", now, now + timedelta(hours=4))
    return desk, desk.round(), "i-1"


def a_withdrawn_notice() -> tuple[Desk, Round, str]:
    """A minute after the notice it works again."""
    desk = a_desk()
    desk.round()
    desk.fleet.show("i-1", State.BUSY, 5.0)
    return desk, desk.round(), "i-1"


def a_stop_undone() -> tuple[Desk, Round, str]:
    """Somebody starts it five minutes after each stop; nobody uses it."""
    desk = a_desk(fleet=Neighbour, minutes=5.0)
    return desk, minutes(desk, 93), "i-1"


def a_freeze() -> tuple[Desk, Round, str]:
    """Nine of ten machines that worked, in four pools, turn idle at 12:03; it is 12:47."""
    desk = a_desk()
    del desk.fleet.nodes_["i-1"]
    for number in range(1, 11):
        desk.fleet.put(a_node(f"i-{number}", State.BUSY, 600.0, owner="ann", pool=f"team-{number % 4}"))
    minutes(desk, 3)
    for number in range(1, 10):
        desk.fleet.show(f"i-{number}", State.IDLE, 0.0)
    return desk, minutes(desk, 45), "i-1"


def a_silent_region() -> tuple[Desk, Round, str]:
    """The region gave no answer to another machine's notice, which had its turn before."""
    desk = a_desk()
    desk.fleet.nodes_ = {"i-0": a_node("i-0", owner="bob"), **desk.fleet.nodes_}

    def hang(call: str, _node: str) -> CloudError | None:
        if call != "tag":
            return None
        desk.clock.advance(25.0)
        return CloudUnavailableError("no answer within 25s")

    desk.fleet.fault = hang
    return desk, desk.round(), "i-1"


def an_image_that_stops_itself() -> tuple[Desk, Round, str]:
    """Two machines are wanted; each stops itself six minutes after its launch. It is two hours later."""
    rules = replace(RULES, launch=LaunchRules(template="lt-1"), schedule={"always": Window(min_nodes=2)})
    desk = a_desk(rules=rules, fleet=FailingImages, minutes=6.0)
    del desk.fleet.nodes_["i-1"]
    done = minutes(desk, 120)
    return desk, done, [f"i-{key}" for call, key, _ in desk.fleet.calls if call == "launch"][-1]


def an_owners_own_stop() -> tuple[Desk, Round, str]:
    """Three minutes after the notice ann stops it herself, in a pool that ends what gpuwatch has stopped."""
    desk = a_desk(rules=replace(RULES, idle=replace(RULES.idle, terminate_after=86400.0)))
    minutes(desk, 3)
    at, off = LastStop(at=desk.clock.now()), NodeReport(failure="it is stopped")
    desk.fleet.put(replace(desk.fleet.nodes_["i-1"], state=NodeState.STOPPED, last_stop=at, signal=off))
    return desk, desk.round(), "i-1"


def an_end_to_come() -> tuple[Desk, Round, str]:
    """Two days ago gpuwatch stopped it; its pool ends it after five, with a notice of three."""
    idle = replace(RULES.idle, terminate_after=5 * 86400.0, terminate_grace_period=3 * 86400.0)
    desk = a_desk(rules=replace(RULES, idle=idle))
    minutes(desk, 15)
    desk.rest(2 * 86400.0)
    return desk, minutes(desk, 2), "i-1"


def a_limit() -> tuple[Desk, Round, str]:
    """Four machines are idle, and two of four may be stopped within the hour."""
    desk = a_desk(limits=Limits(max_stops_per_hour_ratio=0.5, mass_idleness_nodes=99))
    others = [a_node(f"h-{number}", owner="bob") for number in range(3)]
    desk.fleet.nodes_ = {**{node.id: node for node in others}, **desk.fleet.nodes_}
    return desk, minutes(desk, 12), "i-1"


def a_launch() -> tuple[Desk, Round, str]:
    """Two machines are wanted; one works. gpuwatch launches the other, which is there two minutes later."""
    rules = replace(RULES, launch=LaunchRules(template="lt-1"), schedule={"always": Window(min_nodes=2)})
    desk = a_desk(rules=rules)
    desk.fleet.show("i-1", State.BUSY, 60.0)
    done = minutes(desk, 3)
    return desk, done, [f"i-{key}" for call, key, _ in desk.fleet.calls if call == "launch"][-1]


def an_end() -> tuple[Desk, Round, str]:
    """Its pool ends it five days after its stop, with a notice of three; nobody has started it."""
    idle = replace(RULES.idle, terminate_after=5 * 86400.0, terminate_grace_period=3 * 86400.0)
    desk = a_desk(rules=replace(RULES, idle=idle))
    minutes(desk, 15)
    desk.interval = 3600.0
    done = desk.round(3600.0)
    while not any(act.review.step.verb is Verb.TERMINATE for act in done.acts):
        done = desk.round(3600.0)
    return desk, done, "i-1"


def a_loss() -> tuple[Desk, Round, str]:
    """Two spot machines work. The cloud of this one says that it takes the machine in two minutes; its owner is ann."""
    rules = replace(RULES, offers=OFFERS, interruptible="any", schedule={"always": Window(min_nodes=2)})
    desk = a_desk(rules=rules)
    desk.fleet = market = SpotMarket(clock=desk.clock, tags={INTERRUPTIBLE_TAG: "true"})
    minutes(desk, 20)
    node_id = market.alive()[0]
    market.put(replace(market.nodes_[node_id], owner="ann"))
    market.announce(node_id)
    return desk, desk.round(), node_id


DECISIONS = (
    *(a_stop, a_snooze, a_withdrawn_notice, a_stop_undone, a_freeze, a_silent_region),
    *(an_image_that_stops_itself, an_owners_own_stop, an_end_to_come, a_limit),
    *(a_launch, an_end, a_loss),
)


def test_decisions_read_as_what_has_happened() -> None:
    """Each under its name and the facts; GPUWATCH_UPDATE_GOLDEN=1 writes them anew, and the diff is read aloud."""
    check("ten-decisions.txt", "\n\n".join(scene(f"{each.__name__}: {each.__doc__}", *each()) for each in DECISIONS))


def test_a_pool_that_ends_its_machines_says_so_before() -> None:
    """Who reads that it is stopped counts on its disks."""
    desk = a_desk(rules=replace(RULES, idle=replace(RULES.idle, action="terminate")))
    done = desk.round()
    node = done.observation.fleet.find("i-1")
    assert node is not None

    said = explain_text(node_page(done, desk.rulebook, desk.ledger, node, done.observation.ledger, round_id=None))

    assert "It will get its notice now and be terminated at 12:10 UTC" in said
    assert "stopped" not in said.split("\n\n")[1]


def test_what_gpuwatch_has_stopped_says_from_its_stop_on_when_it_ends() -> None:
    """Its owner has days to save it, and nothing else shows on a machine that is off."""
    idle = replace(RULES.idle, terminate_after=5 * 86400.0, terminate_grace_period=3 * 86400.0)
    desk = a_desk(rules=replace(RULES, idle=idle))
    (row,) = node_rows(minutes(desk, 20), desk.rulebook)
    assert row.next is not None
    stopped = NOW + timedelta(minutes=11)

    assert (row.next.verb, row.next.at) == (Verb.NOTICE, stopped + timedelta(days=2))
    assert (row.next.removal, row.next.removal_at) == (Verb.TERMINATE, stopped + timedelta(days=5))
