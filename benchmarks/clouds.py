"""Figures of the clouds: what each extra costs a controller, and a round over 1,000 machines of each.

The clouds are the tests' fakes over HTTP in this process, with pages as large as the real APIs' are. What they have
answered once they answer again with the same bytes, so that their own checks are not measured.
"""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.cloud_sites import FLEET, SITES, CloudSite, environment_of
from benchmarks.figures import Figure

_MACHINES = 1000
_ROUNDS = 6  # the first is not measured: it asks what later ones know
_STARTS = 3
_MIB = 1024**2


def measure() -> Iterator[Figure]:
    """All figures."""
    for name, of in SITES.items():
        with TemporaryDirectory() as folder, of(Path(folder), _MACHINES) as site:
            lives = [_life(site, Path(folder), rounds=2) for _ in range(_STARTS - 1)]
            lives.append(_life(site, Path(folder), rounds=_ROUNDS))
            yield from _of_extra(name, lives)
            yield from _of_round(name, site, lives[-1])


def _of_extra(name: str, lives: list[dict[str, Any]]) -> Iterator[Figure]:
    """What the client needs besides the controller."""
    begun = [life["begun"] for life in lives]
    yield Figure(
        name=f"{name}: client loaded and asked for its groups",
        unit="s",
        runs=[each["seconds"] for each in begun],
        floor="the controller's own imports",
        floor_runs=[each["imported"] for each in begun],
    )
    yield Figure(
        name=f"{name}: peak RSS then",
        unit="MiB",
        runs=[each["rss"] / _MIB for each in begun],
        floor="without a cloud",
        floor_runs=[each["bare"] / _MIB for each in begun],
    )


def _of_round(name: str, site: CloudSite, life: dict[str, Any]) -> Iterator[Figure]:
    """A round over all machines: its time, its calls, and how fast they follow each other."""
    seconds = [each["seconds"] for each in life["rounds"][1:]]
    calls = [float(each["calls"]) for each in life["rounds"]]
    what = f"{name}, {_MACHINES:,} machines"
    yield Figure(
        name=f"{what}: a round",
        unit="s",
        runs=seconds,
        floor="the same requests by http.client",
        floor_runs=life["bare_seconds"],
    )
    yield Figure(
        name=f"{what}: its requests", unit="", runs=calls[1:], floor="in the first round", floor_runs=calls[:1]
    )
    interval = life["begun"]["interval"]
    yield Figure(
        name=f"{what}: requests a minute, a round each {interval:g} s",
        unit="",
        runs=[count * 60 / interval for count in calls[1:]],
        floor=f"{site.limit_of} limit",
        floor_runs=[site.limit * 60],
    )
    yield Figure(
        name=f"{what}: requests a second within it",
        unit="/s",
        runs=[count / took for count, took in zip(calls[1:], seconds, strict=True)],
        floor=f"{site.limit_of} limit",
        floor_runs=[site.limit],
    )
    yield Figure(
        name=f"{what}: peak RSS",
        unit="MiB",
        runs=[life["rounds"][-1]["rss"] / _MIB],
        floor="without a cloud",
        floor_runs=[life["begun"]["bare"] / _MIB],
    )


def _life(site: CloudSite, folder: Path, *, rounds: int) -> dict[str, Any]:
    """One process: its begin, its rounds with the requests of each, and the last one's sent again."""
    config = folder / "gpuwatch.yaml"
    config.write_text(json.dumps({"fleet": FLEET, "cloud": site.settings}), encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks.cloud_process", str(config), str(rounds)]
    with subprocess.Popen(
        command, env=environment_of(site), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None  # noqa: S101  for the type checker
        life: dict[str, Any] = {"begun": _heard(process), "rounds": []}
        for _ in range(rounds):
            before = len(site.server.log)
            process.stdin.write("\n")
            process.stdin.flush()
            seen = _heard(process)
            if seen["nodes"] != _MACHINES or seen["trouble"]:
                message = f"a round saw {seen['nodes']} machines, not {_MACHINES}; {seen['trouble'] or ''}"
                raise RuntimeError(message)
            asked = site.server.log[before:]
            life["rounds"].append({**seen, "calls": len(asked)})
        again = [
            {
                "method": entry.request.method,
                "target": entry.request.target,
                "headers": {key: value for key, value in entry.request.headers.items() if key != "content-length"},
                "body": base64.b64encode(entry.request.body).decode(),
            }
            for entry in asked
        ]
        authority = None if site.authority is None else str(site.authority)
        process.stdin.write(json.dumps({"url": site.server.url, "authority": authority, "requests": again}) + "\n")
        process.stdin.flush()
        life["bare_seconds"] = [_heard(process)["seconds"] for _ in range(rounds)][1:]
    return life


def _heard(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The next line of the process.

    Raises:
        RuntimeError: it ended.

    """
    assert process.stdout is not None  # noqa: S101  for the type checker
    line = process.stdout.readline()
    if not line:
        message = "the measured process ended early; its last words are above"
        raise RuntimeError(message)
    found: dict[str, Any] = json.loads(line)
    return found
