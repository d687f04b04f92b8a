"""The command line where only the base requirements are installed: in a process of its own, all else is hidden from it.

`python -m tests.support.bare_install` is that process: command lines in, what they answered out, both as JSON.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.abc import MetaPathFinder
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from gpuwatch.runtime.installed import DISTRIBUTION
from tests.support.paths import ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command line answered; `crash` is the traceback of an exception that nothing caught."""

    status: int
    output: str
    crash: str
    seconds: float


def needed(name: str, seen: set[str], extras: frozenset[str] = frozenset()) -> Iterator[str]:
    """That distribution, and what it needs, with these extras of its own."""
    key = f"{name}[{','.join(sorted(extras))}]"
    if key in seen:
        return
    seen.add(key)
    yield name
    for each in map(Requirement, distribution(name).requires or ()):
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield from needed(each.name.lower(), seen, frozenset(each.extras))


def modules(extras: Iterable[str] = ()) -> set[str]:
    """The top-level modules of the base requirements and those of these extras."""
    there = {each.replace("_", "-") for each in needed(DISTRIBUTION, set(), frozenset(extras))}
    return {
        module
        for module, brought_by in packages_distributions().items()
        if any(each.lower().replace("_", "-") in there for each in brought_by)
    }


def hidden(extras: Iterable[str] = ()) -> list[str]:
    """The top-level modules that are installed here, and are not where only these extras are."""
    return sorted(set(packages_distributions()) - modules(extras) - {"tests", "gpuwatch"})


def answers(
    lines: Sequence[Sequence[str]], environment: dict[str, str], *, without: Sequence[str], folder: Path
) -> list[Answer]:
    """What each command line answers in one process without those modules."""
    asked = json.dumps({"lines": [list(line) for line in lines], "without": list(without)})
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("GPUWATCH_", "AWS_"))}
    done = subprocess.run(
        (sys.executable, "-m", "tests.support.bare_install"),
        input=asked,
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [Answer(**each) for each in json.loads(done.stdout.splitlines()[-1])]


class _Hider(MetaPathFinder):
    """Answers for hidden modules as Python does for those that are not installed."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = set(names)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:  # noqa: ANN401  as inherited
        """No module of a hidden package."""
        del path, target
        if fullname.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def _answer(line: list[str]) -> Answer:
    import traceback  # noqa: PLC0415  not needed by who asks

    from click.testing import CliRunner  # noqa: PLC0415  likewise

    from gpuwatch.cli.main import commands  # noqa: PLC0415  likewise

    begun = time.perf_counter()  # a test's own clock
    result = CliRunner().invoke(commands, line, prog_name="gpuwatch")
    crashed = result.exc_info is not None and not isinstance(result.exception, SystemExit | None)
    crash = "".join(traceback.format_exception(*result.exc_info)) if crashed and result.exc_info else ""
    return Answer(status=result.exit_code, output=result.output, crash=crash, seconds=time.perf_counter() - begun)


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    for name in [each for each in sys.modules if each.partition(".")[0] in asked["without"]]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Hider(asked["without"]))
    print(json.dumps([asdict(_answer(line)) for line in asked["lines"]]))  # noqa: T201  its answer
