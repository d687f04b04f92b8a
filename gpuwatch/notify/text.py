"""Pure: a message in words: one subject, one opening, an item for each node or workload, and what to do about it.

The forms for mail, Slack and plain text are made of these alone. Between backticks stands what is typed.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from gpuwatch.model.decision import Verb
from gpuwatch.notify.message import Line, Message, WorkloadLine
from gpuwatch.notify.wording import Item, Wording, short, translate_wording, usd, when
from gpuwatch.policies.kubernetes.workload_words import deed_on_kind, how_it_returns
from gpuwatch.policies.lasting import LAUNCHES, STARTS
from gpuwatch.policies.starts import WITHHELD
from gpuwatch.policies.undone import REPEATS

_WILL = {Verb.STOP: "stop {}", Verb.TERMINATE: "terminate {}", None: "stop or terminate {}"}
_DID = {Verb.STOP: "stopped", Verb.TERMINATE: "terminated", None: "stopped or terminated"}
_HOURS_A_DAY = 24
# The codes of what is left alone without a quarrel about its stops.
_NO_QUARREL = frozenset({STARTS, LAUNCHES, WITHHELD})
_LATER = timedelta(hours=4)


def word_message(message: Message, most: int) -> Wording:
    """In words, with so many nodes or workloads at most; the rest are counted."""
    lines = _lines(message)
    left = len(lines) - most
    title, hints = (_HINTS_OF_WORKLOADS if message.workloads else _HINTS)[message.kind](message)
    wording = Wording(
        subject=_subject(message),
        opening=_opening(message),
        items=tuple(
            Item(head=_head(line), facts=tuple(_facts(line, message)), links=_links(line)) for line in lines[:most]
        ),
        more=f"… and {left} more: `gpuwatch status` and the page list all." if left > 0 else None,
        hints_title=title,
        hints=hints,
        footer=f"Sent by gpuwatch, fleet {message.fleet}, {when(message.made_at, message.zone)}.",
        page=message.page,
    )
    return translate_wording(wording, message.language)


def _lines(message: Message) -> Sequence[Line | WorkloadLine]:
    return message.workloads or message.lines


def _who(line: Line | WorkloadLine) -> str:
    if isinstance(line, WorkloadLine):
        return line.workload
    return f"{line.name} ({line.node_id})" if line.name and line.name != line.node_id else line.node_id


def _whom(message: Message) -> str:
    lines = _lines(message)
    return _who(lines[0]) if len(lines) == 1 else f"{len(lines)} {'workloads' if message.workloads else 'nodes'}"


def _will(message: Message, whom: str) -> str:
    """What gpuwatch will do to them, in words that fit each."""
    if message.workloads:
        found = {deed_on_kind(line.kind, line.how) for line in message.workloads}
        return (found.pop() if len(found) == 1 else deed_on_kind("", None)).will.format(whom)
    verbs = {line.verb for line in message.lines}
    return _WILL[verbs.pop() if len(verbs) == 1 else None].format(whom)


def _did(message: Message, whom: str) -> str:
    """What it did to them."""
    if message.workloads:
        found = {deed_on_kind(line.kind, line.how) for line in message.workloads}
        return (found.pop() if len(found) == 1 else deed_on_kind("", None)).did.format(whom)
    return f"{_words_of_deed(message)} {whom}"


def _words_of_deed(message: Message) -> str:
    verbs = {line.verb for line in message.lines}
    return _DID[verbs.pop() if len(verbs) == 1 else None]


def _is_gone(message: Message, whom: str) -> str:
    """What has become of them, where not all of it is known to be gpuwatch's doing."""
    return f"{whom} {'is' if len(message.lines) == 1 else 'are'} {_words_of_deed(message)}"


def _first_due(message: Message, write: Callable[[datetime, ZoneInfo], str]) -> str:
    dues = sorted({line.due for line in _lines(message) if line.due is not None})
    if not dues:
        return "soon"
    first = write(dues[0], message.zone)
    return f"at {first}" if len(dues) == 1 else f"from {first} on"


def _subject(message: Message) -> str:
    """One line, short enough for a header that is not folded; names in it are printable already."""
    alone = message.lines[0] if len(message.lines) == 1 else None
    whom = _whom(message) if alone is None else alone.name or alone.node_id
    if message.kind == "test":
        return f"gpuwatch: test message of fleet {message.fleet}"
    if message.kind == "withdrawn":
        return f"gpuwatch: the notice of {whom} is withdrawn"
    if message.kind == "done":
        return f"gpuwatch {_did(message, whom)}" if _is_ours(message) else f"gpuwatch: {_is_gone(message, whom)}"
    if message.kind == "interruption":
        return f"gpuwatch: the cloud is about to take {whom}"
    if message.kind == "left_alone":
        return _left_alone(message, whom)
    return f"gpuwatch will {_will(message, whom)} {_first_due(message, short)}"


