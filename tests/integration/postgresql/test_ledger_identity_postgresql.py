"""P16, PostgreSQL: a database that was recreated, restored or fell behind is not the ledger that a controller knows."""

from collections.abc import Callable, Iterator

import pytest

from gpuwatch.cli.controller import one_round
from gpuwatch.ledger import Ledger, LedgerSettings, OtherLedgerError
from tests.support.builders.desk import removals, rounds
from tests.support.builders.fleet import NOW, Desk, a_node
from tests.support.real.postgresql import Place, end_sessions, postgresql

pytestmark = pytest.mark.component("pg_ctl")


@pytest.fixture
def place() -> Iterator[Place]:
    """A database of its own."""
    place = Place(LedgerSettings(url=postgresql().database()))
    yield place
    place.close()


@pytest.fixture
def desk(place: Place) -> Desk:
    """A controller that has given its notices and is about to stop two machines."""
    desk = Desk(ledger=place.open())
    for node_id in ("i-1", "i-2"):
        desk.fleet.put(a_node(node_id))
    for _ in range(10):
        one_round(desk.parts)
        desk.rest(60.0)
    desk.rest(10.0)
    return desk


def name_of(place: Place) -> str:
    """The database's."""
    return str(place.settings.url).partition("@/")[2].partition("?")[0]


def move_away(place: Place) -> None:
    """The name leads to no database."""
    end_sessions(postgresql(), str(place.settings.url))
    postgresql().execute("postgres", f"ALTER DATABASE {name_of(place)} RENAME TO {name_of(place)}_away")


def recreate(place: Place) -> None:
    """An empty database of that name."""
    move_away(place)
    postgresql().execute("postgres", f"CREATE DATABASE {name_of(place)}")


def recreate_with_tables(place: Place) -> None:
    """In which another controller has begun a ledger."""
    recreate(place)
    Ledger.connect(place.settings).close()


def go_back(place: Place) -> None:
    """As a restore, or a replica that lagged: the same ledger without its newest records."""
    for table in ("outcomes", "open_intents", "notices", "intents", "chain"):
        column, least = ("id", "> 2") if table in {"outcomes", "intents", "chain"} else ("key", "IS NOT NULL")
        place.execute(f"DELETE FROM {table} WHERE {column} {least}")  # noqa: S608  fixed names
    place.execute("UPDATE head SET links = 2, hash = (SELECT hash FROM chain WHERE id = 2)")


def fail_over(place: Place) -> None:
    """To such a replica: all connections are cut."""
    go_back(place)
    end_sessions(postgresql(), str(place.settings.url))


def rewrite(place: Place) -> None:
    """Somebody has made its newest link anew."""
    place.execute("UPDATE chain SET hash = 'ff' WHERE id = (SELECT links FROM head)")
    place.execute("UPDATE head SET hash = 'ff'")


SPOILS = (move_away, recreate, recreate_with_tables, go_back, fail_over, rewrite)


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda each: each.__name__)
def test_it_stops_everything(
    desk: Desk, place: Place, spoil: Callable[[Place], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody leads by it, also not after connecting anew; the log says why; no tables are made."""
    spoil(place)
    for _ in range(3):
        assert one_round(desk.parts) is None
        desk.rest(60.0)

    assert removals(desk) == []
    assert f"Nothing is done: {desk.ledger.identity.trouble}" in caplog.text
    if spoil is recreate:
        assert place.execute("SELECT * FROM pg_tables WHERE schemaname = 'public'") == []


def test_what_once_was_another_is_not_trusted_when_it_comes_back(desk: Desk, place: Place) -> None:
    """A name that leads to two servers in turn is somebody's to look at; a restart begins anew."""
    recreate_with_tables(place)
    assert one_round(desk.parts) is None
    end_sessions(postgresql(), str(place.settings.url))
    postgresql().execute("postgres", f"ALTER DATABASE {name_of(place)} RENAME TO {name_of(place)}_other")
    postgresql().execute("postgres", f"ALTER DATABASE {name_of(place)}_away RENAME TO {name_of(place)}")
    assert one_round(desk.parts) is None
    with pytest.raises(OtherLedgerError, match="is another ledger"):
        desk.ledger.pause(None, "ann@host", "", NOW)

    again = Desk(clock=desk.clock, ledger=place.open())
    again.fleet = desk.fleet
    one_round(again.parts)
    assert sorted(removals(again)) == ["i-1", "i-2"]


def test_one_that_only_went_away_is_led_again(desk: Desk, place: Place) -> None:
    """An outage is no other ledger."""
    move_away(place)
    assert one_round(desk.parts) is None
    postgresql().execute("postgres", f"ALTER DATABASE {name_of(place)}_away RENAME TO {name_of(place)}")
    one_round(desk.parts)

    assert sorted(removals(desk)) == ["i-1", "i-2"]
    assert desk.ledger.identity.trouble is None


def test_who_waits_knows_what_it_has_seen(desk: Desk, place: Place) -> None:
    """It does not take the lead of a replica that lagged, although it never led before."""
    waiting = place.beside(read_only=False)
    assert not waiting.lead()
    assert waiting.identity.trouble is None
    go_back(place)
    desk.ledger.close()

    assert not waiting.lead()
    assert "has lost record" in str(waiting.identity.trouble)


def test_a_start_on_an_older_state_begins_paused_by_what_machines_tell(desk: Desk, place: Place) -> None:
    """Their newest decisions are not in it."""
    go_back(place)
    desk.ledger.close()
    again = Desk(clock=desk.clock, ledger=place.open())
    again.fleet = desk.fleet
    rounds(again, 3)

    (pause,) = again.ledger.view(NOW).pauses
    assert "records were lost" in pause.reason
    assert removals(again) == []


def test_orders_beside_a_leader_are_no_loss(desk: Desk, place: Place) -> None:
    """The chain grows by others' records, too."""
    orders = place.beside(read_only=False)
    orders.pause(None, "ann@host", "", NOW)
    orders.resume(None, "ann@host", NOW)
    for _ in range(15):  # what was paused gives its notices again
        one_round(desk.parts)
        desk.rest(60.0)

    assert sorted(removals(desk)) == ["i-1", "i-2"]
