"""`config check` says which regions and types have no price, before a month of them is on record."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.controller.round import step
from gpuwatch.ledger import Ledger
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.money.prices.gaps import unpriced_kinds, unpriced_regions
from gpuwatch.money.prices.price_book import Book
from gpuwatch.money.prices.settings import LivePriceSettings, PriceSettings
from tests.support.builders.fleet import Desk, a_node

NOW = datetime(2026, 11, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        (PriceSettings(), ["mx-central-1"]),
        (PriceSettings(live=LivePriceSettings(aws=True)), []),
        (PriceSettings(file="prices.yaml"), []),
    ],
)
def test_a_region_without_list_prices_is_said_where_nothing_else_gives_them(
    prices: PriceSettings, said: list[str]
) -> None:
    """One with them is not."""
    clouds = {"": CloudSettings(regions=("us-east-1", "mx-central-1"))}
    found = unpriced_regions(clouds, prices)

    assert len(found) == len(said)
    assert all(region in found[0] and "us-east-1" not in found[0] for region in said)


def test_types_of_the_fleet_without_a_price_and_with_that_of_another_region() -> None:
    """Each once, however many machines there are; a type with its own price is not named."""
    nodes = [
        *(a_node(f"i-{number}", instance_type="x9.huge") for number in range(9)),
        replace(a_node("far", instance_type="p5.48xlarge"), region="mx-central-1"),
        a_node("known", instance_type="p4d.24xlarge"),
    ]
    found = unpriced_kinds(nodes, Book(provider="aws").find, NOW, {"": "aws"})

    assert [each.split(":")[0] for each in found] == [
        "no price is known of x9.huge in us-east-1",
        "another region's price counts for p5.48xlarge in mx-central-1",
    ]
    assert "`gpuwatch cost rates`" in found[1]


def test_the_command_reads_the_newest_round(tmp_path: Path) -> None:
    """A ledger that is not there is no mistake."""
    config = tmp_path / "gpuwatch.yaml"
    place = LedgerSettings(path=str(tmp_path / "ledger.db"))
    config.write_text(
        f"ledger: {{path: {place.path}}}\ncloud: {{regions: [us-east-1]}}\npools: {{default: {{min_nodes: 0}}}}\n",
        encoding="utf-8",
    )
    before = CliRunner().invoke(commands, ["config", "check", "--config", str(config)])
    ledger = Ledger.connect(place)
    desk = Desk(ledger=ledger)
    desk.fleet.put(a_node("i-1", instance_type="x9.huge"))
    step(desk.parts)
    ledger.close()
    after = CliRunner().invoke(commands, ["config", "check", "--config", str(config)])

    assert (before.exit_code, after.exit_code) == (0, 0)
    assert "no price is known" not in before.output
    assert "Warning: no price is known of x9.huge in us-east-1: " in after.output
