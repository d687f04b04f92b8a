"""Pure: a message about workloads in words: what becomes of each, when, why, what keeps it, and how it comes back."""

import shlex
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from gpuwatch.notify.wording import Item, Wording, short, usd, when
from gpuwatch.notify.workload_lines import WorkloadLine
from gpuwatch.policies.kubernetes.workload_words import Deed, after, deed

if TYPE_CHECKING:
    from gpuwatch.notify.message import Message


def worded(message: "Message", most: int) -> Wording:
    """In words, with so many workloads at most; the rest are counted."""
    lines = message.workloads
    left = len(lines) - most
    title, hints = _hints(message)
    return Wording(
        subject=_subject(message),
        opening=_opening(message),
        items=tuple(Item(head=_head(line), facts=tuple(_facts(line, message))) for line in lines[:most]),
        more=f"… and {left} more: `gpuwatch status` and the page list all." if left > 0 else None,
        hints_title=title,
        hints=hints,
        footer=f"Sent by gpuwatch, fleet {message.fleet}, {when(message.made_at, message.zone)}.",
        page=message.page,
    )


def _deed(message: "Message") -> Deed:
    """That of all of them, in words that fit each."""
    found = {deed(line.kind, line.how) for line in message.workloads}
    return found.pop() if len(found) == 1 else deed("", None)


def _whom(message: "Message") -> str:
    lines = message.workloads
    return lines[0].workload if len(lines) == 1 else f"{len(lines)} workloads"


def _first_due(message: "Message", write: Callable[[datetime, ZoneInfo], str]) -> str:
    dues = sorted({line.due for line in message.workloads if line.due is not None})
    if not dues:
        return "soon"
    first = write(dues[0], message.zone)
    return f"at {first}" if len(dues) == 1 else f"from {first} on"


def _stays(message: "Message") -> str:
    return "stays" if len(message.workloads) == 1 else "stay"


def _subject(message: "Message") -> str:
    """One line, short enough for a header that is not folded; names in it are printable already."""
    whom = _whom(message)
    if message.kind == "withdrawn":
        return f"gpuwatch: {whom} {_stays(message)}, the notice is withdrawn"
    if message.kind == "done":
        return f"gpuwatch {_deed(message).did.format(whom)}"
    return f"gpuwatch will {_deed(message).will.format(whom)} {_first_due(message, short)}"


def _opening(message: "Message") -> str:
    whom = _whom(message)
    if message.kind == "withdrawn":
        return f"{whom} {_stays(message)}: the earlier notice no longer holds, nothing needs to be done."
    if message.kind == "done":
        return f"gpuwatch {_deed(message).did.format(whom)}, as the notice said."
    due = _first_due(message, when)
    opening = f"gpuwatch will {_deed(message).will.format(whom)} {due}, unless something below prevents it."
    if any(line.approval for line in message.workloads):
        opening += " An operator must approve it first."
    return opening


def _head(line: WorkloadLine) -> str:
    parts = (
        f"cluster {line.cluster}",
        f"pool {line.pool}",
        _counted(line.pods, "pod"),
        _counted(line.gpus, "GPU"),
        None if line.usd_per_hour is None else f"{usd(line.usd_per_hour)} an hour",
        None if line.owner is None else f"owner {line.owner}",
    )
    return f"{line.workload}: {', '.join(filter(None, parts))}"


def _counted(count: float | None, noun: str) -> str | None:
    return None if count is None else f"{count:g} {noun}{'s' * (count != 1)}"


def _facts(line: WorkloadLine, message: "Message") -> Iterator[tuple[str, str]]:
    done = deed(line.kind, line.how).done
    if line.due is not None:
        yield "Not before" if line.approval else "When", f"{when(line.due, message.zone)}, to be {done}"
    elif message.kind == "done":
        yield "When", f"{when(line.at, message.zone)}, {done}"
    yield "Why", line.why
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
        yield "Back", after(line.kind, line.back)


def _hints(message: "Message") -> tuple[str, tuple[str, ...]]:
    if message.kind == "withdrawn":
        return "", ()
    if message.kind == "done":
        volumes = "What its containers wrote outside of volumes is gone, and so are their processes; volumes stay."
        before = "How many pods it wanted before is in its annotation `gpuwatch.io/replicas-before`."
        scaled = any(line.how == "scale-to-zero" for line in message.workloads)
        return "What now", (volumes, before) if scaled else (volumes,)
    return "What prevents it, each by itself", (
        "Use it: work on a GPU of one of its pods, or on the processors of their machines, withdraws this notice.",
        "Type its command above, with whatever time you need, as somebody who may change it.",
        "Its annotation `gpuwatch.io/protect=true` keeps it for good.",
    )
