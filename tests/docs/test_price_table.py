"""The built-in table and what the page on money says of it."""

from gpuwatch.money.prices import catalogue
from tests.support.paths import ROOT
from tools.prices.page import PAGE, with_table
from tools.prices.table import read, written

TABLE = (ROOT / "gpuwatch/money/prices/data/prices.tsv").read_text(encoding="utf-8")


def test_the_page_has_the_days_and_regions_of_the_table() -> None:
    """`make prices` writes both."""
    page = (ROOT / PAGE).read_text(encoding="utf-8")

    assert with_table(page, read(TABLE)) == page


def test_the_table_is_written_as_it_was_read() -> None:
    """So the difference that `make prices` makes is the prices alone."""
    assert written(read(TABLE)) == TABLE


def test_every_price_has_a_day_and_a_source_in_words() -> None:
    """Of that one price, not of the table as a whole."""
    assert {row.source for row in read(TABLE)} <= catalogue.SOURCES.keys()
    assert all(each.source and each.as_of for each in catalogue.offers())
