"""Real engines with a history: what a test says was scraped is in them before the first query."""

import contextlib
import re
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from tests.support.components import require
from tests.support.real.agents import eventually

Points = Iterable[tuple[float, float]]  # Unix time, value


@dataclass(slots=True)
class History:
    """Series to be: by name and labels."""

    lines: dict[str, list[tuple[str, float, float]]] = field(default_factory=dict)

    def add(self, name: str, labels: Mapping[str, str], points: Points) -> None:
        """One series."""
        text = ",".join(f'{label}="{value}"' for label, value in labels.items())
        self.lines.setdefault(name, []).extend((f"{name}{{{text}}}", at, value) for at, value in points)

    def openmetrics(self) -> str:
        """As promtool wants it: family by family, in seconds."""
        text = []
        for name, lines in self.lines.items():
            text.append(f"# TYPE {name} gauge\n")
            text += [f"{series} {_number(value)} {at:.3f}\n" for series, at, value in lines]
        return "".join(text) + "# EOF\n"

    def exposition(self) -> str:
        """As VictoriaMetrics' import wants it: in milliseconds."""
        return "".join(
            f"{series} {_number(value)} {at * 1000:.0f}\n"
            for lines in self.lines.values()
            for series, at, value in lines
        )


def _number(value: float) -> str:
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(str(value), repr(value))


@contextlib.contextmanager
def prometheus(folder: Path, history: History, configuration: str = "", *, lookback: str = "5m") -> Iterator[str]:
    """A Prometheus that has scraped that; gives its URL. A history cannot say that a series ended: `lookback` can."""
    folder.mkdir(exist_ok=True)
    (folder / "history").write_text(history.openmetrics())
    (folder / "prometheus.yml").write_text(configuration or "global: {scrape_interval: 15s}\n")
    if history.lines:
        made = ["tsdb", "create-blocks-from", "openmetrics", str(folder / "history"), str(folder / "data")]
        subprocess.run([require("promtool"), *made], check=True, capture_output=True)
    command: list[str | Path] = [
        require("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=10y",
        f"--query.lookback-delta={lookback}",
        "--web.listen-address=127.0.0.1:0",
    ]
    with running(command, "ready to receive web requests") as log:
        listening = re.compile(r"Listening on\"? address=(127\.0\.0\.1:\d+)")
        eventually(lambda: listening.search("".join(log)), lambda: "".join(log))  # often logged after "ready"
        yield f"http://{listening.findall(''.join(log))[0]}"


@contextlib.contextmanager
def victoria(folder: Path, history: History) -> Iterator[str]:
    """A VictoriaMetrics that has been given that; gives its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command: list[str | Path] = [
        require("victoria-metrics"),
        f"-storageDataPath={folder}",
        f"-httpListenAddr={address}",
        "-retentionPeriod=10y",
    ]
    with running(command, "started VictoriaMetrics"):
        url = f"http://{address}"
        _post(f"{url}/api/v1/import/prometheus", history.exposition().encode())
        _post(f"{url}/internal/force_flush", b"")
        yield url


ENGINES = {
    "prometheus": pytest.param(prometheus, marks=pytest.mark.component("prometheus"), id="Prometheus"),
    "victoria": pytest.param(victoria, marks=pytest.mark.component("victoria-metrics"), id="VictoriaMetrics"),
}


# Where a second engine that thinks the same is one more of a kind.
PROMETHEUS_BY_DAY = [
    ENGINES["prometheus"],
    pytest.param(
        victoria, marks=[pytest.mark.component("victoria-metrics"), pytest.mark.nightly], id="VictoriaMetrics"
    ),
]


@contextlib.contextmanager
def running(command: list[str | Path], ready: str) -> Iterator[list[str]]:
    """A server whose log has said that it is ready; gives the log."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    log: list[str] = []
    reader = threading.Thread(target=_read, args=(process.stderr, log), daemon=True)
    reader.start()
    try:
        eventually(lambda: ready in "".join(log) or process.poll() is not None, lambda: "".join(log))
        assert process.poll() is None, "".join(log)
        yield log
    finally:
        process.terminate()
        process.wait(20)
        reader.join()
        if process.stderr is not None:
            process.stderr.close()


def _read(pipe: IO[str] | None, log: list[str]) -> None:
    for line in pipe or ():
        log.append(line)  # noqa: PERF402  line by line, for whoever waits for one


def _post(url: str, body: bytes) -> None:
    request = urllib.request.Request(url, data=body)  # noqa: S310  our own
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310  likewise
        response.read()
