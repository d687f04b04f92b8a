"""What people are sent: the command `report` (a day, or any days, on one page), and `notify test`."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from gpuwatch.cli.base import commands, config_option, explain_errors, json_option, print_text, progress, settings_of
from gpuwatch.runtime.json_document import json_text

if TYPE_CHECKING:
    from gpuwatch.config.settings import Settings
    from gpuwatch.ledger import Ledger
    from gpuwatch.money.report.report import Report


@commands.command()
@click.option("--day", metavar="DAY", help="A day, such as 2026-03-01; without any of these, yesterday.")
@click.option("--month", metavar="MONTH", help="A month, such as 2026-03.")
@click.option("--year", metavar="YEAR", help="A year, such as 2026.")
@click.option("--from", "first", metavar="DAY", help="The first day.")
@click.option("--to", "last", metavar="DAY", help="The last day, which counts; without it, today.")
@click.option("--html", "form", flag_value="html", help="One HTML page, for a browser or a mail.")
@click.option(
    "--unused",
    is_flag=True,
    help="Ask the cloud what disks and what is left over cost; what stopped machines cost is no saving.",
)
@click.option(
    "--send", metavar="NAME", help="Send it to this one of report.receivers, now, whether or not it was sent before."
)
@config_option
@json_option
def report(  # noqa: PLR0913, PLR0917  one for each option
    day: str | None,
    month: str | None,
    year: str | None,
    first: str | None,
    last: str | None,
    form: str | None,
    send: str | None,
    path: Path | None,
    *,
    unused: bool,
    as_json: bool,
) -> None:
    """Report what a day's machines cost, what each owner wasted, and what was saved."""
    if form is not None and as_json:
        raise click.UsageError("--json excludes --html")
    with explain_errors():
        from gpuwatch.ledger import Ledger
        from gpuwatch.notify.reports import ReportContent
        from gpuwatch.notify.transports.file import FORMATS

        settings = settings_of(path)
        if send is not None and send not in settings.report.receivers:
            there = ", ".join(settings.report.receivers) or "none"
            raise click.BadParameter(f"{send!r} is not a receiver; report.receivers has {there}", param_hint="--send")
        ledger = Ledger.connect(settings.ledger, read_only=True)
        try:
            asked = {"day": day, "month": month, "year": year, "first": first, "last": last}
            with progress("reading the ledger"):
                made = _make_report(settings, ledger, asked, unused=unused)
            if send is None:
                print_text(FORMATS["json" if as_json else form or "txt"](ReportContent(made)), nl=False)
            else:
                _send(settings, ledger, made, send)
        finally:
            ledger.close()


def _make_report(settings: "Settings", ledger: "Ledger", asked: dict[str, str | None], *, unused: bool) -> "Report":
    """The report on the days that were asked for; without any, on yesterday."""
    from gpuwatch.cli.parts import cloud_of
    from gpuwatch.clouds import CloudError
    from gpuwatch.money.report.gather import gather_report
    from gpuwatch.money.report.period import PeriodError, period_of
    from gpuwatch.money.unused import whole
    from gpuwatch.runtime.clock import SystemClock

    clock, zone = SystemClock(), ZoneInfo(settings.cost.timezone)
    now = clock.now()
    if all(each is None for each in asked.values()):
        asked = {"day": (now.astimezone(zone).date() - timedelta(days=1)).isoformat()}
    try:
        period = period_of(zone, now, **asked)
    except PeriodError as error:
        raise click.UsageError(str(error)) from None
    left = None
    if unused:
        try:
            left = whole(cloud_of(settings, clock))
        except CloudError as error:  # a part of it would make the savings look larger
            print_text(f"Warning: what stopped machines still cost is not in the report: {error}", err=True)
    return gather_report(ledger, period, now, settings.cost, settings.interval, left)


def _send(settings: "Settings", ledger: "Ledger", report: "Report", name: str) -> None:
    """Send it to one receiver; the controller's own report of the day is sent as well."""
    from gpuwatch.notify.reports import report_delivery, report_key
    from gpuwatch.notify.transports.base import DeliveryError

    to = settings.report.receivers[name]
    key = report_key(ledger, name, f"{report.facts.period}-{report.facts.now:%Y%m%dT%H%M%S}")
    try:
        print_text(f"Sent: {to.transport.send(report_delivery(report, to, key))}")
    except DeliveryError as error:
        print_text(f"The report did not reach {name}: {error}", err=True)
        sys.exit(1)


@commands.group()
def notify() -> None:
    """Check that notifications reach people."""


@notify.command()
@click.argument("name", required=False)
@click.option("--owner", metavar="OWNER", help="Send as for this owner's nodes, where mail goes to owners.")
@config_option
@json_option
def test(name: str | None, owner: str | None, path: Path | None, *, as_json: bool) -> None:
    """Send a test message to NAME of notify.receivers, or to all of them."""
    with explain_errors():
        from zoneinfo import ZoneInfo

        from gpuwatch.controller.operations import operator_name
        from gpuwatch.notify.send_test import Sender, SentDocument, send_test
        from gpuwatch.runtime.clock import SystemClock
        from gpuwatch.runtime.printable import legible

        settings = settings_of(path)
        there = settings.notify.receivers
        if name is not None and name not in there:
            raise click.BadParameter(f"{name!r} is not a receiver; notify.receivers has {', '.join(there) or 'none'}")
        if not there:
            raise click.UsageError(
                "notify.receivers has no receiver, so nothing is sent; add one: "
                "docs/notifications.md#choose-receivers has them all"
            )
        sender = Sender(
            notify=settings.notify,
            fleet=settings.fleet,
            zone=ZoneInfo(settings.cost.timezone),
            clock=SystemClock(),
            who=operator_name(),
        )
        results = []
        for each in send_test(sender, [name] if name is not None else list(there), owner):
            results.append(each)
            if not as_json:
                print_text(legible(f"{each.name}: {each.text}"), err=not each.arrived)
        if as_json:
            print_text(json_text("notify.test", SentDocument(deliveries=results)))
    if not all(each.arrived for each in results):
        sys.exit(1)
