"""Nothing that people can use, set, see or be woken by is undocumented, and the pages lead where they say."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import yaml

from gpuwatch.agent import launch
from gpuwatch.agent.probe import main as probe
from gpuwatch.cli.main import commands
from gpuwatch.config import keys
from gpuwatch.config.keys import GROUPS
from gpuwatch.config.settings import Settings
from gpuwatch.controller.metrics import render_md
from gpuwatch.policies import POLICIES
from tests.support.each import for_each
from tests.support.paths import ROOT
from tools.docs.commands import render_commands_md
from tools.docs.configuration import PAGES as SETTINGS
from tools.docs.metrics import render_metrics_md
from tools.docs.policies import render_policies_md

DOCS = ROOT / "docs"
PAGES = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "tests").rglob("*.md")})
TESTS = {path.name for path in (ROOT / "tests").rglob("*.py")}


def page(name: str) -> str:
    """A page's text."""
    return (DOCS / name).read_text(encoding="utf-8")


def every(command: click.Command, path: tuple[str, ...] = ("gpuwatch",)) -> Iterator[tuple[str, click.Command]]:
    """A command and those within it, each with the words that call it."""
    yield " ".join(path), command
    for name, each in getattr(command, "commands", {}).items():
        yield from every(each, (*path, name))


COMMANDS = dict(every(commands))


def test_the_page_of_commands_is_up_to_date() -> None:
    """docs/commands.md is what `make docs` writes."""
    assert page("commands.md") == render_commands_md(), "run `make docs`"


@for_each(sorted(COMMANDS.keys() - {"gpuwatch"}))
def test_every_command_is_told_with_all_that_it_takes(words: str) -> None:
    """Each has its heading, a sentence, and a row for each option and argument."""
    command = COMMANDS[words]
    text = re.split(rf"^### {words}$", page("commands.md"), maxsplit=1, flags=re.MULTILINE)[1].split("\n#")[0]
    flags = [max(each.opts, key=len) for each in command.params if isinstance(each, click.Option)]
    lean = {"gpuwatch agent": launch.flags, "gpuwatch probe": probe.flags}.get(words)
    if lean is not None:
        flags = [each for each in re.findall(r"--[a-z-]+", lean().format_usage()) if each != "--help"]

    assert text.strip().partition("\n")[0].endswith(".")
    assert [flag for flag in flags if f"| `{flag}" not in text] == []


def test_every_command_is_listed_once_by_help() -> None:
    """Under a heading that says what it is for, and in whole sentences."""
    text = commands.get_help(click.Context(commands, info_name="gpuwatch", terminal_width=100))
    listed = re.findall(r"^  ([a-z]+) +[A-Z]", text, re.MULTILINE)

    assert sorted(listed) == sorted(commands.commands)
    assert "..." not in text.partition("Options:")[2]


def test_the_tab_key_completes_as_the_page_says() -> None:
    """The shell's question is answered by the program itself, which begins where it begins for people."""
    asked = {"_GPUWATCH_COMPLETE": "bash_complete", "COMP_WORDS": "gpuwatch audit log --n", "COMP_CWORD": "3"}
    answer = subprocess.run(
        [sys.executable, "-m", "gpuwatch"], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )

    assert "gpuwatch completion bash" in page("commands.md")
    assert answer.stdout == "plain,--node\n"


def test_every_setting_is_told() -> None:
    """By the variable that sets it, which no two have in common, with its own name, its default and a sentence.

    The keys of several clouds, and of several clusters, are those of one, which the page describes once for both.
    """
    row = re.compile(r"^\| `(\S+)` \| .*\| .+\. \| `(GPUWATCH_\S+)` \|$", re.MULTILINE)
    told = "".join((ROOT / name).read_text(encoding="utf-8") for name in SETTINGS)
    rows = {variable: name for name, variable in row.findall(told)}
    for one, several in (
        ("GPUWATCH_CLOUD__", "GPUWATCH_CLOUDS__<name>__"),
        ("GPUWATCH_KUBERNETES__", "GPUWATCH_KUBERNETES__<name>__"),
    ):
        assert f"begin with `{several}`" in told
        assert not any(variable.startswith(several) for variable in rows)
        rows |= {variable.replace(one, several): name for variable, name in rows.items() if variable.startswith(one)}
    settable = {key.variable: key.path[-1] for key in keys.declared_keys(Settings).values() if key.kind not in GROUPS}

    assert len(settable) > 200
    assert rows == settable


