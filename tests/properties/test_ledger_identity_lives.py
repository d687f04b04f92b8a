"""P16 over generated lives: whatever happens to the ledger's files, nothing is let go before a person has said so."""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gpuwatch.cli.controller import one_round
from gpuwatch.guard import Limits
from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.model.activity import State
from tests.support.builders.fleet import NOW, Desk, a_node
from tests.support.fakes import broken_ledgers as broken
from tests.support.nightly import examples

IDS = [f"i-{n}" for n in range(8)]
LIMITS = Limits(max_stops_per_round=1, max_stops_per_hour=9, max_stops_per_hour_ratio=1.0)  # there are always some left
# After the others all records may still be there.
LOSSES = [
    each
    for each in broken.SPOILS
    if each
    not in {
        *(broken.replace_by_a_copy_of_itself, broken.replace_by_a_backup, broken.remove_the_shared_memory),
        *(broken.make_read_only, broken.put_a_link_in_its_place, broken.remove_the_wal, broken.replace_the_wal),
    }
]


class LedgerLife(RuleBasedStateMachine):
    """Controllers start, end and die, files are lost and put back, people pause and resume."""

    @initialize()
    def begin(self) -> None:
        """A controller that has given its notices."""
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "state" / "ledger.db"
        self.lost = False
        self.stopped: list[tuple[str, bool]] = []
        self.desk = Desk(ledger=Ledger.open(self.path), limits=LIMITS)
        for node_id in IDS:
            self.desk.fleet.put(a_node(node_id))
        one_round(self.desk.parts)
        self.running = True
        self.desk.fleet.watch_stop = self.watch

    def watch(self, node_id: str, key: str) -> None:
        """Look over the shoulder of every call that stops something."""
        del key
        self.stopped.append((node_id, self.lost))  # a round outlives whatever fails in it, an assertion as well

    @rule(count=st.integers(1, 3))
    def rounds(self, count: int) -> None:
        """A grace period apart."""
        for _ in range(count):
            if self.running:
                one_round(self.desk.parts)
            self.desk.rest(700.0)

    @rule(node_id=st.sampled_from(IDS[:2]), state=st.sampled_from([State.IDLE, State.BUSY]))
    def turn(self, node_id: str, state: State) -> None:
        """A machine begins to do something else."""
        self.desk.fleet.show(node_id, state, 0.0)

    @rule(spoil=st.sampled_from(LOSSES), restarts=st.booleans(), days=st.sampled_from([0, 0, 2]))
    def spoil(self, spoil: Callable[[Path], None], restarts: bool, days: int) -> None:
        """With a controller or without one, which is started again at once, or days later."""
        if restarts and self.running:
            self.desk.ledger.close()
            self.running = False
        with suppress(OSError, sqlite3.Error, LedgerError):
            spoil(self.path)
        self.lost = True
        if restarts:
            self.start_again(died=False)
        self.desk.rest(days * 86400.0)
        self.rounds(2)

    @rule(died=st.booleans())
    def start_again(self, died: bool) -> None:
        """It ends, or dies and leaves its files as they are; the next one may be refused."""
        if self.running and died and self.path.parent.exists():
            image = self.folder / "image"
            shutil.copytree(self.path.parent, image)
            self.desk.ledger.close()
            shutil.rmtree(self.path.parent)
            image.rename(self.path.parent)
        elif self.running:
            self.desk.ledger.close()
        self.running = False
        with suppress(LedgerError):
            self.desk.ledger = Ledger.open(self.path)
            self.running = True

    @precondition(lambda self: not self.running)
    @rule()
    def somebody_begins_a_new_ledger(self) -> None:
        """As the refusal says."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self.start_again(died=False)
        assert self.running

    @precondition(lambda self: self.running)
    @rule()
    def somebody_resumes(self) -> None:
        """After a look; a controller that has lost its ledger cannot even write that down."""
        with suppress(LedgerError):
            if one_round(self.desk.parts) is not None:
                self.desk.ledger.resume(None, "ann@host", self.desk.clock.now())
                self.lost = False

    @invariant()
    def nothing_is_let_go_by_another_ledger(self) -> None:
        """P16."""
        wrong = [node_id for node_id, lost in getattr(self, "stopped", ()) if lost]
        assert wrong == [], "P16: stopped by a ledger that is not the one written"

    @invariant()
    def what_stands_is_whole(self) -> None:
        """A ledger that a controller decides by proves itself."""
        if hasattr(self, "desk") and self.running and self.desk.ledger.lead():
            assert self.desk.ledger.audit().broken is None or self.lost
            self.desk.ledger.view(NOW)

    def teardown(self) -> None:
        """Nothing is left."""
        if hasattr(self, "desk"):
            if self.running:
                self.desk.ledger.close()
            shutil.rmtree(self.folder)


# A life is written to disk again and again: to make a failing one shorter would take many minutes.
LedgerLife.TestCase.settings = settings(
    max_examples=examples(12),
    stateful_step_count=14,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
test_whatever_happens_to_the_ledger = LedgerLife.TestCase
