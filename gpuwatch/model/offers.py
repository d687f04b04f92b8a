"""What the ledger says of a pool's offers: the pool's own tries and losses there, and nothing of the cloud's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferPast:
    """One offer's past of the last three days.

    `refusals` is the count after the newest try, where each success takes one away; `refused_at` is when the newest
    refusal was, and `refused_since` the first since a node came from there. `losses` are nodes that ended without
    gpuwatch, `hours_up` are node-hours. `faults` are the newest tries in a row that failed for another reason than
    stock (a missing right, a broken template, no answer), `fault` is the last one's.
    """

    refusals: int = 0
    refused_at: datetime | None = None
    refused_since: datetime | None = None
    faults: int = 0
    fault_at: datetime | None = None
    fault: str = ""
    losses: int = 0
    hours_up: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffersPast:
    """The past of a pool's offers, by their names.

    `spot_refused_since` is when spot was refused first since any spot node came; None: not since then.
    """

    offers: Mapping[str, OfferPast] = field(default_factory=dict)
    spot_refused_since: datetime | None = None
