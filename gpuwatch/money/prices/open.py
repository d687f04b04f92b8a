"""The book of prices that the settings ask for."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.money.prices import overrides_file
from gpuwatch.money.prices.fetch import Fetcher, Live
from gpuwatch.money.prices.overrides import OwnPrices
from gpuwatch.money.prices.price_book import Book, Books
from gpuwatch.money.prices.providers.driver import DriverPrices
from gpuwatch.money.prices.settings import LivePriceSettings, PriceSettings
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.reloading_file import ReloadingFile

# Name in the settings -> what asks it; imported only where it is set, so that each SDK stays an extra.
_FETCHERS = {
    "aws": "gpuwatch.money.prices.providers.aws:AwsPrices",
    "azure": "gpuwatch.money.prices.providers.azure:AzurePrices",
    "gcp": "gpuwatch.money.prices.providers.gcp:GcpPrices",
    "alibaba": "gpuwatch.money.prices.providers.alibaba:AlibabaPrices",
    "tencent": "gpuwatch.money.prices.providers.tencent:TencentPrices",
}
_DRIVER = "driver"  # each cloud behind a driver is asked by itself, as its machines are, without a setting


def open_book(
    settings: PriceSettings,
    *,
    clouds: Mapping[str, CloudSettings],
    clock: Clock,
    background: bool,
    fleet: str = "",
) -> Book | Books:
    """Own prices, fetched ones and the table as one, for each cloud by its name.

    With `background`, what is old is asked for while it is used.

    Raises:
        PricesError: the file of own prices has a mistake, or cannot be read.
        ImportError: a cloud's extra is missing.

    """
    live = open_live(settings, clock=clock, background=background, clouds=clouds, fleet=fleet)
    own = open_own(settings)

    def book(name: str, cloud: CloudSettings) -> Book:
        by_driver = cloud.provider == _DRIVER
        return Book(
            provider=cloud.provider,
            region=cloud.first_region or ("" if by_driver else None),  # its cloud may have no regions
            rates=settings.rates,
            own=own,
            live=live,
            asked=_name_in_live(name) if by_driver else None,
        )

    return book("", clouds[""]) if "" in clouds else Books({name: book(name, cloud) for name, cloud in clouds.items()})


def _name_in_live(name: str) -> str:
    """The name under which the prices of a driver's cloud are kept."""
    return f"{_DRIVER}-{name}" if name else _DRIVER


def open_own(settings: PriceSettings) -> Callable[[], OwnPrices]:
    """The user's own prices as the file is at the moment; a change that cannot be used leaves the old ones in force.

    Raises:
        PricesError: the file has a mistake, or cannot be read.

    """
    if settings.file is None:
        return OwnPrices
    path = Path(settings.file)
    try:
        reread = ReloadingFile([path], partial(overrides_file.read_prices, path, settings.currency))
    except OSError as error:
        raise overrides_file.PricesError(
            f"{path}: cannot be read: {error.strerror}\n    expected: a readable file in prices.file"
        ) from error
    return lambda: reread.value


def open_live(
    settings: PriceSettings, *, clock: Clock, background: bool, clouds: Mapping[str, CloudSettings], fleet: str = ""
) -> Live | None:
    """What was fetched and will be; None: no cloud is to be asked.

    Raises:
        ImportError: a cloud's extra is missing.

    """
    fetchers = {
        name: _fetcher(name, settings.live, clock, [each for each in clouds.values() if each.provider == name])
        for name in settings.live.providers
    }
    for name, cloud in clouds.items():
        if cloud.provider == _DRIVER and cloud.driver.executable is not None:
            fetchers[_name_in_live(name)] = DriverPrices(cloud, fleet=fleet, clock=clock)
    if not fetchers:
        return None
    return Live(
        fetchers,
        directory=Path(settings.live.directory),
        clock=clock,
        every_seconds=settings.live.every,
        background=background,
    )


def _fetcher(name: str, live: LivePriceSettings, clock: Clock, clouds: Sequence[CloudSettings]) -> Fetcher:
    """What asks one provider, with the credentials of its first cloud: list prices are the same for all accounts.

    AWS alone has partitions with credentials of their own: there each cloud gives those of its partition.
    """
    cloud = clouds[0] if clouds else CloudSettings()
    options: dict[str, object] = {"clock": clock, "endpoint_url": live.endpoints.get(name)}
    if name == "aws":
        options["profiles"] = [(each.aws.profile, each.first_region) for each in clouds]
    elif name == "tencent":
        options["key_file"] = None if live.tencent_key_file is None else Path(live.tencent_key_file)
        options["cloud_key_file"] = cloud.tencent.key_file
        options["currency"] = live.tencent_currency or "CNY"
    elif name == "alibaba":
        options["key_file"] = None if live.alibaba_key_file is None else Path(live.alibaba_key_file)
        options["profile"] = cloud.alibaba.profile
    elif name == "gcp":
        key_file = live.gcp_key_file or cloud.gcp.credentials_file
        options["key_file"] = None if key_file is None else Path(key_file)
    fetcher: Fetcher = resolve_name(_FETCHERS[name])(**options)
    return fetcher
