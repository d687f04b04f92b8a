"""Pure: a message in words: one subject, one opening, an item for each node, and what to do about it.

The forms for mail, Slack and plain text are made of these alone. Between backticks stands what is typed.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from gpuwatch.model.decision import Verb
from gpuwatch.notify import workload_text
from gpuwatch.notify.message import Line, Message
from gpuwatch.notify.wording import Item, Wording, short, usd, when

_WILL = {Verb.STOP: "stop", Verb.TERMINATE: "terminate", None: "stop or terminate"}
_DID = {Verb.STOP: "stopped", Verb.TERMINATE: "terminated", None: "stopped or terminated"}
_HOURS_A_DAY = 24
_LATER = timedelta(hours=4)


def worded(message: Message, most: int) -> Wording:
    """In words, with so many nodes or workloads at most; the rest are counted."""
    if message.workloads:
        return workload_text.worded(message, most)
    left = len(message.lines) - most
    title, hints = _HINTS[message.kind](message)
    return Wording(
        subject=_subject(message),
        opening=_opening(message),
        items=tuple(
            Item(head=_head(line), facts=tuple(_facts(line, message)), links=_links(line))
            for line in message.lines[:most]
        ),
        more=f"… and {left} more: `gpuwatch status` and the page list all." if left > 0 else None,
        hints_title=title,
        hints=hints,
        footer=f"Sent by gpuwatch, fleet {message.fleet}, {when(message.made_at, message.zone)}.",
        page=message.page,
    )


def _who(line: Line) -> str:
    return f"{line.name} ({line.node_id})" if line.name and line.name != line.node_id else line.node_id


def _whom(message: Message) -> str:
    lines = message.lines
    return _who(lines[0]) if len(lines) == 1 else f"{len(lines)} nodes"


def _will(message: Message) -> str:
    verbs = {line.verb for line in message.lines}
    return _WILL[verbs.pop() if len(verbs) == 1 else None]


def _did(message: Message) -> str:
    verbs = {line.verb for line in message.lines}
    return _DID[verbs.pop() if len(verbs) == 1 else None]


def _first_due(message: Message, write: Callable[[datetime, ZoneInfo], str]) -> str:
    dues = sorted({line.due for line in message.lines if line.due is not None})
    if not dues:
        return "soon"
    first = write(dues[0], message.zone)
    return f"at {first}" if len(dues) == 1 else f"from {first} on"


def _subject(message: Message) -> str:
    """One line, short enough for a header that is not folded; names in it are printable already."""
    one = len(message.lines) == 1
    whom = (message.lines[0].name or message.lines[0].node_id) if one else f"{len(message.lines)} nodes"
    if message.kind == "test":
        return f"gpuwatch: test message of fleet {message.fleet}"
    if message.kind == "withdrawn":
        return f"gpuwatch: {whom} {'stays' if one else 'stay'}, the notice is withdrawn"
    if message.kind == "done":
        return f"gpuwatch {_did(message)} {whom}"
    if message.kind == "interruption":
        return f"gpuwatch: the cloud is about to take {whom}"
    return f"gpuwatch will {_will(message)} {whom} {_first_due(message, short)}"


def _opening(message: Message) -> str:
    one = len(message.lines) == 1
    if message.kind == "test":
        return (
            f"This is a test by {message.sent_by} (gpuwatch notify test). No node is stopped, nothing needs to be done."
        )
    if message.kind == "withdrawn":
        stays = "stays" if one else "stay"
        return f"{_whom(message)} {stays}: the earlier notice no longer holds, nothing needs to be done."
    if message.kind == "done":
        return f"gpuwatch {_did(message)} {_whom(message)}, as the notice said."
    if message.kind == "interruption":
        return f"The cloud is about to take {_whom(message)}. gpuwatch does not decide that and cannot prevent it."
    waits = sum(line.approval for line in message.lines)
    due = _first_due(message, when)
    opening = f"gpuwatch will {_will(message)} {_whom(message)} {due}, unless something below prevents it."
    if waits:
        whose = "it" if one else "them" if waits == len(message.lines) else f"{waits} of them"
        opening += f" An operator must approve {whose} first."
    return opening


def _head(line: Line) -> str:
    gpus = None if line.gpu_count is None else f"{line.gpu_count} GPU{'s' * (line.gpu_count != 1)}"
    parts = (
        f"pool {line.pool}",
        line.instance_type,
        gpus,
        line.region,
        None if line.usd_per_hour is None else f"{usd(line.usd_per_hour)} an hour",
        None if line.owner is None else f"owner {line.owner}",
    )
    return f"{_who(line)}: {', '.join(filter(None, parts))}"


def _facts(line: Line, message: Message) -> Iterator[tuple[str, str]]:
    if line.due is not None:
        label = "Not before" if line.approval else "When"
        yield label, f"{when(line.due, message.zone)}, to be {_DID[line.verb]}"
    elif message.kind == "done":
        yield "When", f"{when(line.at, message.zone)}, {_DID[line.verb]}"
    yield "Why", line.why
    if line.evidence:
        counts = Counter(each.says.value for each in line.evidence)
        verdicts = ", ".join(f"{count} {says}" for says, count in counts.most_common())
        count = f"{len(line.evidence)} signal{'s' * (len(line.evidence) != 1)}"
        yield "Evidence", f"{count}: {verdicts}; all of it: `gpuwatch explain {shlex.quote(line.node_id)}`"
    if line.local_disks and message.kind == "notice":
        yield "Local disks", "what is on them will be lost"
    if line.approval:
        yield "Approval", f"by an operator: `gpuwatch approve {shlex.quote(line.node_id)}`, or on the page"
    if message.kind == "done" and line.still_billed is not None:
        yield "Still billed", f"{line.still_billed}; the stop does not end its cost by the hour"
    elif message.kind == "done" and line.usd_per_hour is not None:
        yield "Saves", f"{usd(line.usd_per_hour * _HOURS_A_DAY)} a day, less what its disks cost"
    if line.start is not None:
        yield "Back", f"`{line.start}`"


def _links(line: Line) -> tuple[tuple[str, str], ...]:
    return () if line.snooze_url is None else (("Keep it", line.snooze_url),)


def _of_notice(message: Message) -> tuple[str, tuple[str, ...]]:
    awake, asleep = (any(line.asleep is there for line in message.lines) for there in (False, True))
    later = max(line.due or line.at for line in message.lines).astimezone(UTC) + _LATER
    ways = (
        "Use it: work on a GPU, or somebody at a terminal or notebook of it, withdraws this notice." if awake else None,
        "Start it: a stopped node that runs again is kept." if asleep else None,
        "Type `gpuwatch snooze 4h` on the host." if awake else None,
        "Open its link above, which asks for how long." if any(line.snooze_url for line in message.lines) else None,
        "Ask an operator to keep it on the page." if message.page else None,
        f"Set its tag `gpuwatch:snooze-until` to a later time, such as `{later:%Y-%m-%dT%H:00Z}`.",
    )
    return "What prevents it, each by itself", tuple(filter(None, ways))


def _of_done(message: Message) -> tuple[str, tuple[str, ...]]:
    if any(line.start is None and line.verb is Verb.STOP for line in message.lines):
        return "What now", ("A stopped node keeps its volumes, not its local disks: start it in the cloud's console.",)
    if any(line.verb is Verb.STOP for line in message.lines):
        return "What now", ("A stopped node keeps its volumes, not its local disks; the command above brings it back.",)
    return "What now", ("A terminated node does not come back; what was on disks that outlive it is there.",)


_OF_INTERRUPTION = (
    "Save the work now: often two minutes are left.",
    "Keep, snooze and protect hold for what gpuwatch removes, not for what the cloud takes.",
    "Where the pool still needs a node, another one is asked for at once. It has another name and other disks.",
)
_HINTS: Mapping[str, Callable[[Message], tuple[str, tuple[str, ...]]]] = {
    "notice": _of_notice,
    "done": _of_done,
    "interruption": lambda _: ("What now", _OF_INTERRUPTION),
    "withdrawn": lambda _: ("", ()),
    "test": lambda _: ("", ()),
}
