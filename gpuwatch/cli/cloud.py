"""`gpuwatch cloud test`: hold a driver to its contract before gpuwatch relies on it."""

import sys
from pathlib import Path

import click

from gpuwatch.cli.base import commands, json_option, print_text


@commands.group()
def cloud() -> None:
    """Test a driver for a cloud of your own (docs/clouds/driver.md)."""


def _pairs(_: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Texts by their names."""
    for each in values:
        name, is_pair, text = each.partition("=")
        if not (name and is_pair and text):
            raise click.BadParameter(f"{each!r} is not {param.metavar}", param=param)
    return {name: text for name, _, text in (each.partition("=") for each in values)}


@cloud.command(name="test")
@click.argument("driver", type=click.Path(path_type=Path))
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    callback=_pairs,
    metavar="NAME=FILE",
    help="A secret of the driver, as in cloud.driver.secrets: the file that has it.",
)
@click.option(
    "--option", "options", multiple=True, callback=_pairs, metavar="NAME=TEXT", help="As in cloud.driver.options."
)
@click.option("--endpoint", metavar="URL", help="The address of the cloud, as in cloud.endpoint_url.")
@click.option("--region", metavar="NAME", help="The region to ask for; else all.")
@click.option("--machine", metavar="ID", help="Also tag, stop and start this machine. Use an idle one.")
@click.option(
    "--launch",
    multiple=True,
    callback=_pairs,
    metavar="NAME=TEXT",
    help="Also launch a machine with these arguments, and end it. It costs money.",
)
@json_option
def run_suite(  # noqa: PLR0913  one for each option
    *,
    driver: Path,
    secrets: dict[str, str],
    options: dict[str, str],
    endpoint: str | None,
    region: str | None,
    machine: str | None,
    launch: dict[str, str],
    as_json: bool,
) -> None:
    """Hold a driver to each sentence of its contract: kept, broken, or not tested. A broken one gives exit status 1.

    It only reads, unless --machine or --launch is given.
    """
    from collections import Counter

    from gpuwatch.clouds.driver.settings import DriverSettings
    from gpuwatch.clouds.driver.suite import BROKE, Suite
    from gpuwatch.runtime.clock import SystemClock
    from gpuwatch.runtime.json_document import json_text
    from gpuwatch.runtime.printable import legible

    settings = DriverSettings(executable=str(driver.absolute()), secrets=secrets, options=options)
    suite = Suite(
        settings, clock=SystemClock(), endpoint=endpoint, region=region, machine=machine, launch=launch or None
    )
    found = suite.run()
    broken = [each for each in found.sentences if each.result == BROKE]
    if as_json:
        print_text(json_text("cloud.test", found))
        sys.exit(bool(broken))
    for each in found.sentences:
        print_text(f"{each.result:<12}{each.says}" + (f" ({legible(each.why)})" if each.why else ""))
        if each in broken:
            for name, text in (("sent", each.sent), ("came", each.came), ("right", each.right)):
                print_text(f"{'':<12}{name + ':':<7}{legible(text or 'nothing')}")
    counts = Counter(each.result for each in found.sentences)
    print_text(", ".join(f"{result}: {count}" for result, count in counts.items()).capitalize() + ".")
    sys.exit(bool(broken))
