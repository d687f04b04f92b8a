"""`make lives`: plays every life and prints what each profile makes of it. ARGS: words that codes or titles hold.

Exit status 1 where a goal is missed: see `tests.lives.table`.
"""

import argparse
import multiprocessing
import sys

from tests.lives.play import Played, play
from tests.lives.story import all_paths
from tests.lives.table import goals_of, lines_of


def main() -> int:
    """Play, print, compare with the goals."""
    parser = argparse.ArgumentParser(prog="python -m tests.lives", description=__doc__)
    parser.add_argument("words", nargs="*", help="only lives whose file name holds one of these words")
    parser.add_argument("--jobs", type=int, default=1, help="processes that play")
    parser.add_argument(
        "--why", action="store_true", help="also print what was seen of each life, and how long it took"
    )
    asked = parser.parse_args()
    wanted = [word.lower() for word in asked.words]
    paths = [path for path in all_paths() if not wanted or any(word in path.stem.lower() for word in wanted)]
    if not paths:
        print(f"no life's file name holds {' or '.join(asked.words)}", file=sys.stderr)  # noqa: T201
        return 2
    played: list[Played] = []
    with multiprocessing.get_context("spawn").Pool(asked.jobs, maxtasksperchild=8) as pool:
        for each in pool.imap(play, paths):
            played.append(each)
            print("\n".join(lines_of(each, why=asked.why)), flush=True)  # noqa: T201
    text, reached = goals_of(played)
    print(text)  # noqa: T201
    return 0 if reached or wanted else 1


if __name__ == "__main__":
    sys.exit(main())
