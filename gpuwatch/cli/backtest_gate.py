"""A pool's own rules on trial: which they are, and what the ledger keeps."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import click

from gpuwatch.cli.backtest_input import Asked
from gpuwatch.cli.base import explain_errors, print_text, settings_of

if TYPE_CHECKING:
    from gpuwatch.config.settings import Settings
    from gpuwatch.policies import PoolRules
    from gpuwatch.runtime.clock import Clock
    from gpuwatch.simulate.backtest.compare import Policy
    from gpuwatch.simulate.backtest.gaps import History
    from gpuwatch.simulate.backtest.report import Backtest

OWN = "pool"  # among the policies: the rules of --pool
_OWN_RATIO = 0.5  # of the recording's node-hours: the rest may be nodes that are gone, or the neighbours'
_ALWAYS = 2**53  # seconds since 1970, after everything
_SHOWN = 5  # names in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The rules of a pool in the configuration."""

    pool: str
    settings: "Settings"

    @property
    def rules(self) -> "PoolRules":
        """As the controller has them."""
        return self.settings.rulebook.pool(self.pool)

    @property
    def parked(self) -> Literal["idle"] | None:
        """What held memory counts as: idle where these rules remove it, so that this, too, is tried."""
        return None if self.parked_after is None else "idle"

    @property
    def parked_after(self) -> float | None:
        """For how long it counts as work before; None: these rules remove no occupied and no parked node."""
        from gpuwatch.simulate.backtest.pool_rules import owned_seconds

        return owned_seconds(self.rules)

    @property
    def policies(self) -> "tuple[Policy, ...]":
        """Return the policies that are tried."""
        from gpuwatch.simulate.backtest.verdict import policies_of

        return policies_of(self.pool, self.rules)

    def names(self) -> frozenset[str]:
        """How recordings may call the pool's nodes: ids of all that were metered; name and address of the present.

        Raises:
            LedgerError: the ledger cannot be read.

        """
        from gpuwatch.ledger import Ledger
        from gpuwatch.money.accounting.store import SpendBook

        with contextlib.closing(Ledger.connect(self.settings.ledger, read_only=True)) as ledger:
            newest = ledger.rounds(1)
            nodes = ledger.round(newest[0].id).observation.fleet.nodes if newest else ()
            metered = SpendBook(ledger).rows(0, _ALWAYS, by_node=True)
        now = (name for node in nodes if node.pool == self.pool for name in (node.id, node.name, node.address))
        before = (row.node_id for row in metered if row.terms.pool == self.pool)
        return frozenset(name for name in (*now, *before) if name)

    def keep(self, result: "Backtest", clock: "Clock", why_others: str | None = None) -> bool:
        """Record it, also while a controller runs, and report that on stderr; whether it passed.

        `why_others` is why it counts although it is of other nodes than the pool's.
        """
        from gpuwatch.controller import operations
        from gpuwatch.simulate.backtest import verdict as kept

        made = kept.record(result, self.pool, self.rules, clock.now(), operations.operator_name())
        if why_others is not None:
            made = replace(made, source=f"{made.source}, which is of other nodes than the pool's: {why_others}")
        with explain_errors():
            operations.keep_backtest(self.settings.ledger, made)
        word = "passed" if made.failure is None else f"failed: {made.failure}"
        print_text(f"Kept in {self.settings.ledger.place}: the backtest of pool {self.pool} {word}.", err=True)
        return made.failure is None


def trial_of(asked: Asked) -> Trial:
    """The rules of --pool.

    Raises:
        click.UsageError: there is no --pool, or the settings do not have it, or it never removes a node.

    """
    from gpuwatch.model.slips import meant_name
    from gpuwatch.policies.fingerprint import removes

    if asked.pool is None:
        raise click.UsageError("--pool is missing: name the pool with the rules to try")
    trial = Trial(pool=asked.pool, settings=settings_of(asked.path))
    known = trial.settings.rulebook.known
    if asked.pool not in known:
        raise click.UsageError(
            f"--pool {asked.pool!r}: the settings have no such pool. {meant_name(asked.pool, known)}"
        )
    if not removes(trial.rules):
        raise click.UsageError(f"the rules of pool {asked.pool!r} never remove a node; there is nothing to try")
    return trial


def may_be_kept(trial: Trial, asked: Asked, regret: float, check_hours: float | None) -> None:
    """Say before the work if what comes of it could not be kept.

    Raises:
        click.UsageError: it would be measured otherwise than what passes is, or not be played at all.

    """
    from gpuwatch.ledger import Ledger
    from gpuwatch.model.duration import format_duration
    from gpuwatch.policies.idle_timeout.break_even import REGRET_SECONDS

    if regret != REGRET_SECONDS:
        raise click.UsageError(f"--keep goes by --regret {format_duration(REGRET_SECONDS)}; leave it out")
    if check_hours == 0:
        raise click.UsageError("--keep needs a check; expected --check-hours above 0, or none")
    if asked.parked == "busy" and trial.parked is not None:
        raise click.UsageError(f"pool {trial.pool!r} removes nodes that hold memory; expected --parked idle")
    with explain_errors():
        Ledger.connect(trial.settings.ledger, controls_only=True).close()


def others_of(trial: Trial, asked: Asked, history: "History") -> str | None:
    """Why what comes of a history says nothing about the pool: it is mostly of other nodes. None: it is the pool's.

    The pool's own ledger and the controller's own Prometheus have chosen the pool's nodes themselves.

    Raises:
        LedgerError: the ledger, which knows the pool's nodes, cannot be read.

    """
    if asked.of_the_controller:
        return None
    known = trial.names()
    seconds = history.node_seconds
    own = sum(each for name, each in seconds.items() if name in known)
    if own > 0 and own >= _OWN_RATIO * sum(seconds.values()):
        return None
    there = sum(name in known for name in seconds)
    return (
        f"{there} of the {len(seconds)} nodes of the recording ({_some(seconds)}) are known as nodes of pool "
        f"{trial.pool!r} ({_some(known)}), and a backtest counts for the nodes that it was tried on. Expected: the "
        "pool's own nodes, by id, name or address, for at least half of the node-hours (--ledger has them), or "
        "--other-nodes REASON, which is recorded with your name"
    )


def _some(names: Iterable[str]) -> str:
    """A few of the names, for people."""
    names = sorted(names)
    return (", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")) or "none is on record yet"
