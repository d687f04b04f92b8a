"""Several controllers share one ledger: one leads, the others wait, and whoever lost the lead can write nothing."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gpuwatch.ledger import Ledger, LedgerError, LedgerSettings
from gpuwatch.model.decision import Intent, Reason, Status, Verb
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from tests.support.builders.fleet import NOW, an_observation
from tests.support.real.agents import eventually
from tests.support.real.postgresql import Cluster, Place, end_sessions, postgresql

REASON = Reason(code="candidate", sentence="It has been idle for 2h.")
on_postgresql = pytest.mark.component("pg_ctl")

# What only a leader may write.
WRITES: dict[str, Callable[[Ledger, Intent], object]] = {
    "a round": lambda ledger, _: ledger.record_round(an_observation()),
    "an intent": lambda ledger, _: ledger.intend(Verb.STOP, "i-2", "default", NOW, REASON, 1),
    "an outcome": lambda ledger, intent: ledger.settle(intent, Status.SETTLED, "done", NOW),
    "the end of a stop": lambda ledger, _: ledger.forget_stop("i-1"),
    "what a pool has learnt": lambda ledger, _: ledger.record_round(an_observation(), gaps={"default": GapHistory()}),
    "a compaction": lambda ledger, _: ledger.compact(NOW),
}

# A controller's process: leads where it may, and calls its cloud (a file) only after asking once more.
CONTROLLER = """
import sys, time
from gpuwatch.ledger import Ledger, LedgerError, LedgerSettings
from gpuwatch.model.decision import Status, Verb
from tests.support.builders.desk import REASON
from tests.support.builders.fleet import NOW, an_observation
url, cloud = sys.argv[1:]
ledger = Ledger.connect(LedgerSettings(url=url))
while True:
    try:
        if not ledger.lead():
            time.sleep(0.02)
            continue
        for entry in ledger.view(NOW).open_intents:
            ledger.settle(entry.intent, Status.CANCELLED, "left by another", NOW)
        intent = ledger.intend(Verb.STOP, "i-1", "default", NOW, REASON, ledger.record_round(an_observation()))
        if ledger.leading():
            with open(cloud, "a") as calls:
                calls.write(intent.key + "\\n")
            ledger.settle(intent, Status.SETTLED, "done", NOW)
    except LedgerError:
        pass
"""


@pytest.fixture
def cluster() -> Cluster:
    """The test process's server."""
    return postgresql()


@pytest.fixture
def shared(cluster: Cluster) -> Iterator[Place]:
    """A PostgreSQL ledger."""
    place = Place(LedgerSettings(url=cluster.database()))
    yield place
    place.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=on_postgresql)])
def deposed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Ledger, Ledger, Intent]]:
    """A leader with an open intent that lost its lead without noticing, and the new leader."""
    settings = LedgerSettings(path=str(tmp_path / "ledger.db"))
    if request.param == "postgresql":
        settings = LedgerSettings(url=postgresql().database())
    place = Place(settings)
    old = place.open()
    intent = old.intend(Verb.STOP, "i-1", "default", NOW, REASON, old.record_round(an_observation()))
    if settings.url is None:
        (tmp_path / "ledger.db.lock").unlink()  # as on a file system whose locks do not hold
        monkeypatch.setattr("gpuwatch.ledger.sqlite_files._SET_LOCK", None)
    else:
        end_sessions(postgresql(), settings.url)
    yield old, place.open(), intent
    place.close()


