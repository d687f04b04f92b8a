"""cli/top/screen: the table at every size. GPUWATCH_UPDATE_GOLDEN=1 rewrites tests/golden/top."""

import io
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.messages import Unavailable
from gpuwatch.agent.host_page import page_of
from gpuwatch.agent.state import AgentCore
from gpuwatch.cli.console import console
from gpuwatch.cli.top.past import Past, bar
from gpuwatch.cli.top.rows import short_name
from gpuwatch.cli.top.screen import Look, Order, nothing, screen
from gpuwatch.model.gpu import DownCause
from gpuwatch.model.host_page import HostPage, HostTrouble
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import START, a_busy_reading, a_down, a_reading
from tests.support.builders.host_page import PEOPLE, Someone, a_full_host, a_page, a_split_gpu, holds
from tests.support.paths import TESTS

GOLDEN = TESTS / "golden/top"
NOW = START + timedelta(hours=13, minutes=14, seconds=15)
FULL = a_full_host()
SPLIT = a_page(*(a_split_gpu(gpu) for gpu in range(8)), people=PEOPLE)
HERE = "no agent runs here: read directly; idle times begin now"


def no_driver() -> HostPage:
    """A host whose driver is not there."""
    clock = ManualClock()
    core = AgentCore(
        node_id="trainer-7", clock=clock, rules=ActivityRules(), interval_seconds=1.0, stale_after_seconds=10.0
    )
    clock.advance(1.0)
    remedy = "install the NVIDIA driver"
    core.ingest(
        Unavailable(seq=0, monotonic_seconds=1.0, cause="library_not_found", detail="NVML is missing", remedy=remedy)
    )
    return page_of(core.snapshot(1.0), hostname="trainer-7")


def released() -> HostPage:
    """A host whose GPUs were released on purpose."""
    words = "released by root since 2026-01-05T12:00:00Z: MIG change"
    trouble = HostTrouble(cause="released", detail=words, remedy="gpuwatch agent acquire")
    page = a_page(*(a_down(gpu, DownCause.RELEASED, words) for gpu in range(2)))
    return replace(page, trouble=trouble)


def two_minutes() -> Past:
    """A look each two seconds, of GPUs that work in turns; nobody looked for twenty seconds."""
    past = Past()
    for number in range(60):
        at = FULL.verdict.at - timedelta(seconds=2 * (59 - number))
        gpus = tuple(
            replace(gpu, utilization_ratio=None if gpu.down else 0.0, utilization_max_ratio=None)
            if gpu.index == 2
            else replace(gpu, utilization_ratio=None if gpu.down else number % 30 / 30, utilization_max_ratio=None)
            for gpu in FULL.gpus
        )
        if not 20 <= number < 30:
            past.note(replace(FULL, verdict=replace(FULL.verdict, at=at), gpus=gpus))
    return past


CASES: dict[str, tuple[HostPage, Look]] = {
    "full_80x24": (FULL, Look(width=80, height=24, keys=True)),
    "full_120x40": (FULL, Look(width=120, height=40, keys=True, order=Order.MEMORY)),
    "full_100x30": (FULL, Look(width=100, height=30, keys=True, past=two_minutes())),
    "full_120x40_past": (FULL, Look(width=120, height=40, keys=True, past=two_minutes())),
    "full_50x16": (FULL, Look(width=50, height=16, keys=True, order=Order.USER)),
    "full_piped": (FULL, Look()),
    "mig_80x24": (SPLIT, Look(width=80, height=24, keys=True)),
    "no_driver_80x24": (no_driver(), Look(width=80, height=24, note=HERE)),
    "released_80x24": (released(), Look(width=80, height=24)),
    "gone_80x24": (FULL, Look(width=80, height=24, failure="no agent answers at http://127.0.0.1:9460: it is gone")),
}


def text(page: HostPage, look: Look) -> str:
    """As a terminal without colours shows it."""
    return "".join(f"{line.plain}\n" for line in screen(page, look, NOW))


@pytest.mark.parametrize("name", CASES)
def test_the_table_is_as_it_was(name: str) -> None:
    """Byte for byte."""
    shown, golden = text(*CASES[name]), GOLDEN / f"{name}.txt"
    if os.environ.get("GPUWATCH_UPDATE_GOLDEN") == "1":
        golden.write_text(shown, encoding="utf-8")

    assert shown == golden.read_text(encoding="utf-8")


def test_a_bar_is_as_long_as_its_share() -> None:
    """Six cells; what is not known has none, and more than all is all."""
    assert [bar(ratio) for ratio in (0.0, 0.5, 1.0, 1.7, None)] == ["      ", "███   ", "██████", "██████", "      "]


def test_a_clock_that_was_set_back_begins_the_strip_anew() -> None:
    """What lies in the future is no past."""
    past = two_minutes()

    past.note(replace(FULL, verdict=replace(FULL.verdict, at=FULL.verdict.at - timedelta(hours=1))))

    assert len(past.strip(FULL.gpus[0].uuid).strip()) == 1


PAGES = {"full": FULL, "split": SPLIT, "no driver": no_driver(), "released": released()}


