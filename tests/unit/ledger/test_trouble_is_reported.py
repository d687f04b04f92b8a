"""A ledger in trouble is told: by metrics, by the page, by `status`."""

from contextlib import closing
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.cli.controller import one_round
from gpuwatch.cli.render import remarks
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.web.serve import Discovery, Observers
from gpuwatch.controller.web.state import State, UnseenError
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import DECISION_TAG, NOTIFIED_TAG, Reason, Verb
from gpuwatch.money.accounting.settings import EnergySettings
from tests.support.builders.fleet import NOW, Desk, a_node
from tests.support.fakes.broken_ledgers import remove

REASON = Reason(code="candidate", sentence="It has been idle for 2h.")


def test_metrics_and_page_say_that_nothing_is_done(tmp_path: Path) -> None:
    """It is no controller that waits for another one; the page keeps the last picture, with the reason."""
    path = tmp_path / "ledger.db"
    with closing(Ledger.open(path)) as ledger:
        desk = Desk(ledger=ledger)
        desk.fleet.put(a_node("i-1"))
        telling = ControllerMetrics("enforce", "lab", desk.clock)
        seen = Observers(discovery=Discovery(signals=ObserveSettings()), metrics=telling)
        state = State(
            fleet="lab",
            interval_seconds=60.0,
            rules=desk.rulebook,
            ledger=ledger,
            clock=desk.clock,
            zone=ZoneInfo("UTC"),
            energy=EnergySettings(),
        )
        assert b"gpuwatch_controller_ledger_ok" not in telling.page().body
        one_round(desk.parts, seen)
        assert b'gpuwatch_controller_ledger_ok{fleet="lab"} 1.0' in telling.page().body
        assert b'gpuwatch_controller_foreign_decisions{fleet="lab"} 0.0' in telling.page().body
        remove(path)
        one_round(desk.parts, seen)
        state.update(None, leading=False, trouble=ledger.identity.trouble)
        with pytest.raises(UnseenError, match=r"Nothing is done: .*ledger\.db is no longer there"):
            state.last()

    page = telling.page().body
    assert b'gpuwatch_controller_ledger_ok{fleet="lab"} 0.0' in page
    assert b'gpuwatch_controller_leader{fleet="lab"} 0.0' in page
    assert b'gpuwatch_controller_rounds_total{fleet="lab",result="failed"} 1.0' in page
    assert b'result="waiting"' not in page


def test_status_names_the_machines_that_another_ledger_decides_about() -> None:
    """For a day; those of another fleet are none of ours."""
    desk = Desk()
    desk.ledger.intend(Verb.NOTICE, "i-9", "default", NOW, REASON, 1)
    tags = {DECISION_TAG: "gpuwatch-other-1-0a", NOTIFIED_TAG: "2026-03-02T11:00:00Z"}
    for number in range(7):
        desk.fleet.put(a_node(f"i-{number}", tags=tags, enrolled=number < 6))
    telling = ControllerMetrics("enforce", "lab", desk.clock)
    done = desk.plan()
    telling.round(done, 1.0)

    assert next(remarks(done, "")).startswith(
        "Warning: another ledger has decided about 6 machine(s) within a day (i-0, i-1, i-2, i-3, i-4, …): a second"
    )
    assert b'gpuwatch_controller_foreign_decisions{fleet="lab"} 6.0' in telling.page().body
    desk.clock.advance(86400.0)
    assert not [line for line in remarks(desk.plan(), "") if "another ledger" in line]
