"""What the live demo shows: a table of the fleet with the reasons, the last events, what was saved; or plain lines."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from gpuwatch.controller.node_row import node_rows
from gpuwatch.controller.round import Round
from gpuwatch.guard import Rulebook
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import NodeState, State
from gpuwatch.runtime.clock import Clock
from gpuwatch.simulate.fleet.world import World

_EVENTS = 8
_STYLES = {
    "busy": "green",
    "occupied": "blue",
    "parked": "cyan",
    "stalled": "magenta",
    "idle": "yellow",
    "unknown": "red",
}
_ACTION_STYLES = {Verb.NOTICE: "yellow", Verb.STOP: "bold red", Verb.WITHDRAW: "green"}


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
    _stopped: dict[str, str] = field(default_factory=dict)  # why, by node id
    _unknown: dict[str, bool] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def event(self, sentence: str) -> None:
        """Something happened."""
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
        """A round's news."""
        if done.trouble is not None:
            yield done.trouble
        names = {node.id: node.name for node in done.observation.fleet.nodes}
        for act in done.acts:
            verb, node_id = act.review.step.verb.value, act.review.step.node_id
            ended = "" if act.outcome.status in {Status.SETTLED, Status.ACCEPTED} else f" -> {act.outcome.detail}"
            yield f"{verb} {names.get(node_id, node_id)}: {act.review.step.reason.sentence}{ended}"
            if act.outcome.status is Status.ACCEPTED:
                self._open[act.outcome.key] = names.get(node_id, node_id)
                at = story_time(done.observation.now, self.begin)
                self._stopped[node_id] = f"stopped {at}: {act.review.step.reason.sentence}"
        for outcome in done.settled:
            yield f"{outcome.status.value} {self._open.pop(outcome.key, outcome.key)}: {outcome.detail}"
        for node in done.observation.fleet.nodes:
            unknown = node.state is NodeState.RUNNING and node.activity.state is State.UNKNOWN
            if unknown and not self._unknown.get(node.id, False):
                yield f"unknown {node.name}: {node.activity.doubt}; it is left alone"
            self._unknown[node.id] = unknown

    def __rich__(self) -> Group:
        """The whole screen."""
        with self._lock:
            done, events = self._last, list(self._events)
        title = Text(f"gpuwatch demo: {story_time(self.clock.now(), self.begin)}   {self.page}", style="bold")
        if done is None:
            return Group(title, Text("the first round is under way"))
        return Group(title, self._table(done), Text("\n".join(events), style="dim"), Text(self.totals(), style="bold"))

    def _table(self, done: Round) -> Table:
        """One row a node, in the order of the fleet."""
        table = Table(expand=True, pad_edge=False, show_edge=False)
        for column in ("node", "pool", "life", "cloud", "verdict", "for", "notice"):
            table.add_column(column, no_wrap=True)
        table.add_column("what happens next, and why", ratio=1)
        order = {node_id: number for number, node_id in enumerate(self.world.hosts)}
        for row in sorted(node_rows(done, self.rules), key=lambda row: order[row.id]):
            running, use = row.state is NodeState.RUNNING, "" if row.activity is None else row.activity.value
            why = f"{row.action.value}: {row.why}"
            table.add_row(
                row.name,
                row.pool,
                self.world.hosts[row.id].life.story,
                Text(row.state.value, style="" if running else "dim"),
                Text(use, style=_STYLES.get(use, "")),
                "" if row.held_seconds is None else format_duration(row.held_seconds),
                "" if row.notified_at is None else f"{row.notified_at:%H:%M}",
                Text(
                    why if running else self._stopped.get(row.id, why),
                    style=_ACTION_STYLES.get(row.action, "" if use else "dim"),
                ),
            )
        return table


def story_time(now: datetime, begin: datetime) -> str:
    """The simulation's day and time."""
    return f"day {(now.date() - begin.date()).days + 1} {now:%H:%M}"
