"""`gpuwatch recommend commitments` as people and tools run it."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from gpuwatch.money.prices.catalogue import list_price


def run(*arguments: str | Path) -> Result:
    """One run of the command."""
    return CliRunner().invoke(commands, ["recommend", "commitments", *map(str, arguments)])


@pytest.fixture
def load(tmp_path: Path) -> Path:
    """Five weeks: eight GPUs by day, four by night."""
    path = tmp_path / "load.csv"
    path.write_text("\n".join(["time,value", *(f"{at * 3600},{8 if at % 24 < 12 else 4}" for at in range(840))]))
    return path


def test_tools_get_one_object(load: Path) -> None:
    """Plan, saving, break-even and sensitivity; money as text, so that no cent is lost."""
    done = run("--csv", load, "--price", "2.50", "--one-year", "0.37", "--three-year", "0.55", "--json")
    result = json.loads(done.stdout)

    assert done.exit_code == 0, done.output
    assert (result["reserve_three_year"], result["reserve_one_year"]) == (6, 0), (
        "at 45 % of the price half a day pays off"
    )
    assert result["load"] == {"hours": 840, "mean": 6.0, "peak": 8.0}
    assert result["break_even_utilization"] == {"one_year": 0.63, "three_year": 0.45}
    assert Decimal(result["today"]["usd_per_year"]) == 6 * 8760 * Decimal("2.5")
    for each in (result["today"], result["advised"]):
        assert Decimal(each["usd_per_year"]) == sum(Decimal(part["usd_per_year"]) for part in each["parts"])
    assert Decimal(result["saved_usd_per_year"]) == Decimal(result["today"]["usd_per_year"]) - Decimal(
        result["advised"]["usd_per_year"]
    )
    assert len(result["sensitivity"]) == 7
    assert result["warnings"] == []


def test_people_get_sentences_and_a_table(load: Path) -> None:
    """What to do first, then the arithmetic, then what it rests on."""
    text = run("--csv", load, "--price", "2.50").stdout

    assert text.startswith("Reserve 4 for 3 years and 0 for 1 year.\n")
    assert "advised" in text
    assert "Discounts: 1 year 30%, 3 years 50%; take them from your own offer." in text


@pytest.mark.parametrize(
    ("committed", "first", "year"),
    [
        ("0", "Reserve 4 for 3 years and 0 for 1 year.", "less than today."),
        ("1", "Reserve 3 more now; once today's 1 has run out, 4 for 3 years and 0 for 1 year in all.", "out."),
        ("4", "Reserve no more now; once today's 4 have run out, 4 for 3 years and 0 for 1 year in all.", "out."),
        ("90", "Reserve no more now; once today's 90 have run out, 4 for 3 years and 0 for 1 year in all.", "out."),
    ],
)
def test_what_is_reserved_stays_until_it_runs_out(load: Path, committed: str, first: str, year: str) -> None:
    """Nobody with enough reserved is told to reserve, and a saving is not promised before it can begin."""
    done = run("--csv", load, "--price", "2.50", "--committed", committed)
    lines = done.stdout.splitlines()
    more = json.loads(run("--csv", load, "--price", "2.50", "--committed", committed, "--json").stdout)[
        "reserved_today"
    ]

    assert lines[0] == first
    assert lines[2].startswith("A year costs $")
    assert lines[2].endswith(year)
    assert (more is None) == (committed == "0")
    assert more is None or more["more_units"] == max(0, 4 - int(committed))


def test_one_past_week_is_told_as_one(tmp_path: Path) -> None:
    """Eight weeks hold a single week's end with four weeks on both sides of it."""
    path = tmp_path / "load.csv"
    path.write_text("\n".join(f"{at * 3600},{8 if at % 24 < 12 else 4}" for at in range(8 * 168)))
    text = run("--csv", path, "--price", "2.50").stdout

    assert "Made at the end of one past week it would have saved 33% since then.\n" in text
    assert "lost money" not in text


def test_machines_have_their_list_price(load: Path) -> None:
    """--instance-type counts machines, priced from the built-in table, whose source is told."""
    result = json.loads(run("--csv", load, "--instance-type", "p5.48xlarge", "--json").stdout)
    listed = list_price("p5.48xlarge")

    assert listed is not None
    assert result["terms"]["price_per_hour"] == str(listed.usd_per_hour)
    assert listed.source in result["terms"]["price_source"]


def test_daily_means_hide_peaks_and_say_so(tmp_path: Path) -> None:
    """A load told by the day is spread over its hours, with a warning."""
    path = tmp_path / "load.csv"
    path.write_text("\n".join(f"{at * 86400},6" for at in range(35)))
    result = json.loads(run("--csv", path, "--price", "1", "--json").stdout)

    assert result["load"]["hours"] == 840
    assert "measured every 24 h" in result["warnings"][0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give one of --price and --instance-type"),
        (["--price", "1", "--instance-type", "p5.48xlarge"], "give one of --price and --instance-type"),
        (["--instance-type", "gn7i-c16g1.32xlarge"], "no list price of 'gn7i-c16g1.32xlarge' is known; give --price"),
        (["--price", "much"], "'much' is not a number"),
        (["--price", "1", "--one-year", "37"], "'--one-year': '37' is not from 0 to 1; write 0.37 for 37 %"),
    ],
)
def test_mistakes_are_named(load: Path, arguments: list[str], words: str) -> None:
    """Exit status 2, the option or key, and what would be right."""
    done = run("--csv", load, *arguments)

    assert done.exit_code == 2
    assert words in " ".join(done.stderr.split())


def test_a_load_below_zero_is_named_by_its_file(tmp_path: Path) -> None:
    """A balance is no load."""
    path = tmp_path / "load.csv"
    path.write_text("0,1\n3600,-1\n")
    done = run("--csv", path, "--price", "1")

    assert done.exit_code == 2
    assert done.stderr.startswith(f"{path}: the load curve holds -1 units")