def test_every_metric_is_told() -> None:
    """What agents and controllers really served in the tests is in the pages, and so is all that is promised."""
    served = {
        name
        for golden in (ROOT / "tests/golden").rglob("*.prom")
        for name in re.findall(r"^# TYPE (\S+) ", golden.read_text(encoding="utf-8"), re.MULTILINE)
        if name.startswith("gpuwatch_")
    }
    text = page("METRICS.md") + page("CONTROLLER_METRICS.md")

    assert len(served) > 50
    assert sorted(name for name in served if f"`{name}" not in text) == []
    assert page("METRICS.md") == render_metrics_md()
    assert page("CONTROLLER_METRICS.md") == render_md()


def test_every_policy_has_its_row() -> None:
    """In the order in which they run, with what it wants and what sets it up."""
    listed = re.findall(r"^\| \[?(\w+)(?:\]\S+)? \| .+ \| .+ \|$", page("policies/README.md"), re.MULTILINE)

    assert listed[1:] == list(POLICIES)
    assert page("policies/README.md") == render_policies_md(), "run `make docs`"


def test_every_alert_has_its_runbook_and_its_row() -> None:
    """Whoever is woken finds the page, and whoever sets up finds the alert."""
    rules = yaml.safe_load((ROOT / "alerts/gpuwatch.yml").read_text(encoding="utf-8"))
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule}
    table = page("alerts.md")

    assert len(alerts) > 40
    runbooks = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "runbooks").glob("*.md"))
    assert sorted(name for name in alerts if f"\n## {name}\n" not in runbooks) == []
    assert sorted(alerts - set(re.findall(r"\[(\w+)\]\(runbooks/\w+\.md#\w+\)", table))) == []


# Links


@cache
def anchors(path: Path) -> set[str]:
    """The places in a page that a link may name, as GitHub makes them of its headings."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
        found.add(
            slug if slug not in found else next(f"{slug}-{n}" for n in range(1, 99) if f"{slug}-{n}" not in found)
        )
    return found


@for_each(PAGES, lambda path: path.relative_to(ROOT))
def test_links_lead_to_the_very_place(path: Path) -> None:
    """A link with #place names a heading of that page, or of its own."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    lost = []
    for file, place in re.findall(r"\]\((?!https?://)([^)#\s]*)#([^)\s]+)\)", text):
        target = path.parent / file if file else path
        if not target.exists() or place not in anchors(target):
            lost.append(f"{file}#{place}")

    assert lost == []


@for_each(PAGES, lambda path: path.relative_to(ROOT))
def test_tests_that_a_page_names_exist(path: Path) -> None:
    """Whoever is told that something is tested can look."""
    named = set(re.findall(r"`(?:tests/)?(test_\w+\.py)", path.read_text(encoding="utf-8")))

    assert sorted(named - TESTS) == []


def test_places_that_messages_name_exist() -> None:
    """Settings, help, remedies, alerts and dashboards lead to the very heading."""
    files = [path for ending in ("py", "tsv", "po") for path in (ROOT / "gpuwatch").rglob(f"*.{ending}")]
    lost = []
    for path in [*files, ROOT / "alerts/gpuwatch.yml", *(ROOT / "dashboards/source").glob("*.py")]:
        for page_, place in re.findall(r"\bdocs/([\w/-]+\.md)(?:#([\w-]+))?", path.read_text(encoding="utf-8")):
            if not (DOCS / page_).exists() or (place and place not in anchors(DOCS / page_)):
                lost.append(f"{path.relative_to(ROOT)}: docs/{page_}#{place}")

    assert lost == []


def test_headings_become_the_places_that_github_makes() -> None:
    """Else the checks above would pass over what readers fall over."""
    assert {"when-something-breaks", "what-if-", "uninstall"} <= anchors(DOCS / "operations.md") | anchors(
        DOCS / "faq.md"
    )
