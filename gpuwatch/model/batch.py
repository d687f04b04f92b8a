"""What the ledger says of the work of a pool that has a deadline."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPast:
    """How far the work is. Seconds are those in which all of its nodes work.

    `done_seconds` is without what the `losses` (nodes that worked and are gone) may have taken back. `line_seconds` is
    the work that was left when half of the slack was spent; None: it is not spent, or nobody knows. `start_seconds` of
    what the losses took back are for a start that is still to come: of the nodes that have worked none is there.
    """

    done_seconds: float = 0.0
    losses: int = 0
    line_seconds: float | None = None
    start_seconds: float = 0.0
