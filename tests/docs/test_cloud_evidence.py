"""docs/clouds/evidence.md says on what evidence each capability of each cloud rests: the table is held to the tests."""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pkgutil import resolve_name

import pytest

from gpuwatch import clouds
from gpuwatch.clouds import Cloud
from gpuwatch.clouds.settings import CLOUDS as PACKAGES
from gpuwatch.model.fleet import Node
from tests.support.paths import ROOT
from tools.docs.cloud_capabilities import CLOUDS, NOT_THERE, TABLE, Capability
from tools.docs.cloud_evidence import render, render_evidence


def protocols() -> Iterator[type]:
    """`Cloud`, and all that an adapter may offer besides: the protocols that others ask an adapter for."""
    yield Cloud
    for module in pkgutil.iter_modules(clouds.__path__):
        if not module.ispkg:
            names = vars(importlib.import_module(f"{clouds.__name__}.{module.name}"))
            yield from (each for each in names.values() if getattr(each, "_is_runtime_protocol", False))


@cache
def capabilities() -> frozenset[str]:
    """Every method of these."""
    return frozenset(
        f"{each.__name__}.{name}" for each in protocols() for name in vars(each) if not name.startswith("_")
    )


@cache
def paths(cloud: str) -> frozenset[str]:
    """The names of the paths that play recorded answers of a cloud: of `PATHS` in its test. () without such a test."""
    file = ROOT / f"tests/contracts/test_recorded_{cloud}.py"
    if not file.exists():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    (table,) = [
        each
        for each in tree.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id == "PATHS"
    ]
    return frozenset(
        str(word.value.value)
        for each in ast.walk(table)
        if isinstance(each, ast.Call)
        for word in each.keywords
        if word.arg == "name" and isinstance(word.value, ast.Constant)
    )


def test_the_page_is_up_to_date() -> None:
    """It is what `make docs` writes, and so is the page of what all clouds have in common."""
    assert (ROOT / "docs/clouds/evidence.md").read_text(encoding="utf-8") == render_evidence(), "run `make docs`"
    assert (ROOT / "docs/clouds/README.md").read_text(encoding="utf-8") == render(), "run `make docs`"


def test_every_cloud_has_its_column() -> None:
    """A new cloud needs its evidence."""
    assert set(CLOUDS) == set(PACKAGES)


def test_every_capability_of_an_adapter_has_a_row() -> None:
    """A method that is added to a protocol needs its evidence; and no row is of a method that is gone."""
    covered = {each for row in TABLE for each in row.covers}
    facts = {f"Node.{each.name}" for each in fields(Node)}

    assert "Cloud.stop" in capabilities()
    assert capabilities() - covered == set()
    assert covered - capabilities() - facts == set()


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.does)
def test_what_is_called_recorded_is_played(row: Capability, cloud: str) -> None:
    """By a path of that name in the cloud's own test of recorded answers."""
    found = row.in_cloud(cloud)

    assert (found.kind == "recorded") == bool(found.paths)
    assert set(found.paths) - paths(cloud) == set(), f"no path of tests/contracts/test_recorded_{cloud}.py"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_what_an_adapter_does_not_offer_is_called_that(cloud: str) -> None:
    """And what it offers is not: of the protocols that are optional, the adapter itself says it."""
    adapter = resolve_name(PACKAGES[cloud].adapter)
    optional = [row for row in TABLE if not any(each.startswith(("Cloud.", "Node.")) for each in row.covers)]
    for row in optional:
        offered = [hasattr(adapter, each.partition(".")[2]) for each in row.covers]
        assert (row.in_cloud(cloud) == NOT_THERE) == (bool(offered) and not any(offered)), row.does


def test_paths_are_found() -> None:
    """Else what is said to be recorded would not be held to anything."""
    assert {"machines", "refusals"} <= paths("aws") & paths("azure") & paths("gcp") & paths("tencent")
    assert paths("simulated") == frozenset()
