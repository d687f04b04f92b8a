"""Pure: a message as text, as HTML for mail, and as a JSON document for webhooks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from gpuwatch.notify.message import Line, Message
from gpuwatch.notify.text import Item, worded

SCHEMA = 1
_MOST = 40  # nodes in a mail
_MOST_IN_CHAT = 15
_TYPED = re.compile(r"`([^`]*)`")
_FONT = "font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
_CELL = "padding:8px 0;border-top:1px solid #8c959f"
_BUTTON = "display:inline-block;margin:6px 0;padding:8px 14px;border-radius:6px;background:#0b62a8;color:#ffffff"


def subject(message: Message) -> str:
    """One line."""
    return worded(message, _MOST).subject


def as_text(message: Message, most: int = _MOST) -> str:
    """Plain text: a mail's first part, and for services without markup."""
    wording = worded(message, most)
    parts = [wording.opening, *map(_text_item, wording.items)]
    if wording.more is not None:
        parts.append(wording.more)
    if wording.hints:
        parts.append("\n".join([f"{wording.hints_title}:", *(f"- {hint}" for hint in wording.hints)]))
    parts.append("\n".join(filter(None, [wording.page and f"The page: {wording.page}", wording.footer])))
    return "\n\n".join(parts) + "\n"


def _text_item(item: Item) -> str:
    return "\n".join([item.head, *(f"  {label}: {fact}" for label, fact in (*item.facts, *item.links))])


def as_html(message: Message) -> str:
    """One page that loads nothing, without script; mail clients choose light or dark themselves."""
    told = worded(message, _MOST)
    body = [f'<p style="font-size:16px;margin:0 0 12px">{_html(told.opening)}</p>']
    if told.items:
        rows = "".join(f'<tr><td style="{_CELL}">{_html_item(item)}</td></tr>' for item in told.items)
        body.append(f'<table role="presentation" width="100%" cellpadding="0" cellspacing="0">{rows}</table>')
    if told.more is not None:
        body.append(f"<p>{_html(told.more)}</p>")
    if told.hints:
        hints = "".join(f"<li>{_html(hint)}</li>" for hint in told.hints)
        body.append(f'<p style="margin:16px 0 4px"><strong>{_html(told.hints_title)}</strong></p><ul>{hints}</ul>')
    page = f' <a href="{escape(told.page)}">The page</a>' if told.page else ""
    body.append(f'<p style="font-size:12px">{_html(told.footer)}{page}</p>')
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8" />'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />'
        f'<meta name="color-scheme" content="light dark" /><title>{_html(told.subject)}</title></head>\n'
        f'<body style="{_FONT};font-size:14px;line-height:1.5;max-width:680px;margin:0 auto;padding:16px">'
        f"{''.join(body)}</body></html>\n"
    )


def _html_item(item: Item) -> str:
    facts = "".join(f"<br />{label}: {_html(told)}" for label, told in item.facts)
    links = "".join(f'<br /><a style="{_BUTTON}" href="{escape(url)}">{label}</a>' for label, url in item.links)
    return f"<strong>{_html(item.head)}</strong>{facts}{links}"


def _html(words: str) -> str:
    return _TYPED.sub(r"<code>\1</code>", escape(words))


def as_document(message: Message, key: str) -> dict[str, Any]:
    """All nodes; keys are only ever added while `schema` stays the same."""
    return {
        "schema": SCHEMA,
        "key": key,
        "event": message.kind,
        "fleet": message.fleet,
        "made_at": message.made_at.isoformat(),
        "title": subject(message),
        "page": message.page,
        "nodes": [_node(line) for line in message.lines],
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
        "keep_url": line.keep_url,
        "start": line.start,
    }


@dataclass(frozen=True, slots=True)
class Notification:
    """A message as the content of a delivery."""

    message: Message

    @property
    def title(self) -> str:
        """The subject."""
        return subject(self.message)

    def text(self) -> str:
        """Up to 40 nodes."""
        return as_text(self.message)

    def chat(self, *, links: bool = True) -> str:
        """Up to 15 nodes."""
        message = self.message
        if not links:
            message = replace(message, lines=tuple(replace(line, keep_url=None) for line in message.lines))
        return as_text(message, _MOST_IN_CHAT)

    def html(self, *, mail: bool) -> str:
        """The same for a mail and a file."""
        del mail
        return as_html(self.message)

    def document(self, key: str) -> dict[str, Any]:
        """All nodes."""
        return as_document(self.message, key)

    def parts(self) -> Sequence["Notification"]:
        """A message for each node; a test has no node and is one part."""
        return [Notification(replace(self.message, lines=(line,))) for line in self.message.lines] or [self]
