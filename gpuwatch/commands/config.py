"""Commands about gpuwatch itself: its configuration and the pages that are generated from the code."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.commands.base import commands, config_option, say, settings_of

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


@commands.group()
def config() -> None:
    """Check the configuration, or print its schema."""


@config.command()
@config_option
def check(path: Path | None) -> None:
    """Say what is in force, or every mistake and its remedy (exit status 2)."""
    from gpuwatch.configuration import default_path  # noqa: PLC0415  loaded by this command only
    from gpuwatch.policies.checks import warnings  # noqa: PLC0415  likewise

    settings = settings_of(path)
    source = path or default_path(os.environ) or "no file, all defaults"
    say(f"OK: {source}: {settings.summary}")
    for each in warnings(settings.pools):
        say(f"Warning: {each.wrong}\n    better: {each.right}")
    for line in settings.cautions:
        say(f"Warning: {line}")
    for line in _untried(settings):
        say(f"Warning: {line}")


def _untried(settings: "Settings") -> list[str]:
    """The pools that wait for a backtest, where one is required and the ledger can be asked."""
    if settings.limits.require_backtest is None:
        return []
    from gpuwatch import orders  # noqa: PLC0415  loaded where a backtest is required
    from gpuwatch.clock import SystemClock  # noqa: PLC0415  likewise
    from gpuwatch.ledger import LedgerError  # noqa: PLC0415  likewise

    try:
        found = list(orders.untried(settings.ledger, SystemClock(), settings.rulebook))
    except LedgerError as error:
        return [f"limits.require_backtest is set, and nobody knows of any backtest: {error}"]
    return [f"pool {pool} lets no node go: {sentence}\n    {remedy}" for pool, (_, sentence, remedy) in found]


@config.command()
def schema() -> None:
    """Print the JSON Schema of the file, for editors."""
    from gpuwatch import configuration  # noqa: PLC0415  loaded by this command only

    say(json.dumps(configuration.schema(), indent=2))


@commands.group()
def docs() -> None:
    """Print the pages that are generated from the code."""


@docs.command("metrics")
def docs_metrics() -> None:
    """Print docs/METRICS.md."""
    from gpuwatch.agent.catalogue import render_metrics_md  # noqa: PLC0415  loaded by this command only

    say(render_metrics_md(), nl=False)


@docs.command("controller-metrics")
def docs_controller_metrics() -> None:
    """Print docs/CONTROLLER_METRICS.md."""
    from gpuwatch.telling import render_md  # noqa: PLC0415  loaded by this command only

    say(render_md(), nl=False)


@docs.command("api")
def docs_api() -> None:
    """Print docs/api.md."""
    from gpuwatch.web.openapi import render_md  # noqa: PLC0415  loaded by this command only

    say(render_md(), nl=False)


@docs.command("health")
def docs_health() -> None:
    """Print docs/health.md."""
    from gpuwatch.agent.health_manual import render_health_md  # noqa: PLC0415  loaded by this command only

    say(render_health_md(), nl=False)


@docs.command("doctor")
def docs_doctor() -> None:
    """Print docs/doctor.md."""
    from gpuwatch.doctor.manual import render_doctor_md  # noqa: PLC0415  loaded by this command only

    say(render_doctor_md(), nl=False)


@docs.command("configuration")
def docs_configuration() -> None:
    """Print docs/CONFIGURATION.md."""
    from gpuwatch.configuration.manual import render_configuration_md  # noqa: PLC0415  loaded by this command only

    say(render_configuration_md(), nl=False)


@docs.command("commands")
def docs_commands() -> None:
    """Print docs/commands.md."""
    from gpuwatch.commands.manual import render_commands_md  # noqa: PLC0415  loaded by this command only

    say(render_commands_md(), nl=False)
