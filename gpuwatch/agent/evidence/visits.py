"""PURE: who has logged in from another machine and left again, and for how long they may come back.

A scheduler elsewhere, a copy each twenty minutes and a script on a laptop leave no trace on this machine in between.
Rules, all of them; times are of the monotonic clock:

1. A visit is a login over the network, by its user. Who comes back within five minutes has not left.
2. A login without a terminal is a program's (a copy, a command): it may come back for an hour.
3. Who has come several times within four hours may come back for twice the longest time between two visits: a program
   for four hours at most. A person who closes the terminal leaves on purpose, and is expected for an hour at most.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

_SAME_VISIT_SECONDS = 300.0
_HOUR = 3600.0
_LONGEST_SECONDS = 4 * _HOUR
_TIMES_LONGEST = 2.0
_MOST_USERS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """One user: when the visits of the last hours began, and when the user was here last."""

    user: str
    began: tuple[float, ...]
    seen_at: float
    program: bool = False  # no terminal in any login of its last visit

    def stays_away_for(self, at: float) -> float:
        """For how long the user has not been here."""
        return at - self.seen_at

    @property
    def comes_back_within(self) -> float:
        """For how long after a visit the user is expected again."""
        gaps = [later - earlier for earlier, later in zip(self.began, self.began[1:], strict=False)]
        longest, least = (_LONGEST_SECONDS, _HOUR) if self.program else (_HOUR, 0.0)
        return min(longest, max(least, _TIMES_LONGEST * max(gaps, default=0.0)))


class Visits:
    """Follows the logins from look to look."""

    def __init__(self) -> None:
        """Nobody has come yet."""
        self._visitors: dict[str, Visitor] = {}

    def note(self, here: Mapping[str, bool], at: float) -> None:
        """Take who is here from another machine, and whether none of their logins has a terminal."""
        for user, program in here.items():
            known = self._visitors.pop(user, None)
            if known is None or at - known.seen_at > _SAME_VISIT_SECONDS:
                began = (*(() if known is None else known.began), at)
                known = Visitor(user=user, began=began, seen_at=at, program=program)
            began = tuple(each for each in known.began if at - each <= _LONGEST_SECONDS or each == known.began[-1])
            self._visitors[user] = replace(known, began=began, seen_at=at, program=known.program and program)
        for user in [user for user, each in self._visitors.items() if each.stays_away_for(at) > _LONGEST_SECONDS]:
            del self._visitors[user]
        for user in list(self._visitors)[: max(0, len(self._visitors) - _MOST_USERS)]:
            del self._visitors[user]

    def find_expected(self, at: float) -> Visitor | None:
        """Who has left and may come back, the one who left last; None: nobody."""
        may = [each for each in self._visitors.values() if each.stays_away_for(at) < each.comes_back_within]
        return max(may, key=lambda each: each.seen_at, default=None)
