"""What others wrote is read on operators' terminals and never obeyed there, whatever command shows it."""

import ast
from collections.abc import Callable
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.cli.base import print_text
from gpuwatch.cli.doctor import report as doctor
from gpuwatch.cli.doctor.report import Examination, fine
from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.money import unused
from gpuwatch.runtime.printable import legible, printable_text
from gpuwatch.runtime.table import align_rows
from tests.support.paths import ROOT

ROOM = ROOT / "gpuwatch"
ODD = "ann\x1b]0;owned\x07\x1b[2J\u202e\x9b31m\u2028\r\nnothing is running  $0.00"
# Who reads the kubelet's list and makes its words printable; AMD's library, which is kept off it; the probe's own
# protocol, the agent's orders, its questions about packages, the IAM policy, a driver's answer, hand-over of settings,
# the demo, whose names are ours, the log, the last resort, bars of progress in words of ours, tables and lines that are
# made legible, and the table of `gpuwatch top`, of which tests/unit/cli/top says that it obeys nobody else.
WRITERS = {
    "agent/attribution/pod_list.py",
    "agent/devices/amd/library.py",
    "agent/launch.py",
    "agent/processes/package_owners.py",
    "agent/probe/main.py",
    "agent/probe/preforked.py",
    "cli/console.py",
    "cli/base.py",
    "cli/top/live.py",
    "clouds/aws/iam.py",
    "clouds/drivers/talk.py",
    "config/handover.py",
    "runtime/program.py",
    "runtime/log_format.py",
    "simulate/demo.py",
    "simulate/fleet/screen.py",
}


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_shown(text: str) -> None:
    """Lines stay lines; all else that cannot be seen is told by its code."""
    assert all(letter.isprintable() or letter == "\n" for letter in printable_text(text))
    assert legible(text).isprintable()
    assert printable_text(text).count("\n") == text.count("\n")


def test_every_command_says_it_by_the_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    """Also an error, whose words may come from a cloud or an agent."""
    print_text(f"it failed: {ODD}")
    print_text(ValueError(ODD), err=True)
    rows = capsys.readouterr()

    for text in (rows.out, rows.err):
        assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_there_is_no_other_way_to_the_terminal() -> None:
    """click.echo and its like are called in one place; who writes to a stream of the process is listed here."""
    echoed, writers = set(), set()
    for path in ROOM.rglob("*.py"):
        name = str(path.relative_to(ROOM))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in {"echo", "secho", "echo_via_pager", "get_text_stream"}:
                echoed.add(name)
            if isinstance(node, ast.Attribute) and node.attr in {"stdout", "stderr"} and _is_sys(node):
                writers.add(name)
            if isinstance(node, ast.Name) and node.id in {"print", "Console"}:
                writers.add(name)

    assert echoed == {"cli/base.py"}
    assert writers <= WRITERS


def _is_sys(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "sys"


def left_over() -> str:
    """`gpuwatch unused`."""
    found = Leftover(
        id="vol-1", kind=LeftoverKind.UNATTACHED_VOLUME, region="r", name=ODD, type="gp3", size_bytes=1 << 30
    )
    return unused.as_text([found], today=date(2026, 11, 23))


def cost_table() -> str:
    """`gpuwatch cost --by owner`, `--by pool`, `--by tag:…`, `budget` and `cost reconcile`."""
    return "\n".join(align_rows([["owner", "billed"], [ODD, "1.00"]]))


def examined() -> str:
    """`gpuwatch doctor`."""
    return doctor.as_text(Examination(part=ODD, version="1", user=ODD, findings=(fine("x", ODD, ODD),)))


@pytest.mark.parametrize("shows", [left_over, cost_table, examined])
def test_a_tag_makes_no_line_of_its_own(shows: Callable[[], str]) -> None:
    """Lines are ours: one that is forged in a name stands in the line of that name."""
    text = shows()

    assert not any(line.startswith("nothing is running") for line in text.split("\n"))
    assert all(letter.isprintable() or letter == "\n" for letter in text)


@given(st.text(), st.integers(0, 300))
def test_a_limit_holds_for_what_is_shown(text: str, longest: int) -> None:
    """Codes are longer than what they stand for, and are counted."""
    assert len(legible(text, longest)) <= longest
    assert legible(text).startswith(legible(text, longest))


def test_others_words_are_made_harmless_in_one_place() -> None:
    """Wherever letters that cannot be seen are replaced, it is done by `legible`."""
    replacing = [path for path in ROOM.rglob("*.py") if "isprintable() else" in path.read_text(encoding="utf-8")]

    assert replacing == [ROOM / "model/readable.py"]
