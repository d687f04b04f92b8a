"""The simulations' ledger in memory answers as the real one does, whatever is written in whatever order."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.model.decision import Intent, LedgerView, Proposal, Reason, Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.promise import arguments_of
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.lives import ENDED
from gpuwatch.simulate.memory_ledger import InMemoryLedger
from tests.support.builders.fleet import NOW, a_node, an_observation
from tests.support.nightly import examples

REASON = Reason(code="candidate", sentence="It has been idle for 2h.")
NODES = st.sampled_from(["i-1", "i-2", "i-3"])
POOLS = st.sampled_from([None, "a", "b"])


class Both(RuleBasedStateMachine):
    """The same written into both."""

    @initialize()
    def begin(self) -> None:
        """Nothing is written yet."""
        self.ledgers = (Ledger.in_memory(), InMemoryLedger())
        self.now = NOW
        self.keys: dict[str, str] = {}  # of the real ledger, by the lean one's
        self.open: list[tuple[Intent, Intent]] = []
        self.round_id = self.ledgers[0].record_round(an_observation(now=NOW))

    @rule(
        running=st.sets(NODES),
        down=st.sets(NODES),
        wish=st.none() | st.integers(0, 9),
        shielded=st.booleans(),
        enforce=st.booleans(),
    )
    def see(self, running: set[str], down: set[str], wish: int | None, shielded: bool, enforce: bool) -> None:
        """A round sees some nodes running and some stopped, and a policy wishes for a number."""
        nodes = [a_node(name) for name in sorted(running - down)]
        nodes += [replace(a_node(name), state=NodeState.STOPPED) for name in sorted(down)]
        nodes = [replace(node, scale_in_protected=shielded) for node in nodes]
        proposal = Proposal(policy="scaling", pool="a", reason=REASON, raw_desired_nodes=wish)
        for ledger in self.ledgers:
            # A simulation skips rounds: it is never away.
            seen = replace(an_observation(*nodes, now=self.now), interval_seconds=86400.0)
            ledger.record_round(seen, (proposal,), rulebook=Rulebook(enforce=enforce))

    @rule(verb=st.sampled_from(sorted(set(Verb) - {Verb.HOLD})), node=NODES, usd=st.none() | st.just(Decimal("0.80")))
    def intend(self, verb: Verb, node: str, usd: Decimal | None) -> None:
        """Anything at all is intended."""
        document = arguments_of("stop", grace_seconds=60.0, idle_seconds=1.0, at=self.now, approval=False, heard=False)
        given = {"arguments": document | {"size": "2"}, "owner": "ann", "usd_per_hour": usd}
        real, lean = (
            ledger.intend(verb, node, "a", self.now, REASON, self.round_id, **given)  # type: ignore[arg-type]
            for ledger in self.ledgers
        )
        self.keys[lean.key] = real.key
        self.open.append((real, lean))

    @rule(
        data=st.data(),
        status=st.sampled_from(sorted(Status)),
        detail=st.sampled_from(["so it went", "the cloud launches i-1", "the cloud shows i-2", f"i-3 {ENDED}"]),
    )
    def settle(self, data: st.DataObject, status: Status, detail: str) -> None:
        """An open intent comes to something; a launch says to which machine."""
        if self.open:
            pair = data.draw(st.sampled_from(self.open))
            self.ledgers[0].settle(pair[0], status, detail, self.now)
            self.ledgers[1].settle(pair[1], status, detail, self.now)
            if status in {Status.SETTLED, Status.CANCELLED, Status.FAILED}:
                self.open.remove(pair)

    @rule(node=NODES)
    def forget_stop(self, node: str) -> None:
        """A node is gone."""
        for ledger in self.ledgers:
            ledger.forget_stop(node)

    @rule(pool=POOLS, resume=st.booleans(), minutes=st.none() | st.integers(1, 90))
    def order(self, pool: str | None, resume: bool, minutes: int | None) -> None:
        """Somebody says pause, perhaps for a while, or resume."""
        until = None if minutes is None else self.now + timedelta(minutes=minutes)
        said = [
            ledger.resume(pool, "ann", self.now) if resume else ledger.pause(pool, "ann", "why", self.now, until)
            for ledger in self.ledgers
        ]

        assert said[0] == said[1]

    @rule(spare=st.floats(0, 1e6))
    def keep_gaps(self, spare: float) -> None:
        """A pool has learnt something."""
        for ledger in self.ledgers:
            seen = replace(an_observation(now=self.now), interval_seconds=86400.0)
            ledger.record_round(seen, gaps={"a": GapHistory(saved=spare)})

    @rule(minutes=st.sampled_from([0, 1, 30, 600]))
    def wait(self, minutes: int) -> None:
        """Time passes, and old things are forgotten."""
        self.now += timedelta(minutes=minutes)
        for ledger in self.ledgers:
            ledger.compact(self.now)

    @invariant()
    def say_the_same(self) -> None:
        """Every part of the view, as far back as anybody asks, and what pools have learnt."""
        if hasattr(self, "ledgers"):
            real, lean = self.ledgers
            for recent in (timedelta(minutes=20), timedelta(hours=1), timedelta(hours=6)):
                assert real.view(self.now, recent=recent) == self.named(lean.view(self.now, recent=recent))
            assert real.gaps() == lean.gaps()
            for ledger in self.ledgers:
                settles, all_ = ledger.open_actions(self.now), ledger.view(self.now)
                assert (settles.open_intents, settles.resume_orders) == (all_.open_intents, all_.resume_orders)

    def named(self, view: LedgerView) -> LedgerView:
        """The lean view with the real keys."""
        return replace(
            view,
            notices=tuple(replace(each, key=self.keys[each.key]) for each in view.notices),
            stopped=tuple(replace(each, key=self.keys[each.key]) for each in view.stopped),
            recent=tuple(replace(each, key=self.keys[each.key]) for each in view.recent),
            open_intents=tuple(
                replace(
                    each,
                    intent=replace(each.intent, key=self.keys[each.intent.key]),
                    last=None if each.last is None else replace(each.last, key=self.keys[each.last.key]),
                )
                for each in view.open_intents
            ),
        )

    def teardown(self) -> None:
        """Both know whom they launched, at the end: the real one asks about each machine once."""
        if hasattr(self, "ledgers"):
            names = ["i-1", "i-2", "i-3", "i-4"]
            assert self.ledgers[0].identity.launched_machines(names) == self.ledgers[1].identity.launched_machines(
                names
            )
            self.ledgers[0].close()


Both.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=25, deadline=None)
TestBoth = Both.TestCase


def test_what_was_never_intended_cannot_be_settled() -> None:
    """Nor can what is over: a simulation that did would hide a broken record."""
    ledger = InMemoryLedger()
    intent = ledger.intend(Verb.STOP, "i-1", "a", NOW, REASON, 1)
    ledger.settle(intent, Status.SETTLED, "done", NOW)

    with pytest.raises(LedgerError, match=f"no intent {intent.key} is open"):
        ledger.settle(intent, Status.FAILED, "again", NOW)


class CountedTime(datetime):
    """A time that counts how often it is compared."""

    compared = 0

    def __gt__(self, other: object) -> bool:
        """Compare, and count that."""
        CountedTime.compared += 1
        return datetime.__gt__(self, other)  # type: ignore[operator]

    def __lt__(self, other: object) -> bool:
        """Compare, and count that."""
        CountedTime.compared += 1
        return datetime.__lt__(self, other)  # type: ignore[operator]


def test_a_look_after_two_days_compares_no_more_than_one_after_an_hour() -> None:
    """A simulation of weeks is not slower with each day: what is too old for a view is not looked at in each round."""
    ledger, wish = InMemoryLedger(), Proposal(policy="scaling", pool="a", reason=REASON, raw_desired_nodes=4)

    def compared_after(hours: float) -> int:
        now = NOW
        for minute in range(int(hours * 60)):
            now = NOW + timedelta(minutes=minute)
            at = CountedTime.fromtimestamp(now.timestamp(), UTC)
            ledger.record_round(an_observation(now=at), (wish,))
            taken = ledger.intend(Verb.LOST, f"i-{minute}", "a", at, REASON, 1)
            ledger.settle(taken, Status.SETTLED, "its cloud took it", at)
            if minute % 720 == 0:
                ledger.compact(now)
        ledger.compact(now)
        CountedTime.compared = 0
        assert len(ledger.view(now).wishes) == min(hours, 1) * 60
        return CountedTime.compared

    hour, ledger = compared_after(1.0), InMemoryLedger()
    assert compared_after(48.0) <= 4 * hour
