"""Pure: a message as text, as HTML for mail, and as a JSON document for webhooks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuwatch.notify.message import Line, Message, WorkloadLine
from gpuwatch.notify.text import word_message
from gpuwatch.notify.wording import Item, Wording
from gpuwatch.runtime.html import render

SCHEMA = 1
_MOST = 40  # nodes in a mail
_MOST_IN_CHAT = 15


def subject(message: Message) -> str:
    """Return the message as one line."""
    return word_message(message, _MOST).subject


def as_text(message: Message, most: int = _MOST) -> str:
    """Plain text: a mail's first part, and for services without markup."""
    return wording_as_text(word_message(message, most))


def wording_as_text(wording: Wording) -> str:
    """Plain text, without the subject."""
    parts = [wording.opening, *map(_text_item, wording.items)]
    if wording.more is not None:
        parts.append(wording.more)
    if wording.hints:
        parts.append("\n".join([f"{wording.hints_title}:", *(f"- {hint}" for hint in wording.hints)]))
    parts.append("\n".join(filter(None, [wording.page and f"{wording.page_title}: {wording.page}", wording.footer])))
    return "\n\n".join(parts) + "\n"


def _text_item(item: Item) -> str:
    return "\n".join([item.head, *(f"  {label}: {fact}" for label, fact in (*item.facts, *item.links))])


def as_html(message: Message) -> str:
    """One page that loads nothing, without script; mail clients choose light or dark themselves."""
    return wording_as_html(word_message(message, _MOST))


def wording_as_html(wording: Wording) -> str:
    """The page of a wording."""
    return render("notify/message.html", wording=wording)


def as_document(message: Message, key: str) -> dict[str, Any]:
    """All nodes and workloads; keys are only ever added while `schema` stays the same."""
    return {
        "schema": SCHEMA,
        "key": key,
        "event": message.kind,
        "fleet": message.fleet,
        "made_at": message.made_at.isoformat(),
        "title": subject(replace(message, language="en")),
        "page": message.page,
        "nodes": [_node(line) for line in message.lines],
        "workloads": [_workload(line) for line in message.workloads],
    }


def _workload(line: WorkloadLine) -> dict[str, Any]:
    return {
        "key": line.key,
        "id": line.node_id,
        "cluster": line.cluster,
        "namespace": line.namespace,
        "kind": line.kind,
        "name": line.name,
        "pool": line.pool,
        "owner": line.owner,
        "pods": line.pods,
        "gpus": line.gpus,
        "usd_per_hour": None if line.usd_per_hour is None else str(line.usd_per_hour),
        "at": line.at.isoformat(),
        "action": line.how,
        "due": None if line.due is None else line.due.isoformat(),
        "code": line.code,
        "why": line.why,
        "local_data": list(line.local_data),
        "approval": line.approval,
        "keep": line.keep,
        "back": line.back,
    }


def _node(line: Line) -> dict[str, Any]:
    daily = None if line.usd_per_hour is None else str(line.usd_per_hour * 24)
    return {
        "key": line.key,
        "node": line.node_id,
        "name": line.name,
        "pool": line.pool,
        "owner": line.owner,
        "instance_type": line.instance_type,
        "region": line.region,
        "gpus": line.gpu_count,
        "usd_per_hour": None if line.usd_per_hour is None else str(line.usd_per_hour),
        "usd_per_day": daily,
        "at": line.at.isoformat(),
        "verb": None if line.verb is None else line.verb.value,
        "due": None if line.due is None else line.due.isoformat(),
        "code": line.code,
        "why": line.why,
        "evidence": [
            {
                "name": each.name,
                "says": each.says.value,
                "observed": each.observed,
                "limit": each.limit,
                "unit": each.unit,
                "source": each.source,
                "note": each.note,
            }
            for each in line.evidence
        ],
        "local_disks": line.local_disks,
        "approval": line.approval,
        "snooze_url": line.snooze_url,
        "start": line.start,
    }


@dataclass(frozen=True, slots=True)
class Notification:
    """A message as the content of a delivery."""

    message: Message

    @property
    def title(self) -> str:
        """Return the subject of the notification."""
        return subject(self.message)

    def text(self) -> str:
        """Up to 40 nodes."""
        return as_text(self.message)

    def chat(self, *, links: bool = True) -> str:
        """Up to 15 nodes."""
        message = self.message
        if not links:
            message = replace(message, lines=tuple(replace(line, snooze_url=None) for line in message.lines))
        return as_text(message, _MOST_IN_CHAT)

    def html(self, *, mail: bool) -> str:
        """The same for a mail and a file."""
        del mail
        return as_html(self.message)

    def document(self, key: str) -> dict[str, Any]:
        """Return the notification as JSON, with all nodes."""
        return as_document(self.message, key)

    def parts(self) -> Sequence["Notification"]:
        """A message for each node or workload; a test is one part."""
        message = self.message
        parts = [replace(message, lines=(line,)) for line in message.lines]
        parts += [replace(message, workloads=(line,)) for line in message.workloads]
        return [Notification(part) for part in parts] or [self]
