"""How this program starts another process of itself: the way it was started, also out of a zip archive."""

import sys
from pathlib import Path


def own_command(*arguments: str) -> list[str]:
    """The command line of `gpuwatch ARGUMENTS`.

    An archive (zipapp, shiv, pex) or a folder that Python was given to run is run again: what lies in it cannot be
    imported by a fresh interpreter. Otherwise the package is, wherever this interpreter finds it; `-P` keeps it from
    finding one in the working directory.
    """
    spec = sys.modules["__main__"].__spec__
    if spec is not None and spec.name == "__main__" and spec.origin is not None:
        return [sys.executable, "-P", str(Path(spec.origin).parent.absolute()), *arguments]
    return [sys.executable, "-P", "-m", "gpuwatch", *arguments]
