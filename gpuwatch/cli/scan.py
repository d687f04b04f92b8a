"""`gpuwatch scan`: look for GPU machines in every region of every cloud of the settings. Nothing is changed."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import commands, config_option, explain_errors, json_option, print_text, progress, settings_of
from gpuwatch.runtime.json_document import json_text

if TYPE_CHECKING:
    from gpuwatch.clouds import Cloud
    from gpuwatch.clouds.survey import CloudUse, Surveyed
    from gpuwatch.config.settings import Settings
    from gpuwatch.money.scan import Looked
    from gpuwatch.runtime.clock import Clock

_DAY_SECONDS = 86400.0
_NO_MONITOR = "this cloud has no monitor that gpuwatch can ask"


@commands.command()
@click.option("--region", "regions", multiple=True, metavar="REGION", help="Show this region only; may be repeated.")
@click.option(
    "--days",
    type=click.IntRange(1, 14),
    default=7,
    show_default=True,
    help="How far back to ask the cloud's own monitor for CPU and network.",
)
@config_option
@json_option
def scan(regions: tuple[str, ...], days: int, path: Path | None, *, as_json: bool) -> None:
    """Look for GPU machines in every region of every cloud, also where the settings do not look. Nothing is changed.

    No agent is needed. Each machine is listed with its age, price and owner, whether the controller knows it, and what
    the cloud's own monitor says of its CPU and network. The exit status is 1 where a region did not answer.
    """
    with explain_errors():
        from gpuwatch.cli import scan_table
        from gpuwatch.cli.console import console, width_of
        from gpuwatch.cli.console import show_lines as print_lines
        from gpuwatch.money.scan import scan_document
        from gpuwatch.runtime.clock import SystemClock

        settings, clock = settings_of(path), SystemClock()
        with progress("asking every region of the clouds"):
            looked = list(_look_at_clouds(settings, regions, days, clock))
        _refuse_unknown(regions, settings, looked)
        found = scan_document(looked, fleet=settings.fleet, now=clock.now(), days=days, regions=regions)
        if as_json:
            print_text(json_text("scan", found))
        else:
            out = console()
            print_lines(scan_table.table(found, width_of(out)), out)
            print_lines(scan_table.remarks(found, _monitors(looked)), out)
        sys.exit(0 if found.complete else 1)


def _look_at_clouds(settings: "Settings", regions: tuple[str, ...], days: int, clock: "Clock") -> "Iterator[Looked]":
    """Each cloud of the settings; one that cannot be asked is a place with its trouble."""
    from gpuwatch.clouds import CloudError
    from gpuwatch.clouds.settings import connect
    from gpuwatch.clouds.survey import Surveyed

    for name, chosen in settings.named_clouds.items():
        try:
            cloud = connect(chosen, fleet=settings.fleet, clock=clock)
        except (CloudError, ImportError) as error:
            if len(settings.named_clouds) == 1:
                raise
            nothing = Surveyed(where=f"cloud {name}", region="", watched=True, trouble=str(error))
            yield _with_prices(settings, name, [nothing], {}, None, {}, clock)
        else:
            places = _places(cloud, name)
            shown = [place for place in places if place.nodes and (not regions or place.region in regions)]
            yield _with_prices(settings, name, places, *_ask_monitor(cloud, shown, days), clock)


def _refuse_unknown(regions: tuple[str, ...], settings: "Settings", looked: "list[Looked]") -> None:
    """Refuse a region that no cloud lists: it is a typing mistake. Without a list of regions nothing is refused."""
    from gpuwatch.clouds.provider import ALL
    from gpuwatch.model.slips import meant_name

    places = [place for each in looked for place in each.places]
    known = {place.region for place in places if place.region}
    known |= {region for chosen in settings.named_clouds.values() for region in chosen.regions if region != ALL}
    wrong = next((region for region in regions if region not in known), None)
    if wrong is not None and all(place.region for place in places):
        raise click.UsageError(f"--region: no cloud of the settings has {wrong!r} enabled. {meant_name(wrong, known)}")


def _places(cloud: "Cloud", name: str) -> "list[Surveyed]":
    """What is shown of a cloud; its machines carry its name."""
    from gpuwatch.clouds.survey import survey_cloud

    return [
        replace(place, nodes=tuple(replace(node, cloud=name) for node in place.nodes)) for place in survey_cloud(cloud)
    ]


def _ask_monitor(
    cloud: "Cloud", places: "list[Surveyed]", days: int
) -> "tuple[dict[str, CloudUse], str | None, dict[str, str]]":
    """What the cloud's own monitor says of the machines, its name, and by place why it says nothing."""
    from gpuwatch.clouds import CloudError
    from gpuwatch.clouds.survey import CloudUse, Monitored

    use: dict[str, CloudUse] = {}
    unmonitored: dict[str, str] = {}
    asked: object = cloud
    monitored = asked if isinstance(asked, Monitored) else None
    if monitored is None:
        return {}, None, {place.where: _NO_MONITOR for place in places}
    for place in places:
        try:
            use |= monitored.use_of(place.nodes, days * _DAY_SECONDS)
        except CloudError as error:
            unmonitored[place.where] = str(error)
    return use, monitored.monitor, unmonitored


def _with_prices(
    settings: "Settings",
    name: str,
    places: "list[Surveyed]",
    use: "dict[str, CloudUse]",
    monitor: str | None,
    unmonitored: dict[str, str],
    clock: "Clock",
) -> "Looked":
    """A cloud's machines with their prices."""
    from gpuwatch.model.offers import price_key
    from gpuwatch.money.prices.open import open_book
    from gpuwatch.money.scan import Looked

    chosen, now = settings.named_clouds[name], clock.now()
    book = open_book(settings.prices, clouds={name: chosen}, clock=clock, background=False)
    return Looked(
        cloud=name,
        provider=chosen.provider,
        places=places,
        monitor=monitor,
        use=use,
        unmonitored=unmonitored,
        price=lambda node: book.find(price_key(node), now),
    )


def _monitors(looked: "list[Looked]") -> list[str]:
    """The names of the monitors that said anything."""
    return list(dict.fromkeys(each.monitor for each in looked if each.monitor is not None and each.use))
