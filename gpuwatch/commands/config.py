"""Commands about gpuwatch itself: its configuration and the pages that are generated from the code."""

import json
import os
from pathlib import Path

import click

from gpuwatch.commands.base import commands, config_option, settings_of


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
    click.echo(f"OK: {source}: {settings.summary}")
    for each in warnings(settings.pools):
        click.echo(f"Mind: {each.wrong}\n    better: {each.right}")


@config.command()
def schema() -> None:
    """Print the JSON Schema of the file, for editors."""
    from gpuwatch import configuration  # noqa: PLC0415  loaded by this command only

    click.echo(json.dumps(configuration.schema(), indent=2))


@commands.group()
def docs() -> None:
    """Print the pages that are generated from the code."""


@docs.command("metrics")
def docs_metrics() -> None:
    """Print docs/METRICS.md."""
    from gpuwatch.agent.catalogue import render_metrics_md  # noqa: PLC0415  loaded by this command only

    click.echo(render_metrics_md(), nl=False)


@docs.command("health")
def docs_health() -> None:
    """Print docs/health.md."""
    from gpuwatch.agent.health_manual import render_health_md  # noqa: PLC0415  loaded by this command only

    click.echo(render_health_md(), nl=False)


@docs.command("configuration")
def docs_configuration() -> None:
    """Print docs/CONFIGURATION.md."""
    from gpuwatch.configuration.manual import render_configuration_md  # noqa: PLC0415  loaded by this command only

    click.echo(render_configuration_md(), nl=False)
