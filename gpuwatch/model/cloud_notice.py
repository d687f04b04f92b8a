"""What a cloud says about the end of a machine, and for how long that counts. Times are aware UTC.

Rules, all of them:

1. A notice that the machine will be taken (spot, a deletion, the end of its host) counts from an hour before its
   deadline to ten minutes after it. One without a deadline counts from its first sight.
2. Advice (rebalance), and maintenance after which the same machine goes on (a reboot, a pause, a move), take nothing.
3. What the agent and the cloud's lists say now counts. While one of them gives no answer, the newest record holds, but
   for what the agent itself has said and takes back: the lists of some clouds never say anything.
4. A machine that is still there ten minutes after its deadline counts as every other one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gpuwatch.model.bounds import BoundedText, time_on_record
from gpuwatch.model.readable import legible

# A notice of more than this ahead changes nothing yet: a replacement that waits for days costs as much as the machine.
LEAD = timedelta(hours=1)
AFTER = timedelta(minutes=10)  # clouds take machines later than they say, and lists show it later
# For so long records are read: a deadline that moves is written down again.
ON_RECORD = timedelta(hours=3)
_MOST = 16  # notices of one machine

# Parts of clouds' words for what ends a machine: EC2's instance-stop and instance-retirement, Google's
# terminate_on_host_maintenance, Azure's Terminate and Preempt.
_ENDS = ("stop", "retire", "terminat", "preempt", "release", "delet", "hibernat")
# The arguments of a record.
KIND, ACTION, DEADLINE, SEEN, CHECKPOINT = "kind", "action", "deadline", "seen", "checkpoint"
BY, BY_AGENT = "by", "agent"  # who said it, where that was the agent
SINCE, GPUS, STATE, LOST_GPU_SECONDS = "since", "gpus", "state", "lost_gpu_seconds"


class NoticeKind(StrEnum):
    """The kinds of notices of a cloud."""

    SPOT_INTERRUPTION = "spot_interruption"  # the cloud wants the machine back
    REBALANCE = "rebalance"  # it may soon want it back
    MAINTENANCE = "maintenance"  # it will be stopped, rebooted, moved or paused
    TERMINATION = "termination"  # its owner has it deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudNotice:
    """One announcement of a cloud about one machine, as its agent reports it.

    `kind` is one of NoticeKind, or a word of a later agent, which takes nothing. `action` is the cloud's own word.
    `deadline` is when it begins; None: the cloud names no time. `seen_at` is its first sight. `checkpoint_at` is when
    the work on the machine was saved last, as the program says that runs at a notice; None: it says nothing.
    """

    kind: BoundedText
    action: BoundedText
    deadline: datetime | None
    seen_at: datetime
    checkpoint_at: datetime | None = None

    @property
    def at(self) -> datetime:
        """When the machine is taken, as far as anybody says."""
        return self.seen_at if self.deadline is None else self.deadline

    @property
    def ends(self) -> bool:
        """Whether the machine is gone after it (rule 2)."""
        if self.kind in {NoticeKind.SPOT_INTERRUPTION, NoticeKind.TERMINATION}:
            return True
        return self.kind == NoticeKind.MAINTENANCE and any(word in self.action.lower() for word in _ENDS)

    def takes(self, now: datetime) -> bool:
        """Whether the machine is no capacity any more (rule 1)."""
        return self.ends and self.at - LEAD <= now <= self.at + AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """A notice as the ledger has it: of which node, by which record; neither over nor taken back there.

    `launched_at` is the machine's launch time then: with another one it is another life. `offer` is the pool's
    offer that it is from, where the pool has offers.
    """

    node_id: str
    key: str
    pool: str
    at: datetime
    notice: CloudNotice
    arguments: Mapping[str, str]

    @property
    def since(self) -> datetime:
        """When it was written down first; later records say that its deadline moved, or that the work was saved."""
        return time_on_record(self.arguments.get(SINCE)) or self.at

    @property
    def offer(self) -> str | None:
        """The pool's offer that the machine is from."""
        return self.arguments.get("offer")


def standing(
    reported: tuple[CloudNotice, ...] | None,
    announced: tuple[CloudNotice, ...] | None,
    recorded: CloudNotice | None,
    now: datetime,
    *,
    by_agent: bool = False,
) -> CloudNotice | None:
    """The notice by which a machine is no capacity now; None: it is.

    `reported` is by its agent, and `announced` by its cloud's lists; either is None where there was no answer, or never
    is one. `by_agent`: it was the agent that said what is recorded.
    """
    known = list((reported or ())[:_MOST])
    # Of one kind the agent knows more: when the work was saved.
    known += [each for each in (announced or ())[:_MOST] if each.kind not in {of.kind for of in reported or ()}]
    doubt = reported is None or (announced is None and not by_agent)
    if recorded is not None and doubt and all(each.kind != recorded.kind for each in known):
        known.append(recorded)
    return min((each for each in known if each.takes(now)), key=lambda each: each.at, default=None)


def arguments_of(notice: CloudNotice) -> dict[str, str]:
    """The notice as a record keeps it."""
    words = {KIND: legible(notice.kind), ACTION: legible(notice.action), SEEN: notice.seen_at.isoformat()}
    times = {DEADLINE: notice.deadline, CHECKPOINT: notice.checkpoint_at}
    return words | {name: at.isoformat() for name, at in times.items() if at is not None}


def notice_of(arguments: Mapping[str, str]) -> CloudNotice | None:
    """The notice that a record keeps; None: it keeps no readable one."""
    times = {each: time_on_record(arguments.get(each)) for each in (DEADLINE, SEEN, CHECKPOINT)}
    seen_at = times[SEEN]
    if seen_at is None or not {KIND, ACTION} <= arguments.keys():
        return None
    if any(at is None and each in arguments for each, at in times.items()):
        return None
    return CloudNotice(
        kind=arguments[KIND],
        action=arguments[ACTION],
        deadline=times[DEADLINE],
        seen_at=seen_at,
        checkpoint_at=times[CHECKPOINT],
    )
