"""PURE: what is launched or started and does not last rests its source, whatever pool it was for.

Rules, all of them:

1. A source is what a launch asks for: template, version, type, place, how it is paid for. Pools, subnets and the names
   of offers do not tell sources apart. The source of a start is its machine, that of a member is its group.
2. A machine did not last if it ended, stopped or was taken by itself within an hour after it became a node, or without
   ever having had work; or if its agent has not answered once in its first twenty minutes, and since. The silence of
   a member says nothing: a group may be made larger for nodes without an agent.
3. Three of a source in a row did not last: it rests, an hour after the last of them, doubled each time, a day at
   most; spot that its cloud takes four hours at most. While it rests other offers are asked.
4. Then one machine is launched, and no other before it has lasted for an hour. One that has, and has had work, ends the
   count.
5. An order to resume a pool by its name ends the count for the pool's machines of before.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuwatch.model.decision import LAUNCHED_AT, Observation
from gpuwatch.model.duration import backoff_seconds, format_duration, format_time
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.life import STARTED, WOKEN_FOR, End, Life
from gpuwatch.policies.spot.records import CAPACITY, OFFER, SPOT

Source = frozenset[tuple[str, str]]

LASTING = timedelta(hours=1)
SILENT = timedelta(minutes=20)
FEW = 3
_FIRST, _LONGEST, _LONGEST_OF_SPOT = 3600.0, 86400.0, 14400.0
_NO_SOURCE = frozenset({"pool", "subnet", OFFER, LAUNCHED_AT, WOKEN_FOR})
_FELL_BACK = "fell back to stopped"
# The codes of what people are told of a source that rests: a machine's starts; launches, or the growth of a group.
STARTS, LAUNCHES = "starts_do_not_last", "launches_do_not_last"
_HOW = {
    End.STOPPED: "stopped by itself",
    End.ENDED: "ended by itself",
    End.TAKEN: "was taken by its cloud",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Why nothing is launched from a source until then: its newest machines, all of which did not last."""

    until: datetime
    failed: Sequence[Life]
    tried: Life | None  # the one that is to show whether it lasts

    @property
    def sentence(self) -> str:
        """How the newest of them failed, and when the next may come."""
        last = self.failed[-1]
        how = "never answered" if last.end is None else _FELL_BACK if last.fell_back else _HOW[last.end]
        after = "" if last.lasted is None else f" after {format_duration(last.lasted.total_seconds())}"
        after += "" if not after or last.started or last.member else " as a node"
        after += "" if last.why is None else f" ({last.why})"
        what = "members of the group" if last.member else "machines that were launched so"
        what = f"starts of {last.node_id}" if last.started else what
        who = "it" if last.started else last.node_id
        said = f"The last {len(self.failed)} {what} did not last; {who} {how}{after}"
        if self.tried is not None:
            return f"{said}. The next waits until {self.tried.node_id or self.tried.key} has lasted for an hour"
        return f"{said}. The next may come at {format_time(self.until)}"


def source_of(asked: Mapping[str, str]) -> Source:
    """What of a launch says where its machine comes from (rule 1)."""
    return frozenset((name, value) for name, value in asked.items() if name not in _NO_SOURCE)


def rest_of(observation: Observation, asked: Mapping[str, str]) -> Rest | None:
    """Why nothing may be launched that asks for this, now; None: it may."""
    lives = _lives_by_source(observation).get(source_of(asked), ())
    return _rest(observation, lives, spot=asked.get(CAPACITY) == SPOT)


def on_trial(observation: Observation, asked: Mapping[str, str]) -> bool:
    """Whether one machine of that source is to show first that it lasts (rule 4)."""
    lives = _lives_by_source(observation).get(source_of(asked), ())
    return len(_failed_machines(observation, lives)[0]) >= FEW


def rest_of_group(observation: Observation, group_id: str) -> Rest | None:
    """Why a group is not to be made larger now; None: nothing is known against it."""
    members = observation.members.get(group_id)
    return None if members is None else _rest(observation, members, spot=False)


def group_on_trial(observation: Observation, group_id: str) -> bool:
    """Whether one new member of a group is to show first that it lasts (rule 4)."""
    return len(_failed_machines(observation, observation.members.get(group_id, ()))[0]) >= FEW


def resting_starts(observation: Observation, pool: str) -> dict[str, Rest]:
    """Why stopped machines of the pool are not to be started now, by their ids."""
    found = defaultdict[str, list[Life]](list)
    for each in observation.lives:
        if each.started and each.pool == pool:
            found[each.asked[STARTED]].append(each)
    down = {node.id for node in observation.fleet.roster(pool).nodes if node.state is NodeState.STOPPED}
    few = {node_id: lives for node_id, lives in found.items() if len(lives) >= FEW and node_id in down}
    rests = {node_id: _rest(observation, lives, spot=False) for node_id, lives in few.items()}
    return {node_id: rest for node_id, rest in rests.items() if rest is not None}


def failures_in_a_row(observation: Observation, pool: str) -> int:
    """How many of the newest machines of a source of the pool did not last, in a row: the most of any source."""
    sources = [*_by_source(observation, pool), *_of_groups(observation, pool).values()]
    return max((len(_failed_machines(observation, lives)[0]) for lives in sources), default=0)


