"""Orders about workloads of a cluster, by command and by the API: keep one for so long, and take that back.

They are records of the ledger. Nothing is written to the cluster, and an annotation of its people counts as before.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuwatch.controller.operations import operator_name
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.decision import Observation
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.kubernetes import SNOOZE_UNTIL
from gpuwatch.model.orders import Snooze
from gpuwatch.model.slips import nearest
from gpuwatch.model.workload_snoozes import workloads_kept
from gpuwatch.policies.kubernetes.workload_use import WorkloadUse, workloads
from gpuwatch.policies.kubernetes.workload_words import ids_of, typed_name, workload_of_id
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.printable import legible

_NAMED = 10  # workloads in a sentence


class UnknownWorkloadError(LedgerError):
    """There is no such workload, or several have this name; the sentence names those that are there."""


class SnoozeTooLongError(LedgerError):
    """The pools of the workload allow less; the sentence says how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Somebody's wish to keep something: who, why, from when on, and for how many seconds."""

    who: str
    reason: str
    at: datetime
    seconds: float


def keep_workload(ledger: Ledger, seen: Observation, rules: Rulebook, name: str, wish: Kept) -> Snooze:
    """Keep a workload that holds GPUs in a round, up to the shortest max_snooze of its pools.

    Raises:
        UnknownWorkloadError: the round has no such workload.
        SnoozeTooLongError: its pools allow less.
        LedgerError: the ledger cannot be written.

    """
    use = _held_workload(seen, name)
    pool = min(use.pools, key=lambda each: rules.pool(each).idle.max_snooze)
    most = rules.pool(pool).idle.max_snooze
    if wish.seconds > most:
        sentence = f"a workload in pool {pool} is kept for {format_duration(most)} at most (max_snooze)"
        raise SnoozeTooLongError(sentence)
    return ledger.snooze(use.id, wish.who, wish.reason, wish.at, wish.at + timedelta(seconds=wish.seconds))


def let_go(ledger: Ledger, seen: Observation, name: str, who: str, now: datetime) -> Snooze:
    """Take the snooze of a workload back, also of one that holds no GPU any more.

    Raises:
        UnknownWorkloadError: the round has no such workload, and nobody keeps one.
        LedgerError: the ledger cannot be written.

    """
    kept = workloads_kept(ledger.view(now, recent=timedelta(0)).snoozes)
    ids = {*(use.id for use in workloads(seen)), *kept}
    return ledger.snooze(_find_id(name, ids), who, "", now, now)


def snooze(settings: LedgerSettings, clock: Clock, rules: Rulebook, name: str, seconds: float, reason: str) -> Snooze:
    """The same as an order of the user of this command, by the newest round on record.

    Raises:
        LedgerError: as `keep`, or no round is on record.

    """
    with _newest(settings) as (ledger, seen):
        wish = Kept(who=operator_name(), reason=reason, at=clock.now(), seconds=seconds)
        return keep_workload(ledger, seen, rules, name, wish)


def end_snooze(settings: LedgerSettings, clock: Clock, name: str) -> Snooze:
    """Take such an order back.

    Raises:
        LedgerError: as `let_go`, or no round is on record.

    """
    with _newest(settings) as (ledger, seen):
        return let_go(ledger, seen, name, operator_name(), clock.now())


def text(given: Snooze) -> str:
    """Return a given order as text for people."""
    name = workload_of_id(given.node_id)
    about, command = (given.node_id, given.node_id) if name is None else (str(name), typed_name(name))
    if given.until <= given.at:
        said = f"No order keeps {about} any more. An annotation {SNOOZE_UNTIL} counts as before."
        return legible(said)
    said = f"{about} is kept until {format_time(given.until)}, from the next round on."
    return legible(f"{said} To end it sooner: gpuwatch snooze {command} --end")


@contextmanager
def _newest(settings: LedgerSettings) -> Iterator[tuple[Ledger, Observation]]:
    """The ledger, and what the newest round on record saw."""
    ledger = Ledger.connect(settings, controls_only=True)
    try:
        rounds = ledger.rounds(1)
        if not rounds:
            raise LedgerError("no round is on record yet: nobody knows which workloads there are")
        yield ledger, ledger.round(rounds[0].id).observation
    finally:
        ledger.close()


def _held_workload(seen: Observation, name: str) -> WorkloadUse:
    """The workload of that name."""
    uses = {use.id: use for use in workloads(seen)}
    return uses[_find_id(name, uses)]


def _with_cluster(node_id: str) -> str:
    """What people type to name it where several clusters have one of its name."""
    name = workload_of_id(node_id)
    return node_id if name is None else f"{name.cluster}/{typed_name(name)}"


def _find_id(name: str, ids: Iterable[str]) -> str:
    """The id that is meant."""
    ids = sorted(ids)
    found = ids_of(name, ids)
    if len(found) == 1:
        return found[0]
    if len({each.cluster for node_id in found if (each := workload_of_id(node_id)) is not None}) > 1:
        which = ", ".join(_with_cluster(each) for each in found[:_NAMED])
        raise UnknownWorkloadError(f"Several clusters have {name!r}. Say which: {which}.")
    there = [typed_name(each) for node_id in ids if (each := workload_of_id(node_id)) is not None]
    near = nearest(name, there)
    more = "" if len(there) <= _NAMED else f" and {len(there) - _NAMED} more"
    known = f"The nearest is {near!r}." if near else f"There are: {', '.join(there[:_NAMED]) or 'none'}{more}."
    raise UnknownWorkloadError(f"No workload that holds GPUs has the id or the unique name {name!r}. {known}")
