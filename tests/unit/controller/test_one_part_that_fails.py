"""Where a round goes through many, one that fails costs itself alone: each of these guards has a test of its own."""

import json
import logging
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.cli.controller import one_round
from gpuwatch.controller.interruptions import record
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.round import step
from gpuwatch.controller.web.serve import Discovery
from gpuwatch.ledger import LeadLostError, Ledger, LedgerError, LedgerValueError
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.model.decision import Intent, Outcome, Status, Verb
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.desk import a_desk
from tests.support.builders.fleet import LIVES, NOW, a_node, an_observation
from tests.support.builders.sick_parts import NASTY, spoiled
from tests.support.nightly import examples

NAMES = ("i-0", "i-1", "i-2")
ERRORS = st.sampled_from([OverflowError, KeyError, RecursionError, UnicodeEncodeError, AssertionError, ValueError])
SOON = PoolRules(warm_up=0.0, idle=IdleRules(timeout=300.0, grace_period=120.0))


def an_error(kind: type[Exception]) -> Exception:
    """One of that kind."""
    return (
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no half characters") if kind is UnicodeEncodeError else kind("x")
    )


class OddAddresses(ObserveSettings):
    """Settings by which one machine's agent has an address that nobody can make."""

    odd: str = ""
    error: Exception = ValueError()

    def base_url(self, node: Node) -> str | None:
        """Fail for that one; of the others no address is known, which costs no connection."""
        if node.id == self.odd:
            raise self.error
        return None


@given(odd=st.sampled_from(NAMES), kind=ERRORS)
def test_an_agent_that_cannot_be_asked_is_unknown_and_all_others_are_asked(odd: str, kind: type[Exception]) -> None:
    """Whatever its address causes: the answers of the others are what they are without it."""

    def asked(known: ObserveSettings) -> dict[str, str | None]:
        source = ScrapeSource(settings=known, clock=ManualClock(wall=NOW), max_age_seconds=60.0)
        seen = source.observe([a_node(name, address=None) for name in NAMES])
        return {node.id: node.signal.failure for node in seen.nodes}

    spoilt = OddAddresses()
    object.__setattr__(spoilt, "odd", odd)
    object.__setattr__(spoilt, "error", an_error(kind))
    without = asked(ObserveSettings())

    assert asked(spoilt) == {**without, odd: f"its agent cannot be asked ({kind.__name__})"}


class Mute(Ledger):
    """A ledger that cannot hold what became of one machine."""

    error: LedgerError = LedgerValueError("a text with half a character")
    odd = ""

    def settle(self, intent: Intent, status: Status, detail: str, at: datetime) -> Outcome:
        """Refuse that of one machine, once it is odd."""
        if intent.node_id == self.odd:
            raise self.error
        return super().settle(intent, status, detail, at)


def with_open_stops(ledger: Ledger) -> Callable[[], tuple[Outcome, ...]]:
    """Three stops that are under way; what is given settles those that are done."""
    desk = a_desk(*map(a_node, NAMES), rules=SOON, ledger=ledger)
    desk.fleet.lag = lambda: 30.0
    for _ in range(3):
        desk.round()
    assert [each.intent.verb for each in ledger.view(desk.clock.now()).open_intents] == [Verb.STOP] * 3
    return lambda: step(desk.parts).settled


@settings(max_examples=examples(6), deadline=None)
@given(odd=st.sampled_from(NAMES))
def test_an_outcome_that_the_ledger_cannot_hold_stops_the_record_of_no_other(odd: str) -> None:
    """The stop of that machine stays open; those of the others are settled in the same round."""
    ledger = Mute.in_memory()
    settle = with_open_stops(ledger)
    ledger.odd = odd

    assert len(settle()) == len(NAMES) - 1
    assert [each.intent.node_id for each in ledger.view(NOW + timedelta(minutes=5)).open_intents] == [odd]


def test_a_ledger_that_cannot_be_written_settles_nothing_more() -> None:
    """That is no fault of one machine: nothing may be done to any."""
    ledger = Mute.in_memory()
    settle = with_open_stops(ledger)
    ledger.odd, ledger.error = "i-0", LeadLostError("another leads")

    with pytest.raises(LeadLostError):
        settle()


NOTICE = CloudNotice(kind="spot_interruption", action="terminate", deadline=NOW + timedelta(minutes=2), seen_at=NOW)


@settings(max_examples=LIVES)
@given(
    odd=st.sampled_from(NAMES),
    place=st.sampled_from([each.name for each in fields(CloudNotice)]),
    by=st.sampled_from(NASTY),
)
def test_a_notice_of_the_cloud_that_cannot_be_read_costs_the_record_of_no_other(
    odd: str, place: str, by: object
) -> None:
    """A machine that its cloud is about to take is on record, whatever was announced about the one before it."""
    ledger = Ledger.in_memory()
    desk = a_desk(ledger=ledger)
    spoilt: CloudNotice = spoiled(NOTICE, (place,), by)
    nodes = [replace(a_node(name), cloud_notice=spoilt if name == odd else NOTICE) for name in NAMES]
    seen = an_observation(*nodes)
    round_id = ledger.record_round(an_observation(*map(a_node, NAMES)))

    written = {each.node_id for each in record(desk.parts, seen, round_id)}

    assert written >= set(NAMES) - {odd}
    assert {each.node_id for each in ledger.view(NOW).interruptions} >= set(NAMES) - {odd}


ODD_ADDRESSES = st.sampled_from(["fd00::]1", "[", "fe80::1%[x", "\ud800", "a\nb", "x" * 4096]) | st.text(max_size=20)


@given(address=ODD_ADDRESSES, name=st.sampled_from(["", "\ud800", "x", b"\xff", object()]), at=st.integers(0, 2))
def test_a_machine_that_is_no_target_hides_no_other_from_prometheus(address: str, name: str, at: int) -> None:
    """Its address, or its name, may be none that a page can hold."""
    nodes = [a_node("i-1"), a_node("i-2")]
    nodes.insert(at, a_node("i-odd", address=address, name=name))
    discovery = Discovery(signals=ObserveSettings())
    discovery.update(Fleet(observed_at=NOW, nodes=tuple(nodes)))

    listed = [each["labels"]["__meta_gpuwatch_node_id"] for each in json.loads(discovery.page().body)]

    assert [each for each in listed if each != "i-odd"] == ["i-1", "i-2"]


class Full(Ledger):
    """A ledger from which nothing can be dropped for a while."""

    errors: list[Exception]

    def compact(self, now: datetime) -> int:
        """Fail so often."""
        if self.errors:
            raise self.errors.pop()
        return super().compact(now)


@pytest.mark.parametrize("error", [OSError("no space left on device"), LedgerError("disk I/O error"), KeyError("x")])
def test_a_round_counts_although_nothing_old_could_be_dropped_after_it(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It has decided, acted and recorded; what is old is dropped by the next round."""
    ledger = Full.in_memory()
    ledger.errors = [error]
    desk = a_desk(ledger=ledger)
    with caplog.at_level(logging.ERROR):
        done = one_round(desk.parts)

    assert done is not None
    assert [act.review.step.verb for act in done.acts] == [Verb.NOTICE]
    assert "Old rounds could not be dropped" in caplog.text
    assert one_round(desk.parts) is not None
    assert ledger.errors == []


def test_a_controller_that_lost_its_lead_while_it_drops_what_is_old_leads_no_more() -> None:
    """What another may have written since is not this one's to show."""
    ledger = Full.in_memory()
    ledger.errors = [LeadLostError("another leads")]

    assert one_round(a_desk(ledger=ledger).parts) is None
