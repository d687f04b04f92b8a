"""agent/launch.py: memory that is free goes back to the kernel."""

import os
import platform
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

BUFFERS = """
import os, resource
from pathlib import Path
from gpuwatch.agent import launch
{begin}
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
buffers = [bytes([1]) * 65536 for _ in range(200)]
before = resident()
del buffers[:-1]
print((before - resident()) // 1_000_000 >= 12, os.environ.get("MALLOC_ARENA_MAX"))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the options are glibc's")
@pytest.mark.parametrize("arenas", [None, "2"])
def test_pages_that_are_freed_below_one_in_use_go_back(arenas: str | None) -> None:
    """Also where somebody has chosen the number of arenas, which stays; malloc left alone would keep them."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    environment |= {} if arenas is None else {"MALLOC_ARENA_MAX": arenas}

    def said(begin: str) -> str:
        command = [sys.executable, "-c", BUFFERS.format(begin=begin)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    assert said("launch._frugal_malloc()") == f"True {arenas or 1}\n"
    assert said("pass") == f"False {arenas}\n"
