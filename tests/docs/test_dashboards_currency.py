"""Money on the boards is in the currency that the controller exports, by its rate, and titles name it."""

import re

import pytest

from dashboards.source.currency import MONEY
from tests.support.dashboards import NAMES, Json, load, panels, variables

MONEY_METRIC = re.compile(r"gpuwatch_(?!currency)\w*usd\w*")
CHOSEN = r"gpuwatch_currency_usd\{[^}]*currency=~\"\$currency\"\} @ end\(\)"
RATE = re.compile(rf"^\(.+\) / scalar\(max\({CHOSEN}\) or vector\(1\)\)$", re.DOTALL)


def shows_money(panel: Json) -> bool:
    """Whether a value of it, or a column, is money."""
    of_columns = [each["value"] for row in panel["fieldConfig"]["overrides"] for each in row["properties"]]
    return MONEY in (panel["fieldConfig"]["defaults"].get("unit"), *of_columns)


@pytest.mark.parametrize("name", NAMES)
def test_a_panel_of_money_names_the_currency_and_the_others_do_not(name: str) -> None:
    """Grafana fills variables into titles; into units it does not."""
    for panel in panels(load(name)):
        assert ("$currency" in panel["title"]) == shows_money(panel), panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_every_sum_of_money_is_divided_by_the_rate(name: str) -> None:
    """Shares of money and hours are not: a query that is divided is one of money."""
    for panel in panels(load(name)):
        for target in panel["targets"]:
            divided = RATE.match(target["expr"]) is not None
            assert divided or "gpuwatch_currency_usd" not in target["expr"], panel["title"]
            assert not divided or (MONEY_METRIC.search(target["expr"]) and shows_money(panel)), panel["title"]
        if panel["type"] != "table" and shows_money(panel):
            assert all(RATE.match(target["expr"]) for target in panel["targets"]), panel["title"]


def test_a_column_of_money_is_divided_and_its_neighbours_are_not() -> None:
    """By the budget's own letters of queries."""
    (budgets,) = (each for each in panels(load("cost")) if each["title"] == "Budgets, money in $currency")
    divided = [bool(RATE.match(target["expr"])) for target in budgets["targets"]]

    assert divided == [True, True, False, True, False, True, True, False, False, False, False]


@pytest.mark.parametrize("name", [each for each in NAMES if "$currency" in str(load(each))])
def test_the_currency_is_a_variable_of_the_controllers(name: str) -> None:
    """With one choice for each currency that a controller of the chosen fleets shows money in."""
    assert variables(load(name))["currency"]["query"]["query"] == (
        'label_values(gpuwatch_currency_usd{job=~"$job", cluster=~"$cluster", fleet=~"$fleet"}, currency)'
    )
