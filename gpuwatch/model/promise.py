"""What a notice promises, and when the controller did nothing since.

A promise is made once, with the intent of its notice, and kept in that intent's arguments: the tags, the messages and
the guard all read it from there. It never changes; something else takes a new notice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Literal

from gpuwatch.model.kubernetes import Target

# Those of machines are stop and terminate; those of a cluster's workloads, as their people have annotated them, also
# scale-to-zero and delete.
Action = Literal["stop", "terminate", "scale-to-zero", "delete"]
_ACTIONS: dict[str, Action] = {each: each for each in ("stop", "terminate", "scale-to-zero", "delete")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What the notice promised to the owner of a node, or of a workload.

    It gets `action`, under the rules of `pool`, not before `stop_at`, and not before `grace_seconds` have passed
    since the notice. `approval`: not before an operator approves it. `heard`: not before a message has reached
    somebody, and the grace counts from then. `delivery_seconds`: the grace counts from the first message that reached
    somebody, and where none has after so long, from then (None: from the notice). `idle_seconds` is what its agent had
    counted by then; None: it is stopped. `owner` is the owner of then; "": it had none, None: not on record.
    """

    action: Action
    pool: str
    stop_at: datetime
    grace_seconds: float
    idle_seconds: float | None = None
    approval: bool = False
    heard: bool = False
    delivery_seconds: float | None = None
    owner: str | None = None

    def due(self, given_at: datetime) -> datetime:
        """The promised time of a notice that was given at `given_at`: a late one leaves no less of the grace."""
        return max(self.stop_at, given_at + timedelta(seconds=self.grace_seconds))


def arguments_of(  # noqa: PLR0913  all that a notice says
    action: str,
    *,
    grace_seconds: float,
    idle_seconds: float | None,
    at: datetime,
    approval: bool,
    heard: bool,
    delivery_seconds: float | None = None,
    owner: str | None = None,
) -> dict[str, str]:
    """A promise that is made at `at`, as an intent keeps it."""
    arguments = {
        "action": action,
        "stop_at": f"{(at + timedelta(seconds=grace_seconds)).astimezone(UTC).replace(tzinfo=None).isoformat()}Z",
        "grace_seconds": repr(grace_seconds),
        "approval": str(approval).lower(),
        "heard": str(heard).lower(),
    }
    if delivery_seconds is not None:
        arguments["delivery_seconds"] = repr(delivery_seconds)
    if owner is not None:
        arguments["owner"] = owner
    return arguments if idle_seconds is None else {**arguments, "idle_seconds": repr(idle_seconds)}


def promise_of(pool: str, arguments: Mapping[str, str]) -> Promise | None:
    """The promise that an intent keeps; None: it keeps no readable one, as those of earlier versions."""
    try:
        idle, stop_at, grace = arguments.get("idle_seconds"), arguments["stop_at"], float(arguments["grace_seconds"])
        waits = arguments.get("delivery_seconds")
        waits_seconds = None if waits is None else float(waits)
        if not isfinite(grace) or datetime.fromisoformat(stop_at).tzinfo is None or not isfinite(waits_seconds or 0.0):
            return None
        return Promise(
            action=_ACTIONS[arguments["action"]],
            pool=pool,
            stop_at=datetime.fromisoformat(stop_at),
            grace_seconds=grace,
            idle_seconds=None if idle is None else float(idle),
            approval=arguments["approval"] != "false",
            heard=arguments["heard"] != "false",
            delivery_seconds=waits_seconds,
            owner=arguments.get("owner"),
        )
    except (KeyError, ValueError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """A time in which the controller did nothing about a node; `until` None: it still lasts."""

    why: Literal["paused", "observed", "away"]
    since: datetime
    until: datetime | None = None

    @property
    def seconds(self) -> float:
        """How long it was; without an end, without bound."""
        return float("inf") if self.until is None else (self.until - self.since).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A notice in force: given at, by which intent, and when a message about it first reached somebody (None: not).

    `promise` is what it said (None: not known); `interruptions` are the times since then in which nothing was done.
    `why` is its reason, `target` the object of a cluster that it is about (None: it is about a machine).
    """

    node_id: str
    key: str
    at: datetime
    told_at: datetime | None = None
    promise: Promise | None = None
    interruptions: tuple[Interruption, ...] = ()
    why: str = ""
    target: Target | None = None
