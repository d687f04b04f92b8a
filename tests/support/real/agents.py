"""Real agents for tests: `gpuwatch agent` as a process, on whatever driver its environment shows."""

import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, cast
from urllib.error import HTTPError

import msgspec

from gpuwatch.config.keys import Kind, declared_keys
from gpuwatch.config.settings import Settings
from gpuwatch.model.fleet import NodeVerdict
from gpuwatch.runtime.clock import SystemClock
from tests.support.paths import ROOT

PATIENCE_SECONDS = 60.0  # a busy machine starts an agent in twenty


def eventually(
    condition: Callable[[], object], what: Callable[[], object] = lambda: "", seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait until the condition holds; fails with `what` was seen instead.

    Asking by a command costs a second of CPU, which what is waited for may need: half of the time nobody asks.
    """
    deadline = time.perf_counter() + seconds
    while True:
        begun = time.perf_counter()
        if condition():
            return
        asked_at = time.perf_counter()
        if asked_at > deadline:
            message = f"not within {seconds:.0f} s; last seen: {what()}"
            raise AssertionError(message)
        SystemClock().sleep(max(0.05, asked_at - begun))


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_DURATIONS = {key.path[1:] for key in declared_keys(Settings).values() if key.kind is Kind.DURATION}


def _written(name: str, value: object) -> str:
    """A setting as an administrator would write it: durations with their unit."""
    timed = isinstance(value, int | float) and tuple(name.split("__")) in _DURATIONS
    return f"{value}s" if timed else str(value)


class RunningAgent:
    """One agent process; use it in a `with`."""

    def __init__(
        self,
        environment: Mapping[str, str],
        command: object = (sys.executable, "-m", "gpuwatch"),  # strings; object, as it stands among any changes
        **changes: object,
    ) -> None:
        """Start it with settings such as `interval=0.1`, on any free port; a float is a number of seconds."""
        settings = {"host": "127.0.0.1", "port": 0, "interval": 0.1, "node_id": "node-1", "control_socket": "none"}
        settings |= {"kernel_log": "none", "health_file": "none", **changes}
        settings.setdefault("metadata__provider", "none")  # nor may it ask the metadata service of a tester's cloud
        settings.setdefault("evidence__enabled", False)  # what else runs on the tester's machine is another matter
        variables = {f"GPUWATCH_AGENT__{name.upper()}": _written(name, value) for name, value in settings.items()}
        self.process = subprocess.Popen(
            [*cast("Sequence[str]", command), "agent"],
            env={**environment, **variables, "PYTHONFAULTHANDLER": "1"},
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._log: list[str] = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        try:
            eventually(lambda: self._url() or self.process.poll() is not None, lambda: self.log)
            self.url = self._url()
        except AssertionError:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        """As it is."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it, whatever it takes."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # its threads' stacks go into its log
            self.process.wait(10)
            self._reader.join(5)
            raise AssertionError(f"it did not end: {self.log}") from None
        finally:
            self.process.kill()
            self._reader.join()
            if self.process.stderr is not None:
                self.process.stderr.close()

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return "".join(self._log)

    def get(self, path: str) -> str:
        """The body of a page, whatever its status."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as response:  # noqa: S310  our own URL
                return str(response.read().decode())
        except HTTPError as error:
            with error:
                return error.read().decode()

    def health(self) -> dict[str, Any]:
        """The answer of /healthz."""
        return msgspec.json.decode(self.get("/healthz"), type=dict[str, Any])

    def verdict(self) -> NodeVerdict:
        """The answer of /v1/verdict."""
        return msgspec.json.decode(self.get("/v1/verdict"), type=NodeVerdict)

    def children(self) -> list[int]:
        """The pids of its child processes."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = list[int]()
        for task in listed.parent.parent.glob("*/children"):
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended since
                found += map(int, task.read_text(encoding="ascii").split())
        return found

    def _url(self) -> str:
        """Where it says that it serves."""
        found = re.search(r"serves (\S+)/metrics", self.log)
        return found.group(1) if found else ""

    def _read_log(self) -> None:
        for line in self.process.stderr or ():
            self._log.append(line)


def is_running(pid: int) -> bool:
    """Whether there is such a process, zombies apart."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
