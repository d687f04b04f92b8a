"""The report on a day in all of its forms: golden pages, and what no page may hold."""

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from gpuwatch.ledger import Ledger
from gpuwatch.model.currency import Currency, show_in
from gpuwatch.money.report.blocks import Bars, Table, Words
from gpuwatch.money.report.money_sections import forecast
from gpuwatch.money.report.pages import as_html, as_text
from gpuwatch.money.report.report import Report
from gpuwatch.money.report.sections import figures, headline, sections
from gpuwatch.notify.reports import ReportContent, report_delivery
from gpuwatch.notify.transports.file import FORMATS
from gpuwatch.notify.transports.registry import ReportTransports
from gpuwatch.notify.transports.web import slack_message
from tests.support import paths
from tests.support.builders.ledger_fixture import ODD, a_fortnight, a_report, at, the_fortnight

GOLDEN = paths.GOLDEN / "reports"
FORMS: dict[str, Callable[[Report], str]] = {
    form: lambda report, render=render: render(ReportContent(report))  # type: ignore[misc]  # each its own
    for form, render in FORMATS.items()
}
PAGES = {f"saturday.{form}": render for form, render in FORMS.items()}
PAGES["saturday.json"] = lambda report: json.dumps(json.loads(FORMS["json"](report)), indent=2) + "\n"
PAGES["saturday.mail.html"] = lambda report: as_html(report, mail=True)


@cache
def saturday() -> Report:
    """The 28th of March, told the morning after."""
    return a_report(the_fortnight())


