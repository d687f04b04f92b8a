"""PURE: whether the driver is new enough for a CUDA runtime that somebody wants to use, such as a container's.

Rules, all of them; source: NVIDIA's CUDA Compatibility guide and the driver table of the CUDA Toolkit's release notes.

1. A runtime up to the driver's own CUDA version runs.
2. A newer minor version of the same major one runs, too (from CUDA 11 on), but nothing that compiles PTX on the spot.
3. A newer major version does not run. The table has the first driver of each. On data-center GPUs NVIDIA's package
   cuda-compat in the container lifts some older drivers; whether it is there is not seen from the host.
"""

import re

from gpuwatch.cli.doctor.findings import found
from gpuwatch.cli.doctor.report import Finding, fine

_FIRST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
_FIRST_MINOR_MAJOR = 11
_VERSION = re.compile(r"(\d{1,2})\.(\d{1,2})(?:\.\d{1,4})?")


def version_of(text: str) -> tuple[int, int]:
    """Of `12.4` or `12.4.1`.

    Raises:
        ValueError: it is neither; names it and what would be right.

    """
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no version of CUDA; write for example 12.4")
    return int(match[1]), int(match[2])


def runtime(wanted: str, drivers_cuda: str | None, driver: str) -> Finding:
    """What that runtime finds at a driver with that CUDA version; None: the driver does not tell."""
    where = f"CUDA {wanted} on driver {driver}"
    if drivers_cuda is None:
        return found("driver.cuda_unknown", where, "the driver does not tell its CUDA version")
    needs, has = version_of(wanted), version_of(drivers_cuda)
    seen = f"the driver has CUDA {drivers_cuda}"
    if needs <= has:
        return fine("cuda", where, seen)
    if needs[0] == has[0] >= _FIRST_MINOR_MAJOR:
        return found("driver.cuda_minor", where, seen)
    first = _FIRST_DRIVER.get(needs[0])
    return found(
        "driver.cuda_too_old", where, seen if first is None else f"{seen}; CUDA {needs[0]} needs {first} or newer"
    )
