"""A shell at its prompt is a login without work; one that waits for anything else is somebody's work."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.processes.kinds import SHELL
from gpuwatch.agent.processes.process import Kind, Process
from gpuwatch.agent.processes.shells import SUBSHELL, WAITS, shells_at_work, terminal_name
from tests.support.fakes.shells import LINES, PROMPT, MadeShells

PTS = 136 << 8
CHILD, PIPE, TERMINAL, SIGNAL = "do_wait", "anon_pipe_read", "wait_woken", "sigsuspend"


def a_shell(pid: int = 10, name: str = "bash", **more: object) -> Process:
    """One of a login, in the foreground of its terminal."""
    known = {"parent": 1, "group": pid, "session": 10, "tty": PTS, "state": "S", "uid": 1000, "foreground": pid}
    about = {"started_ticks": 1, "executable": name, "kind": Kind.SESSION, "rule": SHELL, **known, **more}
    return Process(pid=pid, name=name, **about)  # type: ignore[arg-type]


def a_job(pid: int = 20, name: str = "tail", **more: object) -> Process:
    """What the shell runs in its terminal."""
    return a_shell(pid, name, parent=10, kind=Kind.SESSION, rule="viewer", **more)


def table(*processes: Process) -> Mapping[int, Process]:
    """They, by pid."""
    return {each.pid: each for each in processes}


def rules(looks: MadeShells, *processes: Process) -> dict[int, str]:
    """The rules by which shells among these are work."""
    found = shells_at_work(table(*processes), looks)
    assert all(each.kind is Kind.PEOPLE for each in found.values())
    return {pid: each.rule for pid, each in found.items()}


def test_a_shell_at_its_prompt_is_no_work() -> None:
    """Its terminal neither collects lines nor echoes: the shell edits the line itself."""
    assert rules(MadeShells(usual=PROMPT), a_shell(), a_shell(11, "zsh", session=11, tty=PTS + 1)) == {}


def test_a_shell_that_waits_in_a_builtin_is_work() -> None:
    """`wait`, `read -t 36000`, `while read f; do …; done < <(tail -F drop.log)`, typed at its prompt."""
    assert rules(MadeShells(usual=LINES), a_shell()) == {10: WAITS}


def test_a_subshell_is_work_wherever_it_waits() -> None:
    """`tail -F drop.log | while read f; do train $f; done`, in the foreground or behind a prompt."""
    tail, loop = a_job(foreground=20), a_shell(21, group=20, foreground=20, forked=True)
    behind = a_shell(22, foreground=10, forked=True)

    assert rules(MadeShells(usual=LINES), a_shell(foreground=20), tail, loop) == {21: SUBSHELL}
    assert rules(MadeShells(usual=PROMPT), a_shell(), behind) == {22: SUBSHELL}


def test_a_shell_waits_for_the_program_in_the_foreground() -> None:
    """That is judged by itself; an outer shell waits for an inner one."""
    looks = MadeShells(usual=LINES, waits={10: CHILD})
    inner = MadeShells(usual=PROMPT, waits={10: CHILD})

    assert rules(looks, a_shell(foreground=20), a_job(foreground=20)) == {}
    assert rules(inner, a_shell(foreground=30), a_shell(30)) == {}
    assert rules(looks, a_shell(foreground=30), a_shell(30)) == {30: WAITS}


def test_a_foreground_without_a_living_program_is_the_shells_own() -> None:
    """The leader of a pipeline has ended, or is a zombie; the shell goes on."""
    looks = MadeShells(usual=LINES)

    assert rules(looks, a_shell(foreground=20)) == {10: WAITS}
    assert rules(looks, a_shell(foreground=20), a_job(foreground=20, state="Z")) == {10: WAITS}


def test_zsh_runs_the_last_part_of_a_pipeline_itself() -> None:
    """`tail -F drop.log | while read f; do train $f; done`: `tail` has the foreground, and zsh reads from the pipe."""
    there = (a_shell(name="zsh", foreground=20), a_job(foreground=20))

    assert rules(MadeShells(usual=LINES, waits={10: PIPE}), *there) == {10: WAITS}
    assert rules(MadeShells(usual=LINES, waits={10: SIGNAL}), *there) == {}
    assert rules(MadeShells(usual=LINES), *there) == {10: WAITS}


def test_a_shell_that_edits_no_lines_is_at_its_prompt_while_it_reads_from_its_terminal() -> None:
    """Dash leaves its terminal as it is, at its prompt too."""
    for where, expected in ((TERMINAL, {}), (PIPE, {10: WAITS}), (CHILD, {10: WAITS}), (None, {10: WAITS})):
        looks = MadeShells(usual=LINES, waits={10: where})
        assert rules(looks, a_shell(name="sh", executable="dash")) == expected
    assert rules(MadeShells(usual=LINES, waits={10: TERMINAL}), a_shell(name="sh", executable="bash")) == {10: WAITS}


def test_what_cannot_be_seen_is_no_prompt() -> None:
    """A terminal that may not be opened, one that has gone, and one that two sessions name."""
    looks = MadeShells(usual=PROMPT)

    assert rules(MadeShells(usual=None), a_shell()) == {10: WAITS}
    assert rules(looks, a_shell(tty=0, foreground=-1)) == {10: WAITS}
    assert rules(looks, a_shell(), a_shell(40, session=40)) == {10: WAITS, 40: WAITS}


def test_what_other_rules_name_stays() -> None:
    """A viewer, a shell of cron's, and what an administrator has named."""
    others = (a_shell(rule="viewer"), a_shell(11, kind=Kind.SERVICE), a_shell(12, rule="agent.services program:bash"))

    assert rules(MadeShells(usual=LINES), *others) == {}


