"""The table of lives, and whether the profiles reach their goals."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gpuwatch.model.duration import format_duration
from tests.lives.judge import PROFILES, Judged
from tests.lives.play import Played

_WIDTH = 58


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Of a profile: so many busy lives stopped at most (None: any), so large a share found within so long."""

    busy_stopped: int | None
    found: float
    within_seconds: float


GOALS = {
    "cautious": Goal(busy_stopped=0, found=0.40, within_seconds=86400.0),
    "balanced": Goal(busy_stopped=0, found=0.85, within_seconds=86400.0),
    "eager": Goal(busy_stopped=None, found=0.95, within_seconds=4 * 3600.0),
}


def lines_of(played: Played, *, why: bool) -> list[str]:
    """A life's line; below it what was seen, if asked for."""
    life = played.life
    cells = " ".join(f"{_cell(played.by_profile[profile]):>9}" for profile in played.by_profile)
    wrong = [profile for profile in played.by_profile if misjudged(played, profile)]
    mark = f"  <- wrong in {', '.join(wrong)}" if wrong else ""
    title = f"as root: {life.title}" if played.rights.root else life.title
    lines = [f"{life.code:4} {life.truth:9} {title[:_WIDTH]:{_WIDTH}} {cells}{mark}"]
    if why:
        hours = ", ".join(f"{state} {hours:.1f}h" for state, hours in sorted(played.states.items()))
        says = next((each.says for each in reversed(played.by_profile.values()) if each.stopped_after is None), "")
        lines.append(f"     {hours}; {played.because}; {played.seconds:.1f} s")
        lines += [f"     {says}"] if says else []
    return lines


def misjudged(played: Played, profile: str) -> bool:
    """Whether a profile stopped a life in use where it may not, or never found a forgotten one."""
    stopped = played.by_profile[profile].stopped_after
    if played.life.truth == "busy":
        return stopped is not None and GOALS[profile].busy_stopped is not None
    return stopped is None or stopped > GOALS[profile].within_seconds


def _cell(judged: Judged) -> str:
    return "never" if judged.stopped_after is None else format_duration(judged.stopped_after)


def goals_of(played: Sequence[Played]) -> tuple[str, bool]:
    """The totals by profile, and whether all goals are reached."""
    busy = [each for each in played if each.life.truth == "busy"]
    forgotten = [each for each in played if each.life.truth == "forgotten"]
    as_ = "as root" if played and played[0].rights.root else "with the rights that ship"
    lines, reached = ["", f"{len(busy)} lives in use, {len(forgotten)} forgotten ones, {as_}."], True
    for profile in PROFILES:
        goal = GOALS[profile]
        times = [each.by_profile[profile].stopped_after for each in forgotten]
        found = sorted(time for time in times if time is not None and time <= goal.within_seconds)
        stopped = [each.life.code for each in busy if each.by_profile[profile].stopped_after is not None]
        share = len(found) / len(forgotten) if forgotten else 1.0
        good = share >= goal.found and (goal.busy_stopped is None or len(stopped) <= goal.busy_stopped)
        reached = reached and good
        within, middle = format_duration(goal.within_seconds), format_duration(median(found)) if found else "-"
        most = "" if goal.busy_stopped is None else f" (goal: {goal.busy_stopped})"
        lines.append(
            f"{profile:9} in use and stopped: {len(stopped)}{most} {' '.join(stopped)}\n"
            f"{'':9} found within {within}: {len(found)} of {len(forgotten)}, {share:.0%} (goal: {goal.found:.0%}), "
            f"median {middle}; {'reached' if good else 'MISSED'}"
        )
    return "\n".join(lines), reached
