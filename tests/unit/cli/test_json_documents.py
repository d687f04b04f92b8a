"""Every command with `--json` prints one declared document, and docs/json/ has all of them."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import click
import msgspec
import pytest

from gpuwatch.cli.documents import DOCUMENTS, document_type
from gpuwatch.cli.main import commands
from gpuwatch.cli.version import extras, installed_versions
from gpuwatch.runtime.json_document import document, json_text
from tests.support.each import for_each
from tests.support.paths import ROOT
from tools.docs.json_documents import PAGES, render_page


def with_json(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The kinds of documents of a command and those within it."""
    if any("--json" in each.opts for each in command.params) and path:
        yield ".".join(path)
    for name, each in getattr(command, "commands", {}).items():
        yield from with_json(each, (*path, name))


def test_every_document_is_declared() -> None:
    """The list has each command with --json and no other."""
    assert sorted(with_json(commands)) == sorted(DOCUMENTS)


@for_each(DOCUMENTS)
def test_every_document_has_a_type_that_msgspec_knows(kind: str) -> None:
    """Its schema can be made; the type says in words what it is."""
    schema = msgspec.json.schema(document_type(kind))

    assert schema["$defs"][schema["$ref"].rpartition("/")[2]]["description"]


@for_each(PAGES)
def test_the_pages_are_up_to_date(name: str) -> None:
    """docs/json.md and the page of each family are what `make docs` writes; each document has its place in both."""
    assert (ROOT / name).read_text(encoding="utf-8") == render_page(name), "run `make docs`"


def test_each_document_has_one_page() -> None:
    """With its example, and a heading in docs/json.md that links lead to; no page is left over."""
    pages = {name: render_page(name) for name in PAGES}
    index = pages.pop(PAGES[0])
    words = sorted(kind.replace(".", " ") for kind in DOCUMENTS)
    example = re.compile(r'^```json\n\{\s*"schema": "gpuwatch\.([\w.]+)/\d+"', re.MULTILINE)

    assert sorted(re.findall(r"^## (.+)$", index, re.MULTILINE)) == words
    assert sorted(kind.replace(".", " ") for text in pages.values() for kind in example.findall(text)) == words
    assert {f"docs/json/{path.name}" for path in (ROOT / "docs/json").iterdir()} == set(pages)


def test_times_are_utc_and_numbers_are_json() -> None:
    """Whatever the zone and however deep; what is no number is null; control characters are escaped."""
    at = datetime(2026, 3, 1, 19, tzinfo=timezone(timedelta(hours=1)))
    found = document("x", {"schema": 7, "rows": [{"at": at, "all": (at.astimezone(UTC),), "ratio": float("nan")}]})

    assert found == {
        "schema": "gpuwatch.x/1",
        "rows": [{"at": "2026-03-01T18:00:00Z", "all": ["2026-03-01T18:00:00Z"], "ratio": None}],
    }
    assert json_text("x", {"name": "a\x9b\u202e"}).isascii()


@pytest.mark.parametrize(
    ("amount", "text"), [("12.50", "12.50"), ("0E-9", "0.000000000"), ("1E+3", "1000"), ("NaN", None)]
)
def test_money_has_all_its_digits(amount: str, text: str | None) -> None:
    """No exponent, whatever it was computed from; what is no number is null."""
    assert document("x", {"usd": Decimal(amount)})["usd"] == text


def test_an_extra_is_what_its_packages_are() -> None:
    """Also those that it has through another one; what every install has is no extra."""
    found = extras(
        [
            "click>=8.1",
            "aiohttp>=3.13.3; extra == 'controller'",
            'boto3>=1.35; extra == "aws"',
            'gpuwatch-fleet[controller]; extra == "aws"',
            'gpuwatch-fleet[controller]; extra == "demo"',
            'psycopg[binary]>=3.2; extra == "postgres"',
        ]
    )

    assert found == {
        "controller": {"aiohttp"},
        "aws": {"boto3", "aiohttp"},
        "demo": {"aiohttp"},
        "postgres": {"psycopg"},
    }
    assert "aws" in installed_versions().extras