SHELLS = st.builds(
    a_shell,
    pid=st.integers(2, 6),
    name=st.sampled_from(["bash", "zsh", "dash", "fish"]),
    session=st.sampled_from([10, 11]),
    tty=st.sampled_from([0, PTS, PTS + 1]),
    foreground=st.integers(-1, 6),
    forked=st.booleans(),
)
MODES = st.dictionaries(st.sampled_from([PTS, PTS + 1]), st.sampled_from([PROMPT, LINES]))
WAITING = st.dictionaries(st.integers(2, 6), st.sampled_from([CHILD, PIPE, TERMINAL, SIGNAL]))


@given(shells=st.lists(SHELLS, max_size=5), modes=MODES, waits=WAITING, hidden=st.sets(st.integers(0, 9)))
def test_whoever_sees_less_takes_no_shell_for_one_at_rest(
    shells: list[Process], modes: dict[int, int | None], waits: dict[int, str | None], hidden: set[int]
) -> None:
    """What may not be opened or read takes nothing from what is work (P1, P8)."""
    seen = MadeShells(usual=None, terminals=modes, waits=waits)
    less = MadeShells(
        usual=None,
        terminals={tty: None if tty - PTS in hidden else mode for tty, mode in modes.items()},
        waits={pid: None if pid in hidden else where for pid, where in waits.items()},
    )

    assert rules(seen, *shells).items() <= rules(less, *shells).items()


@given(number=st.integers(0, (1 << 20) - 1))
def test_each_pseudo_terminal_has_its_name(number: int) -> None:
    """As the kernel makes device numbers: 12 bits of a major number, 20 of a minor one."""
    major, minor = 136 + number // (1 << 20), number
    tty = (minor & 0xFF) | (major << 8) | ((minor & ~0xFF) << 12)

    assert terminal_name(tty) == f"pts/{number}"


def test_a_console_has_a_name_and_a_serial_port_is_never_opened() -> None:
    """Opening a port may move its lines."""
    assert terminal_name(4 << 8 | 1) == "tty1"
    assert [terminal_name(tty) for tty in (0, 4 << 8, 4 << 8 | 64, 5 << 8)] == [None] * 4
