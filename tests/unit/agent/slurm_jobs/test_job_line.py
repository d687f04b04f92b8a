"""agent/slurm_jobs/line: the line about a job that is over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.slurm_jobs.line import Ended, sentence

GIB = 1 << 30


def test_a_job_of_which_all_is_known() -> None:
    """One line, as docs/slurm.md shows it."""
    job = Ended(
        job="4711",
        user="ann",
        seconds=7805.0,
        whole=True,
        gpus=4,
        gpu_ratio=0.37,
        gpu_memory_bytes=61 * GIB,
        gpu_memory_total_bytes=320 * GIB,
        cpu_cores=3.14,
        cpu_cores_total=32,
        memory_bytes=80 * GIB,
        memory_limit_bytes=256 * GIB,
    )

    assert sentence(job) == (
        "Slurm job 4711 of ann on this host: 2h10m, 4 GPUs used 37 %, GPU memory 61 GiB of 320 GiB at most, "
        "CPU 3.1 of 32 cores, memory 80 GiB of 256 GiB at most."
    )


@pytest.mark.parametrize(
    ("job", "line"),
    [
        (Ended(job="7", seconds=60.0, whole=False, gpus=1), "Slurm job 7 on this host: seen for 1m, 1 GPU."),
        (
            Ended(job="7", seconds=0.2, whole=True, gpus=1, gpu_ratio=0.0),
            "Slurm job 7 on this host: less than 1s, 1 GPU used 0 %.",
        ),
        (
            Ended(job="7", seconds=5.0, whole=True, gpus=2, gpu_memory_bytes=0, cpu_cores=0.04, memory_bytes=GIB // 2),
            "Slurm job 7 on this host: 5s, 2 GPUs, GPU memory 0 GiB at most, CPU 0.0 cores, memory 0.5 GiB at most.",
        ),
    ],
)
def test_what_is_not_known_is_left_out(job: Ended, line: str) -> None:
    """What was measured as 0 stays."""
    assert sentence(job) == line


@given(st.text())
def test_a_users_name_cannot_make_another_line(user: str) -> None:
    """Names come from the host's user database, which may be anybody's directory."""
    line = sentence(Ended(job="7", user=user, seconds=5.0, whole=True, gpus=1))

    assert line.isprintable()
    assert len(line) < 200
