"""A fleet's day told line by line: what was seen, decided, refused and done, each once, when it changes."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpuwatch.controller.round import Round
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Review, Verb
from tests.support.builders.fleet import NOW, Desk

_KEY = re.compile(r"gpuwatch-memory-\d+-\w+")


@dataclass(slots=True)
class Story:
    """A desk and its diary; `report` lets rounds pass until a time of the day, `say` is what people do."""

    desk: Desk
    every_seconds: float = 300.0
    lines: list[str] = field(default_factory=list)
    _seen: dict[str, str] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def say(self, what: str, act: Callable[[], object] | None = None) -> None:
        """Something happens that is not gpuwatch's doing."""
        if act is not None:
            act()
        self._line("people", what)

    def turn(self, state: State, *node_ids: str, held: float = 0.0) -> None:
        """Machines begin to do something else."""
        for node_id in node_ids:
            self.desk.fleet.show(node_id, state, held)

    def until(self, hours: float) -> None:
        """Rounds until so many hours after the story's noon."""
        end = NOW + timedelta(hours=hours)
        self.desk.interval = self.every_seconds
        while self.desk.clock.now() < end:
            done = self.desk.round(0.0)
            self._tell(done)
            self.desk.rest(self.every_seconds)

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines)

    def _tell(self, done: Round) -> None:
        if done.trouble is not None:
            self._once("the round", "trouble", done.trouble)
            return
        self._once("the round", "trouble", "")
        for outcome in done.settled:
            self._line("settled", f"{self._keys[outcome.key]}: {outcome.status}, {outcome.detail}")
        for node in done.observation.fleet.nodes:
            doing = node.activity.state.value if node.state.value == "running" else node.state.value
            self._once(node.id, "seen", f"{node.id} is {doing}")
        for decision in done.decisions:
            if decision.target is not None:
                self._once(decision.pool, "target", f"{decision.pool} should have {decision.target} nodes")
            for clamp in decision.clamps:
                self._once(f"{decision.pool} clamp", "clamped", clamp)
        acted = {id(act.review): act for act in done.acts}
        for review in done.reviews:
            self._step(review)
            act = acted.get(id(review))
            if act is not None:
                self._keys[act.outcome.key] = _of(review)
                self._line("done", f"{_of(review)}: {act.outcome.status}, {act.outcome.detail}")

    def _step(self, review: Review) -> None:
        if not review.refusals:
            self._seen.pop(f"refused {review.step.node_id}", None)
            self._line("decided", f"{_of(review)}: {review.step.reason.sentence}")
            return
        rules = ", ".join(answer.rule for answer in review.refusals)
        key = f"refused {review.step.node_id}"
        if self._seen.get(key) != f"{review.step.verb} {rules}":
            self._seen[key] = f"{review.step.verb} {rules}"
            self._line("refused", f"{_of(review)} by {rules}: {review.refusals[0].sentence}")

    def _once(self, about: str, word: str, what: str) -> None:
        key = f"{word} {about}"
        if self._seen.get(key, "") != what:
            self._seen[key] = what
            self._line(word, what or "over")

    def _line(self, word: str, what: str) -> None:
        at: datetime = self.desk.clock.now()
        self.lines.append(f"{at:%d %H:%M}  {word:8} " + _KEY.sub(self._name, what))

    def _name(self, key: re.Match[str]) -> str:
        """Keys are random: in a text they go by the order in which they appear."""
        return self._names.setdefault(key[0], f"new{len(self._names) + 1}")


def _of(review: Review) -> str:
    size = review.step.arguments.get("size")
    to = f" to {size}" if review.step.verb is Verb.GROW and size else ""
    return f"{review.step.verb} {review.step.node_id}{to}"