def rest_sentences(observation: Observation, pool: str) -> Iterator[str]:
    """Yield a sentence on each source of the pool that rests."""
    for lives in _by_source(observation, pool):
        asked = lives[-1].asked
        rest = None if STARTED in asked else _rest(observation, lives, spot=asked.get(CAPACITY) == SPOT)
        if rest is not None:
            said = f"Nothing is launched from {_launch_words(asked)}. {rest.sentence}"
            yield f"{said}; `gpuwatch resume --pool {pool}` tries at once."
    for group_id in _of_groups(observation, pool):
        group, rest = observation.fleet.group(group_id), rest_of_group(observation, group_id)
        if group is not None and rest is not None:
            what = f"The group {group.name} is not made larger for a time."
            yield f"{what} {rest.sentence}; `gpuwatch resume --pool {pool}` tries at once."
    if rests := resting_starts(observation, pool):
        count, first = len(rests), min(rests.values(), key=lambda each: (each.until, each.failed[-1].key))
        what = "One stopped node is" if count == 1 else f"{count} stopped nodes are"
        yield f"{what} not started for a time. {first.sentence}; `gpuwatch resume --pool {pool}` tries at once."


def resting_sources(observation: Observation) -> Iterator[tuple[Source, str, Rest]]:
    """Yield each source that rests, what is not done with it for a time, and why."""
    for source, lives in _lives_by_source(observation).items():
        asked = lives[-1].asked
        node = observation.fleet.find(asked[STARTED]) if STARTED in asked else None
        if len(lives) >= FEW and (STARTED not in asked or (node is not None and node.state is NodeState.STOPPED)):
            rest = _rest(observation, lives, spot=asked.get(CAPACITY) == SPOT)
            if rest is not None:
                yield (
                    source,
                    "It is not started" if STARTED in asked else f"Nothing is launched from {_launch_words(asked)}",
                    rest,
                )
    for group_id in observation.members:
        group, rest = observation.fleet.group(group_id), rest_of_group(observation, group_id)
        if group is not None and rest is not None:
            yield source_of(rest.failed[-1].asked), f"The group {group.name} is not made larger", rest


def _launch_words(asked: Mapping[str, str]) -> str:
    """What a launch is from, in words."""
    return f"the offer {asked[OFFER]}" if OFFER in asked else f"the template {asked.get('template', '')}"


def _of_groups(observation: Observation, pool: str) -> dict[str, tuple[Life, ...]]:
    """The members of each group of a pool."""
    groups = observation.fleet.roster(pool).groups if observation.members else ()
    return {group.id: observation.members[group.id] for group in groups if group.id in observation.members}


def _by_source(observation: Observation, pool: str) -> list[list[Life]]:
    """The machines of each source of a pool, those of other pools included."""
    return [lives for lives in _lives_by_source(observation).values() if any(each.pool == pool for each in lives)]


def _lives_by_source(observation: Observation) -> Mapping[Source, list[Life]]:
    """The lives of each source, sorted once for each observation."""
    found = observation.counts.sources
    if observation.lives and not found:
        for each in observation.lives:
            found.setdefault(source_of(each.asked), []).append(each)
    return found


def _rest(observation: Observation, lives: Sequence[Life], *, spot: bool) -> Rest | None:
    """Rules 3 and 4."""
    failed, tried = _failed_machines(observation, lives)
    if len(failed) < FEW:
        return None
    if tried is not None:
        return Rest(until=tried.at + LASTING, failed=failed, tried=tried)
    ends = {End.TAKEN, End.ENDED} if spot else {End.TAKEN}
    longest = _LONGEST_OF_SPOT if all(each.end in ends for each in failed) else _LONGEST
    rest = timedelta(seconds=backoff_seconds(len(failed) - FEW + 1, first=_FIRST, longest=longest))
    since = max(each.ended_at or min(each.at + SILENT, observation.now) for each in failed)
    return Rest(until=since + rest, failed=failed, tried=None) if observation.now < since + rest else None


def _failed_machines(observation: Observation, lives: Sequence[Life]) -> tuple[list[Life], Life | None]:
    """The newest machines that did not last, up to the newest one that did; and one of which nobody knows yet."""
    resumed = dict[str, datetime]()
    for pool, at in observation.ledger.resume_orders:
        if pool is not None:
            resumed[pool] = max(at, resumed.get(pool, at))
    failed: list[Life] = []
    tried: Life | None = None
    for life in sorted(lives, key=lambda each: (each.at, each.key), reverse=True):
        if life.pool in resumed and life.at <= resumed[life.pool]:
            continue
        lasted = _has_lasted(observation, life)
        if lasted:
            break
        if lasted is None:
            tried = tried or (life if life.end is None and observation.now - life.at < LASTING else None)
        else:
            failed.insert(0, life)
    return failed, tried


def _has_lasted(observation: Observation, life: Life) -> bool | None:
    """Whether a machine was of use (rule 2); None: nobody knows yet, or gpuwatch removed it."""
    if life.end is End.REMOVED:
        return True if life.worked else None
    if life.lasted is not None:
        return life.lasted >= LASTING and life.worked is not False
    node, age = observation.fleet.find(life.node_id or ""), observation.now - life.at
    if node is None or node.state is not NodeState.RUNNING:
        return None
    if not life.answered and node.verdict is None and not life.member:
        return False if age >= SILENT else None
    return True if age >= LASTING and life.worked is not False else None
