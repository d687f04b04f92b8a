"""Whether a driver can run a CUDA runtime, by NVIDIA's rule."""

import pytest
from click.testing import CliRunner

from gpuwatch.cli.doctor.devices import judge_cuda
from gpuwatch.cli.main import commands


@pytest.mark.parametrize(
    ("wanted", "has", "code", "says"),
    [
        ("12.4", "12.4", "cuda", "CUDA 12.4"),
        ("11.8", "13.0", "cuda", "CUDA 13.0"),
        ("12.4.1", "12.4", "cuda", "CUDA 12.4"),
        ("12.10", "12.9", "driver.cuda_minor", "CUDA 12.9"),
        ("12.1", "11.8", "driver.cuda_too_old", "CUDA 12 needs 525.60.13 or newer"),
        ("13.0", "12.8", "driver.cuda_too_old", "CUDA 13 needs 580.65.06 or newer"),
        ("10.2", "10.1", "driver.cuda_too_old", "CUDA 10.1"),
        ("99.0", "13.0", "driver.cuda_too_old", "CUDA 13.0"),
        ("12.4", None, "driver.cuda_unknown", "does not tell"),
    ],
)
def test_a_runtime_needs_a_driver_that_is_new_enough(wanted: str, has: str | None, code: str, says: str) -> None:
    """Older and equal run, a newer minor version runs with a warning, a newer major one does not."""
    finding = judge_cuda(wanted, has, "570.1")

    assert (finding.code, finding.looked_at) == (code, f"CUDA {wanted} on driver 570.1")
    assert says in finding.seen
    assert (finding.remedy is None) == (code == "cuda")


def test_what_is_no_version_is_refused() -> None:
    """With what would be right."""
    done = CliRunner().invoke(commands, ["doctor", "agent", "--cuda", "twelve"])

    assert done.exit_code == 2
    assert "'--cuda': 'twelve' is no version of CUDA; write for example 12.4" in done.stderr
