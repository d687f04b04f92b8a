"""ROCm's binding: where it is, how it is loaded, and what its errors mean.

The binding must be of the same ROCm as the library, because it repeats the library's structures. So the one that ROCm
installed with the library is taken before any other. Both write to standard output, which is the probe's own channel:
`load` and `quiet_output` give them standard error instead.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuwatch.agent.devices import SourceUnavailableError

NOT_SUPPORTED = {2, 3, 5, 40, 52, 55}  # amdsmi.h: not supported, not yet, no symbol, no data, no file, no setting
_NO_PERMISSION = 10
_DRIVER_NOT_LOADED = 34
_NOT_INITIALISED = 32
GONE = {_DRIVER_NOT_LOADED, _NOT_INITIALISED}  # of the whole driver, whichever GPU was asked about

# The library locks each GPU for all processes of the host, in /dev/shm. A probe that hangs there would hold up RCCL's
# start, which takes the same locks: https://github.com/ROCm/rocm_smi_lib/issues/88. We only read, and need none.
_OWN_LOCKS = "RSMI_MUTEX_THREAD_ONLY"
_INSTALL = "install amd-smi-lib of your ROCm (docs/amd.md#what-the-host-needs)"
_LOOK = "look at `amd-smi list` and `dmesg | grep amdgpu`"
DRIVER = {
    _DRIVER_NOT_LOADED: ("driver_not_loaded", "load it: `modprobe amdgpu`, then `dmesg | grep amdgpu`"),
    _NO_PERMISSION: (
        "no_permission",
        "let this user read and write /dev/kfd and /dev/dri/render* (docs/amd.md#what-the-host-needs)",
    ),
    _NOT_INITIALISED: ("driver_reloaded", "none needed: it is opened again in the next cycle"),
}


def binding_folders(root: Path = Path("/")) -> tuple[Path, ...]:
    """Where ROCm installs its binding, the chosen ROCm first. Source: ROCm's documentation of amd-smi-lib."""
    named = [os.environ[name] for name in ("ROCM_HOME", "ROCM_PATH") if os.environ.get(name)]
    folders = [*map(Path, named), root / "opt/rocm"]
    return tuple(folder / "share/amd_smi" for folder in dict.fromkeys(folders))


def load(root: Path = Path("/")) -> Any:  # noqa: ANN401  amdsmi is untyped
    """The binding, with its library mapped.

    Raises:
        SourceUnavailableError: the binding or its library is missing.

    """
    os.environ.setdefault(_OWN_LOCKS, "1")
    before = list(sys.path)
    sys.path[:0] = [str(folder) for folder in binding_folders(root) if (folder / "amdsmi").is_dir()]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module("amdsmi")
    except Exception as error:  # without its library the binding fails with whatever comes first, by its release
        for name in [name for name in sys.modules if name.partition(".")[0] == "amdsmi"]:
            del sys.modules[name]
        what = "no Python binding amdsmi" if isinstance(error, ModuleNotFoundError) else "libamd_smi.so is not usable"
        raise SourceUnavailableError("library_not_found", f"{what}: {words(error)}", _INSTALL) from error
    finally:
        sys.path[:] = before  # nothing else is to be found there


def words(error: Exception) -> str:
    """An error of the binding in one line: the library's words without their frame."""
    said = getattr(error, "err_info", None) or str(error) or type(error).__name__
    return " ".join((f"{type(error).__name__}: {said}" if code(error) is None else str(said)).split())


def code(error: Exception) -> int | None:
    """The library's number of an error; None for an error of the binding itself."""
    found = getattr(error, "err_code", None)
    return found if isinstance(found, int) else None


def unavailable(error: Exception) -> SourceUnavailableError:
    """What an error of the whole driver means, for people."""
    number = code(error)
    cause, remedy = ("amdsmi_error", _LOOK) if number is None else DRIVER.get(number, ("amdsmi_error", _LOOK))
    text = words(error) if number is None else f"AMD SMI error {number}: {words(error)}"
    return SourceUnavailableError(cause, text, remedy)


def ask_if_supported(function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401  amdsmi is untyped
    """The answer of a function that is a nicety; None if it fails in any way."""
    try:
        return function(*args)
    except Exception:  # noqa: BLE001  the binding lets errors of its own parsing through
        return None


def quiet_output() -> None:
    """Let the library write to standard error where it means standard output: that is for the probe's messages."""
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(ours, "w", encoding="utf-8")
