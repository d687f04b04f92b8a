"""`make lives`: plays every life and prints what each profile makes of it. ARGS: words that codes or titles hold.

Each is played with the rights that the unit grants, and as root, which has a line of its own where it differs.
Exit status 1 where a goal is missed with either: see `tests.lives.table`.
"""

import argparse
import multiprocessing
import sys

from tests.lives.play import Played, play_job
from tests.lives.rights import ROOT, unit_rights
from tests.lives.story import all_paths
from tests.lives.table import goals_of, lines_of

FORMS = {each.form: each for each in (unit_rights(), ROOT)}


def main() -> int:
    """Play, print, compare with the goals."""
    parser = argparse.ArgumentParser(prog="python -m tests.lives", description=__doc__)
    parser.add_argument("words", nargs="*", help="only lives whose file name holds one of these words")
    parser.add_argument("--jobs", type=int, default=1, help="processes that play")
    parser.add_argument(
        "--why", action="store_true", help="also print what was seen of each life, and how long it took"
    )
    parser.add_argument("--rights", choices=("both", *FORMS), default="both", help="play only with these rights")
    asked = parser.parse_args()
    wanted = [word.lower() for word in asked.words]
    paths = [path for path in all_paths() if not wanted or any(word in path.stem.lower() for word in wanted)]
    if not paths:
        print(f"no life's file name holds {' or '.join(asked.words)}", file=sys.stderr)  # noqa: T201
        return 2
    forms = tuple(FORMS) if asked.rights == "both" else (asked.rights,)
    played: dict[str, list[Played]] = {form: [] for form in forms}
    with multiprocessing.get_context("spawn").Pool(asked.jobs, maxtasksperchild=8) as pool:
        for each in pool.imap(play_job, [(path, FORMS[form]) for path in paths for form in forms]):
            first = played[forms[0]][-1] if played[forms[0]] and each.rights.form != forms[0] else None
            if first is None or first.by_profile != each.by_profile:
                print("\n".join(lines_of(each, why=asked.why)), flush=True)  # noqa: T201
            played[each.rights.form].append(each)
    told = [goals_of(each) for each in played.values()]
    print("\n".join(text for text, _ in told))  # noqa: T201
    return 0 if all(reached for _, reached in told) or wanted else 1


if __name__ == "__main__":
    sys.exit(main())
