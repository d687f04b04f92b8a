"""Every code block of the documentation is right as far as it can be read, or says on its page why nothing reads it.

Settings are loaded, calls of gpuwatch are parsed by its own command line, and what has a grammar is parsed. A block
that none of these reads stands under `<!-- not run: the reason -->`, which the page does not show.
"""

import configparser
import csv
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import click
import promql_parser
import pytest
import yaml

from gpuwatch.agent import launch
from gpuwatch.agent.probe import main as probe
from gpuwatch.cli.main import commands
from gpuwatch.config import load
from gpuwatch.config.settings import Settings
from gpuwatch.config.yaml_file import ConfigError
from tests.support.each import for_each
from tests.support.markdown import Block, every_block
from tests.support.newcomer import steps
from tests.support.paths import ROOT

PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TOP = set(Settings.__dataclass_fields__)
LEAN = {"agent": launch.flags, "probe": probe.flags}
VALUES = yaml.safe_load((ROOT / "deploy/helm/gpuwatch/values.yaml").read_text(encoding="utf-8"))
CLOUDS = {"aws", "azure", "gcp", "alibaba", "tencent"}
# What a page leaves open for its reader, as a value that each option takes.
OPEN = re.compile(r"<[^<>|&;\n]+>|…|\.\.\.")


def calls(script: str) -> list[list[str]]:
    """The arguments of each call of gpuwatch in a script."""
    joined = OPEN.sub("1", script.replace("\\\n", " "))
    found = list[list[str]]()
    for line in joined.splitlines():
        for part in re.split(r"\|\|?|&&|;|>\s*\S+|\$\(|\)|(?<!\S)&(?!\S)", re.sub(r"(^|\s)#\s.*", "", line)):
            try:
                words = shlex.split(part)
            except ValueError:
                continue  # a quote that is open over several lines
            while words and re.fullmatch(r"sudo|-E|exec|time|\w+=.*", words[0]):
                words = words[1:]
            if words[:1] == ["gpuwatch"]:
                found.append(words[1:])
    return found


def refusal(arguments: list[str]) -> str | None:
    """Why the command line does not take these arguments; None: it does."""
    command: click.Command = commands
    while True:
        context = click.Context(command, info_name=command.name)
        try:
            _, rest, _ = command.make_parser(context).parse_args(list(arguments))
        except click.UsageError as error:
            return error.format_message()
        if not isinstance(command, click.Group) or not rest:
            return None
        name, arguments = rest[0], rest[1:]
        within = command.get_command(context, name)
        if within is None:
            return f"no command {name}"
        if name in LEAN and command is commands and (arguments[:1] == [] or arguments[0].startswith("-")):
            try:
                LEAN[name]().parse_args(arguments)
            except SystemExit:
                return f"gpuwatch {name} does not take {arguments}"
            return None
        if name in LEAN and command is commands:
            return None  # an order to a running agent; join has its own tests
        command = within


def read_shell(block: Block, tmp_path: Path) -> None:
    """The shell parses it, and gpuwatch takes its arguments."""
    del tmp_path
    script = block.text
    if re.search(r"^\s*\$ ", script, re.MULTILINE):  # a terminal: commands behind a prompt, and what they print
        whole = re.sub(r"\\\n", "\0", script)
        script = "\n".join(
            line.strip().removeprefix("$ ").replace("\0", "\\\n")
            for line in whole.splitlines()
            if line.strip().startswith("$ ")
        )
    parsed = subprocess.run(["bash", "-n"], input=OPEN.sub("1", script), capture_output=True, text=True, check=False)
    assert parsed.returncode == 0, parsed.stderr
    assert {" ".join(each): why for each in calls(script) if (why := refusal(each)) is not None} == {}


def read_yaml(block: Block, tmp_path: Path) -> None:
    """Settings load, the chart has each of its values, and anything else is YAML."""
    for number, document in enumerate(yaml.safe_load_all(block.text)):
        assert document is not None
        if not isinstance(document, dict) or not set(document) <= TOP or isinstance(document.get("prices"), list):
            continue
        if set(document) <= set(VALUES) and is_within(document, VALUES):
            continue
        file = tmp_path / f"{number}.yaml"
        file.write_text(yaml.safe_dump(completed(document, block.page)), encoding="utf-8")
        load(file, {})


