"""Removals of ours that somebody has undone: a machine runs again, a group is as large as it was. PURE nouns."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

# The arguments of the end of a group's member: its group, and how large that was to be before. Of any removal: what was
# undone before it without any use in between, for how long its target was left alone for that, how often, and the row.
GROUP, SIZE = "group", "group_size"
REMOVED_AT, UNDONE_AT, TIMES, UNTIL = "undone_removed_at", "undone_at", "undone_times", "undone_until"
ROW = "undone_row"
# The argument of a record that a target is left alone: the removal that was undone last.
REMOVAL = "removal"
# How a stop ends that somebody undid before it was seen.
STARTED_AGAIN = "it was started again before it was seen stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """A removal that somebody undid at `at`, or the one before the newest; nothing has used its target since.

    `target` is a machine or a group, `key` the removal's. `times` is how often in a row the target was left alone for
    such removals; 0: one alone is no disagreement. `before` is when the removal before it was undone, without any use
    in between. `until` is when the target is left alone no longer, `quiet_at` when all of it is forgotten.
    `row` is how many in a row were undone so, each within a day.
    `waits` is whether the newest removal still stands. `told` is whether it is on record that it is left alone.
    """

    target: str
    pool: str
    key: str
    removed_at: datetime
    at: datetime
    times: int = 0
    row: int = 1
    before: datetime | None = None
    until: datetime | None = None
    quiet_at: datetime | None = None
    group: bool = False
    waits: bool = False
    told: bool = False

    @property
    def arguments(self) -> Mapping[str, str]:
        """What the next removal keeps."""
        found = {REMOVED_AT: self.removed_at.isoformat(), UNDONE_AT: self.at.isoformat(), TIMES: str(self.times)}
        found |= {ROW: str(self.row)}
        return found if self.until is None else {**found, UNTIL: self.until.isoformat()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The newest removal of a target that the ledger has, `at` which its call was over.

    `seen_at` is when its cloud showed it. `launched_at` is its machine's last start at that time. Of members of a
    group, `size` is what it wanted before, and `left` what is left. `before` is what was undone before it.
    """

    target: str
    pool: str
    key: str
    at: datetime
    seen_at: datetime
    launched_at: datetime | None = None
    size: int | None = None
    left: int | None = None
    before: Undone | None = None
