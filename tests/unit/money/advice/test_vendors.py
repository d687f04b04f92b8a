"""Vendors by a person's own scores: hand arithmetic, what is not known, how firm the first place is, and mistakes."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.cli.main import commands
from gpuwatch.money.advice.vendors import (
    Criterion,
    Sheet,
    VendorTurn,
    fill_measured,
    rank_vendors,
    read_sheet,
    turns,
    vendors_document,
)

TABLE = """vendor,sla,latency_ms,support,price
weight,40,30,10,20
best,100,0,5,
worst,99,100,1,
aws,99.9,20,3,4
azure,99.5,10,5,5
other,,50,1,
"""


def test_a_score_is_the_weighted_mean_of_the_points() -> None:
    """Of aws: 0.4 x 0.9 + 0.3 x 0.8 + 0.1 x 0.5 + 0.2 x 1."""
    places = {place.vendor: place for place in rank_vendors(read_sheet(TABLE, "t"))}

    assert places["aws"].score == pytest.approx(0.36 + 0.24 + 0.05 + 0.2)
    assert places["azure"].score == pytest.approx(0.4 * 0.5 + 0.3 * 0.9 + 0.1 * 1 + 0.2 * 0.8)
    assert places["other"].score == pytest.approx(0.3 * 0.5)
    assert places["other"].unknown == ("sla", "price")


def test_what_was_measured_fills_empty_cells_alone() -> None:
    """A value of one's own stays."""
    sheet = fill_measured(read_sheet(TABLE, "t"), {"price": {"aws": 1.0, "other": 2.0}})

    assert [sheet.values[vendor]["price"] for vendor in ("aws", "azure", "other")] == [4.0, 5.0, 2.0]


def test_a_weight_that_decides_is_named() -> None:
    """A leads by the first criterion alone."""
    sheet = read_sheet("vendor,x,y\nweight,3,2\nbest,1,1\nworst,0,0\na,1,0\nb,0,1\n", "t")

    assert list(turns(sheet)) == [
        VendorTurn(criterion="x", weight="no weight", first="b"),
        VendorTurn(criterion="y", weight="twice the weight", first="b"),
    ]
    assert vendors_document(sheet, ()).weights == {"x": 0.6, "y": 0.4}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "t is empty; write the titles vendor"),
        ("vendor,x,x\nweight,1,1\na,1,1\n", "stands twice"),
        ("vendor,x\nweight,1\na,good\n", "t:3: x is 'good', which is not a number"),
        ("vendor,x\nweight,1\na,1\na,2\n", "t:4: 'a' stands twice"),
        ("vendor,x\na,1\n", "no row is named weight"),
        ("vendor,x\nweight,0\na,1\n", "all weights are 0"),
        ("vendor,x\nweight,1\nbest,1\na,1\n", "best and worst"),
        ("vendor,x\nweight,1\n", "expected a row for each vendor"),
    ],
)
def test_mistakes_name_the_line_and_what_is_expected(text: str, says: str) -> None:
    """No traceback, no silent zero."""
    with pytest.raises(ValueError, match=r"^t") as caught:
        read_sheet(text, "t")

    assert says in str(caught.value)


@given(
    values=st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=1, max_size=8),
    weight=st.floats(0.01, 100),
    best=st.floats(-1e3, 1e3),
    worst=st.floats(-1e3, 1e3),
)
def test_points_and_scores_lie_between_0_and_1(
    values: list[float | None], weight: float, best: float, worst: float
) -> None:
    """Whatever the table holds."""
    ends = (None, None) if best == worst else (best, worst)
    criterion = Criterion(name="x", weight=weight, best=ends[0], worst=ends[1])
    rows = {str(number): {"x": None if value is None else abs(value)} for number, value in enumerate(values)}

    assert all(-1e-9 <= place.score <= 1 + 1e-9 for place in rank_vendors(Sheet(criteria=(criterion,), values=rows)))


def test_the_command_adds_the_price_of_a_gpu_hour(tmp_path: Path) -> None:
    """By the price table; a vendor that gpuwatch does not know has none."""
    table = tmp_path / "vendors.csv"
    table.write_text("vendor,sla,price\nweight,1,1\nbest,100,\nworst,99,\naws,99.9,\nacme,99.9,\n")
    done = CliRunner().invoke(commands, ["recommend", "vendors", "--scores", str(table), "--gpu", "h100"])
    wrong = CliRunner().invoke(commands, ["recommend", "vendors", "--scores", str(table), "--gpu", "H9000"])

    assert done.exit_code == 0, done.output
    assert "price: US dollars for the cheapest h100 for an hour on demand" in done.output
    assert "acme: not known, so 0 points: price." in done.output
    assert (wrong.exit_code, "H9000" in wrong.output) == (2, True)
