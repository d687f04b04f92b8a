"""`gpuwatch forecast` as people and tools run it."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands

BEGIN = datetime(2026, 5, 4, tzinfo=UTC)
WEEK = [10.0, 11.0, 12.0, 11.0, 10.0, 3.0, 2.0]


def run(*arguments: str | Path) -> Result:
    """One run of the command."""
    return CliRunner().invoke(commands, ["forecast", *map(str, arguments)])


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """Eight weeks of days, with ISO times."""
    path = tmp_path / "series.csv"
    lines = [f"{(BEGIN + timedelta(days=at)).isoformat()},{value + at % 3}" for at, value in enumerate(WEEK * 8)]
    path.write_text("\n".join(["time,value", *lines]))
    return path


def test_tools_get_one_object(series: Path) -> None:
    """The documented command line gives the documented keys, and a step for each day of the horizon."""
    done = run("--csv", series, "--horizon", "7d", "--json")
    result = json.loads(done.stdout)

    assert done.exit_code == 0, done.output
    assert set(result) == {"schema", "method", "backtest", "methods", "step_seconds", "forecast", "warnings"}
    assert set(result["backtest"]) >= {"mase", "wape", "coverage", "origins"}
    assert result["method"] in {each["method"] for each in result["methods"]}
    assert result["step_seconds"] == 86400
    assert [step["time"] for step in result["forecast"]] == [
        f"{BEGIN + timedelta(days=56 + at):%Y-%m-%dT%H:%M:%SZ}" for at in range(7)
    ]
    assert all(step["lower"] <= step["mean"] <= step["upper"] for step in result["forecast"])
    assert [step["mean"] for step in result["forecast"]] == pytest.approx([value + 1 for value in WEEK], abs=2)


def test_people_get_a_table(series: Path) -> None:
    """A line for each day, and one for the method with its errors."""
    lines = run("--csv", series).stdout.splitlines()

    assert lines[1].split()[:2] == ["2026-06-29", "00:00"]
    assert sum("<- this one" in line for line in lines) == 1
    assert [line.split(" ")[0] for line in lines if "<- this one" in line] == ["blend"]
    assert not any("The smallest error decides" in line for line in lines), "nothing competes"


def test_growth_goes_on(tmp_path: Path) -> None:
    """Costs that grow by 3 dollars a day are forecast to grow, and that was right each time."""
    path = tmp_path / "growing.csv"
    path.write_text("\n".join(f"{(BEGIN + timedelta(days=at)).isoformat()},{100 + 3 * at}" for at in range(30)))
    lines = run("--csv", path).stdout.splitlines()
    heads, *table = lines[lines.index("") + 1 :]
    column = slice(heads.index(" error"), heads.index("error") + 5)

    assert "<- this one" in table[0]
    assert float(table[0][column]) < 0.7, "three of its trials had less than two weeks to see a line in"
    assert [float(line.split()[3]) for line in lines[1:8]] == [190, 193, 196, 199, 202, 205, 208]


def test_seconds_gzip_other_columns_and_holes_are_read(tmp_path: Path) -> None:
    """A Prometheus export: seconds since 1970, columns in another order, NaN for nothing."""
    path = tmp_path / "series.csv.gz"
    begin = int(BEGIN.timestamp())
    rows = [f"a,{'NaN' if at == 30 else 5},{begin + at * 3600}.0" for at in range(100)]
    path.write_bytes(gzip.compress("\r\n".join(["pool,Value,time", *rows]).encode()))
    result = json.loads(run("--csv", path, "--horizon", "1d", "--json").stdout)

    assert result["step_seconds"] == 3600
    assert {step["mean"] for step in result["forecast"]} == {5.0}
    assert result["forecast"][0]["time"] == f"{BEGIN + timedelta(hours=100):%Y-%m-%dT%H:%M:%SZ}"
    assert any("1 of 100 steps hold no value" in warning for warning in result["warnings"])


def test_hours_may_be_forecast_as_days(tmp_path: Path) -> None:
    """--step 1d takes means of days."""
    path = tmp_path / "series.csv"
    path.write_text("\n".join(f"{(BEGIN + timedelta(hours=at)).isoformat()},{at % 24}" for at in range(24 * 40)))
    result = json.loads(run("--csv", path, "--horizon", "3d", "--step", "1d", "--json").stdout)

    assert [step["mean"] for step in result["forecast"]] == [11.5] * 3


def test_too_short_a_history_says_so(tmp_path: Path) -> None:
    """A single value gives a mean, nulls and a warning; not an error and not a made-up interval."""
    path = tmp_path / "series.csv"
    path.write_text("2026-05-04T00:00:00Z,42\n")
    result = json.loads(run("--csv", path, "--horizon", "2d", "--json").stdout)

    assert result["backtest"] is None
    assert [(step["mean"], step["lower"], step["upper"]) for step in result["forecast"]] == [(42.0, None, None)] * 2
    assert "history is too short" in result["warnings"][0]
    assert "history is too short" in run("--csv", path).stdout


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no value"),
        ("time,value\n", "holds no value"),
        ("time,value\n2026-05-04,\n", "holds no value"),
        ("a,b\n1,2\n", "line 1: the header 'a,b' has no columns time and value"),
        (
            "time,value\n2026-05-04,1\nyesterday,2\n",
            "line 3: time 'yesterday' is not a time; write 2026-11-01T00:00:00Z",
        ),
        ("time,value\n2026-05-04,much\n", "line 2: value 'much' is no number"),
        ("time,value\n2026-05-04,inf\n", "line 2: value 'inf' is not finite"),
        ("time,value\n1e300,1\n", "line 2: time '1e300' are not seconds since 1970"),
        ("time,value\n2026-05-04\n", "line 2: '2026-05-04' is not time,value"),
        ("0,1\n3600,1\n7200,1\n1777852800,1\n", "at most 200000 are taken"),
    ],
)
def test_mistakes_are_named_by_file_and_line(tmp_path: Path, content: str, words: str) -> None:
    """Exit status 2, and a sentence that says what would be right."""
    path = tmp_path / "series.csv"
    path.write_text(content)
    done = run("--csv", path)

    assert done.exit_code == 2
    assert str(path) in done.stderr
    assert words in done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"\x1f\x8bbroken", "cannot be read"), (b"\xff\xfe\x00time", "is not UTF-8 text (byte 0xff at position 0)")],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    """A broken .gz and a binary file are named."""
    path = tmp_path / "series.csv.gz"
    path.write_bytes(content)
    done = run("--csv", path)

    assert done.exit_code == 2
    assert f"{path}: {words}" in done.stderr


def test_a_horizon_without_end_is_refused(series: Path) -> None:
    """Ten thousand steps are more than anybody reads."""
    done = run("--csv", series, "--horizon", "20000d")

    assert done.exit_code == 2
    assert "at most 10000" in done.stderr
