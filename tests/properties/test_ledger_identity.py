"""P16, a file: a controller whose ledger is no longer the one it writes stops acting, says so, and makes no new one."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.cli.controller import one_round
from gpuwatch.ledger import Ledger, LedgerError, LedgerSettings
from gpuwatch.model.decision import DECISION_TAG, Reason, Verb
from gpuwatch.model.fleet import Node, NodeReport
from tests.support.builders.desk import removals, rounds
from tests.support.builders.fleet import NOW, Desk, a_node
from tests.support.fakes import broken_ledgers as broken
from tests.support.fakes.broken_ledgers import SPOILS
from tests.support.nightly import by_night

REASON = Reason(code="candidate", sentence="It has been idle for 2h.")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """In a folder of its own, as a state directory is."""
    (tmp_path / "state").mkdir()
    return tmp_path / "state" / "ledger.db"


@pytest.fixture
def desk(path: Path) -> Iterator[Desk]:
    """A controller that has given its notices and is about to stop two machines."""
    desk = a_desk(path)
    yield desk
    desk.ledger.close()


def a_desk(path: Path) -> Desk:
    """A controller on that file, after the notices."""
    desk = Desk(ledger=Ledger.open(path))
    for node_id in ("i-1", "i-2"):
        desk.fleet.put(a_node(node_id))
    one_round(desk.parts)
    assert {call for call, *_ in desk.fleet.calls} == {"tag"}
    for _ in range(9):
        desk.rest(60.0)
        one_round(desk.parts)
    desk.rest(70.0)  # the grace is over: the next round would stop them
    return desk


def started(path: Path, fleet: Desk) -> Desk:
    """A controller on that file over another one's fleet."""
    desk = Desk(clock=fleet.clock, ledger=Ledger.open(path))
    desk.fleet = fleet.fleet
    return desk


def test_without_a_fault_the_next_round_stops_them(desk: Desk) -> None:
    """Otherwise the tests below would prove nothing."""
    one_round(desk.parts)

    assert sorted(removals(desk)) == ["i-1", "i-2"]


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda each: each.__name__)
def test_a_ledger_that_is_not_the_one_written_stops_everything(
    desk: Desk, path: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """At the next round, and at all after it; the log says what is wrong, and no new file is made."""
    spoil(path)
    before = sorted(path.parent.iterdir()) if path.parent.exists() else []
    for _ in range(3):
        assert one_round(desk.parts) is None
        desk.rest(60.0)

    assert removals(desk) == []
    assert desk.ledger.identity.trouble is not None
    assert "ledger.db" in desk.ledger.identity.trouble
    assert f"Nothing is done: {desk.ledger.identity.trouble}" in caplog.text
    assert (sorted(path.parent.iterdir()) if path.parent.exists() else []) == before


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda each: each.__name__)
def test_it_is_looked_at_once_more_right_before_each_call(
    desk: Desk, path: Path, spoil: Callable[[Path], None]
) -> None:
    """The ledger is spoiled while the node is asked for its last word."""
    asked: list[str] = []

    def spoiling(node: Node) -> NodeReport:
        asked.append(node.id)
        if len(asked) == len(desk.fleet.nodes_) + 1:  # all are observed first
            spoil(path)
        verdict = node.signal.verdict
        return NodeReport(verdict=None if verdict is None else replace(verdict, at=desk.clock.now(), age_seconds=0.5))

    desk.fleet.answer = spoiling
    one_round(desk.parts)

    assert len(asked) > len(desk.fleet.nodes_)
    assert removals(desk) == []


# After these all records are still there.
WHOLE = (broken.replace_by_a_copy_of_itself, broken.replace_by_a_backup, broken.remove_the_shared_memory)


@pytest.mark.parametrize("spoil", [*SPOILS[::2], *by_night(*SPOILS[1::2])], ids=lambda each: each.__name__)
def test_a_start_after_it_stops_nothing_until_a_person_says_so(
    desk: Desk, path: Path, spoil: Callable[[Path], None]
) -> None:
    """The controller died, then it happened: a start is refused with a sentence, or begins paused."""
    image = path.parent.with_name("image") / path.name
    shutil.copytree(path.parent, image.parent)
    desk.ledger.close()
    spoil(image)
    try:
        again = started(image, desk)
    except LedgerError as error:
        assert str(image) in str(error)  # noqa: PT017  it may also start
        return
    desk.ledger = again.ledger  # closed by the fixture
    rounds(again, 3)
    if spoil in WHOLE:
        assert sorted(removals(again)) == ["i-1", "i-2"]
        return
    assert removals(again) == []
    held = again.ledger.view(NOW).pauses
    assert {each.who for each in held} == {"gpuwatch"}
    again.ledger.close()
    again = started(image, desk)  # the pauses outlive the process, and are not doubled
    desk.ledger = again.ledger
    rounds(again, 2)
    assert again.ledger.view(NOW).pauses == held

    again.ledger.resume(None, "ann@host", again.clock.now())
    rounds(again, 2)
    assert again.ledger.view(NOW).pauses == ()


