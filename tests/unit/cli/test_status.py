"""`gpuwatch status`: one small fleet as a table, in terminals of any width and on a pipe."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpuwatch.cli import status
from gpuwatch.cli.main import commands
from gpuwatch.cli.status import Choice
from gpuwatch.controller.node_row import nodes_page
from gpuwatch.controller.round import Round
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.nodes_page import NodesPage
from gpuwatch.runtime.translation import translate_text
from tests.support.builders.small_fleet import a_day
from tests.support.golden_text import check

DESK, DONE = a_day()
PAGE: NodesPage = nodes_page(DONE, DESK.rulebook)


def text(choice: Choice | None = None, width: int | None = None) -> str:
    """The table as plain text."""
    choice = choice or Choice()
    return "\n".join(line.plain for line in status.table(choice.chosen_nodes(PAGE), choice, width))


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command looks at the small fleet; a worker of pytest-xdist may have set the width of a terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)

    @contextmanager
    def looked(_: Path | None) -> Iterator[tuple[object, Round]]:
        yield DESK.parts, DONE

    monkeypatch.setattr("gpuwatch.cli.fleet.a_plan", looked)


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_the_whole_reason(width: int) -> None:
    """Columns shrink or go, the reason wraps."""
    check(f"status-{width}.txt", text(width=width))


def test_a_pipe_has_whole_lines_with_all_columns() -> None:
    """However wide they are."""
    check("status.txt", "\n".join([text(), status.totals(PAGE), *status.hints(PAGE)]))


@given(st.integers(60, 300))
def test_no_line_is_wider_than_the_terminal_and_no_word_of_a_reason_is_missing(width: int) -> None:
    """From 60 columns on."""
    lines = text(width=width).split("\n")
    words = " ".join(line[line.find(line.lstrip()) :] for line in lines).split()

    assert all(cell_len(line) <= width for line in lines)
    for row in PAGE.nodes:
        assert set(status.why(row).split()) <= set(words)


def test_an_agents_failure_is_one_word() -> None:
    """Its sentence and the remedy are in `explain`."""
    silent, refusing = (next(row for row in PAGE.nodes if row.name == name) for name in ("silent", "refusing"))

    assert status.why(silent) == "No verdict of its agent: timeout."
    assert status.why(refusing) == "No verdict of its agent: refused."
    assert list(status.hints(PAGE)) == [
        (
            "parked: GPU memory is held, nothing computes, and nobody is there; "
            "unknown: its use is not known, so it is never stopped."
        ),
        "2 agents gave no verdict. The remedy: gpuwatch explain silent",
    ]


def test_a_fleet_of_which_nothing_is_known_is_no_fleet_without_waste(
    fleet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The likely cause and its remedy instead of $0.00, and exit status 1, as text and as JSON."""
    del fleet
    unseen = tuple(row for row in PAGE.nodes if row.activity is State.UNKNOWN)
    page = replace(PAGE, total=len(unseen), nodes=unseen)
    monkeypatch.setattr("gpuwatch.cli.render.nodes_page", lambda *_, **__: page)

    done, as_json = (CliRunner().invoke(commands, ["status", *more]) for more in ((), ("--json",)))

    assert (done.exit_code, as_json.exit_code) == (1, 1)
    assert "wasted now: not known" in done.output
    said = " ".join(done.output.split())
    assert "Warning: the use of no running machine is known, so no idle one is found and none is stopped." in said
    assert "Most say: timeout. Let the security group pass" in said or "Most say: refused. Start its agent" in said


def test_hosts_of_which_nobody_knows_whether_they_run_are_no_fleet_without_waste() -> None:
    """Hosts of one's own with silent agents have no use on record, and none is known to be off."""
    silent = tuple(replace(row, activity=None, state=NodeState.UNKNOWN, foreign=False) for row in PAGE.nodes[:2])
    off = replace(silent[0], state=NodeState.STOPPED, usd_per_hour=None, usd_per_hour_of_no_use={})

    assert status.all_unknown(replace(PAGE, nodes=(*silent, off)))
    assert "wasted now: not known" in status.totals(replace(PAGE, nodes=silent))
    assert not status.all_unknown(replace(PAGE, nodes=(off,)))
    assert "wasted now: $0.00/h" in status.totals(replace(PAGE, nodes=(off,)))


