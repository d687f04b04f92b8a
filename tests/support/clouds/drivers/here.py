"""A run of a shipped driver's own code without a process of its own: the suites have thousands of them."""

import sys
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from traceback import format_exc

import pytest

from gpuwatch.clouds.driver.process import Ended, check_executable


def run_main(main: Callable[[], None]) -> Callable[..., Ended]:
    """In the place of `process.run`: one call at a time."""

    def run_here(
        path: Path, request: bytes, *, environment: Mapping[str, str], seconds: float, before: Callable[[], None]
    ) -> Ended:
        del environment, seconds
        check_executable(path)
        before()
        output = StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", StringIO(request.decode()))
            patch.setattr(sys, "stdout", output)
            try:
                main()
            except Exception:  # noqa: BLE001  what ends a process
                return Ended(status=1, output=b"", complaints=format_exc().encode())
        return Ended(status=0, output=output.getvalue().encode(), complaints=b"")

    return run_here
