"""Takes a report to one destination: mail, Slack, any webhook, a file. A second try is told from a second report.

Mails have an id made of the ledger's, the day and the destination, posts the same as their Idempotency-Key: should a
crash make a report go out twice, who receives it can tell. No error holds a secret, and no redirect is followed.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuwatch.money.report.html import as_html
from gpuwatch.money.report.json import as_object
from gpuwatch.money.report.report import Report
from gpuwatch.money.report.sections import figures, headline, title
from gpuwatch.money.report.text import as_text
from gpuwatch.notify.formats import as_said, marked
from gpuwatch.notify.report_settings import Destination
from gpuwatch.notify.transports.errors import in_words
from gpuwatch.notify.transports.mail import Email, mailed
from gpuwatch.notify.transports.webhook import posted, slacked

_WORST = 3  # owners in a message
FORMS: Mapping[str, Callable[[Report], str]] = {
    "html": as_html,
    "json": lambda report: json.dumps(as_object(report), indent=2) + "\n",
    "txt": lambda report: as_text(report) + "\n",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDelivery:
    """A report on its way; `key` is the same at each try."""

    report: Report
    key: str


def delivered(parcel: ReportDelivery, destination: Destination) -> str:
    """Where it went, for people.

    Raises:
        DeliveryError: it did not arrive.

    """
    (way,) = destination.ways
    return _WAYS[way](parcel, destination)


def _mail(parcel: ReportDelivery, destination: Destination) -> str:
    report = parcel.report
    letter = Email(
        key=parcel.key,
        at=report.facts.now,
        subject=title(report),
        text=as_text(report),
        html=as_html(report, mail=True),
    )
    return mailed(letter, destination.mail, destination.mail.to)


def _slack(parcel: ReportDelivery, destination: Destination) -> str:
    return slacked(slack_message(parcel.report), destination.slack, parcel.key)


def slack_message(report: Report) -> dict[str, Any]:
    """The first figures, and who wasted the most."""
    fields = [
        marked(f"*{as_said(each.name)}*\n{as_said(each.value)}\n{as_said(each.beside)}")
        for each in figures(report).figures
    ]
    told = [f"*{as_said(title(report))}*\n{as_said(headline(report))}"]
    worst = [line for line in report.slices["owner"][:_WORST] if line.wasted_cents > 0]
    if worst:
        owners = ", ".join(f"{as_said(line.name[:80])} ${line.wasted_cents / 100:,.2f}" for line in worst)
        told.append(f"Most waste: {owners}")
    return {
        "text": f"{title(report)}: {as_said(headline(report))}",
        "blocks": [
            {"type": "section", "text": marked("\n".join(told))},
            {"type": "section", "fields": fields[:10]},
        ],
    }


def _webhook(parcel: ReportDelivery, destination: Destination) -> str:
    """The document of `gpuwatch report --json`."""
    return posted(as_object(parcel.report), destination.webhook, parcel.key)


def _file(parcel: ReportDelivery, destination: Destination) -> str:
    """Whole, or as it was before."""
    named = Path(parcel.report.facts.stretch.first.strftime(destination.file.path or ""))
    with in_words():
        named.parent.mkdir(parents=True, exist_ok=True)
        fresh = named.with_name(f".{named.name}.new")
        fresh.write_text(FORMS[named.suffix[1:]](parcel.report), encoding="utf-8")
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        fresh.replace(named)
    return str(named)


_WAYS: Mapping[str, Callable[[ReportDelivery, Destination], str]] = {
    "mail": _mail,
    "slack": _slack,
    "webhook": _webhook,
    "file": _file,
}
