"""Pure: a message as text, as HTML for mail, as blocks for Slack, and as a JSON document for webhooks."""

import re
from html import escape
from typing import Any

from gpuwatch.notify.message import Line, Message
from gpuwatch.notify.text import Item, Wording, worded

SCHEMA = 1
_MOST = 40  # nodes in a mail
_MOST_IN_SLACK = 15  # it takes 50 blocks of 3,000 characters
_MOST_IN_BLOCK = 2900
_TYPED = re.compile(r"`([^`]*)`")
_FONT = "font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
_CELL = "padding:8px 0;border-top:1px solid #8c959f"
_BUTTON = "display:inline-block;margin:6px 0;padding:8px 14px;border-radius:6px;background:#0b62a8;color:#ffffff"


def subject(message: Message) -> str:
    """One line."""
    return worded(message, _MOST).subject


def as_text(message: Message) -> str:
    """For terminals, mails' first part, and services that know no markup."""
    told = worded(message, _MOST)
    parts = [told.opening, *map(_text_item, told.items)]
    if told.more is not None:
        parts.append(told.more)
    if told.hints:
        parts.append("\n".join([f"{told.hints_title}:", *(f"- {hint}" for hint in told.hints)]))
    parts.append("\n".join(filter(None, [told.page and f"The page: {told.page}", told.footer])))
    return "\n\n".join(parts) + "\n"


def _text_item(item: Item) -> str:
    return "\n".join([item.head, *(f"  {label}: {told}" for label, told in (*item.facts, *item.links))])


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


def as_slack(message: Message) -> dict[str, Any]:
    """Blocks: docs.slack.dev/reference/block-kit/blocks; `text` is what notifications on a phone show."""
    told = worded(message, _MOST_IN_SLACK)
    calls = " ".join(f"<@{member}>" for member in message.mentions)
    sections = [" ".join(filter(None, [f"*{as_said(told.opening)}*", calls])), *map(_slack_item, told.items)]
    if told.more is not None:
        sections.append(as_said(told.more))
    if told.hints:
        sections.append("\n".join([f"*{as_said(told.hints_title)}*", *(f"• {as_said(hint)}" for hint in told.hints)]))
    return {"text": as_said(told.subject), "blocks": [*map(_section, sections), _context(told)]}


def _slack_item(item: Item) -> str:
    facts = (f"{label}: {as_said(told)}" for label, told in item.facts)
    links = (f"<{url}|{label}>" for label, url in item.links)
    head = as_said(item.head)
    room = _MOST_IN_BLOCK - len(head) - sum(len(url) + len(label) + 4 for label, url in item.links)
    return "\n".join(filter(None, [f"*{head}*", "\n".join(facts)[:room], *links]))


def _section(words: str) -> dict[str, Any]:
    return {"type": "section", "text": marked(words)}


def _context(told: Wording) -> dict[str, Any]:
    page = f" <{told.page}|The page>" if told.page else ""
    return {"type": "context", "elements": [marked(f"{as_said(told.footer)}{page}")]}


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


def as_said(words: str) -> str:
    """Words as they are: names come from others, and `<!channel>` in one calls nobody."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def marked(words: str) -> dict[str, Any]:
    """A text object; verbatim, or Slack would make calls and links of plain words such as @channel by itself."""
    return {"type": "mrkdwn", "text": words, "verbatim": True}
