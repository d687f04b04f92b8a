"""`make nightly`: thousands of generated lives of fleets (P1 to P25) on all processors, a line for each part.

The last parts are lives over each provider's fake, all power cuts there, the contracts of the clouds in full, and a
cluster with its own controllers; then all else that has the mark `nightly`, and all other properties.

A part is a process with a seed of its own: Hypothesis keeps what it has tried in memory, some 2 MB a life. A part that
fails is repeated by the command that its line shows. `python -m tests.properties.nightly FIRST LAST` plays these parts
alone.
"""

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.paths import ROOT, TESTS

LIVES = 500  # of a part; the variable does not begin with GPUWATCH_, which programs take for a setting


def folder_of(test: Path) -> str:
    """The room that a test belongs to: `unit/agent`."""
    return "/".join(
        test.relative_to(TESTS).parts[:2] if test.is_relative_to(TESTS / "unit") else test.relative_to(TESTS).parts[:1]
    )


STORIES = ("test_properties", "test_properties_growth")
PARTS = [(story, seed) for seed in range(1, 17) for story in STORIES]
PARTS += [("test_properties_launch", seed) for seed in (1, 2)]
PARTS += [("test_properties_clouds", seed) for seed in (1, 2, 3, 4)]
PARTS += [("test_learned_notices", seed) for seed in (1, 2)]
# Of each other kind of life, and of the ledger and the learned wait, what `make test` plays some of.
FEATURES = ("gpu_pools", "market")
PARTS += [(f"test_properties_{feature}", 1) for feature in FEATURES]
PARTS += [(f"test_{kind}_lives", 1) for kind in ("cluster", "sick", "workload")]
PARTS += [(f"test_{name}", 1) for name in ("groups_without_stock", "ledger_sequences", "learned_wait_bound")]
# Sources, clouds, images, markets, neighbours and sensors that misbehave (P22 to P25).
PARTS += [(f"test_{name}", 1) for name in ("isolation", "isolation_cluster", "isolation_sources", "whose_stop")]
PARTS += [(f"test_{name}", 1) for name in ("random_neighbours", "weeks_are_bounded")]
PARTS += [(f"../unit/{name}", 1) for name in ("guard/test_fleet_idleness", "money/blocked/test_blocked")]
# Power cuts at every boundary, of which `make test` leaves most out where nothing new happens.
CRASHES = ("", "_clouds", "_cluster", "_growth", "_hosts", "_interruption", "_offers", "_sick", "_stale")
PARTS += [(f"../integration/crash/test_crash{each}", 1) for each in CRASHES]
# Each call of each cloud under each fault, of which `make test` runs those that show every pair.
PARTS += [(f"../contracts/{name}", 1) for name in ("test_cloud_faults", "test_cloud_faults_groups", "test_clouds")]
PARTS += [("../contracts/test_clouds_launch_and_remove", 1)]
# Each kind of workload on a real control plane, of which `make test` plays those that differ in what becomes of them.
PARTS += [("../integration/kubernetes/test_matrix", 1)]
# What has the mark `nightly`, with all else in its file; those with the controllers of Kubernetes, and for some those
# of others, which are built once, take minutes each.
_SOURCES = {each: each.read_text(encoding="utf-8") for each in sorted(TESTS.rglob("test_*.py"))}
_KNOWN = {(TESTS / "properties" / f"{story}.py").resolve() for story, _ in PARTS}
MARKED = [
    each
    for each, text in _SOURCES.items()
    if each not in _KNOWN and re.search(r"mark\.(nightly|pairwise)|by_night\(|\bNIGHTLY\b|\bPROMETHEUS_BY_DAY\b", text)
]
PARTS += [(f"../{each.relative_to(TESTS).with_suffix('')}", 1) for each in MARKED]
# All other properties, of which `make test` searches a third of the examples: a part is a folder's.
_SEARCHED = [
    each
    for each, text in _SOURCES.items()
    if each not in _KNOWN | {*MARKED} and re.search(r"\bgiven\(|examples\(", text)
]
SEARCHED = {
    folder: [each for each in _SEARCHED if folder_of(each) == folder] for folder in sorted({*map(folder_of, _SEARCHED)})
}
PARTS += [(folder, 1) for folder in SEARCHED]
BUILT = ["kube-controller-manager", "kube-scheduler", "kwok"]
BUILT += ("jobset-controller", "lws-controller", "kueue-manager", "karpenter-kwok")


def play(number: int) -> bool:
    """One part; says what came of it."""
    story, seed = PARTS[number - 1]
    files = [str(each.relative_to(ROOT)) for each in SEARCHED.get(story, ())] or [f"tests/properties/{story}.py"]
    command = [sys.executable, "-m", "pytest", "-n0", "-q", f"--hypothesis-seed={seed}", *files]
    begun = time.perf_counter()
    environment = os.environ | {"NIGHTLY_LIVES": str(LIVES)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    days = re.search(r"lived ([\d,]+) days", ended.stdout)
    sys.stdout.write(
        f"part {number:2} of {len(PARTS)}  {story}  {LIVES} lives  {days[1] if days else '?'} days  "
        f"{time.perf_counter() - begun:,.0f} s  {'passed' if ended.returncode == 0 else 'FAILED'}\n"
    )
    if ended.returncode != 0:
        sys.stdout.write(f"NIGHTLY_LIVES={LIVES} {' '.join(command)}\n{ended.stdout}{ended.stderr}\n")
    sys.stdout.flush()
    return ended.returncode == 0


def main(arguments: list[str]) -> int:
    """The exit status: 1 where a part failed."""
    subprocess.run([sys.executable, "tests/support/kubernetes_programs.py", *BUILT], cwd=ROOT, check=False)
    first, last = (int(each) for each in arguments) if arguments else (1, len(PARTS))
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return 0 if all(list(pool.map(play, range(first, last + 1)))) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
