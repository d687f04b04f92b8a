"""One host as lines of text: a header that says what the node does and why, its GPUs, and who uses them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rich.text import Text

from gpuwatch.agent.host_text import ranges, trouble_text
from gpuwatch.cli.top.past import WIDE, Past
from gpuwatch.cli.top.rows import gpu_columns, held_text, process_columns
from gpuwatch.model.activity import LocalDisks, State, legend
from gpuwatch.model.duration import format_time
from gpuwatch.model.health import Health
from gpuwatch.model.host_page import HostGpu, HostPage, HostProcess
from gpuwatch.model.readable import legible
from gpuwatch.runtime.columns import cut, laid_out, wrap_words

_LONGEST = 200
_WHY_LINES = 2
_WHY_CELLS = 30  # of the reason, next to bars
_LOW = 20  # a screen of fewer lines is low
_MOST_NOTES = 4
_FEWEST_PROCESS_LINES = 3  # titles, one process, how many more
_KEYS = "q quit  sort by: g GPU  m memory  u user"


class Order(StrEnum):
    """What the processes are sorted by; the values are the keys."""

    GPU = "g"
    MEMORY = "m"
    USER = "u"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How to show a page: None is as wide, or as high, as it needs."""

    width: int | None = None
    height: int | None = None
    order: Order = Order.GPU
    note: str = ""  # what is particular about where it comes from
    failure: str = ""  # why there is no newer page
    keys: bool = False
    past: Past | None = None  # the last two minutes, for a wide terminal


def screen(page: HostPage, look: Look, now: datetime) -> list[Text]:
    """The whole screen, at most as high as asked for. `now` is the clock at its corner."""
    head = _header(page, look, now)
    if look.failure:
        return _fit_lines(head, look)  # absent, never stale
    foot = [Text(cut(f"{_KEYS} (by {look.order.name.lower().replace('gpu', 'GPU')})", look.width), style="dim")]
    foot = foot if look.keys else []
    processes = _sort_processes(page.processes, look.order)
    room = None if look.height is None else max(0, look.height - len(head) - len(foot))
    for_processes = min(_FEWEST_PROCESS_LINES, len(processes) + 1) if processes else 1
    past = look.past if look.width is not None and look.width >= WIDE else None
    gpus = _gpus(page.gpus, look.width, None if room is None else max(2, room - for_processes), past)
    if room is None or room > len(gpus) + for_processes:
        gpus += _notes(page, gpus, look.width)[: None if room is None else room - len(gpus) - for_processes]
    left = None if room is None else max(0, room - len(gpus))
    if left is None or left > len(processes) + 1:
        gpus.append(Text())
        left = None if left is None else left - 1
    body = [*head, *gpus, *_processes(page, processes, look.width, left)]
    if look.height is not None:
        body += _legend(page, look.width, look.height - len(foot) - len(body))
    if look.height is not None and foot:
        body = body[: look.height - 1] + [Text()] * max(0, look.height - 1 - len(body))
    return _fit_lines([*body, *foot], look)


def _sort_processes(processes: Iterable[HostProcess], order: Order) -> list[HostProcess]:
    """Within what they are sorted by, those with the most memory first."""
    by_memory = sorted(processes, key=lambda each: (-(each.memory_bytes or 0), each.pid))
    match order:
        case Order.GPU:
            return sorted(by_memory, key=lambda each: sorted(_indices(each)) or [1 << 16])
        case Order.USER:
            return sorted(by_memory, key=lambda each: (each.user is None, each.user or ""))
    return by_memory


def nothing(words: str, look: Look) -> list[Text]:
    """The screen before the first page."""
    return [Text(line, style="bold") for line in wrap_words(legible(words, _LONGEST), look.width, _WHY_LINES)]


def _fit_lines(lines: list[Text], look: Look) -> list[Text]:
    """No more lines than there is room for, none wider."""
    for line in lines:
        if look.width is not None:
            line.truncate(look.width)
    return lines if look.height is None else lines[: look.height]


def _header(page: HostPage, look: Look, now: datetime) -> list[Text]:
    """Who this is, what it does and why, and what else somebody at this host should know."""
    lines = [Text(cut(_identity(page, now), look.width), style="bold")]
    if look.failure:
        failed = wrap_words(legible(look.failure, _LONGEST), look.width, _WHY_LINES)
        return [*lines, *(Text(line, style="state.stalled") for line in failed)]
    lines += _state(page, look.width, 1 if look.height is not None and look.height < _LOW else _WHY_LINES)
    for style, words in [*_troubles(page, look.note), *_remarks(page)]:
        worst = style == "state.stalled"
        if look.height is not None and look.height < _LOW and not worst and words != look.note:
            break
        room = _WHY_LINES if worst or look.height is None else 1
        lines += [Text(line, style=style) for line in wrap_words(words, look.width, room)]
    return lines


def _identity(page: HostPage, now: datetime) -> str:
    """`trainer-7  gpuwatch 1.0.0rc1  driver 580.65.06  CUDA 13.0  8 GPUs  12:34:56 UTC`."""
    verdict = page.verdict
    name = page.hostname if verdict.node_id in {page.hostname, ""} else f"{page.hostname} ({verdict.node_id})"
    parts = [
        name,
        f"gpuwatch {verdict.agent_version}",
        f"driver {page.driver_version}" if page.driver_version else "",
        f"CUDA {page.cuda_version}" if page.cuda_version else "",
        f"{now:%H:%M:%S} UTC",
    ]
    return "  ".join(legible(part, _LONGEST) for part in parts if part)