@on_postgresql
def test_one_leads_and_the_other_says_for_whom_it_waits(shared: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The waiting one writes nothing, says so once, and takes over when the leader ends."""
    caplog.set_level(logging.INFO)
    first, second = shared.open(), shared.beside(read_only=False)
    assert not any([second.lead(), second.lead()])
    assert (first.leading(), second.leading()) == (True, False)
    assert [record.message for record in caplog.records if "waits" in record.message] == [
        f"This controller ({second.leader()}) does not lead and waits: {second.leader()}"
    ]
    with pytest.raises(LedgerError, match="does not lead"):
        second.record_round(an_observation())
    first.close()

    assert second.lead()
    assert second.record_round(an_observation()) == 1
    assert "leads now, epoch 2" in caplog.text


@pytest.mark.parametrize("what", WRITES)
def test_a_deposed_leader_that_wakes_up_writes_nothing(deposed: tuple[Ledger, Ledger, Intent], what: str) -> None:
    """Not a round, not an intent, not even an outcome: the new leader settles what is open."""
    old, new, intent = deposed
    assert new.lead()
    before = (new.view(NOW), new.audit())
    assert not old.leading()
    with pytest.raises(LedgerError):
        WRITES[what](old, intent)
    with pytest.raises(LedgerError, match="does not lead"):  # and again, should it have connected anew
        WRITES[what](old, intent)

    assert (new.view(NOW), new.audit()) == before
    assert new.leading()
    new.settle(intent, Status.SETTLED, "by the new leader", NOW)


@on_postgresql
def test_a_lost_connection_is_a_lost_lead_and_the_next_round_competes_again(cluster: Cluster, shared: Place) -> None:
    """Nothing is forgotten: the open intent is there under its key, in a later epoch."""
    ledger = shared.open()
    intent = ledger.intend(Verb.STOP, "i-1", "default", NOW, REASON, ledger.record_round(an_observation()))
    assert shared.settings.url is not None
    end_sessions(cluster, shared.settings.url)

    assert not ledger.leading()
    assert ledger.lead()
    assert [entry.intent for entry in ledger.view(NOW).open_intents] == [intent]
    ledger.settle(intent, Status.SETTLED, "done", NOW)
    assert ledger.audit().broken is None


@on_postgresql
def test_a_leader_that_says_nothing_for_too_long_makes_room(cluster: Cluster) -> None:
    """It hangs, its machine lives: the database ends its session and another one leads."""
    place = Place(LedgerSettings(url=cluster.database(), leader_timeout=0.2))
    silent, other = place.open(), place.beside(read_only=False)

    eventually(other.lead, lambda: f"{other.leader()} still leads")
    assert not silent.lead()
    with pytest.raises(LedgerError):
        silent.record_round(an_observation())
    place.close()


@on_postgresql
def test_controllers_that_are_killed_leave_the_lead_to_another_and_no_key_is_called_twice(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Three processes, kill -9 of the leader again and again: epochs only rise, every call has its intent."""
    url, cloud = cluster.database(), tmp_path / "calls"
    cloud.touch()

    def start() -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        return subprocess.Popen([sys.executable, "-c", CONTROLLER, url, str(cloud)], env=environment)

    running = {f":{process.pid}": process for process in (start(), start(), start())}
    reader = None
    leaders = set()
    try:
        for _ in range(4):
            enough = len(cloud.read_text().splitlines()) + 4
            eventually(
                partial(called, cloud, enough),
                lambda: f"nobody works: {[process.poll() for process in running.values()]}",
            )
            reader = reader or Ledger.connect(LedgerSettings(url=url), read_only=True)
            leader = f":{reader.leader().rpartition(':')[2]}"
            leaders.add(leader)
            victim = running.pop(leader)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            new = start()
            running[f":{new.pid}"] = new
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    assert reader is not None
    epochs = [line[0] for line in cluster.execute(url, "SELECT epoch FROM rounds ORDER BY id")]
    calls = cloud.read_text().splitlines()
    keys = {line[0] for line in cluster.execute(url, "SELECT key FROM intents")}

    assert len(leaders) == 4
    assert epochs == sorted(epochs)
    assert len(calls) == len(set(calls))
    assert set(calls) <= keys
    assert reader.audit().broken is None
    reader.close()


def called(cloud: Path, times: int) -> bool:
    """Whether the cloud was called so often."""
    return len(cloud.read_text().splitlines()) >= times


@on_postgresql
def test_controllers_that_start_together_make_one_ledger(cluster: Cluster) -> None:
    """Four at once on an empty database: one makes the tables, the others find them."""
    settings = LedgerSettings(url=cluster.database())
    with ThreadPoolExecutor(4) as pool:
        ledgers = list(pool.map(lambda _: Ledger.connect(settings), range(4)))
    leads = [ledger.lead() for ledger in ledgers]
    for ledger in ledgers:
        ledger.close()

    assert leads.count(True) == 1


@on_postgresql
def test_the_password_is_in_no_error(cluster: Cluster, tmp_path: Path) -> None:
    """Over TCP a password is needed: the right one, from `url_file`, opens; a wrong one is not repeated."""
    cluster.execute("postgres", "ALTER ROLE gpuwatch PASSWORD 'zebra-77'")
    name = cluster.database().partition("@/")[2].partition("?")[0]
    file = tmp_path / "url"
    settings = LedgerSettings(url_file=str(file))

    def refused(url: str) -> str:
        file.write_text(url + "\n", encoding="utf-8")
        with pytest.raises(LedgerError) as caught:
            Ledger.connect(settings)
        error = caught.value
        return f"{error} {error.__cause__} {error.__context__ if not error.__suppress_context__ else ''}"

    wrong = refused(f"postgresql://gpuwatch:secret-88@127.0.0.1:{cluster.port}/{name}")
    assert "password authentication failed" in wrong
    assert "secret-88" not in wrong
    for bad in (
        "postgresql://gpuwatch:secret-88@127.0.0.1:port/x",
        "mysql://u:secret-88@h/x",
        "postgresql://[secret-88",
    ):
        assert "secret-88" not in refused(bad)
    file.write_text(f"postgresql://gpuwatch:zebra-77@127.0.0.1:{cluster.port}/{name}", encoding="utf-8")
    ledger = Ledger.connect(settings)
    assert ledger.lead()
    ledger.close()
    with pytest.raises(LedgerError, match="cannot be read: No such file"):
        Ledger.connect(replace(settings, url_file=str(tmp_path / "none")))


@on_postgresql
def test_a_database_without_a_ledger_is_left_as_it_is_by_readers(cluster: Cluster) -> None:
    """Only a controller makes tables."""
    url = cluster.database()
    for how in ({"read_only": True}, {"controls_only": True}):
        with pytest.raises(LedgerError, match="holds no ledger yet"):
            Ledger.connect(LedgerSettings(url=url), **how)

    assert cluster.execute(url, "SELECT * FROM pg_tables WHERE schemaname = 'public'") == []
