"""Machines behind a driver cost what the driver says, dated and kept; a doubt takes no price away and makes none."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.clouds.driver import line
from gpuwatch.clouds.driver.settings import DriverSettings
from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import Price
from gpuwatch.model.offers import PriceKey
from gpuwatch.money.prices.open import open_book, open_live
from gpuwatch.money.prices.settings import LivePriceSettings, PriceSettings
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.driver.scripted import Driver
from tests.support.clouds.driver.world import run_patiently

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
GPU = PriceKey(instance_type="gpu-1", region="")


class Desk:
    """Drivers by the names of their clouds, and the prices of a process that has asked them."""

    def __init__(self, folder: Path) -> None:
        """One driver, without regions."""
        self.folder, self.clock = folder, ManualClock(wall=NOW)
        self.settings = PriceSettings(live=LivePriceSettings(directory=str(folder / "prices")))
        self.clouds: dict[str, CloudSettings] = {}
        self.driver = self.add("")

    def add(self, name: str, regions: Sequence[str] = ()) -> Driver:
        """A cloud behind a driver."""
        folder = self.folder / (name or "one")
        folder.mkdir()
        driver = Driver(folder)
        settings = DriverSettings(executable=str(driver.path))
        self.clouds[name] = CloudSettings(provider="driver", regions=tuple(regions), driver=settings)
        return driver

    def ask(self, *hires: PriceKey) -> list[Price | None]:
        """The prices that the next process has after it has asked for these."""
        live = open_live(self.settings, clock=self.clock, background=False, clouds=self.clouds, fleet="lab")
        assert live is not None
        for hire in hires:
            live.want(f"driver-{hire.cloud}" if hire.cloud else "driver", hire.region or "", hire.instance_type)
        self.troubles = live.refresh()
        book = open_book(self.settings, clouds=self.clouds, clock=self.clock, background=False)
        return [book.price(hire, self.clock.now()) for hire in hires]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A driver that has no prices yet."""
    monkeypatch.setattr(line, "run", run_patiently)
    return Desk(tmp_path)


def usd(price: Price | None) -> Decimal | None:
    """Its amount."""
    return None if price is None else price.usd_per_hour


def test_a_machine_costs_what_its_driver_says_with_its_day_and_source(desk: Desk) -> None:
    """The driver is asked for the types that the fleet has, for the fleet of the settings."""
    desk.driver.says("prices", prices=[{"type": "gpu-1", "usd_per_hour": "2.49"}])
    (price,) = desk.ask(GPU)
    assert price is not None
    assert (price.usd_per_hour, price.as_of, price.exact) == (Decimal("2.49"), date(2026, 11, 21), True)
    assert price.source == f"its driver {desk.driver.path}"
    (asked,) = desk.driver.asked("prices")
    assert (asked["types"], asked["region"], asked["fleet"]) == (["gpu-1"], None, "lab")


def test_a_price_outlives_failures_and_restarts_with_its_day(desk: Desk) -> None:
    """It is asked for again when it is old; a driver that crashes takes nothing away."""
    desk.driver.says("prices", prices=[{"type": "gpu-1", "usd_per_hour": 2}])
    desk.ask(GPU)
    desk.ask(GPU)
    assert len(desk.driver.asked("prices")) == 1
    desk.clock.advance(86400.0)
    desk.driver.does("prices", "exit 1")
    (price,) = desk.ask(GPU)
    assert price is not None
    assert (price.usd_per_hour, price.as_of) == (Decimal(2), date(2026, 11, 21))
    assert "failed with status 1" in desk.troubles[0]


@pytest.mark.parametrize(
    "rows",
    [
        [{"type": "gpu-1", "usd_per_hour": 0}],
        [{"type": "gpu-1", "usd_per_hour": "-1"}],
        [{"type": "gpu-1", "usd_per_hour": "NaN"}],
        [{"type": "gpu-1", "usd_per_hour": "free"}],
        [{"type": "gpu-1", "usd_per_hour": None}],
        [{"type": "gpu-1", "usd_per_hour": True}],
        [{"type": "gpu-1", "usd_per_hour": 2_000_000}],
        [{"type": "gpu-1"}],
        [{"type": "gpu-1", "usd_per_hour": 2, "currency": "EUR"}],
        [{"type": "gpu-1", "usd_per_hour": 2}, {"type": "gpu-1", "usd_per_hour": 3}],
        [{"type": "gpu-1", "usd_per_hour": 2}, "gpu-1"],
    ],
    ids=str,
)
def test_an_answer_in_doubt_gives_no_price(rows: list[Any], desk: Desk) -> None:
    """The machine is unpriced: neither free, nor at a price that may be another's."""
    desk.driver.says("prices", prices=rows)
    assert desk.ask(GPU) == [None]
    assert desk.troubles != []


def test_a_driver_without_prices_leaves_its_machines_unpriced(desk: Desk) -> None:
    """So does one that has none of that type, and neither is a failure."""
    desk.driver.says("prices", prices=[{"type": "gpu-8", "usd_per_hour": 2}])
    assert desk.ask(GPU) == [None]
    desk.clock.advance(86400.0)
    desk.driver.says("describe", name="Nowhere", calls=["list", "get"])
    assert desk.ask(GPU) == [None]
    assert desk.troubles == []


def test_regions_and_spot_have_their_own_prices(desk: Desk) -> None:
    """A row without a region holds in all that the request was about."""
    north = desk.add("n", ["north", "south"])
    del desk.clouds[""]
    at = north.folder
    north.script(
        f"""read -r asked; case "$asked" in
        *describe*) cat {at}/describe;; *'"region": "north"'*) cat {at}/north;; *) cat {at}/south;; esac"""
    )
    row = {"type": "gpu-1", "usd_per_hour": 1}
    for name, rows in {
        "north": [row, row | {"capacity": "spot", "usd_per_hour": "0.4"}],
        "south": [row | {"usd_per_hour": 3}],
    }.items():
        north.says("prices", prices=rows)
        (north.folder / "prices").rename(north.folder / name)
    hires = [PriceKey(instance_type="gpu-1", region=each, cloud="n") for each in ("north", "south")]
    spot = PriceKey(instance_type="gpu-1", region="north", zone="", capacity_type=CapacityType.SPOT, cloud="n")
    assert [usd(each) for each in desk.ask(*hires, spot)] == [1, 3, Decimal("0.4")]


def test_two_drivers_keep_their_prices_apart(desk: Desk) -> None:
    """The same name of a type is another machine in another cloud."""
    del desk.clouds[""]
    for name, price in {"a": 1, "b": 5}.items():
        desk.add(name).says("prices", prices=[{"type": "gpu-1", "usd_per_hour": price}])
    hires = [PriceKey(instance_type="gpu-1", region="", cloud=each) for each in ("a", "b")]
    assert [usd(each) for each in desk.ask(*hires)] == [1, 5]


def test_a_driver_that_is_not_fit_to_be_run_keeps_nothing_from_opening(desk: Desk) -> None:
    """The book opens; the log says what would be right."""
    desk.driver.path.chmod(0o777)
    assert desk.ask(GPU) == [None]
    assert "chmod go-w" in desk.troubles[0]
