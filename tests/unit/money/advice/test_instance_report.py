"""What `gpuwatch recommend instance` says of machines that cost many times the cheapest."""

import re

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
    """Eight large GPUs for a small model are listed for what they perform."""
    text = shown("--params", "7B")

    assert re.search(r"p6-b200.48xlarge in us-east-1 costs \d+ times the cheapest that holds it \(\$0.71/h\)", text)
    assert "it is listed for its performance. --weights cost=1 ranks by cost alone." in text
    assert "costs" not in shown("--params", "7B", "--weights", "cost=1")


@pytest.mark.parametrize(("params", "words"), [("7B", "7 billion"), ("350M", "350 million"), ("1e12", "1 trillion")])
def test_parameters_are_told_in_words(params: str, words: str) -> None:
    """Nobody counts zeros."""
    assert shown("--params", params).startswith(f"{words} parameters, to serve in bf16; ")