def is_within(document: dict[str, Any], values: dict[str, Any]) -> bool:
    """Whether the chart's values have each key of a document."""
    return all(
        key in values and (key == "settings" or not isinstance(each, dict) or is_within(each, values[key] or each))
        for key, each in document.items()
    )


def completed(document: dict[str, Any], page: Path) -> dict[str, Any]:
    """An excerpt with what its keys need and the reader has elsewhere in the file: the cloud, a cluster, the pools."""
    clusters = [each for each in document.get("kubernetes", {}).values() if isinstance(each, dict)]
    named = [each.get("pool") for each in document.get("budgets", {}).values()]
    named += [name for each in clusters for name in each.get("pools", ())]
    rest: dict[str, Any] = {"pools": {name: {} for name in named if name}} if "pools" not in document else {}
    if page.stem in CLOUDS and "clouds" not in document:
        rest["cloud"] = {"provider": page.stem, **document.get("cloud", {})}
    if "pools" in document and "kubernetes" not in document:
        rest["kubernetes"] = {"in_cluster": True}
    return document | rest


def read_json(block: Block, tmp_path: Path) -> None:
    """One document, or one a line."""
    del tmp_path
    try:
        json.loads(block.text)
    except json.JSONDecodeError:
        for line in block.text.splitlines():
            json.loads(line)


def read_promql(block: Block, tmp_path: Path) -> None:
    """Each line, or all lines together, is an expression."""
    del tmp_path
    try:
        promql_parser.parse(block.text)
    except ValueError:
        for line in block.text.splitlines():
            promql_parser.parse(line)


def read_ini(block: Block, tmp_path: Path) -> None:
    """Keys and values, as systemd and Slurm write them."""
    del tmp_path
    head = "" if "[" in block.text else "[slurm]\n"
    configparser.ConfigParser(strict=False, interpolation=None).read_string(head + block.text)


def read_csv(block: Block, tmp_path: Path) -> None:
    """Each row has the columns of the first one."""
    del tmp_path
    first, *rows = csv.reader(block.text.splitlines())
    assert {len(row) for row in rows} == {len(first)}


READERS = {
    "sh": read_shell,
    "console": read_shell,
    "yaml": read_yaml,
    "json": read_json,
    "promql": read_promql,
    "ini": read_ini,
    "csv": read_csv,
}


def answered(page: Path) -> set[str]:
    """The text blocks that say what the block of commands before them prints: the quick starts' tests compare them."""
    if "quickstart" not in page.name:
        return set()
    return {"\n".join(lines) for _, lines in steps((ROOT / page).read_text(encoding="utf-8"))}


@for_each(PAGES)
def test_a_block_is_read_or_says_why_not(page: Path) -> None:
    """A reader copies nothing that nothing has ever read without a word about it in the page's source."""
    shown = answered(page)
    unread = [
        f"{page}:{block.line} ({block.language or 'no language'})"
        for block in every_block(page)
        if block.language not in READERS and not block.not_run and block.text.rstrip("\n") not in shown
    ]
    assert unread == [], "give it a language, or write <!-- not run: why --> above it"


BLOCKS = [block for page in PAGES for block in every_block(page) if block.language in READERS and not block.not_run]


@for_each(BLOCKS, lambda block: f"{block.page}:{block.line}")
def test_a_block_is_right(block: Block, tmp_path: Path) -> None:
    """By the reader of its language."""
    READERS[block.language](block, tmp_path)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("sh", "gpuwatch status --jsom"),
        ("sh", "sudo gpuwatch statos | jq ."),
        ("console", "$ gpuwatch agent --prot 1\nserving\n"),
        ("console", "$ echo 'open\n"),
        ("yaml", "pools: {a: {idle: {timout: 30m}}}"),
        ("yaml", "controller: {replicas: 2, settings: {}, secretNam: a}"),
        ("yaml", "a: [1"),
        ("json", "{'a': 1}"),
        ("promql", "sum(rate(x)"),
        ("ini", "[Service\nA"),
        ("csv", "a,b\n1\n"),
    ],
)
def test_what_is_wrong_in_a_block_is_found(language: str, text: str, tmp_path: Path) -> None:
    """One example for each reader and for each thing that it looks at."""
    block = Block(page=Path("docs/page.md"), line=1, language=language, text=text, not_run=False)

    with pytest.raises((AssertionError, ValueError, ConfigError, yaml.YAMLError, configparser.Error)):
        READERS[language](block, tmp_path)
