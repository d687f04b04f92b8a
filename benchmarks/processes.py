"""Processes under measurement: their memory and CPU time as the kernel counts them, and when they first answer."""

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import IO, Self
from uuid import uuid4

from gpuwatch.runtime.clock import SystemClock

_ROOT = Path(__file__).parent.parent
_PATIENCE_SECONDS = 30.0
_MARK = "BENCHMARK_PROCESS"  # a variable that a process and all it starts have in their environment
_LIBC = ctypes.CDLL(None, use_errno=True)

# What Prometheus 3 says when it scrapes.
PROMETHEUS = {
    "Accept": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    "Accept-Encoding": "gzip",
}
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


def pss_bytes(pids: Iterable[int]) -> int:
    """Proportional set size: private pages, and each shared one divided by those who share it."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            total += _rolled_up(pid, "Pss")
    return total * 1024


def memory_bytes(pids: Iterable[int]) -> int:
    """What these processes have together: their PSS on a host where nothing else maps their files.

    PSS itself depends on how many other Pythons share the interpreter's pages just then, and a benchmark runs several.
    """
    private, files = 0, dict[str, int]()
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            private += _rolled_up(pid, "Pss_Anon")
            for mapping, pages in _file_pages(pid):
                files[mapping] = max(pages, files.get(mapping, 0))
    return (private + sum(files.values())) * 1024


def _rolled_up(pid: int, what: str) -> int:
    """A line of smaps_rollup, in KiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    found = re.search(rf"^{what}:\s+(\d+) kB$", text, re.MULTILINE)
    if found is None:
        message = f"/proc/{pid}/smaps_rollup has no {what}; Linux 5.9 has it"
        raise RuntimeError(message)
    return int(found.group(1))


def _file_pages(pid: int) -> Iterator[tuple[str, int]]:
    """Each mapped piece of a file, and its KiB in memory that are still the file's."""
    mapping, rss = "", 0
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8", errors="replace").splitlines():
        key, *rest = line.split()
        if not key.endswith(":"):  # 7f12-7f34 r-xp 00001000 fe:01 1234 /usr/lib/libc.so.6
            mapping = f"{rest[-1]} {rest[1]}" if len(rest) > 4 and rest[3] != "0" else ""
        elif key == "Rss:":
            rss = int(rest[0])
        elif key == "Anonymous:" and mapping:
            yield mapping, rss - int(rest[0])


def peak_rss_bytes() -> int:
    """The most memory this process ever had (VmHWM; getrusage would count its parent's before the exec)."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes and of those of their children that have ended.

    Ended threads count too. A living process' time comes in nanoseconds (clock_getcpuclockid(3)).
    """
    return sum(map(_own_seconds, pids))


def _own_seconds(pid: int) -> float:
    clock = ctypes.c_int()
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        _LIBC.clock_getcpuclockid(pid, ctypes.byref(clock))
        return time.clock_gettime(clock.value) + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    except OSError:  # it has ended, and its parent counts it
        return 0.0


@dataclass(slots=True, kw_only=True)
class Started:
    """A process in a `with`: started there, ended at its end. `port` is where it serves, 0 if it does not."""

    command: Sequence[str]
    environment: Mapping[str, str] | None = None
    port: int = 0
    process: subprocess.Popen[bytes] = field(init=False)
    start: float = field(init=False)
    _mark: str = field(init=False)
    _log: IO[bytes] = field(init=False)

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
        self._mark = uuid4().hex
        environment = {**(os.environ if self.environment is None else self.environment), _MARK: self._mark}
        self._log = TemporaryFile()
        self.start = time.perf_counter()
        self.process = subprocess.Popen(
            self.command,
            env=environment,
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
        )
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and what it leaves behind."""
        self.process.terminate()
        try:
            self.process.wait(10)
        finally:
            self.process.kill()
            for pid in self.pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._log.close()

    @property
    def pids(self) -> list[int]:
        """It and whatever it started, children of children and orphans too: they all have its mark."""
        mark = f"{_MARK}={self._mark}".encode()
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # not ours, or ended
                if mark in environ.read_bytes().split(b"\0"):
                    found.append(int(environ.parent.name))
        return found

    def seconds_until(self, good: str, times: int = 1) -> float:
        """Time from its start until so many lines of /metrics match the pattern.

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
                if len(pattern.findall(page)) >= times:
                    return time.perf_counter() - self.start
                seen = page[-200:]
            SystemClock().sleep(0.005)
        self._log.seek(0)
        said = self._log.read()[-1000:].decode(errors="replace")
        command = " ".join(self.command)[:200]
        message = f"{command} showed no {good!r}; exit {self.process.poll()}, last seen {seen!r}, it said:\n{said}"
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
