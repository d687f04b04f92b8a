"""The doctor and the ledger: nothing is left beside it, and who holds it is told."""

import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from gpuwatch.cli.doctor import ledger
from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.clouds import CloudError
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.ledger.peek import glance
from gpuwatch.model.decision import DECISION_TAG, NOTIFIED_TAG, Reason, Verb
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.doctor_findings import a_controller, codes, the
from tests.support.builders.fleet import NOW, Desk, a_node
from tests.support.fakes.broken_ledgers import cut_the_chain


def a_case(path: Path) -> ControllerCase:
    """A controller with that ledger."""
    return a_controller(CloudError("not asked"), settings={"ledger": LedgerSettings(path=str(path))})


def seen_of(path: Path) -> str:
    """What is seen of the ledger itself."""
    (found,) = [each for each in ledger.ledger(a_case(path)) if each.looked_at.startswith("ledger ")]
    return found.seen


def test_a_ledger_that_is_not_there_yet_is_fine(tmp_path: Path) -> None:
    """The controller makes it; the doctor does not."""
    assert "not there yet" in seen_of(tmp_path / "new" / "ledger.db")
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_at_rest_is_read_without_a_trace(tmp_path: Path) -> None:
    """Not even SQLite's own files are left beside it; its head is told for whoever kept one."""
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    before = {each.name: each.stat().st_mtime_ns for each in tmp_path.iterdir()}
    seen = seen_of(path)

    assert "no controller holds it" in seen
    assert "audit head 0:000000" in seen
    assert {each.name: each.stat().st_mtime_ns for each in tmp_path.iterdir()} == before


def test_a_ledger_that_a_controller_holds_is_read_and_its_holder_told(tmp_path: Path) -> None:
    """Its process number; and the controller goes on leading."""
    path = tmp_path / "ledger.db"
    held = Ledger.open(path)
    try:
        seen = seen_of(path)

        assert f"process {os.getpid()}" in seen
        assert held.leading()
    finally:
        held.close()


def test_what_is_no_ledger_is_a_problem(tmp_path: Path) -> None:
    """It is left as it is."""
    path = tmp_path / "ledger.db"
    path.write_bytes(b"something else entirely" * 100)

    assert codes(ledger.ledger(a_case(path))) == ["ledger.unusable"]
    assert path.read_bytes() == b"something else entirely" * 100


def test_a_ledger_that_is_closed_to_the_user_is_a_problem(tmp_path: Path) -> None:
    """The controller could not write a round down; a folder that cannot even be looked into is told, too."""
    path = tmp_path / "closed" / "ledger.db"
    path.parent.mkdir()
    Ledger.open(path).close()
    path.parent.chmod(0o755)
    path.chmod(0o444)
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(65534)
        found = codes(ledger.ledger(a_case(path)))
    finally:
        if root:
            os.seteuid(0)

    assert found == ["ledger.closed"]


@pytest.mark.parametrize(
    ("free", "expected"), [(10 * 1024**3, []), (500 * 1024**2, ["ledger.low"]), (50 * 1024**2, ["ledger.full"])]
)
def test_room_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, expected: list[str]) -> None:
    """Less than 1 GiB is a warning, less than 100 MiB a problem."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**12, 10**12 - free, free))

    findings = list(ledger.ledger(a_case(tmp_path / "ledger.db")))

    assert codes(findings) == expected
    assert f"{free / 1024**2:,.0f} MiB are free" in findings[0].seen


def test_a_ledger_that_is_not_the_one_written_last_is_a_problem(tmp_path: Path) -> None:
    """It has lost records, or is gone while its marker is still there."""
    path = tmp_path / "ledger.db"
    with closing(Ledger.open(path)) as ledger_:
        ledger_.pause(None, "ann@host", "", NOW)
        ledger_.pause(None, "ann@host", "", NOW)
    cut_the_chain(path)
    seen = the(ledger.ledger(a_case(path)), "ledger.other").seen
    path.unlink()

    assert "has lost its records 2 to 2" in seen
    assert codes(ledger.ledger(a_case(path))) == ["ledger.unusable"]


def test_files_that_everybody_may_read_are_a_warning(tmp_path: Path) -> None:
    """Unless their folder lets nobody in."""
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    path.chmod(0o644)
    tmp_path.chmod(0o755)
    assert "ledger.db" in the(ledger.ledger(a_case(path)), "ledger.open").seen
    tmp_path.chmod(0o700)

    assert codes(ledger.ledger(a_case(path))) == []


def test_decisions_of_another_ledger_are_a_warning_for_a_day(tmp_path: Path) -> None:
    """On machines of the fleet; of a ledger that is not there yet all are another's."""
    path = tmp_path / "ledger.db"
    desk = Desk()
    desk.clock.advance(0)

    def seen_of(tag: str, *, enrolled: bool = True) -> list[str]:
        desk.fleet.put(a_node("i-1", enrolled=enrolled, tags={DECISION_TAG: tag, NOTIFIED_TAG: "2026-03-02T11:00:00Z"}))
        settings = {"ledger": LedgerSettings(path=str(path))}
        return codes(ledger.others(a_controller(desk.fleet, desk.clock, settings=settings)))

    assert seen_of("gpuwatch-other-1-0a") == ["ledger.foreign"]
    with closing(Ledger.open(path)) as ours:
        key = ours.intend(Verb.NOTICE, "i-1", "default", NOW, Reason(code="candidate", sentence="Idle."), 1).key
    assert seen_of("gpuwatch-other-1-0a") == ["ledger.foreign"]
    assert seen_of("gpuwatch-other-1-0a", enrolled=False) == []
    assert seen_of(key) == []
    desk.clock.advance(86400.0)
    assert seen_of("gpuwatch-other-1-0a") == []


def test_a_ledger_that_answers_too_slowly_for_removals_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each removal would be cancelled, for its answers would be too old when the call leaves."""
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    clock = ManualClock()

    def slow(*arguments: object) -> object:
        clock.advance(3.0)
        return glance(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger, "glance", slow)
    case = a_case(path)
    case.clock = clock
    found = {each.code: each for each in ledger.ledger(case)}

    assert "a look took 3s, a removal waits for at most 5s in all" in found["ledger.slow"].seen
