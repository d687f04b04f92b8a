"""The command about prices."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import commands, config_option, explain_errors, json_option, print_text, progress, settings_of
from gpuwatch.runtime.json_document import json_text

if TYPE_CHECKING:
    from gpuwatch.money.prices.fetch import Live


@commands.command()
@click.option("--provider", help="Only one cloud: aws, azure, gcp, alibaba or tencent.")
@click.option("--region", help="Only one region; spot prices of its zones with it.")
@click.option("--gpu", help="With one model of GPU only, such as H100.")
@click.option("--refresh", is_flag=True, help="First ask the cloud of --provider for its prices in --region.")
@config_option
@json_option
def prices(
    provider: str | None, region: str | None, gpu: str | None, path: Path | None, *, refresh: bool, as_json: bool
) -> None:
    """List the clouds' GPU instance types with their prices, the age of each price and its source."""
    with explain_errors():
        from gpuwatch.money.prices import catalogue, listing
        from gpuwatch.money.prices.open import open_live, open_own
        from gpuwatch.money.prices.price_book import Book
        from gpuwatch.runtime.clock import SystemClock

        if provider is not None and provider not in catalogue.PROVIDERS:
            raise click.UsageError(f"--provider: {provider!r} is not one of {', '.join(catalogue.PROVIDERS)}")
        settings, clock = settings_of(path), SystemClock()
        chosen = settings.prices
        live, own = open_live(chosen, clock=clock, background=False, clouds=settings.named_clouds), open_own(chosen)
        if refresh:
            _refresh(live, provider, region, [kind for name, kind in catalogue.machine_types() if name == provider])
        fetched = {} if live is None else {name: live.offers(name) for name in catalogue.PROVIDERS}
        books = {name: Book(provider=name, rates=chosen.rates, own=own, live=live) for name in catalogue.PROVIDERS}
        offers = listing.merge_offers(fetched)
        wrong = listing.unknown(offers, provider=provider, region=region, gpu=gpu)
        if wrong is not None:
            raise click.UsageError(wrong)
        rows = listing.rows(offers, books, clock.now())
        rows = [row for row in rows if listing.is_asked_for(row.offer, provider=provider, region=region, gpu=gpu)]
        old = chosen.warn_older_than / 86400
        print_text(json_text("prices", listing.prices_document(rows, old)) if as_json else listing.as_text(rows, old))


def _refresh(live: "Live | None", provider: str | None, region: str | None, kinds: list[str]) -> None:
    """Ask the clouds now, and report what failed. Known prices are listed in any case."""
    if provider is None or region is None:
        raise click.UsageError("--refresh asks one cloud about one region: name them with --provider and --region")
    if live is None or not live.asks(provider):
        raise click.UsageError(f"--refresh: prices.live.{provider} is not set")
    for kind in kinds:
        live.want(provider, region, kind)
    with progress(f"asking {provider} for its prices in {region}"):
        troubles = live.refresh()
    for trouble in troubles:
        print_text(trouble, err=True)
