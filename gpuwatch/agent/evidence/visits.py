"""PURE: who has logged in from another machine and left again, and for how long they may come back.

A scheduler elsewhere, a copy each twenty minutes and a script on a laptop leave no trace on this machine in between.
Rules, all of them; times are of the monotonic clock:

1. A visit is a login over the network, by its user. Who comes back within five minutes has not left.
2. A login without a terminal is a program's (a copy, a command): it may come back for an hour.
3. Who has come several times within four hours may come back for twice the longest time between two visits: a program
   for four hours at most. A person who closes the terminal leaves on purpose, and is expected for an hour at most.
4. A login that no agent has seen may be of any rhythm: somebody may come back for four hours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gpuwatch.model.bounds import BoundedFloat

_SAME_VISIT_SECONDS = 300.0
_HOUR = 3600.0
LONGEST_SECONDS = 4 * _HOUR
_TIMES_LONGEST = 2.0
MOST_USERS = 64
MOST_VISITS = int(LONGEST_SECONDS / _SAME_VISIT_SECONDS) + 2  # of a user


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """One user: when the visits of the last hours began, and when the user was here last; "": nobody knows who."""

    user: str
    began: tuple[BoundedFloat, ...]
    seen_at: BoundedFloat
    program: bool = False  # no terminal in any login of its last visit

    def stays_away_for(self, at: float) -> float:
        """For how long the user has not been here."""
        return at - self.seen_at

    @property
    def comes_back_within(self) -> float:
        """For how long after a visit the user is expected again."""
        if not self.user:
            return LONGEST_SECONDS
        gaps = [later - earlier for earlier, later in zip(self.began, self.began[1:], strict=False)]
        longest, least = (LONGEST_SECONDS, _HOUR) if self.program else (_HOUR, 0.0)
        return min(longest, max(least, _TIMES_LONGEST * max(gaps, default=0.0)))

    def later_by(self, seconds: float) -> "Visitor":
        """The same on a clock that shows so much more."""
        began = tuple(round(each + seconds, 1) for each in self.began)
        return replace(self, began=began, seen_at=round(self.seen_at + seconds, 1))


class Visits:
    """Follows the logins from look to look; one thread does, and others may read."""

    def __init__(self) -> None:
        """Nobody has come yet."""
        self._visitors: Mapping[str, Visitor] = {}  # never changed, but replaced
        self.news = 0  # how often somebody came
        self.looked_at: float | None = None

    @property
    def visitors(self) -> tuple[Visitor, ...]:
        """Who has come in the last hours."""
        return tuple(self._visitors.values())

    def take_up(self, visitors: Iterable[Visitor]) -> None:
        """Go on with what an earlier agent saw."""
        self._visitors = {each.user: each for each in visitors}

    def note_unseen(self, at: float) -> None:
        """Take that somebody was here then, and no agent saw who."""
        self.news += 1
        self._visitors = {**self._visitors, "": Visitor(user="", began=(at,), seen_at=at, program=True)}

    def note(self, here: Mapping[str, bool], at: float) -> None:
        """Take who is here from another machine, and whether none of their logins has a terminal."""
        self.looked_at = at
        visitors = dict(self._visitors)
        for user, program in here.items():
            known = visitors.pop(user, None)
            if known is None or at - known.seen_at > _SAME_VISIT_SECONDS:
                began = (*(() if known is None else known.began), at)
                known = Visitor(user=user, began=began, seen_at=at, program=program)
                self.news += 1
            began = tuple(each for each in known.began if at - each <= LONGEST_SECONDS or each == known.began[-1])
            visitors[user] = replace(known, began=began, seen_at=at, program=known.program and program)
        newest = [each for each in visitors.values() if each.stays_away_for(at) <= LONGEST_SECONDS][-MOST_USERS:]
        self._visitors = {each.user: each for each in newest}

    def find_expected(self, at: float) -> Visitor | None:
        """Who has left and may come back, the one who left last; None: nobody."""
        may = [each for each in self._visitors.values() if each.stays_away_for(at) < each.comes_back_within]
        return max(may, key=lambda each: each.seen_at, default=None)
