"""The command about budgets."""

import sys
from pathlib import Path

from gpuwatch.cli.base import commands, config_option, explained, json_option, say, settings_of
from gpuwatch.model.currency import shown_in
from gpuwatch.runtime.json_document import json_text


@commands.command()
@config_option
@json_option
def budget(path: Path | None, *, as_json: bool) -> None:
    """Show for each budget what is spent, the forecast for the end of the month, and the effects."""
    with explained():
        from zoneinfo import ZoneInfo  # noqa: PLC0415  loaded by this command only

        from gpuwatch.ledger import Ledger  # noqa: PLC0415  likewise
        from gpuwatch.money.budgets import table  # noqa: PLC0415  likewise
        from gpuwatch.money.budgets.tracker import Budgeting  # noqa: PLC0415  likewise
        from gpuwatch.runtime.clock import SystemClock  # noqa: PLC0415  likewise

        settings = settings_of(path)
        if not settings.budgets:
            say("No budget is configured: add one under `budgets`, as docs/money.md shows.", err=True)
            sys.exit(2)
        ledger = Ledger.connect(settings.ledger, read_only=True)
        try:
            newest = ledger.rounds(limit=1)
            if not newest:
                say("No round is on record yet; `gpuwatch controller` makes them.", err=True)
                sys.exit(2)
            seen = ledger.observation(newest[0].id)
            zone = ZoneInfo(settings.cost.timezone)
            states = Budgeting(ledger=ledger, budgets=settings.budgets, zone=zone).states(seen)
        finally:
            ledger.close()
        document = table.BudgetDocument(at=seen.now, currency=shown_in().unless_usd, budgets=states)
        say(json_text("budget", document) if as_json else table.as_text(states, seen.now, SystemClock().now()))
        sys.exit(1 if any(each.doubt is not None for each in states) else 0)
