"""The house: who may import whom, how large a room may be, what the running agent may carry."""

import ast
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from tests.support.each import for_each
from tests.support.paths import ROOT
from tools.docs.rooms import floors, imports

MODULES = sorted((ROOT / "gpuwatch").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
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


def test_the_picture_of_the_rooms_is_the_import_graph() -> None:
    """docs/pictures/rooms.svg says of each room what grimp finds."""
    graph = grimp.build_graph("gpuwatch", cache_dir=None)
    rooms = {module.split(".")[1] for module in graph.modules if module.count(".") > 1}
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            pair = [name.split(".")[1] for name in (module, other) if "." in name]
            if len(pair) == 2 and pair[0] in rooms and pair[0] != pair[1]:
                found[pair[0]].add(pair[1])

    assert imports() == found


def test_contributing_has_the_rooms_from_top_to_bottom() -> None:
    """Each once, and none above one that import-linter's layers have above it."""
    table = CONTRIBUTING.partition("## Where things belong")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)/` \|", table, re.MULTILINE)
    floor = {room: level for level, every in enumerate(floors()) for room in every}

    assert sorted(named) == sorted(floor)
    assert [floor[room] for room in named] == sorted(floor[room] for room in named)


def test_what_contributing_names_is_there() -> None:
    """Each file and folder exists, and each `file.py:NAME` has that name: a table of places is right or useless."""
    folders = ("gpuwatch", "tests", "tools", "docs", "alerts", "dashboards", "benchmarks", "deploy", "packaging")
    paths = {
        "/" + str(path.relative_to(ROOT)) + "/" * path.is_dir()
        for folder in folders
        for path in [ROOT / folder, *(ROOT / folder).rglob("*")]
    }
    named = re.findall(
        r"`((?:[\w-]+/)*(?:[\w-]+/|[\w-]+\.(?:py|c|tsv|md|yml|yaml|html|js|css|po)))(?::(\w+))?`", CONTRIBUTING
    )
    lost = [
        f"{path}:{name}"
        for path, name in named
        if not re.search(r"[A-Z]{4}|^dist/", path)  # stands for any name, or is made by a release
        and not any(
            there.endswith("/" + path)
            and (not name or re.search(rf"\b{name}\b", (ROOT / there[1:]).read_text("utf-8")))
            for there in paths
        )
    ]

    assert len(named) > 100
    assert lost == []


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
