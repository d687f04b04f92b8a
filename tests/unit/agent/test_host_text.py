"""agent/host_text: why a GPU or a node is what it is, in a sentence that begins with who."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.host_text import ranges, trouble_text, who
from gpuwatch.agent.processes.process import Kind
from gpuwatch.model.activity import Evidence, State, WorkOwner
from gpuwatch.model.gpu import DownCause
from gpuwatch.model.host_page import HostProcess, HostTrouble
from tests.support.builders.gpu import GIB, a_busy_reading, a_down, a_reading
from tests.support.builders.host_page import Someone, a_page, a_snapshot, holds


def evidence(says: State, owner: WorkOwner | None = None, note: str | None = None) -> Evidence:
    """A signal of the host."""
    return Evidence(
        name="cpu", says=says, observed=1.4, limit=0.8, unit="cores", source="/proc", owner=owner, note=note
    )


def test_a_busy_node_says_who_uses_which_gpu() -> None:
    """Program and user, and GPUs in a row as a range."""
    work = [a_busy_reading(gpu, processes=tuple(holds(7))) for gpu in (0, 1, 2)]
    page = a_page(*work, a_reading(3), people=[Someone(pid=7)])

    assert page.why == "python3 (alice) uses GPUs 0-2"


def test_of_several_on_a_gpu_the_one_with_most_memory_is_named() -> None:
    """But the machine's own only where nobody else is there."""
    held = tuple(holds(7, 8, 9, gib={7: 1, 8: 2, 9: 30}))
    people = [
        Someone(pid=7, user="bob"),
        Someone(pid=8, user="carol"),
        Someone(pid=9, user="root", program="dcgmi", kind=Kind.SERVICE),
    ]

    assert a_page(a_busy_reading(processes=held), people=people).why == "python3 (carol) uses GPU 0"


def test_work_without_a_process_is_told_as_such() -> None:
    """A program that ended before it was listed, or in another PID namespace."""
    assert a_page(a_busy_reading()).why == "something uses GPU 0"


def test_a_busy_gpu_says_what_was_measured_against_which_limit() -> None:
    """Utilization first, for everybody knows it."""
    (gpu,) = a_page(a_busy_reading(utilization_max_ratio=0.97, sm_activity_ratio=1.0)).gpus

    assert gpu.why.startswith("utilization 97 %, limit ")


def test_a_parked_gpu_says_who_holds_it() -> None:
    """Nothing is computed; the memory is somebody's."""
    reading = a_reading(memory_used_bytes=40 * GIB, processes=tuple(holds(7)))
    page = a_page(reading, people=[Someone(pid=7, program="jupyter", user="bob")])

    assert page.verdict.activity.state is State.PARKED
    assert page.gpus[0].why == "held by jupyter (bob)"
    assert page.why == "jupyter (bob) holds GPU 0, nothing is computed"


def test_an_idle_node_says_what_was_busy_before() -> None:
    """What its idle time began after; since when is beside it."""
    page = a_page(a_reading(), seconds=5)

    assert page.verdict.activity.state is State.IDLE
    assert page.why.startswith("Nothing was busy since the agent started at ")


def test_an_unknown_node_says_what_is_in_doubt() -> None:
    """Of a GPU its own doubt, without its number."""
    page = a_page(a_down(0, DownCause.HANG, "it did not answer"))

    assert page.why == "GPU 0: hang: it did not answer"


def test_a_busy_host_says_whose_program_it_is() -> None:
    """Nothing on the GPUs, and a program of alice's at work."""
    busy = evidence(State.BUSY, WorkOwner(user="alice", process="make", pid=12))
    page = a_page(a_reading(), host=(busy,))

    assert page.why == "cpu: 1.4 cores, limit 0.8, alice's make, pid 12"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (Placement(slurm_job="81"), "python3 (job 81)"),
        (Placement(systemd_unit="x.service"), "python3 (alice)"),
    ],
)
def test_a_process_is_called_by_what_people_know_it_by(place: Placement, words: str) -> None:
    """A job before its user."""
    (process,) = a_page(a_reading(processes=tuple(holds(7))), people=[Someone(pid=7, place=place)]).processes

    assert who(process) == words


def test_a_process_without_a_name_is_called_by_its_pid() -> None:
    """And a name from outside cannot move the cursor."""
    assert who(HostProcess(pid=7, gpus=())) == "pid 7"
    assert "\x1b" not in who(HostProcess(pid=7, gpus=(), program="\x1b[2J", user="a\nb"))


def test_an_illness_comes_first_with_its_remedy() -> None:
    """Whatever else the GPU does."""
    snapshot = a_snapshot(a_busy_reading(remapped_rows_pending=1), seconds=130)

    assert snapshot.verdict.gpus[0].health is not None
    assert (
        a_page(a_busy_reading(remapped_rows_pending=1), seconds=130)
        .gpus[0]
        .why.startswith("degraded: A bad memory row waits for a reset to be replaced (reset it); utilization ")
    )


def test_a_cause_is_not_said_twice() -> None:
    """`released: released by root since …` says no more than `released by root since …`."""
    told = HostTrouble(cause="released", detail="released by root", remedy="gpuwatch agent acquire")
    other = HostTrouble(cause="hang", detail="it did not answer")

    assert trouble_text(told) == "released by root; gpuwatch agent acquire"
    assert trouble_text(other) == "hang: it did not answer"


@given(st.sets(st.integers(0, 63)))
def test_ranges_name_every_number_and_no_other(numbers: set[int]) -> None:
    """`0-3,7` is 0, 1, 2, 3 and 7."""
    named: set[int] = set()
    for part in filter(None, ranges(numbers).split(",")):
        first, _, last = part.partition("-")
        named |= set(range(int(first), int(last or first) + 1))

    assert named == numbers
