"""The book of prices that the settings ask for."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

from gpuwatch.clock import Clock
from gpuwatch.prices import own_file
from gpuwatch.prices.book import Book
from gpuwatch.prices.knobs import PriceKnobs
from gpuwatch.prices.live import Fetcher, Live
from gpuwatch.prices.own import OwnPrices
from gpuwatch.reread import Reread

# Name in the settings -> what asks it; imported only where it is set, so that each SDK stays an extra.
_FETCHERS = {
    "aws": "gpuwatch.prices.aws:AwsPrices",
    "azure": "gpuwatch.prices.azure:AzurePrices",
    "gcp": "gpuwatch.prices.gcp:GcpPrices",
    "alibaba": "gpuwatch.prices.alibaba:AlibabaPrices",
    "tencent": "gpuwatch.prices.tencent:TencentPrices",
}


def open_book(
    knobs: PriceKnobs,
    *,
    provider: str,
    region: str | None,
    clock: Clock,
    background: bool,
    profile: str | None = None,
) -> Book:
    """Own prices, fetched ones and the table as one. With `background`, what is old is asked for while it is used.

    Raises:
        PricesError: the file of own prices has a mistake, or cannot be read.
        ImportError: a cloud's extra is missing.

    """
    live = open_live(knobs, clock=clock, background=background, profile=profile)
    return Book(provider=provider, region=region, rates=knobs.rates, own=open_own(knobs), live=live)


def open_own(knobs: PriceKnobs) -> Callable[[], OwnPrices]:
    """The user's own prices as the file is at the moment; a change that cannot be used leaves the old ones in force.

    Raises:
        PricesError: the file has a mistake, or cannot be read.

    """
    if knobs.file is None:
        return OwnPrices
    path = Path(knobs.file)
    try:
        reread = Reread([path], partial(own_file.read, path, knobs.currency))
    except OSError as error:
        raise own_file.PricesError(
            f"{path}: cannot be read: {error.strerror}\n    right would be: a readable file in prices.file"
        ) from error
    return lambda: reread.value


def open_live(knobs: PriceKnobs, *, clock: Clock, background: bool, profile: str | None = None) -> Live | None:
    """What was fetched and will be; None: no cloud is to be asked.

    Raises:
        ImportError: a cloud's extra is missing.

    """
    fetchers: dict[str, Fetcher] = {
        name: resolve_name(_FETCHERS[name]).of(knobs.live, clock=clock, profile=profile)
        for name in knobs.live.providers
    }
    if not fetchers:
        return None
    return Live(
        fetchers,
        directory=Path(knobs.live.directory),
        clock=clock,
        every_seconds=knobs.live.every,
        background=background,
    )
