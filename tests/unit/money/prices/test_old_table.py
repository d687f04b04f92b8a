"""The built-in table grows old: `config check` and `prices` say so, by a setting."""

from datetime import date, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.money.prices import catalogue
from gpuwatch.money.prices.listing import old_table
from gpuwatch.money.prices.settings import LivePriceSettings, PriceSettings

DAY = 86400.0
FLEET = "cloud: {provider: alibaba}\npools: {default: {min_nodes: 0}}\n"


def the_oldest(provider: str) -> date:
    """The day of the cloud's oldest price."""
    found = catalogue.oldest(provider)
    assert found is not None
    return found


@pytest.mark.parametrize(("days", "warned"), [(179, False), (180, False), (181, True)])
def test_prices_older_than_half_a_year_are_warned_of(days: int, warned: bool) -> None:
    """Once for each cloud of the settings."""
    found = old_table([("aws", None), ("aws", None)], PriceSettings(), the_oldest("aws") + timedelta(days=days))

    assert len(found) == warned
    assert not warned or f"the built-in prices of aws are of {the_oldest('aws')}, 181 days old" in found[0]


def test_the_setting_says_what_is_old() -> None:
    """With a year, half a year is not."""
    day = the_oldest("aws") + timedelta(days=200)

    assert old_table([("aws", None)], PriceSettings(warn_older_than=365 * DAY), day) == []
    assert old_table([("aws", None)], PriceSettings(warn_older_than=30 * DAY), day) != []


def test_a_cloud_that_is_asked_itself_and_one_without_prices_are_not_warned_of() -> None:
    """The table is used there for what the cloud does not answer, or not at all."""
    late = date(2036, 1, 1)

    assert old_table([("aws", None)], PriceSettings(live=LivePriceSettings(aws=True)), late) == []
    assert catalogue.oldest("tencent") is None
    assert old_table([("tencent", None)], PriceSettings(), late) == []


def test_the_region_of_a_cloud_counts_and_not_a_price_of_another_seller() -> None:
    """China's prices of AWS are of 2024: nobody in us-east-1 is warned of them."""
    day = the_oldest("aws")

    assert old_table([("aws", "us-east-1")], PriceSettings(), day) == []
    assert "2024-11-06" in old_table([("aws", "cn-north-1")], PriceSettings(), day)[0]


def test_the_commands_warn(tmp_path: Path) -> None:
    """`config check` of the clouds of the settings, `prices` of what it lists; both by the same setting."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(f"{FLEET}prices: {{warn_older_than: 1d}}\n", encoding="utf-8")
    checked = CliRunner().invoke(commands, ["config", "check", "--config", str(file)])
    listed = CliRunner().invoke(commands, ["prices", "--provider", "alibaba", "--config", str(file)])

    assert "Warning: the built-in prices of alibaba are of 2024-12-31, " in checked.output
    assert "Warning: prices of alibaba are up to " in listed.output
    file.write_text(f"{FLEET}prices: {{warn_older_than: 36500d}}\n", encoding="utf-8")
    quiet = CliRunner().invoke(commands, ["config", "check", "--config", str(file)])
    assert "built-in prices" not in quiet.output
    file.write_text("cloud: {provider: alibaba}\nprices: {warn_older_than: 1d}\n", encoding="utf-8")
    agent = CliRunner().invoke(commands, ["config", "check", "--config", str(file)])
    assert "built-in prices" not in agent.output, "it is of an agent, which prices nothing"


def test_what_is_sold_apart_counts_for_its_own_regions_alone() -> None:
    """Nobody who names no region is warned of the old prices of AWS in China."""
    apart, usual = catalogue.oldest("aws", "cn-north-1"), catalogue.oldest("aws")

    assert apart is not None
    assert usual is not None
    assert apart < usual
