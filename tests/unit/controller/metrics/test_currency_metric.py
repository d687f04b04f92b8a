"""The rate of the currency that people read, for boards: metrics of money are in US dollars."""

from decimal import Decimal

import pytest

from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.model.currency import DOLLARS, Currency, show_in
from tests.support.builders.fleet import Desk


@pytest.mark.parametrize(
    ("currency", "line"),
    [
        (DOLLARS, 'gpuwatch_currency_usd{currency="USD",fleet="ml"} 1.0'),
        (Currency(code="CNY", usd=Decimal("0.138")), 'gpuwatch_currency_usd{currency="CNY",fleet="ml"} 0.138'),
    ],
    ids=["US dollars", "yuan"],
)
def test_one_series_has_the_currency_and_its_rate(currency: Currency, line: str) -> None:
    """Also before the first round."""
    show_in(currency)
    page = ControllerMetrics("enforce", "ml", Desk().clock).page().body.decode()

    assert [each for each in page.splitlines() if each.startswith("gpuwatch_currency_usd")] == [line]
