"""agent/slurm_jobs/book: what a Slurm job did with its GPUs, summed up cycle by cycle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.slurm_jobs.book import MOST_JOBS, Holder, JobBook, JobUse
from gpuwatch.model.gpu import GpuReading
from tests.support.builders.gpu import GIB, a_process, a_reading

ANN = Holder(job="7", user="ann")
BOB = Holder(job="8", user="bob")
HOLDERS = {1: ANN, 2: BOB}


def at_work(ratio: float | None, *pids: int, gpu: int = 0, memory: int | None = GIB) -> GpuReading:
    """A GPU with that utilization and these processes."""
    processes = tuple(a_process(pid, memory) for pid in pids)
    return a_reading(gpu, utilization_ratio=ratio, processes=processes, memory_used_bytes=5 * GIB)


def used(*cycles: tuple[float, tuple[GpuReading, ...]], job: str = "7") -> JobUse:
    """The use of a job after these cycles, alive up to the last."""
    book = JobBook(10.0)
    for now, readings in cycles:
        book.sample(now, readings, HOLDERS)
    book.jobs[job].settle()
    return book.jobs[job]


@pytest.mark.parametrize(
    ("cycles", "ratio"),
    [
        ([(0.0, (at_work(0.5, 1),)), (2.0, (at_work(0.5, 1),)), (3.0, (at_work(0.8, 1),))], 0.6),
        ([(0.0, (at_work(1.0, 1),)), (9.0, (at_work(0.4, 1),)), (99.0, (at_work(1.0, 1),))], 0.4),  # a gap
        ([(0.0, (at_work(1.0, 1),)), (1.0, (at_work(None, 1),)), (2.0, (at_work(1.0, 1),))], None),
        ([(0.0, (at_work(1.0, 1),)), (1.0, ()), (2.0, (at_work(1.0, 1),)), (3.0, (at_work(0.2, 1),))], 0.2),
        ([(0.0, (at_work(1.0, 1),)), (1.0, (at_work(1.0, 1, 2),)), (2.0, (at_work(0.3, 1),))], None),  # of two jobs
        ([(0.0, (at_work(1.0, 1),)), (1.0, (at_work(1.0, 1),)), (2.0, (at_work(0.0),))], 0.5),  # between programs
        ([(0.0, (at_work(1.0, 1),))], None),  # one reading covers no time
    ],
)
def test_utilization_counts_by_time(cycles: list[tuple[float, tuple[GpuReading, ...]]], ratio: float | None) -> None:
    """Time without a reading, and time with another job on the GPU, does not count."""
    assert used(*cycles).utilization_ratio == (None if ratio is None else pytest.approx(ratio))


def test_all_gpus_of_a_job_count_alike() -> None:
    """A job that has two GPUs and works on one has used half."""
    cycle = (at_work(1.0, 1), at_work(0.0, 1, gpu=1))

    found = used((0.0, cycle), (5.0, cycle))

    assert (len(found.gpus), found.utilization_ratio) == (2, 0.5)
    assert (found.memory_bytes, found.total_bytes) == (2 * GIB, 160 * GIB)


def test_what_a_gpu_did_after_the_end_is_not_the_jobs() -> None:
    """Time counts once the job was seen alive after it, as a process on a GPU shows it."""
    book = JobBook(10.0)
    book.sample(0.0, (at_work(1.0, 1),), HOLDERS)
    book.sample(2.0, (at_work(1.0, 1),), HOLDERS)
    book.sample(4.0, (at_work(0.0),), HOLDERS)

    ended = book.end("7")

    assert ended is not None
    assert ended.utilization_ratio == 1.0
    assert book.jobs == {}


def test_memory_is_the_most_at_one_time() -> None:
    """Of the job's own processes, next to those of another job."""
    small, large = at_work(0.1, 1, 2), at_work(0.1, 1, 2, memory=3 * GIB)

    assert used((0.0, (small,)), (1.0, (large,)), (2.0, (small,))).memory_bytes == 3 * GIB


@pytest.mark.parametrize(("pids", "memory"), [((1,), 5 * GIB), ((1, 2), None)])
def test_memory_that_the_driver_does_not_split_up(pids: tuple[int, ...], memory: int | None) -> None:
    """It is the GPU's where the job is alone on it, and else not known."""
    assert used((0.0, (at_work(0.1, *pids, memory=None),))).memory_bytes == memory


def test_a_process_that_is_listed_twice_counts_once() -> None:
    """The driver lists a process that computes and draws in both lists."""
    assert used((0.0, (at_work(0.1, 1, 1),))).memory_bytes == GIB


def test_a_gpu_without_a_size_leaves_the_total_out() -> None:
    """A total of some GPUs would be wrong."""
    unsized = a_reading(1, memory_total_bytes=None, processes=(a_process(1),))

    assert used((0.0, (at_work(0.1, 1), unsized))).total_bytes is None


def test_the_number_of_jobs_is_bounded() -> None:
    """A host with more has no lines for the others."""
    pids = range(1, MOST_JOBS + 10)
    book = JobBook(10.0)
    book.sample(0.0, (at_work(0.1, *pids),), {pid: Holder(job=str(pid)) for pid in pids})

    assert len(book.jobs) == MOST_JOBS


@given(
    st.lists(
        st.tuples(
            st.floats(-5.0, 30.0),
            st.lists(
                st.tuples(st.integers(0, 2), st.none() | st.floats(0.0, 1.5), st.sets(st.integers(1, 3))), max_size=3
            ),
        ),
        max_size=20,
    )
)
def test_no_job_uses_more_than_its_gpus(steps: list[tuple[float, list[tuple[int, float | None, set[int]]]]]) -> None:
    """Whatever is read: 100 % at most, and no more time than passed without gaps."""
    book, now, passed = JobBook(10.0), 0.0, 0.0
    for after, gpus in steps:
        now += after
        passed += after if 0 < after <= 10.0 else 0.0
        readings = {gpu: at_work(ratio, *sorted(pids), gpu=gpu) for gpu, ratio, pids in gpus}
        book.sample(now, tuple(readings.values()), HOLDERS)
    for use in book.jobs.values():
        use.settle()
        ratio = use.utilization_ratio

        assert ratio is None or 0.0 <= ratio <= 1.0
        assert all(gpu.busy <= gpu.covered <= passed + 1e-6 for gpu in use.gpus.values())
