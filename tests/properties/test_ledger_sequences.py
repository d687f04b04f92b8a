"""Whatever is written in whatever order, and cut off wherever: the ledger says what a plain model of it says."""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import event

from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import ADDITIONS, FINAL, REMOVAL_STEPS, Intent, Reason, Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.verbs import RECORDS, REDUCTIONS, SCHEDULER_CHANGES, SHIELDINGS, WORK_ENDINGS
from tests.support.builders.fleet import LIVES, NOW, a_node, an_observation

LATELY = REMOVAL_STEPS | ADDITIONS | SCHEDULER_CHANGES | RECORDS | WORK_ENDINGS | REDUCTIONS
REASON = Reason(code="candidate", sentence="It has been idle for 2h.")
NODES = st.sampled_from(["i-1", "i-2", "i-3"])
VERBS = st.sampled_from(sorted(set(Verb) - {Verb.HOLD}))
POOLS = st.sampled_from([None, "a", "b"])
CUTS = st.none() | st.integers(1, 12)  # none, or before which statement the power goes


class PowerCut(Exception):  # noqa: N818  it is no error of anybody's
    """The process is gone; no BaseException, at which SQLAlchemy would drop the connection and the memory with it."""


class Records(RuleBasedStateMachine):
    """A ledger beside what it should say."""

    @initialize()
    def begin(self) -> None:
        """Nothing is written yet."""
        self.ledger = Ledger.in_memory()
        self.now = NOW
        self.open: dict[str, Intent] = {}
        self.ended: dict[str, tuple[Intent, Status]] = {}
        self.notices: dict[str, str] = {}
        self.stopped: dict[str, str] = {}
        self.pauses: list[str | None] = []
        self.round_id = self.ledger.record_round(an_observation(now=NOW))

    @rule(running=st.sets(NODES), down=st.sets(NODES), cut=CUTS)
    def see(self, running: set[str], down: set[str], cut: int | None) -> None:
        """A round sees some nodes running and some stopped."""
        nodes = [a_node(name) for name in sorted(running - down)]
        nodes += [replace(a_node(name), state=NodeState.STOPPED) for name in sorted(down)]
        if self.survives(cut, lambda: self.ledger.record_round(an_observation(*nodes, now=self.now))):
            self.stopped = {name: key for name, key in self.stopped.items() if name not in running - down}

    @rule(verb=VERBS, node=NODES, cut=CUTS)
    def intend(self, verb: Verb, node: str, cut: int | None) -> None:
        """Anything at all is intended."""
        made: list[Intent] = []
        if self.survives(
            cut,
            lambda: made.append(self.ledger.intend(verb, node, "default", self.now, REASON, self.round_id)),
        ):
            assert made[0].key not in {*self.open, *self.ended}, "a key was given twice"
            self.open[made[0].key] = made[0]

    @rule(data=st.data(), status=st.sampled_from(sorted(Status)), cut=CUTS)
    def settle(self, data: st.DataObject, status: Status, cut: int | None) -> None:
        """An open intent comes to something."""
        if not self.open:
            return
        intent = self.open[data.draw(st.sampled_from(sorted(self.open)))]
        if not self.survives(cut, lambda: self.ledger.settle(intent, status, "so it went", self.now)):
            return
        if status in FINAL:
            self.ended[intent.key] = (self.open.pop(intent.key), status)
        if status is Status.SETTLED and intent.verb not in SHIELDINGS | SCHEDULER_CHANGES | RECORDS:
            self.notices.pop(intent.node_id, None)
            if intent.verb is Verb.NOTICE:
                self.notices[intent.node_id] = intent.key
            if intent.verb in {Verb.STOP, Verb.START, Verb.TERMINATE}:
                self.stopped.pop(intent.node_id, None)
            if intent.verb is Verb.STOP:
                self.stopped[intent.node_id] = intent.key

    @rule(pool=POOLS, cut=CUTS)
    def pause(self, pool: str | None, cut: int | None) -> None:
        """Somebody says pause."""
        if self.survives(cut, lambda: self.ledger.pause(pool, "ann@host", "why not", self.now)):
            self.pauses.append(pool)

    @rule(pool=POOLS, cut=CUTS)
    def resume(self, pool: str | None, cut: int | None) -> None:
        """Somebody says resume."""
        if self.survives(cut, lambda: self.ledger.resume(pool, "ann@host", self.now)):
            self.pauses = [each for each in self.pauses if pool is not None and each != pool]

    @rule(days=st.sampled_from([0.0, 2.5, 401.0]), cut=CUTS)
    def compact(self, days: float, cut: int | None) -> None:
        """Old rounds are thinned."""
        self.survives(cut, lambda: self.ledger.compact(self.now + timedelta(days=days)))

    @rule(minutes=st.integers(0, 5))
    def wait(self, minutes: int) -> None:
        """Time passes."""
        self.now += timedelta(minutes=minutes)

    @invariant()
    def says_what_the_model_says(self) -> None:
        """Every part of the view."""
        view = self.ledger.view(self.now, recent=timedelta(days=30))

        assert [entry.intent for entry in view.open_intents] == list(self.open.values())
        assert {notice.node_id: notice.key for notice in view.notices} == self.notices
        assert {each.node_id: each.key for each in view.stopped} == self.stopped
        assert [pause.pool for pause in view.pauses] == self.pauses
        assert {done.key: done.status for done in view.recent} == {
            key: status
            for key, (intent, status) in self.ended.items()
            if intent.verb in LATELY or status is Status.FAILED
        }

    @invariant()
    def is_whole(self) -> None:
        """The chain leads to every record, at every moment."""
        assert self.ledger.audit().broken is None

    def survives(self, cut: int | None, write: Callable[[], object]) -> bool:
        """Write, with a power cut before that statement; whether it was written: all of it or nothing."""
        before = self.ledger.view(self.now), self.ledger.audit()
        try:
            with power_cut(self.ledger, cut):
                write()
        except PowerCut:
            assert (self.ledger.view(self.now), self.ledger.audit()) == before, "a part of it was written"
            return False
        return True


@contextmanager
def power_cut(ledger: Ledger, statement: int | None) -> Any:  # noqa: ANN401  a generator of nothing
    """The process dies before its so-manieth statement of the database."""
    left = [statement]

    def count(*_: object) -> None:
        if left[0] is not None:
            left[0] -= 1
            if left[0] == 0:
                raise PowerCut

    db = ledger.store._db()
    event.listen(db, "before_cursor_execute", count)
    try:
        yield
    finally:
        event.remove(db, "before_cursor_execute", count)


TestRecords = Records.TestCase
TestRecords.settings = settings(max_examples=LIVES, stateful_step_count=25, deadline=None)
