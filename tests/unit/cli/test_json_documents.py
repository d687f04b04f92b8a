"""Every command with `--json` prints one declared document, and docs/json.md has all of them."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from gpuwatch.cli.documents import DOCUMENTS, document_type
from gpuwatch.cli.main import commands
from gpuwatch.cli.version import extras, installed
from gpuwatch.runtime.json_document import document, json_text
from tests.support.paths import ROOT
from tools.docs.json_documents import render_json_md

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*")
_GOOD = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def with_json(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The kinds of documents of a command and those within it."""
    if any("--json" in each.opts for each in command.params) and path:
        yield ".".join(path)
    for name, each in getattr(command, "commands", {}).items():
        yield from with_json(each, (*path, name))


def strings(value: Any) -> Iterator[str]:  # noqa: ANN401  JSON
    """All texts in a document."""
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from strings(each)
        case list():
            for each in value:
                yield from strings(each)


def test_every_document_is_declared() -> None:
    """The list has each command with --json and no other."""
    assert sorted(with_json(commands)) == sorted(DOCUMENTS)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_every_document_has_a_type_that_msgspec_knows(kind: str) -> None:
    """Its schema can be made; the type says in words what it is."""
    schema = msgspec.json.schema(document_type(kind))

    assert schema["$defs"][schema["$ref"].rpartition("/")[2]]["description"]


def test_the_page_is_up_to_date() -> None:
    """docs/json.md is what `make docs` writes."""
    assert (ROOT / "docs" / "json.md").read_text(encoding="utf-8") == render_json_md(), "run `make docs`"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("version", ["version"]),
        ("config.check", ["config", "check"]),
        ("config.show", ["config", "show"]),
        ("prices", ["prices", "--gpu", "H100"]),
        ("recommend.instance", ["recommend", "instance", "--params", "7B"]),
        ("demo", ["demo", "--headless", "--hours", "0.2"]),
        ("doctor.agent", ["doctor", "agent", "--alive"]),
    ],
)
def test_what_is_printed_is_what_is_declared(kind: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One line; no field that the type does not have, and none missing; each time ends in Z."""
    monkeypatch.setenv("GPUWATCH_AGENT__PORT", "1")
    done = CliRunner().invoke(commands, [*words, "--json"])
    found = json.loads(done.stdout)

    assert done.exit_code in {0, 1}, done.output
    assert done.stdout.count("\n") == 1
    assert next(iter(found)) == "schema"
    assert found.pop("schema") == f"gpuwatch.{kind}/1"
    assert msgspec.to_builtins(msgspec.convert(found, document_type(kind), strict=False)) == found
    assert [each for each in strings(found) if _TIME.fullmatch(each) and not _GOOD.fullmatch(each)] == []


def test_times_are_utc_and_numbers_are_json() -> None:
    """Whatever the zone and however deep; what is no number is null; control characters are escaped."""
    at = datetime(2026, 3, 1, 19, tzinfo=timezone(timedelta(hours=1)))
    found = document("x", {"schema": 7, "rows": [{"at": at, "all": (at.astimezone(UTC),), "ratio": float("nan")}]})

    assert found == {
        "schema": "gpuwatch.x/1",
        "rows": [{"at": "2026-03-01T18:00:00Z", "all": ["2026-03-01T18:00:00Z"], "ratio": None}],
    }
    assert json_text("x", {"name": "a\x9b\u202e"}).isascii()


def test_an_extra_is_what_its_packages_are() -> None:
    """Also those that it has through another one; what every install has is no extra."""
    found = extras(
        [
            "click>=8.1",
            "aiohttp>=3.13.3; extra == 'controller'",
            'boto3>=1.35; extra == "aws"',
            'gpuwatch[controller]; extra == "aws"',
            'gpuwatch[controller]; extra == "demo"',
        ]
    )

    assert found == {"controller": {"aiohttp"}, "aws": {"boto3", "aiohttp"}, "demo": {"aiohttp"}}
    assert "aws" in installed()["extras"]