def _codes(message: Message) -> set[str]:
    return {line.code for line in message.lines}


def _left_alone(message: Message, whom: str) -> str:
    """What is left alone, and why, where that is one thing."""
    codes, whose = _codes(message), "its" if len(message.lines) == 1 else "their"
    if codes == {REPEATS}:
        return f"gpuwatch: somebody undoes each stop of {whom}"
    if codes == {STARTS}:
        return f"gpuwatch does not start {whom} for a time: {whose} starts do not last"
    if codes == {WITHHELD}:
        return f"gpuwatch cannot start {whom} now"
    if codes == {LAUNCHES}:
        pools = ", ".join(sorted({line.pool for line in message.lines}))
        return f"gpuwatch: what is launched for pool {pools} does not last"
    if codes.isdisjoint(_NO_QUARREL):
        return f"gpuwatch leaves {whom} alone: somebody undoes {whose} stops"
    return f"gpuwatch leaves {whom} alone for a time"


def _of_left_alone(message: Message) -> tuple[str, tuple[str, ...]]:
    codes = _codes(message)
    quarrel = () if codes <= _NO_QUARREL else _OF_LEFT_ALONE
    rests = _OF_RESTS if codes & {STARTS, LAUNCHES} else ()
    return "What now", (*quarrel, *rests, *(_OF_WITHHELD if WITHHELD in codes else ()))


def _is_ours(message: Message) -> bool:
    return all(line.proved for line in message.lines)


def _opening(message: Message) -> str:
    if message.kind == "test":
        return (
            f"This is a test by {message.sent_by} (gpuwatch notify test). No node is stopped, nothing needs to be done."
        )
    whom, lines = _whom(message), _lines(message)
    if message.kind == "withdrawn":
        return f"The earlier notice of {whom} no longer holds: nothing follows from it, and nothing needs to be done."
    if message.kind == "done" and not _is_ours(message):
        others = [_who(line) for line in message.lines if not line.proved]
        whose = "it was its own stop" if len(lines) == 1 else f"the stop of {', '.join(others)} was its own"
        return (
            f"{_is_gone(message, whom)}. gpuwatch had announced that and asked for it, and cannot prove that {whose}: "
            "somebody, or the cloud, may have been first."
        )
    if message.kind == "done":
        return f"gpuwatch {_did(message, whom)}, as the notice said."
    if message.kind == "interruption":
        return f"The cloud is about to take {whom}. gpuwatch does not decide that and cannot prevent it."
    if message.kind == "left_alone":
        costs = " Each hour costs money." if _codes(message).isdisjoint(_NO_QUARREL) else ""
        return f"{_left_alone(message, whom)}.{costs}"
    waits = sum(line.approval for line in lines)
    opening = f"gpuwatch will {_will(message, whom)} {_first_due(message, when)}, unless something below prevents it."
    if waits:
        whose = "it" if len(lines) == 1 else "them" if waits == len(lines) else f"{waits} of them"
        opening += f" An operator must approve {whose} first."
    return opening


def _head(line: Line | WorkloadLine) -> str:
    what: tuple[str | None, ...]
    if isinstance(line, WorkloadLine):
        what = (
            f"cluster {line.cluster}",
            f"pool {line.pool}",
            _count_words(line.pods, "pod"),
            _count_words(line.gpus, "GPU"),
        )
    else:
        what = (f"pool {line.pool}", line.instance_type, _count_words(line.gpu_count, "GPU"), line.region)
    cost = None if line.usd_per_hour is None else f"{usd(line.usd_per_hour)} an hour"
    owner = None if line.owner is None else f"owner {line.owner}"
    return f"{_who(line)}: {', '.join(filter(None, (*what, cost, owner)))}"


def _count_words(count: float | None, noun: str) -> str | None:
    return None if count is None else f"{count:g} {noun}{'s' * (count != 1)}"


def _facts(line: Line | WorkloadLine, message: Message) -> Iterator[tuple[str, str]]:
    done = deed_on_kind(line.kind, line.how).done if isinstance(line, WorkloadLine) else _DID[line.verb]
    if line.due is not None:
        yield "Not before" if line.approval else "When", f"{when(line.due, message.zone)}, to be {done}"
    elif message.kind == "done":
        yield "When", f"{when(line.at, message.zone)}, {done}"
    yield "Why", line.why
    if isinstance(line, WorkloadLine):
        yield from _workload_facts(line, message)
    else:
        yield from _node_facts(line, message)


