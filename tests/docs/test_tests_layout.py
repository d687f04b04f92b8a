"""The folders of tests/: a test lies where its reader looks for it, and what tests share lies in support/."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT, TESTS
from tests.support.slow_tests import SLOW

# What each folder holds says CONTRIBUTING.md; golden/ and captures/ are data.
FOLDERS = {
    *("unit", "properties", "contracts", "integration", "docs", "gpu", "mutation"),
    *("support", "golden", "captures", "lives"),
}
OF_TESTS = [TESTS / name for name in ("unit", "properties", "contracts", "integration", "docs")]
FILES = [path for path in sorted(TESTS.rglob("*.py")) if "__pycache__" not in path.parts]
# Or what may be one: a list of names over several lines.
IMPORTS_A_TEST = re.compile(r"^\s*from tests[\w.]*(\.test_| +import +(\(|.*\btest_))", re.MULTILINE)


def test_only_conftest_lies_loose_in_tests() -> None:
    """Everything else is in one of the folders."""
    here = {path for path in TESTS.iterdir() if path.name != "__pycache__"}

    assert {path.name for path in here if path.is_dir()} == FOLDERS
    assert [path.name for path in here if path.is_file()] == ["conftest.py"]


def test_unit_tests_mirror_the_rooms() -> None:
    """A folder below tests/unit has the name of the package that its tests are about."""
    folders = {path.parent.relative_to(TESTS / "unit") for path in FILES if path.is_relative_to(TESTS / "unit")}

    assert [folder for folder in folders if not (ROOT / "gpuwatch" / folder / "__init__.py").exists()] == []


def test_no_unit_test_file_needs_a_real_component_as_a_whole() -> None:
    """Such a file belongs to integration/; single cases may, and `make quick` leaves those out."""
    unit = [path for path in FILES if path.is_relative_to(TESTS / "unit")]

    assert [path for path in unit if "\npytestmark = pytest.mark.component" in path.read_text("utf-8")] == []


def test_what_quick_leaves_out_is_there() -> None:
    """A file that has moved would be played again, at its length."""
    assert [name for name in sorted(SLOW) if not (TESTS / "unit" / f"{name}.py").is_file()] == []


@pytest.mark.parametrize("folder", OF_TESTS, ids=lambda path: path.name)
def test_what_tests_share_lies_in_support(folder: Path) -> None:
    """Beside the tests there are only scripts that are run by themselves."""
    others = [path for path in FILES if path.is_relative_to(folder) and not path.name.startswith("test_")]

    assert [path for path in others if 'if __name__ == "__main__":' not in path.read_text("utf-8")] == []


def test_no_file_imports_a_test() -> None:
    """Not even a test."""
    guilty = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        if IMPORTS_A_TEST.search(text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("tests")
        and any(part.startswith("test_") for part in [*(node.module or "").split("."), *(a.name for a in node.names)])
    }

    assert guilty == set()