@pytest.mark.parametrize("name", PAGES)
def test_a_day_on_one_page(name: str) -> None:
    """Every form of the report is as it was; GPUWATCH_UPDATE_GOLDEN=1 writes it anew, and the diff is the review."""
    path, text = GOLDEN / name, PAGES[name](saturday())
    if os.environ.get("GPUWATCH_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    assert text == path.read_text(encoding="utf-8")


def test_in_another_currency_every_table_adds_up_and_json_stays_in_dollars() -> None:
    """Of the yuan's own cents; the headline names the rate and its day."""
    dollars = json.loads(FORMS["json"](saturday()))
    show_in(Currency(code="CNY", usd=Decimal("0.138"), as_of=date(2026, 3, 27)))
    report = a_report(the_fortnight())
    yuan, text = json.loads(FORMS["json"](report)), FORMS["txt"](report)
    sums = [
        table for section in sections(report) for table in section.parts if isinstance(table, Table) and table.summed
    ]

    assert "$" not in text
    assert headline(report).endswith("Money in CNY: one is 0.138 US dollars, the rate of 2026-03-27.")
    for table in sums:
        for column in (number for number, head in enumerate(table.heads) if head in {"cost", "wasted", "saved"}):
            cells = [round(100 * float(re.sub(r"[^\d.]", "", row[column]) or 0)) for row in table.rows]
            assert sum(cells[:-1]) == cells[-1], (table.caption, column)
    assert yuan["currency"] == {"code": "CNY", "usd": "0.138", "as_of": "2026-03-27"}
    assert {**yuan, "currency": None, "headline": ""} == {**dollars, "headline": ""}


@pytest.mark.parametrize("mail", [False, True])
def test_the_page_is_well_formed_and_loads_nothing(mail: bool) -> None:
    """It is XML, has no script, no form, and no address of anything to load or to go to."""
    page = as_html(saturday(), mail=mail)
    root = ET.fromstring(page.partition("\n")[2])  # noqa: S314  our own
    names = {element.tag for element in root.iter()}
    result = {name for element in root.iter() for name in element.attrib}

    assert names & {"script", "link", "img", "iframe", "form", "object", "a", "input"} == set()
    assert result & {"src", "href", "background", "action"} == set()
    assert not any(name.startswith("on") for name in result)
    assert re.findall(r"(?i)https?://|url\(|@import|javascript:", page) == []
    assert ("svg" in names) is not mail


def test_a_mail_is_shown_whole() -> None:
    """Gmail cuts what is longer than 102 kB: a fleet's mail stays well below."""
    assert len(as_html(saturday(), mail=True).encode()) < 80_000


def test_names_of_others_are_no_markup() -> None:
    """An owner with tags in the name is shown as it is, and is neither an element nor a mention."""
    report = saturday()
    page = as_html(report)
    said: list[str] = []

    class Reader(HTMLParser):
        """What a browser shows."""

        def handle_data(self, data: str) -> None:
            said.append(data)

    Reader().feed(page)

    assert ODD in said
    assert "<script" not in page
    assert "<script" not in json.dumps(slack_message(report_delivery(report, ReportTransports(), "k")))


def test_with_several_clouds_each_has_its_line_and_machines_say_where_they_are() -> None:
    """The lines add up to the whole; with one cloud the page is as it was."""
    fortnight = a_fortnight(until=at(date(2026, 3, 15), 5))
    for number, name in enumerate(fortnight.nodes):
        fortnight.nodes[name] = replace(fortnight.nodes[name], cloud="bj" if number % 2 else "us")
    fortnight.round(at(date(2026, 3, 15), 6))
    fortnight.round(at(date(2026, 3, 15), 7))
    report = a_report(fortnight.ledger, date(2026, 3, 15), now=at(date(2026, 3, 15), 8))
    text = FORMATS["txt"](ReportContent(report))

    assert {"bj", "us"} <= {line.name for line in report.slices["cloud"]}
    assert sum(line.cents for line in report.slices["cloud"]) == report.cents
    assert "Waste, by cloud, pool and owner\n" in text
    assert re.search(r"^\S+ \(i-\S+ in bj\) ", text, re.MULTILINE)
    assert "By cloud" not in FORMATS["txt"](ReportContent(saturday()))


def test_what_would_break_a_terminal_or_a_page_is_shown_by_its_code() -> None:
    """Control characters in a name reach neither the screen nor the page, which stays well-formed."""
    fortnight = a_fortnight(until=at(date(2026, 3, 15), 5))
    fortnight.nodes["note-1"] = replace(fortnight.nodes["note-1"], owner="eve\x1b[2J\x00\n| x")
    fortnight.round(at(date(2026, 3, 15), 6))
    fortnight.round(at(date(2026, 3, 15), 7))
    report = a_report(fortnight.ledger, date(2026, 3, 15), now=at(date(2026, 3, 15), 8))
    text = FORMATS["txt"](ReportContent(report))

    assert "\x1b" not in text
    assert any(r"eve\x1b[2J\x00\n| x" in line for line in text.splitlines())
    ET.fromstring(as_html(report).partition("\n")[2])  # noqa: S314  our own


def test_the_page_reads_without_colours() -> None:
    """Every figure of a bar is also written, headings are headings, and cells have heads."""
    root = ET.fromstring(as_html(saturday()).partition("\n")[2])  # noqa: S314  our own
    data = [table for table in root.iter("table") if table.get("role") != "presentation"]
    heads = [element.text for element in root.iter("h2")]

    assert root.get("lang") == "en"
    assert len(list(root.iter("h1"))) == 1
    assert heads == [section.title for section in sections(saturday())]
    assert data
    assert all(table.find("caption") is not None for table in data)
    rows = [row for table in data for row in table.findall("tbody/tr")]
    assert all(row.find("th") is not None or "colspan" in row[0].attrib for row in rows)


def test_a_share_beside_dollars_is_of_these_dollars() -> None:
    """The headline, its figure, each bar and each row: the percentage is the wasted amount over the cost beside it."""
    report = saturday()
    assert report.whole.usd_waste_ratio != pytest.approx(report.whole.waste_ratio, abs=0.01), "the two shares differ"
    share = f"{report.wasted_cents / report.cents:.1%}"
    assert f" of it ({share}) was proven waste" in headline(report)
    assert ("Wasted", f"{share} of the cost") in [(each.name, each.note) for each in figures(report).figures]

    parts = [part for section in sections(report) for part in section.parts]
    bars = [bar for part in parts if isinstance(part, Bars) for bar in part.bars]
    assert bars
    assert all(bar.written.endswith(f", {bar.wasted / bar.length:.1%} wasted") for bar in bars)
    rows = [
        row
        for part in parts
        if isinstance(part, Table) and part.heads[-2:] == ("of cost", "unproven")
        for row in part.rows
    ]
    assert rows
    for *_, cost, wasted, of_cost, _ in rows:
        dollars = [float(re.sub(r"[^0-9.]", "", each) or 0) for each in (cost, wasted)]
        assert (
            of_cost == "-"
            if not dollars[0]
            else float(of_cost.rstrip("%")) == pytest.approx(100 * dollars[1] / dollars[0], abs=0.1)
        )


def test_without_any_price_the_share_is_of_gpu_hours() -> None:
    """Where no dollar is known the words name the hours, and no dollars stand beside them."""
    fortnight = a_fortnight(until=at(date(2026, 3, 14), 22))
    fortnight.usd.clear()
    for hour in range(6):
        fortnight.round(at(date(2026, 3, 15), hour))
    report = a_report(fortnight.ledger, date(2026, 3, 15), now=at(date(2026, 3, 15), 8))
    share = f"{report.whole.waste_ratio:.1%}"

    assert report.whole.usd_waste_ratio is None
    assert headline(report).startswith(f"9 machines cost unknown; {share} of the GPU-hours were proven waste")
    assert [each.note for each in figures(report).figures if each.name == "Wasted"] == [f"{share} of the GPU-hours"]


def test_nothing_metered_is_said_and_no_figure_is_made_up() -> None:
    """Of an empty ledger every form says that nothing is known."""
    report = a_report(Ledger.in_memory())
    document = json.loads(FORMATS["json"](ReportContent(report)))

    assert headline(report).startswith("Nothing is metered yet")
    assert all("Nothing is metered yet" in render(report) for render in FORMS.values())
    assert (document["total"]["usd"], document["before"], document["machines"]) == ("0.00", None, None)
    assert document["forecast"]["none_because"] == "nothing is metered yet"
    assert document["total"]["waste_ratio"] is None
    assert len(FORMATS["txt"](ReportContent(report)).splitlines()) < 20  # no tables of zeros on the first day


def test_a_table_of_one_row_does_not_repeat_the_figures_at_the_top() -> None:
    """One pool of one owner: the machines alone have a table; with a second pool both are listed."""
    whole = saturday()
    pool = whole.slices["pool"][:1]
    alone = replace(whole, slices={**whole.slices, "pool": pool, "owner": whole.slices["owner"][:1]})

    assert "By pool" in as_text(whole)
    assert "By pool" not in as_text(alone)
    assert "By owner" not in as_text(alone)
    assert "By machine" in as_text(alone)


def test_a_day_without_machines_is_no_day_without_rounds() -> None:
    """Where nothing was billed although rounds looked, it costs nothing, and nothing is missing."""
    fortnight = a_fortnight(until=at(date(2026, 3, 14), 3))
    fortnight.nodes.clear()
    for hour in range(4, 24):
        fortnight.round(at(date(2026, 3, 14), hour))
    for hour in range(24):
        fortnight.round(at(date(2026, 3, 15), hour))
    report = a_report(fortnight.ledger, date(2026, 3, 15), now=at(date(2026, 3, 16), 7))

    assert headline(report) == "No machine was billed."
    assert (report.facts.rounds.count, report.facts.rounds.gaps, report.facts.unseen) == (24, (), frozenset())
    assert report.month is not None
    assert report.month.missing_steps == 0


def test_a_day_that_nobody_saw_is_no_day_of_zero() -> None:
    """Where neither a row nor a round is of a day, the forecast has a hole there, and the report says so."""
    fortnight = a_fortnight(until=at(date(2026, 3, 14), 3))
    fortnight.nodes.clear()
    fortnight.round(at(date(2026, 3, 14), 4))
    fortnight.round(at(date(2026, 3, 16), 4))
    report = a_report(fortnight.ledger, date(2026, 3, 16), now=at(date(2026, 3, 17), 7))

    assert report.facts.unseen == {date(2026, 3, 15)}
    assert report.month is not None
    assert report.month.missing_steps == 1
    assert "and so without a value: 1." in FORMATS["txt"](ReportContent(report))


@pytest.mark.parametrize(("day", "word"), [(30, "will end"), (31, "ended")])
def test_a_month_that_is_over_has_ended_and_is_no_forecast(day: int, word: str) -> None:
    """The report of the 31st of March says what March ended at; that of the 30th says what it will."""
    told = date(2026, 3, day)
    report = a_report(the_fortnight(), told, now=at(told + timedelta(days=1), 7))
    words, *_ = forecast(report)

    assert f"March {word} at" in as_text(report)
    assert isinstance(words, Words)
    assert words.sentences[0].startswith(f"March 2026 {word} at $")
    assert ("80 %" in words.sentences[0]) is (word == "will end")
