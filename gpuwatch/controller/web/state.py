"""What page and API show: the last round, rendered at the first request, and the ledger.

The thread of the rounds writes; the threads of requests read. A round is a frozen value, so that only its hand-over is
locked; the ledger has a turn of its own.
"""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from gzip import compress
from typing import TypeVar
from zoneinfo import ZoneInfo

from gpuwatch import __version__
from gpuwatch.controller.context import Round
from gpuwatch.controller.node_row import node_rows
from gpuwatch.controller.pod_rows import cluster_row, pod_rows
from gpuwatch.controller.web import fleet_view
from gpuwatch.controller.workload_rows import workload_rows
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.model.currency import display_currency
from gpuwatch.model.decision import LedgerView
from gpuwatch.money.accounting.settings import EnergySettings
from gpuwatch.money.report.health_share import health_share
from gpuwatch.runtime.clock import Clock

_MOST_KEPT = 64
_GZIP_LEVEL = 5
_LITTLE_BYTES = 1024
_Made = TypeVar("_Made")


class UnseenError(Exception):
    """There is no round to show; the sentence says why."""


class Rendered:
    """A body with its tag, and packed once."""

    def __init__(self, body: bytes) -> None:
        """Tagged by what is in it."""
        self.body = body
        self.tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
        self._packed: bytes | None = None

    @property
    def packed(self) -> Callable[[], bytes] | None:
        """Gives the body in gzip; None where that is not worth it."""
        return self._pack if len(self.body) > _LITTLE_BYTES else None

    def _pack(self) -> bytes:
        if self._packed is None:
            self._packed = compress(self.body, _GZIP_LEVEL, mtime=0)
        return self._packed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The newest rounds, and what was rendered from them."""

    done: Round | None = None
    trouble: str | None = None
    leading: bool = True
    begun: float = 0.0  # when the newest round looked, by the clock's uptime
    page: list[fleet_view.FleetPage] = field(default_factory=list)
    rendered: dict[str, Rendered] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class State:
    """All that answers are made of."""

    fleet: str
    interval_seconds: float
    rules: Rulebook
    ledger: Ledger
    clock: Clock
    zone: ZoneInfo
    energy: EnergySettings
    _seen: _Seen = field(default_factory=_Seen)
    _making: threading.Lock = field(default_factory=threading.Lock)
    _slow: dict[str, tuple[datetime, object]] = field(default_factory=dict)
    _making_slow: threading.Lock = field(default_factory=threading.Lock)

    def update(self, done: Round | None, *, leading: bool, trouble: str | None = None) -> None:
        """A round is over: done, in trouble, failed (None), or another controller's. `trouble` is the ledger's."""
        before = self._seen
        if trouble is not None:
            self._seen = _Seen(done=before.done, trouble=f"Nothing is done: {trouble}")
        elif not leading:
            self._seen = _Seen(leading=False)
        elif done is None:
            self._seen = _Seen(done=before.done, trouble="The newest round failed; the controller's log says why.")
        elif done.trouble is not None:
            self._seen = _Seen(done=before.done, trouble=done.trouble)
        else:
            took = (self.clock.now() - done.observation.now).total_seconds()
            self._seen = _Seen(done=done, begun=self.clock.uptime() - max(0.0, took))

    def last(self) -> Round:
        """The last round that saw the fleet.

        Raises:
            UnseenError: no round has seen the fleet.

        """
        return self._seen_round(self._seen)

    def newest(self) -> tuple[Round, float]:
        """The newest round, and how many seconds ago it looked.

        Raises:
            UnseenError: it saw nothing, no round is over yet, or another controller leads.

        """
        seen = self._seen
        done = self._seen_round(seen)
        if seen.trouble is not None:
            raise UnseenError(seen.trouble)
        return done, self.clock.uptime() - seen.begun

    def page(self) -> fleet_view.FleetPage:
        """What it looks like; made once for each round."""
        seen = self._seen
        done = self._seen_round(seen)
        with self._making:
            if not seen.page:
                seen.page.append(self._page(done, seen.trouble))
        return seen.page[0]

    def keep_rendered(self, name: str, make: Callable[[], bytes]) -> Rendered:
        """What was made under that name since the last round, or is made now; one at a time, for it is work."""
        seen = self._seen
        self._seen_round(seen)
        found = seen.rendered.get(name)
        if found is None:
            made = Rendered(make())
            if len(seen.rendered) >= _MOST_KEPT:
                seen.rendered.clear()
            found = seen.rendered[name] = made
        return found

    def seldom(self, name: str, seconds: float, make: Callable[[], _Made]) -> _Made:
        """What was made under that name in the last `seconds`, or is made now: it reads much of the ledger."""
        with self._making_slow:
            now, found = self.clock.now(), self._slow.get(name)
            if found is None or not timedelta(0) <= now - found[0] < timedelta(seconds=seconds):
                found = self._slow[name] = (now, make())
            return found[1]  # type: ignore[return-value]  # what this name's `make` gave

    def orders(self) -> LedgerView:
        """The pauses and keeps in force now; the last round may have known others."""
        return self.ledger.view(self.clock.now(), recent=timedelta(0))

    def seen_pools(self) -> list[str]:
        """The pools of the last round; none before it."""
        return [] if self._seen.done is None else self._seen.done.observation.fleet.pools

    def _seen_round(self, seen: _Seen) -> Round:
        if seen.done is not None:
            return seen.done
        if seen.leading:
            raise UnseenError(seen.trouble or "no round has seen the fleet yet")
        try:
            leader = self.ledger.leader() or "nobody"
        except LedgerError as error:
            leader = f"nobody knows who ({error})"
        raise UnseenError(f"this controller waits, {leader} leads: ask that one")

    def _page(self, done: Round, trouble: str | None) -> fleet_view.FleetPage:
        nodes = node_rows(done, self.rules)
        return fleet_view.FleetPage(
            fleet=self.fleet,
            version=__version__,
            mode="enforce" if self.rules.enforce else "observe",
            at=done.observation.now,
            interval_seconds=self.interval_seconds,
            totals=fleet_view.totals(done, nodes),
            pools=tuple(fleet_view.pools(done, nodes, self.rules)),
            nodes=nodes,
            actions=fleet_view.actions(done),
            pauses=done.observation.ledger.pauses,
            budgets=fleet_view.budgets(done.observation),
            advice=fleet_view.advice(done),
            trouble=trouble,
            silent=done.observation.fleet.silent,
            kubernetes=cluster_row(done.observation),
            pods=pod_rows(done.observation),
            workloads=workload_rows(done, self.rules),
            currency=display_currency().unless_usd,
            health=health_share((done.observation.fleet.nodes,)),
        )
