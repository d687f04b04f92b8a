"""One executable file for a GPU host: the agent's libraries for every supported Python, packed by shiv."""

import shutil
import sys
from pathlib import Path

from tools.release.libraries import Tree
from tools.release.programs import run
from tools.release.source import Source


def build(source: Source, tree: Tree, architecture: str, folder: Path) -> Path:
    """`gpuwatch-VERSION-ARCHITECTURE.pyz`."""
    made = folder / f"gpuwatch-{source.version}-{architecture}.pyz"
    packed = tree.agent.with_name("packed")  # shiv adds to what it packs
    shutil.copytree(tree.agent, packed)
    options = ["--compressed", "--reproducible", "--console-script", "gpuwatch", "--python", "/usr/bin/env python3"]
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "shiv",
        *options,
        "--output-file",
        made,
        "--site-packages",
        packed,
    ]
    run(command, env=source.environment())
    shutil.rmtree(packed)
    return made
