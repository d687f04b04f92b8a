"""One world of data that fills every JSON document: a fortnight in a ledger, a fleet of now, files, and a receiver."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.clouds.permissions import Quota
from gpuwatch.controller.join.authority import Issued
from gpuwatch.controller.join.register import Host, Register
from gpuwatch.controller.join.serve import open_authority
from gpuwatch.controller.join.settings import JoinSettings
from gpuwatch.controller.round import Round
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Reason, Status, Verb
from gpuwatch.model.fleet import Node
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.ledger_fixture import DAY as REPORTED
from tests.support.builders.ledger_fixture import a_fortnight, at
from tests.support.builders.small_fleet import a_day

NOW = at(REPORTED + timedelta(days=1), 7).astimezone(UTC)  # of the newest round
WORKLOAD = "kube:prod/team-a/Notebook/alice"  # somebody keeps it
SETTINGS = """
fleet: lab
ledger: {path: FOLDER/ledger.db}
cost: {timezone: Europe/Berlin}
pools:
  training: {idle: {action: stop, timeout: 10m}, approval: true}
  serving: {}
  notebooks: {}
budgets: {team: {usd_per_month: 1000}}
notify: {receivers: {chat: {webhook: {url: "http://127.0.0.1:1/"}}}}
agent: {source: simulated, port: 1, evidence: {snooze: {directory: FOLDER/snoozes}}}
cloud: {regions: [us-east-1], endpoint_url: "http://127.0.0.1:1"}
controller: {join: {host: 127.0.0.1, folder: FOLDER/join}}
"""
LEFT = (
    Leftover(id="vol-1", kind=LeftoverKind.UNATTACHED_VOLUME, region="us-east-1", type="gp3", size_bytes=100 * 1024**3),
    Leftover(id="eipalloc-1", kind=LeftoverKind.UNUSED_ADDRESS, region="us-east-1"),
)

IN_USE = Leftover(
    id="vol-2",
    kind=LeftoverKind.RUNNING_VOLUME,
    region="us-east-1",
    type="gp3",
    size_bytes=200 * 1024**3,
    node_id="i-train-1",
)


def made_in(folder: Path) -> Path:
    """The files, once for many commands; the newest round is of a morning, and a notice waits for its approval."""
    (folder / "gpuwatch.yaml").write_text(SETTINGS.replace("FOLDER", str(folder)), encoding="utf-8")
    (folder / "snoozes").mkdir()
    columns = "resource_id", "usage_start_date", "unblended_cost", "usage_type"
    titles = ",".join(f"line_item_{each}" for each in columns)
    lines = ("i-train-1,2026-03-20T00:00:00Z,12.5,BoxUsage", "i-train-1,2026-03-20T00:00:00Z,1,DataTransfer-Out-Bytes")
    (folder / "bill.csv").write_text("\n".join((titles, *lines, "")), encoding="utf-8")
    (folder / "load.csv").write_text("node,busy_from_s,busy_to_s\na,0,900\na,20000,26000\n", encoding="utf-8")
    days = (f"2026-01-{day:02}T00:00Z,{day}\n" for day in range(1, 31))
    (folder / "series.csv").write_text("".join(days), encoding="utf-8")
    (folder / "vendors.csv").write_text(
        "vendor,sla,latency_ms,price\nweight,5,2,3\nbest,99.99,5,\nworst,99,80,\naws,99.99,60,\ngcp,99.9,8,\n",
        encoding="utf-8",
    )
    (folder / "spot.csv").write_text("time,offer,nodes\n0,a,4\n3600,a,0\n7200,a,4\n86400,a,4\n", encoding="utf-8")
    (folder / "short.csv").write_text("2026-01-01T00:00Z,1\n", encoding="utf-8")
    said = '{"gpuwatch": 1, "call": "describe", "name": "Nowhere", "calls": ["list", "get"]}'
    (folder / "driver").write_text(f"#!/bin/sh\nread -r asked\necho '{said}'\n", encoding="utf-8")
    (folder / "driver").chmod(0o755)
    one_has_joined(folder / "join")
    ledger = Ledger.connect(LedgerSettings(path=str(folder / "ledger.db")))
    ledger.lead()
    fortnight = a_fortnight(ledger)
    fortnight.states["train-1"] = State.IDLE
    reason = Reason(code="idle", sentence="train-1 has been idle for 2h.")
    last = ledger.observation(fortnight.round_id).now
    notice = ledger.intend(Verb.NOTICE, "i-train-1", "training", last, reason, fortnight.round_id)
    ledger.settle(notice, Status.SETTLED, "its tags are set", last)
    ledger.snooze(WORKLOAD, "ann@desk", "a demo", last, NOW + timedelta(days=1))
    ledger.close()
    return folder


def one_has_joined(folder: Path) -> None:
    """A token, and a host that has joined by it."""
    authority = open_authority(JoinSettings(folder=str(folder)), "lab", ManualClock(wall=NOW))
    with Register(folder).change(NOW, authority) as book:
        made = book.make_token(NOW, until=NOW + timedelta(hours=1), hosts=2, node_id=None, pin=bytes(32))
        host = Host(node_id="i-train-1", key="00", address="127.0.0.1", joined_at=NOW, token=made.id)
        issued = Issued(pem="", serial=1, end=NOW + timedelta(days=90))
        book.note_joined(book.tokens[made.id], host, issued, counts=True)


class Account:
    """A cloud that is asked for its machines, its limits, and what no machine uses."""

    def __init__(self, nodes: tuple[Node, ...] = ()) -> None:
        """With these machines."""
        self._nodes = nodes

    def nodes(self) -> tuple[Node, ...]:
        """All of them."""
        return self._nodes

    def quotas(self) -> tuple[Quota, ...]:
        """One limit."""
        return (Quota(name="Running On-Demand P instances", region="us-east-1", limit=384.0, used=192.0, unit="vCPUs"),)

    def leftovers(self) -> tuple[Leftover, ...]:
        """A volume and an address."""
        return LEFT

    def disks(self) -> tuple[Leftover, ...]:
        """One in use."""
        return (IN_USE,)


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find the files, the fleet of now and the clock of that evening."""
    desk, done = a_day()

    account: Any = Account(done.observation.fleet.nodes)

    @contextmanager
    def looked(_: Path | None) -> Iterator[tuple[object, Round]]:
        yield replace(desk.parts, cloud=account), done

    monkeypatch.chdir(folder)
    monkeypatch.setenv("GPUWATCH_CONFIG", str(folder / "gpuwatch.yaml"))
    monkeypatch.setattr("gpuwatch.cli.fleet.a_plan", looked)
    monkeypatch.setattr("gpuwatch.cli.cost.a_plan", looked)
    monkeypatch.setattr("gpuwatch.cli.parts.cloud_of", lambda *_: account)
    monkeypatch.setattr("gpuwatch.clouds.settings.connect", lambda *_, **__: account)
    monkeypatch.setattr("gpuwatch.runtime.clock.SystemClock", lambda: ManualClock(wall=NOW))