@given(
    st.sampled_from(sorted(PAGES)),
    st.integers(8, 200),
    st.integers(3, 80),
    st.sampled_from(Order),
    st.sampled_from(["", HERE]),
)
def test_nothing_is_wider_or_higher_than_the_terminal(
    name: str, width: int, height: int, order: Order, note: str
) -> None:
    """At every size, the keys on the last line."""
    lines = screen(PAGES[name], Look(width=width, height=height, order=order, note=note, keys=True), NOW)

    assert len(lines) <= height
    assert max(cell_len(line.plain) for line in lines) <= width


@given(st.integers(40, 200))
def test_the_reason_is_cut_last(width: int) -> None:
    """As long as a column that can go is there, the reason of each GPU is whole up to 36 letters."""
    lines = [line.plain for line in screen(FULL, Look(width=width), NOW)]
    titles = next(line for line in lines if line.startswith("GPU"))

    if "NAME" in titles or "LIM" in titles:
        assert all("held by jupyter-lab (bob); eval (er" in line for line in lines if line.startswith("  4"))
    assert all(word in titles for word in ("UTIL", "MEM GiB", "STATE", "WHY"))


def test_eight_gpus_and_twelve_processes_fit_a_small_terminal() -> None:
    """All GPUs, eight processes, how many more there are, and the keys."""
    held = [tuple(holds(100 + gpu, *([200 + gpu] if gpu < 4 else []))) for gpu in range(8)]
    people = [Someone(pid=process.pid) for each in held for process in each]
    work = [a_busy_reading(gpu, processes=held[gpu]) for gpu in range(8)]
    page = a_page(*work, people=people, blind=("It may not see all.",))
    lines = text(page, Look(width=80, height=24, keys=True, note=HERE)).splitlines()

    assert len(lines) == 24
    assert sum(line.startswith(f"  {gpu} ") for gpu in range(8) for line in lines) == 8
    assert "+4 more" in lines[-2]
    assert lines[-1].startswith("q quit")


def test_processes_are_sorted_as_asked() -> None:
    """By GPU, by memory, by user; nobody's last."""
    found = {}
    for order in Order:
        lines = text(FULL, Look(order=order)).splitlines()
        below = lines[next(number for number, line in enumerate(lines) if "PID" in line) + 1 :]
        found[order] = [line.split()[:3] for line in below]

    assert [row[2] for row in found[Order.GPU]] == sorted(row[2] for row in found[Order.GPU])
    assert found[Order.MEMORY][0][0] == "4711"
    assert [row[1] for row in found[Order.USER]][:2] == ["1001", "alice"]
    assert found[Order.USER][-1][1] == "-"


def test_what_is_not_known_is_not_zero() -> None:
    """A dash; a column without any value is left out."""
    page = a_page(a_reading(power_watts=None, utilization_ratio=None, utilization_max_ratio=None))
    shown = text(page, Look())

    assert "°C" not in shown
    row = next(line for line in shown.splitlines() if line.startswith("  0"))
    assert " - " in row


def test_a_host_without_processes_says_so() -> None:
    """Nobody there is something else than not known."""
    assert "no process uses a GPU" in text(a_page(a_reading()), Look())
    assert "which processes use the GPUs is not known" in text(a_page(a_reading(processes=None)), Look())


def test_names_from_outside_cannot_move_the_cursor() -> None:
    """Control characters are shown by their codes, wide letters keep their width."""
    someone = Someone(pid=7, user="ev\x1b[2Jil", program="训练模型训练模型训练模型")
    page = a_page(a_busy_reading(processes=tuple(holds(7))), people=[someone])
    lines = screen(page, Look(width=60, height=20), NOW)

    assert not any("\x1b" in line.plain for line in lines)
    assert max(cell_len(line.plain) for line in lines) <= 60


def test_before_the_first_page_the_screen_says_what_it_waits_for() -> None:
    """Or why there is none."""
    assert [line.plain for line in nothing("reading the GPUs …", Look(width=80))] == ["reading the GPUs …"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("Tesla V100-SXM2-16GB", "V100-16GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        (None, "-"),
    ],
)
def test_gpus_have_short_names(name: str | None, short: str) -> None:
    """What tells one model from another."""
    assert short_name(name) == short


def drawn(lines: Sequence[Text], monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    """What goes to a terminal with that environment."""
    for name in ("NO_COLOR", "COLORTERM", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    made = console(force_terminal=True, width=120)
    made.file = io.StringIO()
    for line in lines:
        made.print(line, soft_wrap=True)
    assert isinstance(made, Console)
    return str(made.file.getvalue())


def test_states_have_the_pages_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Busy is the page's blue, parked its purple, where a terminal has them."""
    lines = screen(FULL, Look(width=80, height=24), NOW)
    shown = drawn(lines, monkeypatch, TERM="xterm-256color", COLORTERM="truecolor")

    assert "\x1b[1;38;2;42;120;184mbusy" in shown  # #2a78b8
    assert "\x1b[1;38;2;143;99;199mparked" in shown  # #8f63c7


def test_sixteen_colours_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the console of Linux."""
    assert "\x1b[1;94mbusy" in drawn(screen(FULL, Look(width=80), NOW), monkeypatch, TERM="linux")


def test_no_color_takes_the_colours_and_leaves_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """https://no-color.org: what a colour says a word says as well."""
    lines = screen(FULL, Look(width=80, height=24), NOW)
    shown = drawn(lines, monkeypatch, TERM="xterm-256color", COLORTERM="truecolor", NO_COLOR="1")

    assert "38;2" not in shown
    assert "\x1b[1mbusy" in shown