def _node_facts(line: Line, message: Message) -> Iterator[tuple[str, str]]:
    if line.evidence:
        counts = Counter(each.says.value for each in line.evidence)
        verdicts = ", ".join(f"{count} {says}" for says, count in counts.most_common())
        count = f"{len(line.evidence)} signal{'s' * (len(line.evidence) != 1)}"
        yield "Evidence", f"{count}: {verdicts}; all of it: `gpuwatch explain {shlex.quote(line.node_id)}`"
    if line.local_disks and message.kind == "notice":
        yield "Local disks", "what is on them will be lost"
    if line.approval:
        yield "Approval", f"by an operator: `gpuwatch approve {shlex.quote(line.node_id)}`, or on the page"
    if message.kind == "done" and line.before is not None:
        yield "Before it", line.before
    if message.kind == "done" and line.still_billed is not None:
        yield "Still billed", f"{line.still_billed}; the stop does not end its cost by the hour"
    elif message.kind == "done" and line.usd_per_hour is not None and line.proved:
        yield "Saves", f"{usd(line.usd_per_hour * _HOURS_A_DAY)} a day, until somebody needs it"
    if line.start is not None:
        yield "Back", f"`{line.start}`"


def _workload_facts(line: WorkloadLine, message: Message) -> Iterator[tuple[str, str]]:
    if message.kind == "notice":
        if line.on:
            more = "" if line.pods is None or line.pods <= len(line.on) else f" and {line.pods - len(line.on)} more"
            yield "Pods", f"{', '.join(line.on)}{more}"
        yield "Evidence", f"`gpuwatch explain {shlex.quote(line.node_id)}`"
        if line.local_data:
            yield "Local data", f"what is in volumes that go with their pods will be lost: {', '.join(line.local_data)}"
    if line.keep is not None:
        yield "Keep it", f"`{line.keep}`"
    if line.how is not None:
        yield "Back", how_it_returns(line.kind, line.back)


def _links(line: Line | WorkloadLine) -> tuple[tuple[str, str], ...]:
    return () if isinstance(line, WorkloadLine) or line.snooze_url is None else (("Keep it", line.snooze_url),)


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
_OF_LEFT_ALONE = (
    "Turn off what undoes the stops: an instance scheduler, a script, the group's own policy, Terraform.",
    "If it is not needed, stop it; if it is, use it: after a quarter of an hour of work it counts as needed.",
    "An operator's `gpuwatch resume` with its pool tries again at once; the tag `gpuwatch:protect` keeps it for good.",
)
_OF_RESTS = (
    "See in the cloud why: a key that it may not use, no stock, an image that shuts itself down, a bad health check.",
    "Correct that. It is tried again, more seldom each time; `gpuwatch resume` with its pool tries at once.",
)
_OF_WITHHELD = (
    "The reason is above: an account without an answer, a missing right, a quota, no stock, a limit of gpuwatch's own.",
    "It is tried in each round while its pool needs it. You may start it in the cloud at any time.",
)
_HINTS: Mapping[str, Callable[[Message], tuple[str, tuple[str, ...]]]] = {
    "notice": _of_notice,
    "done": _of_done,
    "interruption": lambda _: ("What now", _OF_INTERRUPTION),
    "left_alone": _of_left_alone,
    "withdrawn": lambda _: ("", ()),
    "test": lambda _: ("", ()),
}


def _of_done_workloads(message: Message) -> tuple[str, tuple[str, ...]]:
    volumes = "What its containers wrote outside of volumes is gone, and so are their processes; volumes stay."
    before = "How many pods it wanted before is in its annotation `gpuwatch.io/replicas-before`."
    scaled = any(line.how == "scale-to-zero" for line in message.workloads)
    return "What now", (volumes, before) if scaled else (volumes,)


_OF_NOTICED_WORKLOADS = (
    "Use it: work on a GPU of one of its pods, or on the processors of their machines, withdraws this notice.",
    "Type its command above, with whatever time you need, as somebody who may change it.",
    "Its annotation `gpuwatch.io/protect=true` keeps it for good.",
)
_HINTS_OF_WORKLOADS: Mapping[str, Callable[[Message], tuple[str, tuple[str, ...]]]] = {
    **_HINTS,
    "notice": lambda _: ("What prevents it, each by itself", _OF_NOTICED_WORKLOADS),
    "done": _of_done_workloads,
}
