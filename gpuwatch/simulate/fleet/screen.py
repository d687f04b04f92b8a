"""What the live demo shows: a table of the fleet with the reasons, the last events, what was saved; or plain lines."""

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from gpuwatch.controller.node_row import node_rows
from gpuwatch.controller.round import Round
from gpuwatch.guard import Rulebook
from gpuwatch.model.activity import State
from gpuwatch.model.decision import REMOVALS, Status, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.nodes_page import NodeRow
from gpuwatch.model.proposal import stop_words
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.columns import Column, cut, laid_out, wrap_words
from gpuwatch.simulate.fleet.world import World

_EVENTS = 8
_WHY_CELLS = 52  # which the reason has in a narrow terminal, before other columns do
_MONEY_LINES = 3
_OWNED = re.compile(r"^(\w+) \((.*)\)( for .*)$")
_ACTION_STYLES = {Verb.NOTICE: "tint.idle", Verb.STOP: "tint.stalled", Verb.WITHDRAW: "tint.healthy"}


@dataclass(slots=True, kw_only=True)
class Board:
    """What is known to the screen; rounds come from one thread, the screen may be drawn from another."""

    world: World
    rules: Rulebook
    clock: Clock
    begin: datetime
    totals: Callable[[], str] = str
    page: str = ""  # where the fleet page is
    say: Callable[[str], None] | None = None  # for every event, where there is no screen
    _events: deque[str] = field(default_factory=lambda: deque(maxlen=_EVENTS))
    _last: Round | None = None
    _open: dict[str, str] = field(default_factory=dict)  # names of the nodes that were acted on, by the ledger's key
    _stopped: dict[str, tuple[datetime, str]] = field(default_factory=dict)  # when and why, by node id
    _unknown: dict[str, bool] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def event(self, sentence: str) -> None:
        """Show that something has happened."""
        line = f"{story_time(self.clock.now(), self.begin)}  {sentence}"
        with self._lock:
            self._events.append(line)
        if self.say is not None:
            self.say(line)

    def round(self, done: Round) -> None:
        """A round is over."""
        with self._lock:
            self._last = done
        for sentence in self._sentences(done):
            self.event(sentence)

    def _sentences(self, done: Round) -> Iterator[str]:
        """Yield the news of a round."""
        if done.trouble is not None:
            yield done.trouble
        names = {node.id: node.name for node in done.observation.fleet.nodes}
        for act in done.acts:
            verb, node_id = act.review.step.verb.value, act.review.step.node_id
            ended = "" if act.outcome.status in {Status.SETTLED, Status.ACCEPTED} else f" -> {act.outcome.detail}"
            reason = act.review.step.reason
            why = stop_words(reason, None) if act.review.step.verb in REMOVALS else _short(reason.sentence)
            yield f"{verb} {names.get(node_id, node_id)}: {why}{ended}"
            if act.outcome.status is Status.ACCEPTED:
                self._open[act.outcome.key] = names.get(node_id, node_id)
                self._stopped[node_id] = (done.observation.now, why)
        for outcome in done.settled:
            yield f"{outcome.status.value} {self._open.pop(outcome.key, outcome.key)}: {outcome.detail}"
        for node in done.observation.fleet.nodes:
            unknown = node.state is NodeState.RUNNING and node.activity.state is State.UNKNOWN
            if unknown and not self._unknown.get(node.id, False):
                yield f"unknown {node.name}: {node.activity.doubt}; it is left alone"
            self._unknown[node.id] = unknown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The whole screen, at most as high as the terminal."""
        height = options.size.height if console.is_terminal and not console.record else None
        yield from self.lines(options.max_width, height)

    def lines(self, width: int, height: int | None) -> list[Text]:
        """Title, one row a node, the log, the savings. A high terminal shows whole reasons, a low one cuts the log."""
        with self._lock:
            done, events = self._last, list(self._events)
        title = f"gpuwatch demo: {story_time(self.clock.now(), self.begin)}   {self.page}"
        head = [Text(cut(title, width), style="bold")]
        if done is None:
            return [*head, Text("the first round is under way")]
        foot = [Text(line, style="bold") for line in wrap_words(self.totals(), width, _MONEY_LINES)]
        columns = self._columns(done)
        table = laid_out(columns, width, lines=None, wanted=_WHY_CELLS)
        log = [Text(cut(line, width), style="dim") for line in events]
        free = None if height is None else height - len(head) - len(foot)
        if free is not None and len(table) + len(log) > free:
            table = laid_out(columns, width, wanted=_WHY_CELLS)
        if log and (free is None or free > len(table) + len(log)):
            log = [Text(), *log]
        if free is not None:
            table = table[: max(0, free)]
            log = log[len(log) - max(0, min(len(log), free - len(table))) :]
        return [*head, *table, *log, *foot]

    def _columns(self, done: Round) -> list[Column]:
        """One row a node, in the order of the fleet; the use of a node that does not run is its state."""
        order = {node_id: number for number, node_id in enumerate(self.world.hosts)}
        rows = sorted(node_rows(done, self.rules), key=lambda row: order[row.id])
        now = done.observation.now
        return [
            Column(title="node", cells=[row.name for row in rows]),
            Column(title="pool", cells=[row.pool for row in rows], spare=3),
            Column(title="life", cells=[self.world.hosts[row.id].life.story for row in rows], spare=2),
            Column(
                title="use",
                cells=[row.state.value if row.activity is None else row.activity.value for row in rows],
                styles=["dim" if row.activity is None else f"state.{row.activity.value}" for row in rows],
            ),
            Column(
                title="for",
                cells=["" if row.held_seconds is None else format_duration(row.held_seconds) for row in rows],
                right=True,
                spare=1,
            ),
            Column(
                title="what happens next, and why",
                cells=[self._off(row, now) if row.activity is None else _next(row, now) for row in rows],
                styles=["dim" if row.activity is None else _ACTION_STYLES.get(row.action, "") for row in rows],
            ),
        ]

    def _off(self, row: NodeRow, now: datetime) -> str:
        """Why a node does not run."""
        if row.id not in self._stopped:
            return row.why
        at, why = self._stopped[row.id]
        clock = f"{at:%H:%M}" if at.date() == now.date() else story_time(at, self.begin)
        return f"stopped {clock}: {why}"


def _next(row: NodeRow, now: datetime) -> str:
    """What happens to a running node, with its time, then why; without an action, why alone."""
    after, why = row.next, _short(row.why)
    if after is None or after.refused_by:
        return why
    notice = f"notice {_time_text(after.at, now)}"
    if after.verb is Verb.NOTICE:
        soon = after.removal_at is not None and after.removal_at.date() == now.date()
        return f"{notice}, {after.removal or Verb.STOP} {after.removal_at:%H:%M}: {why}" if soon else f"{notice}: {why}"
    return f"{after.verb.value} {_time_text(after.at, now)}: {why}"


def _short(why: str) -> str:
    """`parked for 3m of 16h (who holds its memory)`: what the terminal cuts comes last."""
    held = why.removeprefix("It has been ").partition(". The notice of ")[0].rstrip(".")
    return _OWNED.sub(r"\1\3 (\2)", held)


def _time_text(at: datetime, now: datetime) -> str:
    """`now`, or a time of the day; of the next days with how many hours are left."""
    if at <= now:
        return "now"
    return f"{at:%H:%M}" if at.date() == now.date() else f"in {format_duration((at - now).total_seconds())}"


def story_time(now: datetime, begin: datetime) -> str:
    """The simulation's day and time."""
    return f"day {(now.date() - begin.date()).days + 1} {now:%H:%M}"
