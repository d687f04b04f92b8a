"""A real Prometheus that scrapes real agents."""

import json
import re
import subprocess
import threading
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO, Any

from tests.support.components import require
from tests.support.real.agents import eventually

CONFIGURATION = """
global: {{scrape_interval: 250ms, scrape_timeout: 250ms}}
scrape_configs:
  - job_name: gpuwatch
    static_configs: [{{targets: ["{target}"]}}]
{access}
"""


class RunningPrometheus:
    """One server on a free port, scraping one agent."""

    def __init__(self, folder: Path, target: str, access: str = "") -> None:
        """Start it and wait until it is ready."""
        folder.mkdir()
        configuration = folder / "prometheus.yml"
        configuration.write_text(CONFIGURATION.format(target=target, access=access), encoding="ascii")
        self.process = subprocess.Popen(
            [
                require("prometheus"),
                f"--config.file={configuration}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self._log: list[str] = []
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self._read_log, args=(self.process.stderr,), daemon=True)
        self._reader.start()
        try:
            eventually(lambda: "ready to receive web requests" in "".join(self._log), lambda: "".join(self._log))
        except AssertionError:
            self.close()
            raise
        self.url = f"http://127.0.0.1:{self._port()}"

    def query(self, expression: str) -> dict[str, float]:
        """An instant query: values by the labels that matter here."""
        found = self._ask(f"query?{urllib.parse.urlencode({'query': expression})}")["result"]
        return {_label(sample["metric"]): float(sample["value"][1]) for sample in found}

    def sees(self, expression: str, expected: dict[str, float]) -> None:
        """Wait until the query gives that."""
        eventually(
            lambda: self.query(expression) == expected,
            lambda: f"{expression} gives {self.query(expression)}, not {expected}\n{self._own_words()}",
        )

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(20)
        self._reader.join()
        if self.process.stderr is not None:
            self.process.stderr.close()

    def _ask(self, path: str) -> dict[str, Any]:
        """An answer of its HTTP API."""
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=10) as response:  # noqa: S310  our own
            answer: dict[str, Any] = json.load(response)["data"]
        return answer

    def _own_words(self) -> str:
        """What it scrapes and what it has logged, for a failing test."""
        return f"{self._ask('targets')['activeTargets']}\n{''.join(self._log)}"

    def _port(self) -> str:
        """The one that it says it listens on."""
        found = re.search(r"Listening on\"? address=127\.0\.0\.1:(\d+)", "".join(self._log))
        assert found is not None, "".join(self._log)
        return found.group(1)

    def _read_log(self, pipe: IO[str]) -> None:
        for line in pipe:
            self._log.append(line)


def _label(metric: dict[str, str]) -> str:
    """gpu, cause and state of a series, as far as it has them."""
    return " ".join(metric[name] for name in ("gpu", "cause", "state") if name in metric)
