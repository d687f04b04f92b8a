"""A range of a Prometheus-compatible API as a history: asked chunk by chunk, folded at once, so that memory is bounded.

Steps begin at whole multiples of the step in Unix time, and each is judged by itself, so chunks may be of any length.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import urlsplit

from gpuwatch.controller.observe.prometheus_api import Answer, Labels, PromApi
from gpuwatch.model.fleet import DEFAULT_POOL
from gpuwatch.runtime.http.address import host_and_port
from gpuwatch.simulate.backtest.gaps import History
from gpuwatch.simulate.backtest.sources import questions
from gpuwatch.simulate.backtest.sources.nodes import Kind, NodeObservation, history_of_nodes
from gpuwatch.simulate.backtest.sources.steps import (
    Remembered,
    Stretch,
    agents_stretches,
    exporters_stretches,
    merge_series,
)
from gpuwatch.simulate.backtest.sources.window import SourceError, Window
from gpuwatch.simulate.fleet.options import Options

STEPS_SECONDS = (15.0, 300.0)  # in a longer step a hole in the samples could hide
_MOST_POINTS = 11_000  # of one series in an answer: Prometheus refuses more
_POINTS_AT_ONCE = 300_000  # of one answer, some 8 MB
_LEAST_STEPS = 16  # of a chunk that the server refuses
_PROBES = 500  # moments at which is looked who tells anything

_PORT = re.compile(r":\d+$")

Dialect = Literal["gpuwatch", "dcgm", "nvidia_smi", "nvitop"]
Target = tuple[str, ...]
Rows = tuple[tuple[Labels, float], ...]


@dataclass(kw_only=True)
class PrometheusRange:
    """One range of one API. `pool` limits it to targets with that label; `parked_is` is what held memory counts as."""

    api: PromApi
    window: Window
    step: float
    pool: str | None = None
    parked_is: Kind = Kind.BUSY
    parked_after: float = 0.0  # as with NodeObservation
    _nodes: dict[str, NodeObservation] = field(default_factory=dict, init=False)
    _past: dict[str, Remembered] = field(default_factory=lambda: defaultdict(Remembered), init=False)

    def history(self, options: Options) -> History:
        """All its samples.

        Raises:
            SourceError: it cannot be asked, or has nothing of the range.
            TraceError: no machine type has so many GPUs, and the data names no type.

        """
        begin, end = (at.timestamp() // self.step * self.step for at in (self.window.begin, self.window.end))
        steps = min(_MOST_POINTS, max(_LEAST_STEPS, _POINTS_AT_ONCE // self._series()))
        at = begin
        while at < end:
            until = min(end, at + steps * self.step)
            self._chunk(at, until, begin)
            at = until
        if not self._nodes:
            pool = "" if self.pool is None else f" with the label {questions.POOL} {self.pool!r}"
            raise SourceError(f"{self.place} shows no node{pool} in a whole step from {self.window}")
        began = _time_at(begin)
        return history_of_nodes(self._nodes.values(), end - begin, began, options, moment=self.step)

    @property
    def place(self) -> str:
        """Where it is and which exporter's metrics are asked for, in words that hold no secret."""
        return f"{_place(self.api)} ({self.api.settings.dialect})"

    def _series(self) -> int:
        """How many series there are at most, which says how much may be asked at once."""
        found = series_of(self.api, self.window, [self.api.settings.dialect])
        if not found:
            metric = questions.metric_of(self.api.settings.dialect)
            raise SourceError(f"{self.place} has no {metric} from {self.window}; see --dialect, --from and --to")
        return found[self.api.settings.dialect]

    def _chunk(self, begin: float, end: float, origin: float) -> None:
        """Ask about a part and fold it; one that is refused, or in which a target is renamed, is halved."""
        settings, steps = self.api.settings, round((end - begin) / self.step)
        asked = questions.facts(settings, end - begin, self.pool)
        values = _believed_answers(self.api, self.api.instant(asked, _time_at(end)) if asked else {})
        facts = {name: answer.rows for name, answer in values.items()}
        names = self._words(facts.get("names", ()), questions.node_label(settings))
        if steps == 1 or all(len(each) == 1 for each in names.values()):
            expressions = questions.questions(settings, self.step, self.pool)
            answers = self.api.query_range(expressions, begin + self.step, end, self.step)
            if _doubt(answers) is None or steps <= _LEAST_STEPS:
                self._fold(_believed_answers(self.api, answers), names, origin)
                self._describe(facts, names)
                return
        middle = begin + steps // 2 * self.step
        self._chunk(begin, middle, origin)
        self._chunk(middle, end, origin)

    def _fold(self, answers: Mapping[str, Answer], names: Mapping[Target, set[str]], origin: float) -> None:
        """What every node did in a chunk."""
        values = defaultdict[Target, dict[str, dict[float, float]]](dict)
        for query, answer in answers.items():
            for labels, points in answer.series:
                of_query = values[self._target(labels)].setdefault(query, {})
                if query == "states":
                    bit = questions.Bits.__members__.get(labels.get("state", "").upper(), questions.Bits.UNKNOWN)
                    of_query.update({at: of_query.get(at, 0) + bit for at, _ in points})
                else:
                    of_query.update(points)
        stretches = agents_stretches if self._agents else exporters_stretches
        of_node = defaultdict[str, list[tuple[Target, Iterator[Stretch]]]](list)
        for target, value in values.items():
            name = self._name(target, names)
            if name is not None:
                of_node[name].append((target, stretches(value, self.step, self._past[name])))
        for name, targets in of_node.items():
            every = [each for _, each in targets]
            for each in every[0] if len(every) == 1 else merge_series(every):
                self._node(name, targets[-1][0]).add(
                    each.begin - origin, each.end - origin, each.kind, gpus=each.gpus, words=each.words
                )

    def _node(self, name: str, target: Target) -> NodeObservation:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = NodeObservation(
                name=name, parked_is=self.parked_is, parked_after=self.parked_after
            )
            node.pool = target[-1] or DEFAULT_POOL
        return node

    def _describe(self, facts: Mapping[str, Rows], names: Mapping[Target, set[str]]) -> None:
        """What our agents report of their machines; the newest counts."""
        types = self._words(facts.get("types", ()), "instance_type")
        gpus = {self._target(labels): int(value) for labels, value in facts.get("gpus", ())}
        for target in types.keys() | gpus.keys():
            node = self._nodes.get(self._name(target, names) or "")
            if node is not None:
                node.gpus = gpus.get(target, node.gpus)
                node.instance_type = min(types.get(target, {""})) or node.instance_type
                node.pool = target[-1] or node.pool

    @property
    def _agents(self) -> bool:
        return self.api.settings.dialect == questions.AGENT

    def _target(self, labels: Labels) -> Target:
        return tuple([labels.get(label, "") for label in questions.labels_of(self.api.settings)])

    def _words(self, rows: Rows, label: str) -> dict[Target, set[str]]:
        """What a label says of each target."""
        found = defaultdict[Target, set[str]](set)
        for labels, _ in rows:
            found[self._target(labels)].add(labels.get(label, ""))
        return found

    def _name(self, target: Target, names: Mapping[Target, set[str]]) -> str | None:
        """What the node is called; None where that is not clear."""
        if not self._agents:
            label = questions.labels_of(self.api.settings).index(questions.node_label(self.api.settings))
            return _PORT.sub("", target[label]).strip("[]") or None
        called = names.get(target, set())
        return next(iter(called)) or None if len(called) == 1 else None