def _notes(page: HostPage, shown: Sequence[Text], width: int | None) -> list[Text]:
    """What is wrong with GPUs, in full where its row has no room for it; the header has what is wrong with all."""
    of_all = None if page.trouble is None else page.trouble.cause
    ill = [
        gpu
        for gpu in page.gpus
        if (gpu.down is not None or gpu.health in {Health.DEGRADED, Health.FAILING})
        and not (gpu.down is not None and of_all is not None and gpu.down.cause in {"driver", "released"})
    ]
    rows = [line.plain for line in shown]
    cut_off = [gpu for gpu in ill if not any(line.endswith(legible(gpu.why)) for line in rows)]
    found: dict[str, list[HostGpu]] = {}
    for gpu in cut_off:
        found.setdefault(gpu.why, []).append(gpu)
    lines = []
    for why, same in list(found.items())[:_MOST_NOTES]:
        known = [gpu.index for gpu in same if gpu.index is not None]
        which = f"GPU{'s' if len(known) > 1 else ''} {ranges(known)}" if known else same[0].uuid
        lines += [
            Text(line, style="tint.stalled") for line in wrap_words(legible(f"{which}: {why}"), width, _WHY_LINES)
        ]
    return lines


def _state(page: HostPage, width: int | None, most: int) -> list[Text]:
    """`busy for 2h3m: python3 (alice) uses GPUs 0-3`, on so many lines at most."""
    activity = page.verdict.activity
    word = activity.state.value
    held = "" if activity.state is State.UNKNOWN else f" for {held_text(activity.held_seconds)}"
    begun = activity.since if activity.state is not State.UNKNOWN else None
    since = "" if begun is None else f" (since {begun:%H:%M} UTC)"
    shown_below = page.trouble is not None and activity.state is State.UNKNOWN
    why = f": {legible(page.why, _LONGEST)}" if page.why and not shown_below else ""
    lines = [Text(line) for line in wrap_words(f"{word}{held}{since}{why}", width, most)]
    lines[0].stylize(f"state.{word}", 0, len(word))
    return lines


def _troubles(page: HostPage, note: str) -> Iterable[tuple[str, str]]:
    """What makes the table worth less, each with its style."""
    if page.trouble is not None:
        yield "state.stalled", trouble_text(page.trouble)[: 2 * _LONGEST]
    if note:
        yield "tint.idle", legible(note, _LONGEST)


def _remarks(page: HostPage) -> Iterable[tuple[str, str]]:
    """What else somebody at this host should know; where the screen is low, the table comes first."""
    if page.snoozes:
        first, more = page.snoozes[0], len(page.snoozes) - 1
        until = format_time(first.expires_at)
        others = f" (and {more} more)" if more else ""
        yield "", f"snoozed by {legible(first.user, 32)} until {until}: {legible(first.reason, 80)}{others}"
    if page.verdict.local_disks is LocalDisks.USED:
        yield "", "local disks are in use: a stop loses their data"
    if blind := page.verdict.blind:
        others = f" (and {len(blind) - 1} more)" if len(blind) > 1 else ""
        yield "dim", f"not seen: {legible(blind[0], _LONGEST)}{others}"


def _legend(page: HostPage, width: int | None, room: int) -> list[Text]:
    """What the states on the screen mean, where there is room for all of it."""
    lines = wrap_words(legend(gpu.state for gpu in page.gpus if gpu.down is None), width, None)
    return [Text(), *(Text(line, style="dim") for line in lines)] if any(lines) and room > len(lines) else []


def _gpus(gpus: Sequence[HostGpu], width: int | None, height: int | None, past: Past | None = None) -> list[Text]:
    """The GPUs with their MIG instances; where there is no room for all, instances are left out first."""
    if not gpus:
        return [Text("no GPU is known")]
    rows = sum(1 + len(gpu.instances) for gpu in gpus)
    if height is None or rows < height:
        return laid_out(gpu_columns(gpus, past=past), width, wanted=_WHY_CELLS if past else 36)
    instances = [gpu.instances for gpu in gpus]
    if len(gpus) + 1 < height:  # titles and the line that says how many are missing
        free = height - 2 - len(gpus)
        shown = []
        for held in instances:
            shown.append(held[: max(0, free)])
            free -= len(held)
        missing = sum(map(len, instances)) - sum(map(len, shown))
        return [*laid_out(gpu_columns(gpus, shown, past), width), Text(f"+{missing} more MIG instances", style="dim")]
    most = max(1, height - 1 if len(gpus) < height else height - 2)
    lines = laid_out(gpu_columns(gpus[:most], [()] * most, past), width)
    return lines if most >= len(gpus) else [*lines, Text(f"+{len(gpus) - most} more GPUs", style="dim")]


def _processes(page: HostPage, processes: Sequence[HostProcess], width: int | None, height: int | None) -> list[Text]:
    """Who uses the GPUs; the last line says how many are not shown."""
    unlisted = [gpu for gpu in page.gpus if gpu.down is None and not gpu.processes_listed]
    if not processes:
        if not page.gpus or len(unlisted) == len(page.gpus) or all(gpu.down is not None for gpu in page.gpus):
            return [Text("which processes use the GPUs is not known", style="dim")] if page.gpus else []
        return [Text("no process uses a GPU", style="dim")]
    more = page.processes_left_out
    if height is not None and len(processes) + 1 + bool(more) > height:
        most = max(0, height - 2)
        processes, more = processes[:most], more + len(processes) - most
    lines = laid_out(process_columns(processes), width) if processes else []
    return [*lines, Text(f"+{more} more", style="dim")] if more else lines


def _indices(process: HostProcess) -> set[int]:
    return {use.index for use in process.gpus if use.index is not None}
