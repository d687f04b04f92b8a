"""PURE: orders that people gave to the controllers, each a record of the ledger."""

from dataclasses import dataclass
from datetime import datetime

ITSELF = "gpuwatch"  # who pauses where no person does: a controller that doubts its ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Somebody's order to do nothing: to a pool, or to all (`pool` None), until a time, or until it is taken back."""

    pool: str | None
    at: datetime
    who: str
    reason: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snooze:
    """Somebody's wish that a node or a workload be left alone until then: a snooze, up to the pool's max_snooze.

    Of each the newest counts; one that ends when it is said takes those before it back. `node_id` is the id of a
    machine, or of a workload of a cluster, such as kube:prod/team-a/Notebook/alice.
    """

    node_id: str
    at: datetime
    until: datetime
    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """An operator's approval of a removal as its notice says; `key` is that notice's, and approves no other."""

    node_id: str
    key: str
    at: datetime
    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """An operator's confirmation that a sudden mass idleness up to `at` is real; pool null: of all."""

    pool: str | None
    at: datetime
    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestRecord:
    """A backtest on record: who tried which rules of a pool when, over what (`source`, in words), and the outcome.

    `rules` is their fingerprint. `stops` and `suspected_wrong_stops` are of the whole history, `wrongly_stopped` and
    `violations` of the part that the real controller played. `failure` says why it did not pass; None: it passed.
    """

    pool: str
    at: datetime
    who: str
    rules: str
    source: str
    node_hours: float
    stops: int
    suspected_wrong_stops: int
    checked_node_hours: float
    checked_stops: int
    wrongly_stopped: int
    violations: int
    saved_ratio: float | None
    failure: str | None = None
