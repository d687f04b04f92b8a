"""docs/benchmarks.md: `--page` writes each table into its own place, and nothing else."""

from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks.figures import Figure, has_place, put, table
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
FIGURES = [
    Figure(name="with a goal", unit="s", runs=[1.0, 2.0, 3.0], at_most=2.5),
    Figure(name="without", unit="s", runs=[1.0]),
]


@pytest.mark.parametrize("section", ["agent", "commands", "timing", "forecast", "months", "people"])
def test_a_table_replaces_its_own_block(tmp_path: Path, section: str) -> None:
    """The page has one place for it; the rest stays, and so does the page when the same is written again."""
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    before, _, after = page.read_text(encoding="utf-8").partition(f"<!-- measured: {section} -->\n```text\n")
    written = table([(section, FIGURES)], goals_only=True)
    for _ in range(2):
        put(page, section, written)
        new = page.read_text(encoding="utf-8")

    assert (
        new == f"{before}<!-- measured: {section} -->\n```text\n{written}\n```\n{after.partition('```' + chr(10))[2]}"
    )
    assert "with a goal" in new
    assert "without" not in written


def test_a_section_without_a_place_is_refused_before_it_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the page and the line that it lacks."""
    assert not has_place(PAGE, "clouds")
    monkeypatch.setattr("sys.argv", ["benchmarks", "clouds", "--page", str(PAGE)])
    with pytest.raises(SystemExit):
        bench.main()

    assert f"{PAGE} has no line <!-- measured: clouds -->" in capsys.readouterr().err