def test_the_totals_add_up() -> None:
    """Of the nodes that are listed and ours: money per hour, and what of it does nothing, by state."""
    usd = Decimal("0.8048")

    assert status.totals(PAGE) == (
        f"7 nodes, 7 running with 7 GPUs, ${6 * usd:.2f}/h; "
        f"wasted now: ${3 * usd:.2f}/h (parked ${usd:.2f}, idle ${2 * usd:.2f}); "
        f"not ours, in no sum: 1 node, ${usd:.2f}/h."
    )
    unpriced = replace(
        PAGE, nodes=tuple(replace(row, usd_per_hour=None, usd_per_hour_of_no_use={}) for row in PAGE.nodes[:2])
    )
    assert status.totals(unpriced) == (
        "2 nodes, 2 running with 2 GPUs, $0.00/h; wasted now: $0.00/h; the price of 2 is not known."
    )


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (Choice(pools=("batch",)), ["refusing"]),
        (Choice(owners=("ana",)), ["trainer", "forgotten"]),
        (Choice(owners=("none",)), ["gone-home", "refusing", "silent"]),
        (Choice(states=("idle",), sort="name"), ["demo-day", "forgotten", "gone-home"]),
        (Choice(states=("parked", "busy")), ["trainer", "notebook"]),
        (Choice(pools=("none",)), []),
        (Choice(states=("running",), owners=("chi",)), ["notebook"]),
    ],
)
def test_choices_are_kept(choice: Choice, names: list[str]) -> None:
    """Of each option any, of several options all."""
    assert [row.name for row in choice.chosen_nodes(PAGE).nodes] == names


@pytest.mark.parametrize("sort", status.SORTS)
def test_a_choice_of_order_is_an_order(sort: str) -> None:
    """Every one lists all nodes."""
    assert sorted(row.id for row in Choice(sort=sort).chosen_nodes(PAGE).nodes) == sorted(row.id for row in PAGE.nodes)
    held = [row.held_seconds or 0.0 for row in Choice(sort="for").chosen_nodes(PAGE).nodes]
    assert held == sorted(held, reverse=True)


def test_the_longest_first_line_of_a_watched_screen_is_what_it_costs() -> None:
    """Then as much of the table as there is room for, and how much is missing."""
    lines = [line.plain for line in status.screen(DONE, DESK.rulebook, Choice(), 80, 10)]

    assert len(lines) == 10
    assert "wasted now" in " ".join(lines[:2])
    assert lines[-1].startswith("… ")
    assert "NAME" in lines[3]


@pytest.mark.usefixtures("fleet")
def test_the_command_lists_filters_and_refuses() -> None:
    """On a pipe: whole lines, no colours; a wrong state names the right ones, --watch needs a terminal."""

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(commands, ["status", *words])
        return done.exit_code, done.output

    code, said = run()
    assert (code, said.startswith(text() + "\n"), "\x1b" in said) == (0, True, False)
    code, said = run("--state", "idle", "--json")
    assert (code, {row["activity"] for row in json.loads(said)["nodes"]}) == (0, {State.IDLE.value})
    code, said = run("--state", "lazy")
    assert (code, "'lazy' is not one of busy, parked, stalled" in said) == (2, True), said
    code, said = run("--pool", "nope")
    assert (code, "--pool 'nope': there is no such pool. There are: batch, default" in said) == (2, True), said
    code, said = run("--watch")
    assert (code, "--watch needs a terminal" in said) == (2, True)
    code, said = run("--watch", "soon")
    assert (code, "30m" in said) == (2, True), said


def test_nobody_moves_the_cursor() -> None:
    """Names, pools and owners with escape sequences stay text."""
    odd = "ann\x1b[2J\nbusy"
    page = replace(PAGE, nodes=tuple(replace(row, name=odd, pool=odd, owner=odd, why=odd) for row in PAGE.nodes[:1]))
    shown = [line.plain for line in status.table(page, Choice(), 200)]

    assert len(shown) == 2
    assert all(line.isprintable() for line in shown)
    assert r"ann\x1b[2J\nbusy" in shown[1]


def test_an_empty_fleet_says_so() -> None:
    """So does a choice that nothing matches."""
    assert text(Choice(pools=("x",))) == "No node matches."
    assert [line.plain for line in status.table(replace(PAGE, nodes=()), Choice(), 80)] == [
        "There is no GPU machine where the settings look. `gpuwatch scan` looks in every",
        "region.",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_a_reader_of_chinese_gets_chinese(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Titles, states, reasons and the lines beneath; names as they are, and columns that stand below each other."""
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    below = [translate_text(status.totals(PAGE)), *map(translate_text, status.hints(PAGE))]
    check(f"status-zh-{width}.txt", "\n".join([text(width=width), *below]))


def test_json_is_english_for_everybody(fleet: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs read it."""
    del fleet
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    as_json, as_text = (CliRunner().invoke(commands, ["status", *more]).output for more in (["--json"], []))

    assert as_json.isascii()
    assert as_text.startswith("节点")
