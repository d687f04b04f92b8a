"""The house: who may import whom, how large a room may be, what the running agent may carry."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from tests.support.each import for_each
from tests.support.paths import ROOT

MODULES = sorted((ROOT / "gpuwatch").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LONGEST_LINES = 400
# Both take user and password away. Whoever else shows an address asks the first.
READ_A_PASSWORD = {"gpuwatch/runtime/http/address.py", "gpuwatch/runtime/installed.py"}


def test_imports_follow_the_contracts() -> None:
    """import-linter's contracts of pyproject.toml hold."""
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports can be put in order, module by module."""
    graph = grimp.build_graph("gpuwatch", cache_dir=None)
    order = TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules})
    try:
        order.prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


@for_each([*MODULES, *TESTS], lambda path: path.relative_to(ROOT))
def test_no_module_grows_past_four_hundred_lines(module: Path) -> None:
    """A longer one is two, of tests as well."""
    assert len(module.read_text(encoding="utf-8").splitlines()) <= LONGEST_LINES


@pytest.mark.parametrize("name", ["utils", "common", "helpers", "misc"])
def test_there_is_no_room_for_whatever_is_left_over(name: str) -> None:
    """Every module is named after what it is about."""
    assert [path for path in MODULES if path.stem == name] == []


def test_the_part_of_an_address_with_the_password_is_read_where_it_is_taken_away() -> None:
    """What shows `netloc` shows `user:password@`: in a log, a list, a message, or the ledger."""
    readers = {
        str(module.relative_to(ROOT))
        for module in MODULES
        for part in ast.walk(ast.parse(module.read_bytes()))
        if isinstance(part, ast.Attribute) and part.attr == "netloc"
    }

    assert readers == READ_A_PASSWORD


def test_the_running_agent_carries_no_validator_no_cloud_and_no_command_line() -> None:
    """All its modules together load neither pydantic nor YAML, click, aiohttp or an SDK, nor the nouns of fleets."""
    agent = [
        f"gpuwatch.agent.{path.stem}" for path in (ROOT / "gpuwatch/agent").glob("*.py") if path.stem != "__init__"
    ]
    script = f"import sys, {', '.join([*agent, 'gpuwatch.agent.devices.nvml'])}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"pydantic", "pydantic_settings", "yaml", "click", "aiohttp", "boto3", "botocore", "apscheduler", "rich"}
    heavy |= {"jinja2"}

    assert heavy & {name.partition(".")[0] for name in loaded} == set()
    assert {"gpuwatch.model.fleet", "gpuwatch.model.kubernetes", "gpuwatch.model.placing"} & set(loaded) == set()