def dialect_of(api: PromApi, window: Window) -> Dialect:
    """The first of the dialects that the API has anything of: our own agents', where there are any.

    Raises:
        SourceError: it has nothing of any, or cannot be asked.

    """
    dialects: tuple[Dialect, ...] = ("gpuwatch", "dcgm", "nvidia_smi", "nvitop")
    found = series_of(api, window, dialects)
    if not found:
        known = ", ".join(f"{questions.metric_of(dialect)} ({dialect})" for dialect in dialects)
        raise SourceError(f"{_place(api)} has none of these metrics from {window}: {known}")
    return next(dialect for dialect in dialects if dialect in found)


def series_of(api: PromApi, window: Window, dialects: Sequence[str]) -> dict[str, int]:
    """How many series show use, for each of these dialects that the API has series of.

    Raises:
        SourceError: it cannot be asked.

    """
    begin, end = window.begin.timestamp(), window.end.timestamp()
    asked = {dialect: f"count({questions.metric_of(dialect)})" for dialect in dialects}
    answers = _believed_answers(api, api.query_range(asked, begin, end, math.ceil((end - begin) / _PROBES)))
    counts = {
        name: [float(value) for _, points in each.series for _, value in points] for name, each in answers.items()
    }
    return {name: int(max(each)) for name, each in counts.items() if each}


def _place(api: PromApi) -> str:
    """Its URL without a password that somebody may have put there."""
    url = urlsplit(api.settings.url or "")
    return f"{url.scheme}://{host_and_port(api.settings.url or '')}{url.path}".rstrip("/")


def _believed_answers(api: PromApi, answers: Mapping[str, Answer]) -> Mapping[str, Answer]:
    doubt = _doubt(answers)
    if doubt is not None:
        raise SourceError(f"{_place(api)}: {doubt}")
    return answers


def _doubt(answers: Mapping[str, Answer]) -> str | None:
    return next((answer.doubt for answer in answers.values() if answer.doubt is not None), None)


def _time_at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
