"""The page of a backtest: whole, alone, escaped, and saying what the JSON says."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.simulate.backtest.report import MEASURES

HOUR = 3600
COMPARED = ["timeout=10m", "timeout=break_even", "timeout=learned", "never"]
VOID = {"meta", "input", "wbr"}
HOSTILE = "<b>forgotten</b>"


class Page(HTMLParser):
    """Tags that are open, what the page refers to, the rows of its tables, and what a label or a style names."""

    def __init__(self) -> None:
        """Nothing is open."""
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One more, unless it has no end."""
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """It ends at once."""
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        """The innermost one ends."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text of the innermost cell; a ratio beside a figure is not part of it."""
        if {"td", "th"} & set(self.open) and self.open[-1] != "small":
            self.rows[-1][-1] += data

    def named(self, name: str) -> list[str]:
        """Every value of an attribute."""
        return [value or "" for attribute, value in self.attributes if attribute == name]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Page, dict[str, Any]]:
    """The page, its parts, and the JSON of the same run."""
    folder = tmp_path_factory.mktemp("page")
    often = [f"often,{at * HOUR},{at * HOUR + 1800}" for at in range(6)]
    rows = ["node,busy_from_s,busy_to_s", *often, f"always,0,{6 * HOUR}", f"{HOSTILE},0,900"]
    trace, file = folder / "trace.csv", folder / "report.html"
    trace.write_text("\n".join(rows))
    arguments: list[str | Path] = ["--trace", trace, "--compare", *COMPARED, "--check-hours", "0", "--html", file]
    done = CliRunner().invoke(commands, ["backtest", *map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    text, page = file.read_text(encoding="utf-8"), Page()
    page.feed(text)
    return text, page, json.loads(done.stdout)


def test_the_page_is_whole_and_asks_nothing_of_anybody(written: tuple[str, Page, dict[str, Any]]) -> None:
    """Every tag is closed; no script, no reference, no address."""
    text, page, _ = written

    assert page.open == []
    assert [*page.named("src"), *page.named("href"), *page.named("xlink:href"), *page.named("action")] == []
    assert not {"script", "link", "img", "iframe", "object", "b"} & set(page.seen)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert not re.search(r"https?:|//|@import|url\(", text)


def test_names_of_nodes_are_text(written: tuple[str, Page, dict[str, Any]]) -> None:
    """A node may be called anything."""
    text, page, _ = written

    assert HOSTILE not in text
    assert HOSTILE in [row[0] for row in page.rows]


def test_the_figures_are_those_of_the_json(written: tuple[str, Page, dict[str, Any]]) -> None:
    """Each measure is a row, each policy and the optimum a column, in the same order."""
    _, page, document = written
    rows = {row[0]: row[1:] for row in page.rows}
    sides = [*document["policies"], document["optimum"]]

    assert rows[""] == [*COMPARED, "optimum"]
    for measure in MEASURES:
        expected = ["-" if (value := side[measure.key]) is None else measure.write(value) for side in sides]
        assert [cell.strip() for cell in rows[measure.words]] == expected, measure.key
    assert rows["wrong stops in the check"] == ["-"] * 5


def test_the_stops_are_those_of_the_json(written: tuple[str, Page, dict[str, Any]]) -> None:
    """Node for node, with hours, money and evidence."""
    _, page, document = written
    expected = [
        (each["node_id"], f"{each['node_hours_saved']:,.2f}", f"{each['saved_usd']:,.2f}", each["evidence"])
        for policy in document["policies"]
        for each in policy["would_have_stopped"]
    ]
    shown = [(row[0], row[4], row[5], row[6].removeprefix("suspect; ")) for row in page.rows if len(row) == 7]

    assert shown[1 : 1 + len(expected[:6])] == expected[:6], "the first policy's, below a line of heads"
    assert [row for row in shown if row[0] != "node"][: len(expected)] == expected


def test_every_policy_can_be_chosen_without_a_script(written: tuple[str, Page, dict[str, Any]]) -> None:
    """A button has a label and a panel that the style shows while it is checked; on paper all are shown."""
    text, page, _ = written
    buttons = [f"p{number}" for number in range(len(COMPARED) + 1)]

    assert page.named("for") == buttons
    assert {*buttons, *(f"panel{number}" for number in range(5))} == set(page.named("id"))
    for number, button in enumerate(buttons):
        assert f"#{button}:checked ~ #panel{number} {{ display: block; }}" in text
    assert "@media screen { .panel { display: none; } }" in text


def test_charts_and_tables_tell_what_they_are(written: tuple[str, Page, dict[str, Any]]) -> None:
    """A title and a description in every chart, a caption and scoped heads in every table, dark where asked for."""
    text, page, _ = written
    count = page.seen.count("svg")

    assert count == 4 + 5, "four side by side, and the fleet under each"
    assert page.seen.count("desc") == count
    assert page.seen.count("title") == count + 1
    assert page.seen.count("caption") == page.seen.count("table") >= 4
    assert {"row", "col"} == set(page.named("scope"))
    assert "prefers-color-scheme: dark" in text
