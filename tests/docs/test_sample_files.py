"""The sample files of docs/examples: each command that needs a file has one, and the pages' lines with them run."""

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from tests.support.each import for_each
from tests.support.paths import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINES = sorted(
    {
        line.strip()
        for page in PAGES
        for line in re.findall(
            r"^gpuwatch ([^#\n]*docs/examples/\w+\.csv[^#\n]*)", page.read_text("utf-8"), re.MULTILINE
        )
    }
)


@for_each(LINES)
def test_a_line_with_a_sample_file_runs(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the clone, without settings and without a ledger."""
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("GPUWATCH_CONFIG", raising=False)

    done = CliRunner().invoke(commands, shlex.split(line))

    assert done.exit_code == 0, done.output
    assert done.output.strip()


def test_every_command_that_reads_a_file_has_a_sample() -> None:
    """Of each option that takes an existing file, a page has a line with a file of docs/examples."""

    def wanted(command: click.Command, path: str) -> list[str]:
        if isinstance(command, click.Group):
            return [each for name, sub in command.commands.items() for each in wanted(sub, f"{path} {name}".strip())]
        files = [each for each in command.params if isinstance(each.type, click.Path) and each.type.exists]
        return [f"{path} .*{each.opts[0]} docs/examples/" for each in files]

    missing = [each for each in wanted(commands, "") if not any(re.match(each, line) for line in LINES)]

    assert missing == []
    assert all((ROOT / name).is_file() for line in LINES for name in re.findall(r"docs/examples/\w+\.csv", line))
    assert len(list(Path(ROOT / "docs/examples").glob("*.csv"))) >= len({line.split()[0] for line in LINES})
