"""Processes under measurement: their memory and CPU time as the kernel counts them, and when they first answer."""

import ctypes
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from types import MappingProxyType
from typing import Self

from gpuwatch.runtime.clock import SystemClock

_ROOT = Path(__file__).parent.parent
_PATIENCE_SECONDS = 30.0
_LIBC = ctypes.CDLL(None, use_errno=True)

# What Prometheus 3 says when it scrapes.
PROMETHEUS = {
    "Accept": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    "Accept-Encoding": "gzip",
}
SLEEPER = "import time; time.sleep(3600)"
WAKER = "import time\nwhile True: time.sleep(1)"
# A page of N bytes, always the same, from http.server; sent as the agent sends its own: in one piece, kept alive.
STATIC_SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
page = b"x" * int(sys.argv[2])
class Handler(BaseHTTPRequestHandler):
    protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", -1, True
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)
        self.wfile.flush()
    def log_message(self, *_): pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def free_port() -> int:
    """A port that nobody has just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def pss_bytes(pid: int) -> int:
    """Proportional set size: private pages, and each shared one divided by those who share it (smaps_rollup)."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    found = re.search(r"^Pss:\s+(\d+) kB$", text, re.MULTILINE)
    if found is None:
        message = f"/proc/{pid}/smaps_rollup tells no Pss"
        raise RuntimeError(message)
    return int(found.group(1)) * 1024


def peak_rss_bytes() -> int:
    """The most memory this process ever had (VmHWM; getrusage would count its parent's before the exec)."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads, ended ones too, in nanoseconds' resolution (clock_getcpuclockid(3))."""
    clock = ctypes.c_int()
    if _LIBC.clock_getcpuclockid(pid, ctypes.byref(clock)):
        message = f"process {pid} is gone"
        raise RuntimeError(message)
    return time.clock_gettime(clock.value)


@dataclass(slots=True, kw_only=True)
class Started:
    """A process in a `with`: started there, ended at its end. `port` is where it serves, 0 if it does not."""

    command: Sequence[str]
    environment: Mapping[str, str] | None = None
    port: int = 0
    process: subprocess.Popen[bytes] = field(init=False)
    start: float = field(init=False)

    @classmethod
    def python(cls, code: str, *arguments: str, port: int = 0) -> Self:
        """A bare interpreter with some code."""
        return cls(command=[sys.executable, "-c", code, *arguments], port=port)

    @classmethod
    def static(cls, size: int) -> Self:
        """The bare server of a page of that size."""
        port = free_port()
        return cls.python(STATIC_SERVER, str(port), str(size), port=port)

    def __enter__(self) -> Self:
        """Start it."""
        self.start = time.perf_counter()
        self.process = subprocess.Popen(
            self.command,
            env=self.environment,
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(10)
        finally:
            self.process.kill()

    @property
    def pids(self) -> list[int]:
        """It and its children."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [self.process.pid, *(int(pid) for task in tasks for pid in task.read_text(encoding="ascii").split())]

    def seconds_until(self, good: str) -> float:
        """Time from its start until /metrics has a line that the pattern matches.

        Raises:
            RuntimeError: it ended, or took too long.

        """
        pattern = re.compile(good.encode(), re.MULTILINE)
        seen: object = b""
        while self.process.poll() is None and time.perf_counter() < self.start + _PATIENCE_SECONDS:
            try:
                page = get(HTTPConnection("127.0.0.1", self.port, timeout=10))
            except OSError as error:
                seen = error
            else:
                if pattern.search(page):
                    return time.perf_counter() - self.start
                seen = page[-200:]
            SystemClock().sleep(0.005)
        message = f"{' '.join(self.command)[:200]} showed no {good!r}; exit {self.process.poll()}, last seen {seen!r}"
        raise RuntimeError(message)


def get(connection: HTTPConnection, headers: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """One GET of /metrics on a connection, which stays open if the server lets it."""
    connection.request("GET", "/metrics", headers=headers)
    return connection.getresponse().read()


def seconds_to_run(code: str) -> float:
    """Start to end of a bare interpreter with some code."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - begin