def test_what_was_lost_is_named(desk: Desk, path: Path) -> None:
    """From where to where, or whose."""
    links = desk.ledger.audit().links
    image = path.parent.with_name("image") / path.name
    shutil.copytree(path.parent, image.parent)
    broken.remove_the_wal(image)
    with closing(Ledger.open(image)) as shortened:
        assert f"has lost its records 1 to {links}:" in str(shortened.identity.doubt)
    desk.ledger.close()
    broken.write_another_id(path)
    with closing(Ledger.open(path)) as other:
        assert f"is another ledger (other) than the one that was written here last ({desk.ledger._id}, {links} " in str(
            other.identity.doubt
        )


def test_a_backup_put_back_begins_paused(desk: Desk, path: Path, tmp_path: Path) -> None:
    """It is older than the marker beside it; and without a marker, than the decisions on the machines."""
    backup = tmp_path / "backup.db"
    source, target = sqlite3.connect(path), sqlite3.connect(backup)
    source.backup(target)
    source.close()
    target.close()
    desk.fleet.put(a_node("i-3"))
    one_round(desk.parts)
    assert sorted(removals(desk)) == ["i-1", "i-2"]
    desk.ledger.close()
    lost = desk.fleet.nodes_["i-3"].tags["gpuwatch:decision-id"]
    for marked in (True, False):
        for each in path.parent.iterdir():
            if each.suffix != ".id" or not marked:
                each.unlink()
        shutil.copy(backup, path)
        desk.ledger = Ledger.open(path)
        desk.fleet.put(a_node("i-4"))
        done = one_round(desk.parts)
        assert done is not None
        text = " ".join(pause.reason for pause in done.observation.ledger.pauses)
        assert ("has lost its records" in text) is marked
        assert lost in text
        assert done.acts == ()
        desk.ledger.close()
    desk.ledger = Ledger.open(path)


def test_a_plan_shows_the_same_pauses_and_writes_none(desk: Desk, path: Path) -> None:
    """P5: of a ledger that is behind its marker, and of one that is not there yet."""
    desk.ledger.close()
    broken.cut_the_chain(path)
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    desk.ledger = Ledger.open(path, read_only=True)
    rows = [each.reason for each in desk.plan().observation.ledger.pauses]
    desk.ledger.close()
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == before
    desk.ledger = Ledger.open(path)
    done = one_round(desk.parts)
    assert done is not None
    assert [each.reason for each in done.observation.ledger.pauses] == rows
    assert len(rows) == 2  # by the marker, and by the machines

    desk.ledger.close()
    desk.ledger = Ledger.in_memory()
    (pause,) = desk.plan().observation.ledger.pauses
    assert pause.reason.startswith("This ledger is new, but machines bear decisions of another")


def test_a_controller_that_only_observes_pauses_nothing_for_the_machines_sake(path: Path) -> None:
    """It may look beside one that acts; once it is to enforce, it begins paused."""
    first = a_desk(path)
    first.ledger.close()
    beside = Desk(clock=first.clock, enforce=False)
    beside.fleet = first.fleet
    rounds(beside, 2)
    assert beside.ledger.view(NOW).pauses == ()
    beside.enforce = True
    rounds(beside, 2)

    assert len(beside.ledger.view(NOW).pauses) == 1
    assert removals(beside) == []


def test_two_ledgers_never_share_a_machine(path: Path) -> None:
    """Each leaves alone what the other has decided about within a day, also where it was tagged in between."""
    first = a_desk(path)
    second = Desk(clock=first.clock)
    second.fleet = first.fleet
    second.fleet.put(a_node("i-3"))
    key = second.ledger.intend(Verb.NOTICE, "i-9", "default", NOW, REASON, 1).key  # its ledger is not new
    rounds(second, 3)
    assert not second.ledger.view(NOW).pauses
    assert removals(second) == ["i-3"]
    node = first.fleet.nodes_["i-1"]
    first.fleet.put(replace(node, tags={**node.tags, DECISION_TAG: key}))
    rounds(first, 2)  # it was away meanwhile, so its notices begin again

    assert sorted(removals(first)) == ["i-2", "i-3"]
    first.ledger.close()


