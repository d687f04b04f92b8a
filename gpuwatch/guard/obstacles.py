"""What can hold a machine's money back, in the order in which one of several counts: each rule names its own.

The first ones are those that a person has to deal with first, or that cannot be dealt with at all. The last ones hold a
whole pool or fleet at once: a machine counts under them only if nothing else holds it. So the money under `observe` is
what `mode: enforce` would save alone. What people read of each is in `money/blocked/obstacles.py`.
"""

from enum import Enum, StrEnum, auto


class Obstacle(StrEnum):
    """What holds a machine back. The first that applies counts its money; the others are listed with it."""

    PAID_ANYWAY = "paid_anyway"
    NOT_ENROLLED = "not_enrolled"
    GROUP_WITHOUT_CONSENT = "group_without_consent"
    OTHER_SYSTEM = "other_system"
    UNKNOWN_POOL = "unknown_pool"
    OTHER_CLOUD = "other_cloud"
    PROTECTED = "protected"
    STILL_BILLED = "still_billed"
    CANNOT_STOP = "cannot_stop"
    NO_POWER = "no_power"
    MAY_NOT_START = "may_not_start"
    SCALE_IN_PROTECTION = "scale_in_protection"
    GROUP_MEMBER = "group_member"
    GROUP_SIZE = "group_size"
    IDLE_REPORT = "idle_report"
    OCCUPIED = "occupied"
    PARKED = "parked"
    STALLED = "stalled"
    LOCAL_DISKS = "local_disks"
    LOW_COVERAGE = "low_coverage"
    NO_PRICE = "no_price"
    DEMAND = "demand"
    FLOOR = "floor"
    SNOOZED = "snoozed"
    LEFT_ALONE = "left_alone"
    OTHER_LEDGER = "other_ledger"
    MASS_IDLENESS = "mass_idleness"
    GIVEN_UP = "given_up"
    NOT_NOTIFIED = "not_notified"
    APPROVAL = "approval"
    LIMITS = "limits"
    NO_BACKTEST = "no_backtest"
    PAUSED = "paused"
    OBSERVE = "observe"
    # Of machines that may be in use: their money is never called blocked.
    NO_AGENT = "no_agent"
    UNKNOWN_USE = "unknown_use"
    GPUS_MISSING = "gpus_missing"
    DOUBTFUL_VERDICT = "doubtful_verdict"
    NO_EVIDENCE = "no_evidence"


RANK = {each: rank for rank, each in enumerate(Obstacle)}
IN_DOUBT = frozenset(
    {
        Obstacle.NO_AGENT,
        Obstacle.UNKNOWN_USE,
        Obstacle.GPUS_MISSING,
        Obstacle.DOUBTFUL_VERDICT,
        Obstacle.NO_EVIDENCE,
    }
)


class Holds(Enum):
    """When a rule's objection is its obstacle."""

    ALWAYS = auto()  # whenever it objects: without an act of somebody it would object to the removal, too
    WHEN_DUE = auto()  # in the round that would remove the machine, and not before
    BY_FACTS = auto()  # `money/blocked/sorting.py` looks closer: some of its objections pass, or are another obstacle
