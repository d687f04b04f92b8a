"""How much a pool's knowledge of its idle gaps takes, after more and more of them: it must not grow.

`python -m benchmarks.learned_state [--gaps N]`: 2,500 nodes, two hints that are renamed every 5,000 gaps. One gap in
twenty is also learned from in each bin: the others only begin and end, which takes the same memory.
"""

import argparse
import random
import resource
import sys

import msgspec

from gpuwatch.policies.idle_timeout import facts
from gpuwatch.policies.idle_timeout import gap_history as gaps
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.idle_timeout.hazard import EDGES, HINT

_NODES, _RENAMED, _TAUGHT = 2500, 5000, 20
_RESTART = 600.0
_SEED = 7


def main() -> int:
    """Play and print, at each power of ten."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gaps", type=int, default=10**6, metavar="N")
    most = parser.parse_args().gaps
    history, chance, at = GapHistory(), random.Random(_SEED), 0.0
    print("     gaps  as JSON, KiB  process at most, MiB  classes  nodes")
    for number in range(1, most + 1):
        name = f"n{chance.randrange(_NODES)}"
        at += chance.expovariate(1 / 20.0)
        until = at + 10 ** chance.uniform(1, 4.5)
        history = gaps.went_idle(history, name, at, _RESTART)
        for edge in EDGES if number % _TAUGHT == 0 else ():
            if at + edge * _RESTART < until:
                told = {f"{HINT}{number // _RENAMED}.{each}": facts.count(chance.uniform(0, 50)) for each in "ab"}
                history = gaps.after_time(history, at + edge * _RESTART, news=told)
        history = gaps.need_node(history, name, until)
        if number == most or number in {10**3, 10**4, 10**5}:
            size, process = len(msgspec.json.encode(history)), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            classes, nodes = len(history.hazard.rows), len(history.habits)
            print(f"{number:9,}  {size / 1024:13.0f}  {process / 1024:20.1f}  {classes:7}  {nodes:5}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
