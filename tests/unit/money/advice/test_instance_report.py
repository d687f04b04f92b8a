"""What `gpuwatch recommend instance` says of machines that cost many times the cheapest."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands


def shown(*arguments: str) -> str:
    """What is printed."""
    done = CliRunner().invoke(commands, ["recommend", "instance", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("params", ["350M", "7B", "70B"])
def test_no_machine_of_many_times_the_price_is_listed_without_a_word(params: str) -> None:
    """Each row whose price is ten times the cheapest's or more is named below, and no other one."""
    text = shown("--params", params, "--limit", "1000")
    rows = [
        found
        for line in text.splitlines()
        if (found := re.match(r"0\.\d+ +\d+ x (\S+), \S+ (\S+) .*\$([\d,.]+)", line))
    ]
    prices = {(found[1], found[2]): float(found[3].replace(",", "")) for found in rows}
    named = set(re.findall(r"^(\S+) in (\S+) costs [\d,]+ times the cheapest", text, re.MULTILINE))

    assert prices
    assert named == {place for place, price in prices.items() if price >= 10 * min(prices.values())}


def test_the_reason_is_the_factor_that_counts_most() -> None:
    """Eight large GPUs for a small model are listed for what they perform, where more than money is asked for."""
    text = shown("--params", "7B", "--weights", "performance=0.3,cost=0.4,network=0.15,service=0.05,ecosystem=0.1")

    assert re.search(
        r"p6-b200.48xlarge in us-east-1 costs \d+ times the cheapest that holds it \(\$0.70/h\), "
        "and is listed for its performance",
        text,
    )
    assert "The order is by score." in text
    assert "costs" not in shown("--params", "7B", "--weights", "cost=1")


def test_a_dear_machine_in_the_usual_order_does_as_much_for_a_dollar() -> None:
    """Cost is what a dollar buys: who reads of 27 times the cheapest is told why it is here."""
    text = shown("--params", "7B", "--train")

    assert "The first row does most for a dollar: the order is by cost, then by score." in text
    assert re.search(
        r"p6-b200.48xlarge in us-east-1 costs \d+ times the cheapest .*, and does as much for a dollar", text
    )
    assert text.count("recomputes whole layers") == 1, "a note of several types is told once"


@pytest.mark.parametrize(("params", "words"), [("7B", "7 billion"), ("350M", "350 million"), ("1e12", "1 trillion")])
def test_parameters_are_told_in_words(params: str, words: str) -> None:
    """Nobody counts zeros."""
    assert shown("--params", params).startswith(f"{words} parameters, to serve in bf16; ")


def test_with_settings_offers_in_other_currencies_have_a_price_and_own_prices_count(tmp_path: Path) -> None:
    """By prices.rates and prices.file, in the currency of the settings; without settings they are not known."""
    own = tmp_path / "own.yaml"
    deal = "{provider: aws, instance_type: g6.xlarge, percent_off: 50, capacity_type: any, source: a deal}"
    own.write_text(f"prices:\n  - {deal}\n")
    config = tmp_path / "gpuwatch.yaml"
    config.write_text(f'currency: CNY\nprices: {{file: {own}, rates: {{CNY: "0.138"}}, rates_as_of: "2026-11-20"}}\n')
    asked = ("--params", "1B", "--provider", "alibaba", "--provider", "aws", "--limit", "1000")
    without, text = shown(*asked), shown(*asked, "--config", str(config))
    row = re.compile(r"0\.\d+ +1 x g6\.xlarge, aws us-east-1 .*?([$¥])([\d,.]+)")
    dollars, yuan = row.search(without), row.search(text)

    assert "prices.rates has no rate for that" in without
    assert "prices.rates has no rate for that" not in text
    assert dollars is not None
    assert yuan is not None
    assert (dollars[1], yuan[1]) == ("$", "¥")
    assert float(yuan[2]) == pytest.approx(float(dollars[2]) / 2 / 0.138, abs=0.05)
    assert "Money in CNY: one is 0.138 US dollars, the rate of 2026-11-20." in text
