"""The controller dies at every step: after its restart there is exactly one stop, and the ledger is true."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gpuwatch.controller import Parts, step
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import NodeState, State
from tests.fleets import Desk, a_node


class PowerCut(BaseException):
    """The process is gone: nothing catches this."""


@dataclass(slots=True)
class Mortal:
    """Passes calls on and dies at the given one, right before or right after its effect."""

    inner: object
    die: Callable[[str], None]

    def __getattr__(self, name: str) -> object:
        """Each method of the inner object, with a chance to die around it."""
        method = getattr(self.inner, name)

        def call(*args: object, **kwargs: object) -> object:
            self.die(f"before {name}")
            result = method(*args, **kwargs)
            self.die(f"after {name}")
            return result

        return call if callable(method) else method


@dataclass(slots=True)
class Fate:
    """Counts the boundaries that are passed, and cuts the power at one of them."""

    fatal: int
    passed: list[str] = field(default_factory=list)

    def die(self, where: str) -> None:
        """One boundary."""
        self.passed.append(where)
        if len(self.passed) == self.fatal:
            raise PowerCut(where)


def a_mortal(desk: Desk, fate: Fate) -> Parts:
    """The desk's parts with death around every call that leaves the process or is written down."""
    parts = desk.parts
    return replace(
        parts,
        cloud=Mortal(parts.cloud, fate.die),  # type: ignore[arg-type]
        signals=Mortal(parts.signals, fate.die),  # type: ignore[arg-type]
        ledger=Mortal(parts.ledger, fate.die),  # type: ignore[arg-type]
    )


def a_run(fatal: int, downtime: float, *, lag: float) -> tuple[Desk, str | None]:
    """Twenty rounds over an idle and a busy machine, with one power cut; gives where it struck, or None.

    What the ledger acknowledged survives (test_ledger proves that with kill -9), all else of the controller is lost.
    """
    desk = Desk()
    desk.fleet.lag = lambda: lag
    for node in (a_node("i-1"), a_node("i-2", State.BUSY)):
        desk.fleet.put(node)
    fate, struck = Fate(fatal), None
    for _ in range(20):
        try:
            step(a_mortal(desk, fate))
        except PowerCut as cut:
            struck = str(cut)
            desk.rest(downtime)
        desk.rest(60.0)
    return desk, struck


def every_cut(downtime: float, *, lag: float) -> Iterator[tuple[int, str, Desk]]:
    """One run for each boundary that there is."""
    fatal = 0
    while True:
        fatal += 1
        desk, struck = a_run(fatal, downtime, lag=lag)
        if struck is None:
            assert fatal > 50, "the run passed suspiciously few boundaries"
            return
        yield fatal, struck, desk
        if fatal > 130:  # from here on the rounds repeat themselves
            return


@pytest.mark.parametrize("lag", [0.0, 90.0], ids=["at once", "slow stop"])
@pytest.mark.parametrize("downtime", [0.0, 61.0, 3600.0], ids=["no downtime", "a minute down", "an hour down"])
def test_a_power_cut_anywhere_leaves_exactly_one_stop_and_a_true_ledger(downtime: float, lag: float) -> None:
    """Before and after every call: one machine stopped once, the busy one never, all intents closed (P4, P6, P12)."""
    for fatal, struck, desk in every_cut(downtime, lag=lag):
        where = f"cut {fatal} ({struck})"
        effective = desk.fleet.stopped_while

        assert effective == [State.IDLE], f"{where}: machines were stopped while {effective}"
        assert desk.fleet.nodes_["i-1"].state is NodeState.STOPPED, where
        assert set(desk.fleet.stops()) == {"i-1"}, where
        assert desk.ledger.view(desk.clock.now()).open_intents == (), f"{where}: an intent was left open"
        entries = desk.ledger.history("i-1", limit=100)
        settled = [e for e in entries if e.intent.verb is Verb.STOP and e.outcomes[-1].status is Status.SETTLED]
        assert len(settled) == 1, f"{where}: {[(e.intent.verb, [o.status for o in e.outcomes]) for e in entries]}"
        keys = {entry.intent.key for entry in entries}
        assert {key for _, _, key in desk.fleet.calls} <= keys, f"{where}: a call without a ledger record"


def test_work_that_began_during_the_downtime_is_safe(tmp_path: Path) -> None:
    """Cut right after the intent to stop; the machine is busy when the controller is back: it stays up (P2)."""
    path = tmp_path / "work.db"
    desk = Desk(ledger=Ledger.open(path))
    desk.fleet.put(a_node("i-1"))
    for _ in range(10):
        desk.round()
    seen: list[str] = []

    def die_at_the_stop(where: str) -> None:
        seen.append(where)
        if where == "before stop":
            raise PowerCut

    parts = replace(desk.parts, cloud=Mortal(desk.fleet, die_at_the_stop))  # type: ignore[arg-type]
    with pytest.raises(PowerCut):
        step(parts)
    desk.fleet.show("i-1", State.BUSY)
    for _ in range(20):
        desk.round()

    assert desk.fleet.stops() == []
    assert desk.fleet.nodes_["i-1"].state is NodeState.RUNNING
    assert desk.ledger.view(desk.clock.now()).open_intents == ()
    desk.ledger.close()