def test_a_copy_of_a_ledger_in_use_pauses_everything(path: Path, tmp_path: Path) -> None:
    """As with a cloned machine: on the machines it finds what only the other one has on record."""
    first = a_desk(path)
    shutil.copytree(path.parent, tmp_path / "clone")
    clone = started(tmp_path / "clone" / path.name, first)
    first.limits = clone.limits = replace(first.limits, max_stops_per_round=0)
    first.fleet.put(a_node("i-3"))
    one_round(first.parts)
    clone.limits = replace(clone.limits, max_stops_per_round=9)
    rounds(clone, 3)

    (pause,) = clone.ledger.view(NOW).pauses
    assert first.fleet.nodes_["i-3"].tags[DECISION_TAG] in pause.reason
    assert removals(clone) == []
    clone.ledger.resume(None, "ann@host", clone.clock.now())
    rounds(clone, 1)
    assert clone.ledger.view(NOW).pauses == ()
    for desk in (first, clone):
        desk.ledger.close()


def test_a_controller_that_runs_and_the_orders_see_the_same_ledger(desk: Desk, path: Path) -> None:
    """`pause` on a file that is not the one that was written here last writes nothing and says so."""
    broken.cut_the_chain(path)
    with pytest.raises(LedgerError, match=r"has lost its records.*Nothing was written"):
        Ledger.connect(LedgerSettings(path=str(path)), controls_only=True)
    desk.ledger.close()
    path.unlink()
    for how in ({"read_only": True}, {"controls_only": True}):
        with pytest.raises(LedgerError, match=r"is missing, but ledger\.db\.id next to it shows"):
            Ledger.connect(LedgerSettings(path=str(path)), **how)
    assert not LedgerSettings(path=str(path)).unwritten


def test_what_the_person_said_last_is_marked_as_well(desk: Desk, path: Path, tmp_path: Path) -> None:
    """A pause that was lost with a restore is known to be lost."""
    shutil.copy(path.with_name("ledger.db-wal"), tmp_path / "wal")
    with closing(Ledger.connect(LedgerSettings(path=str(path)), controls_only=True)) as orders:
        orders.pause(None, "ann@host", "", NOW)
    image = path.parent.with_name("image") / path.name
    shutil.copytree(path.parent, image.parent)
    shutil.copy(tmp_path / "wal", image.with_name("ledger.db-wal"))
    with closing(Ledger.open(image)) as restored:
        assert "has lost its records" in str(restored.identity.doubt)
    desk.ledger.close()


@pytest.mark.parametrize("body", [b"", b"gpuwatch-ledger 1 x", b"\xff" * 200, b"gpuwatch-ledger 2 x 1 y\n"])
def test_a_marker_that_says_nothing_is_a_doubt(desk: Desk, path: Path, body: bytes) -> None:
    """Whatever damaged it may have damaged the ledger as well."""
    desk.ledger.close()
    path.with_name("ledger.db.id").write_bytes(body)
    desk.ledger = Ledger.open(path)

    assert "its marker ledger.db.id is damaged" in str(desk.ledger.identity.doubt)
    rounds(desk, 2)
    assert removals(desk) == []


def test_without_a_marker_a_ledger_of_an_older_gpuwatch_goes_on(desk: Desk, path: Path) -> None:
    """It gets one."""
    desk.ledger.close()
    path.with_name("ledger.db.id").unlink()
    desk.ledger = Ledger.open(path)
    one_round(desk.parts)

    assert sorted(removals(desk)) == ["i-1", "i-2"]
    assert path.with_name("ledger.db.id").read_text().split()[2:4] == [
        desk.ledger._id,
        f"{desk.ledger.audit().links:020d}",
    ]


def test_a_second_controller_is_refused_although_the_lock_file_is_gone(desk: Desk, path: Path) -> None:
    """The database itself is locked, too, under any name that leads to it."""
    path.with_name("ledger.db.lock").unlink()
    other = path.with_name("other.db")
    os.link(path, other)
    for each in (path, other):
        with pytest.raises(LedgerError, match="held by another controller"):
            Ledger.open(each)
    one_round(desk.parts)

    assert sorted(removals(desk)) == ["i-1", "i-2"]


def test_a_kill_while_a_ledger_is_made_leaves_nothing_that_refuses_a_start(path: Path) -> None:
    """Its tables are in the file itself before there is a WAL."""
    path.touch()
    Ledger.open(path).close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT COUNT(*) FROM head").fetchone() == (1,)
    for each in path.parent.iterdir():
        each.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    with pytest.raises(LedgerError, match="has lost its -wal file, or belongs to another program"):
        Ledger.open(path)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_its_files_are_the_users_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Owners, names and reasons are in them; an administrator's own choice for a file that is there stays."""
    path = tmp_path / "new" / "state" / "ledger.db"
    if umask != 0o777:
        (tmp_path / "new").mkdir()
    before = os.umask(umask if umask != 0o777 else 0o177)
    try:
        ledger = Ledger.open(path)
        one_round(Desk(ledger=ledger).parts)
    finally:
        os.umask(before)
    found = {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
    ledger.close()
    path.chmod(0o640)
    Ledger.open(path).close()

    assert found == dict.fromkeys(broken.NAMES, 0o600)
    assert path.stat().st_mode & 0o777 == 0o640
