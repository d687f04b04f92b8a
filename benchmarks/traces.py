"""Plays real recordings through the headless demo and prints what gpuwatch would have done on them.

The recordings are not part of the repository: `python benchmarks/traces.py [DIRECTORY] [--hours H]`, else
$GPUWATCH_TRACES, else ../shared/traces. Read there: the GPU duty of an Alibaba diffusion-model service's pods (as one
1-GPU node each, with and without their memory) and the busy intervals of Microsoft Philly's nodes.
"""

import argparse
import csv
import gzip
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from gpuwatch.simulate.demo import run_headless
from gpuwatch.simulate.fleet.options import Options

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "traces"
_GIB = 1024**3
_PODS = "genai26_pod_gpu.csv.gz"
_PHILLY = ("philly_node_busy_pack.csv.gz", "philly_node_busy_spread.csv.gz")
_COLUMNS = {
    "recording": ("source", "{}"),
    "nodes": ("nodes", "{}"),
    "hours": ("hours", "{:.1f}"),
    "billed": ("billed_gpu_hours", "{:.1f}"),
    "useful": ("useful_gpu_hours", "{:.1f}"),
    "missed": ("missed_gpu_hours", "{:.1f}"),
    "silent": ("silent_gpu_hours", "{:.1f}"),
    "waste": ("waste_ratio", "{:.3f}"),
    "baseline": ("baseline_waste_ratio", "{:.3f}"),
    "stopped": ("stopped", "{}"),
    "wrongly": ("wrongly_stopped", "{}"),
    "restarts": ("restarts", "{}"),
    "node-hours/s": ("speed", "{:.0f}"),
}


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as lines:
        yield from csv.DictReader(lines)


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with gzip.open(path, "wt", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def _pods(source: Path, target: Path, *, memory: bool) -> Path:
    """Percent to ratios, GiB to bytes, a pod to a node."""
    header = ("time_s", "node", "gpu", "utilization_ratio", "memory_bytes")[: 5 if memory else 4]
    held: dict[str, int] = {}  # where a row does not tell, as in the row before

    def told() -> Iterator[tuple[object, ...]]:
        for row in _rows(source / _PODS):
            if row["gpu_mem_gib"]:
                held[row["pod"]] = round(float(row["gpu_mem_gib"]) * _GIB)
            yield row["t_s"], row["pod"], 0, float(row["gpu_duty_pct"]) / 100, held.get(row["pod"], 0)

    name = f"pods{'+memory' if memory else ''}.csv.gz"
    return _write(target / name, header, (row[: len(header)] for row in told()))


def _philly(source: Path, target: Path, name: str) -> Path:
    """A node's name is vc/node."""
    generator = ((f"{row['vc']}/{row['node']}", row["busy_from_s"], row["busy_to_s"]) for row in _rows(source / name))
    short = name.removeprefix("philly_node_busy_").replace(".csv.gz", "")
    return _write(target / f"philly-{short}.csv.gz", ("node", "busy_from_s", "busy_to_s"), generator)


def _play(trace: Path, hours: float | None, gpus: int) -> Mapping[str, object]:
    begin = time.perf_counter()
    figures = run_headless(Options(trace=trace, hours=hours, gpus_per_node=gpus))
    seconds = time.perf_counter() - begin
    return {**asdict(figures), "speed": float(figures.nodes) * float(figures.hours) / seconds}


def main() -> int:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ.get("GPUWATCH_TRACES", _DEFAULT))
    parser.add_argument("directory", type=Path, nargs="?", default=default, help="where the recordings are")
    parser.add_argument("--hours", type=float, help="of the Philly recordings, which are 75 days long")
    parser.add_argument("--gpus-per-node", type=int, default=1, help="of a Philly node")
    arguments = parser.parse_args()
    if not (arguments.directory / _PODS).exists():
        print(f"no recordings in {arguments.directory}; name their directory, or set GPUWATCH_TRACES")
        return 0
    print("  ".join(f"{name:>14}" for name in _COLUMNS))
    with tempfile.TemporaryDirectory() as made:
        target = Path(made)
        plays = [(_pods(arguments.directory, target, memory=memory), None, 1) for memory in (False, True)]
        plays += [
            (_philly(arguments.directory, target, name), arguments.hours, arguments.gpus_per_node) for name in _PHILLY
        ]
        for trace, hours, gpus in plays:
            figures = _play(trace, hours, gpus)
            print("  ".join(f"{form.format(figures[key]):>14}" for key, form in _COLUMNS.values()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
