"""agent/launch.py: memory that is free goes back to the kernel."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.support.paths import ROOT

BEGIN = """
import os, resource
from pathlib import Path
from gpuwatch.agent import launch
{begin}
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
"""
BUFFERS = (
    BEGIN
    + """
buffers = [bytes([1]) * 65536 for _ in range(200)]
before = resident()
del buffers[:-1]
print((before - resident()) // 1_000_000 >= 12, os.environ.get("MALLOC_ARENA_MAX"))
"""
)
HOLES = (
    BEGIN
    + """
buffers = [bytes([1]) * 20_000 for _ in range(1000)]
del buffers[::2]
before = resident()
launch._give_back_holes()
print((before - resident()) // 1_000_000 >= 5)
"""
)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the options are glibc's")
@pytest.mark.parametrize("arenas", [None, "2"])
def test_pages_that_are_freed_below_one_in_use_go_back(arenas: str | None) -> None:
    """Also where somebody has chosen the number of arenas, which stays; malloc left alone would keep them."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    environment |= {} if arenas is None else {"MALLOC_ARENA_MAX": arenas}

    assert said(BUFFERS.format(begin="launch._frugal_malloc()"), environment) == f"True {arenas or 1}\n"
    assert said(BUFFERS.format(begin="pass"), environment) == f"False {arenas}\n"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the call is glibc's")
def test_holes_between_pages_in_use_go_back() -> None:
    """As a probe does when it has loaded its code: what it loaded for a moment has left them."""
    assert said(HOLES.format(begin="launch._frugal_malloc()"), dict(os.environ)) == "True\n"


def said(program: str, environment: Mapping[str, str]) -> str:
    """What a fresh process prints."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
