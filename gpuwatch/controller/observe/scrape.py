"""Asks the agents directly: the embedded default, good for one site. Each doubt about an answer is a sentence.

A confirmation carries a nonce. The agent looks again, answers from nothing older than the question, and repeats the
nonce: an answer out of a cache, its own or one on the way, cannot have it.
"""

import asyncio
import logging
import math
import secrets
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from zlib import crc32

import msgspec

from gpuwatch.controller.observe.credentials import Credentials, credentials_of, failure_of, refusal_of
from gpuwatch.controller.observe.plain_http import body_of
from gpuwatch.controller.observe.plain_http import session as plain_session
from gpuwatch.controller.observe.pool_census import CensusTaker, judged_alone
from gpuwatch.controller.observe.pool_metrics import evaluate_queries, of_verdicts
from gpuwatch.controller.observe.prometheus_api import PromApi
from gpuwatch.controller.observe.seen_at_work import SeenAtWork
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.timings import CONFIRMATION, VERDICT
from gpuwatch.model.activity import Activity, State
from gpuwatch.model.duration import LONGEST_SECONDS, format_age, format_duration, in_calendar
from gpuwatch.model.fleet import VERDICT_SCHEMA, Fleet, Node, NodeReport, NodeState, NodeVerdict
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.reloading_file import ReloadingFile

log = logging.getLogger(__name__)

__all__ = ["ObserveSettings", "ScrapeSource", "read_answer"]

_LARGEST_ANSWER_BYTES = 1_000_000  # 16 GPUs with all their evidence, and what was busy last, make about 30 kB
_MOST_BUSY = 64  # signals that were busy last: agents give 16 at most
_NONCE_BYTES = 24  # 32 characters of A-Z, a-z, 0-9, "-" and "_"; agents take 16 to 64
# By how much the agent's count of seconds may differ from ours: of clocks' rates, and of rounding.
_TOLERANCE_SECONDS = 0.05
_NO_TIME = "there was no time to ask its agent in this round"
_FIRST_NEXT = "(signals.concurrency); it is asked before them in the next round"
_ANSWERS_WERE_SLOW = f"{_NO_TIME}: the others answered, and that took all of it {_FIRST_NEXT}"
_OTHERS_WERE_SILENT = f"{_NO_TIME}: others did not answer, and held it up {_FIRST_NEXT}"
_NO_ANSWER = "its agent did not answer within"
# The share of a verdict's longest age for which agents are asked: what then follows of the round takes time, too.
_ASKING = 0.6
_ONE_SILENT_IN = 8  # of so many that are asked one may be known to be silent, as long as others wait
_DECODER = msgspec.json.Decoder(NodeVerdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeSource:
    """A NodeReportSource over HTTP. `max_age_seconds` is the age at which a verdict is no longer believed.

    A confirmation is waited for up to `confirm_timeout`, and may rest on looks up to `max_look_seconds` old. `answered`
    gets the seconds that an answer took, or was waited for in vain, and the question: (VERDICT,), (CONFIRMATION,).
    `taker` counts what agents run, and says it to them; None: this only looks on, next to the controller.
    """

    settings: ObserveSettings
    clock: Clock
    max_age_seconds: float
    confirm_timeout: float = 5.0
    max_look_seconds: float = 3.0
    answered: Callable[[float, tuple[str, ...]], object] = lambda _seconds, _question: None
    taker: CensusTaker | None = None
    _credentials: list[ReloadingFile[Credentials]] = field(default_factory=list, init=False, repr=False)
    # When each node's agent was asked last, and whose did not answer in time then.
    _asked: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _silent: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    at_work: SeenAtWork = field(default_factory=SeenAtWork, init=False, repr=False)

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """Ask every running node at once; cost: one small request a node.

        There is a time for all: however many agents let us wait, the answers of the others do not grow old. Those that
        had no turn come first in the next round.
        """
        seconds = max(self.max_age_seconds * _ASKING, self.settings.timeout)
        order = self._in_turn(nodes)
        if self.taker is not None:
            self.taker.begin_round(nodes, self.clock.monotonic())
        asked = dict(zip((node.id for node in order), self._ask(order, seconds=seconds), strict=True))
        if self.taker is not None:
            self.taker.end_round(self.clock.monotonic())
        signals = self._with_reason(nodes, [asked[node.id] for node in nodes], seconds)
        names = Counter(node.name for node in nodes)
        seen = tuple(
            replace(node, signal=_of_one(node, signal, names[node.name]))
            for node, signal in zip(nodes, signals, strict=True)
        )
        return Fleet(observed_at=self.clock.now(), nodes=seen)

    def _in_turn(self, nodes: Sequence[Node]) -> list[Node]:
        """Order the nodes: those that were asked longest ago come first, and a silent one after some that answer.

        A process that has just begun asks in an order of its own, so that restarts favour nobody.
        """
        ids = {node.id for node in nodes}
        for memory in (self._asked, self._silent):
            for node_id in memory.keys() - ids:
                del memory[node_id]
        self.at_work.forget_others(ids)
        started = "" if self._asked else self.clock.now().isoformat()

        def place(node: Node) -> tuple[float, int]:
            return self._asked.get(node.id, -math.inf), crc32(f"{started}{node.id}".encode()) if started else 0

        order = sorted(nodes, key=place)
        silent = deque(node for node in order if node.id in self._silent)
        found: list[Node] = []
        for number, node in enumerate((node for node in order if node.id not in self._silent), 1):
            found.append(node)
            if silent and number % _ONE_SILENT_IN == 0:
                found.append(silent.popleft())
        return [*found, *silent]

    def _with_reason(
        self, nodes: Sequence[Node], signals: Sequence[NodeReport], seconds: float
    ) -> Sequence[NodeReport]:
        """Say of those that were not asked what took the time, there and in the log."""
        left = sum(signal.failure == _NO_TIME for signal in signals)
        if not left:
            return signals
        silent = sum((signal.failure or "").startswith(_NO_ANSWER) for signal in signals)
        waited, there = silent * self.settings.timeout, seconds * self.settings.concurrency
        why = _OTHERS_WERE_SILENT if waited >= there / 2 else _ANSWERS_WERE_SLOW
        warning = "%d of %d agents were not asked in this round, and %d did not answer. Raise signals.concurrency (%d)."
        log.warning(warning, left, len(nodes), silent, self.settings.concurrency)
        reason = NodeReport(failure=why)
        return [reason if signal.failure == _NO_TIME else signal for signal in signals]

    def confirm(self, node: Node) -> NodeReport:
        """Ask one node itself for what it sees from now on; the answer must prove that it is one to this question."""
        nonce, asked = secrets.token_urlsafe(_NONCE_BYTES), self.clock.uptime()
        signal = self._ask([node], nonce)[0]
        if signal.verdict is None:
            return signal
        if self.taker is None and (foreign := judged_alone(signal.verdict)) is not None:
            return NodeReport(failure=foreign)
        doubt = _why_unconfirmed(signal.verdict, nonce, self.clock.uptime() - asked, self.max_look_seconds)
        return signal if doubt is None else NodeReport(failure=doubt)

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """Means of the agents' reports of this round; expressions by the API of signals.promql, where there is one."""
        at = self.clock.now()
        api = None if self.settings.promql.url is None else PromApi(settings=self.settings.promql, clock=self.clock)
        found = {} if api is None else evaluate_queries(api, queries, at, self.max_age_seconds)
        return tuple(found.get(query) or of_verdicts(fleet, [query], at)[0] for query in queries)

    def _ask(self, nodes: Sequence[Node], nonce: str | None = None, seconds: float = math.inf) -> list[NodeReport]:
        """Each node's answer, asked in this order; after so many seconds no other node is asked.

        Nobody is asked with credentials that cannot be read. With a nonce: to confirm.
        """
        try:
            if not self._credentials:
                self._credentials.append(credentials_of(self.settings))
        except (OSError, ValueError) as error:
            return [NodeReport(failure=f"no agent can be asked: {error}")] * len(nodes)
        return asyncio.run(self._ask_all(nodes, self._credentials[0].value, nonce, seconds))

    async def _ask_all(
        self, nodes: Sequence[Node], credentials: Credentials, nonce: str | None, seconds: float
    ) -> list[NodeReport]:
        """One session for all, so many at the same time."""
        import aiohttp  # noqa: PLC0415  a quarter of a second that only a controller needs

        until = self.clock.monotonic() + seconds
        limit = asyncio.Semaphore(self.settings.concurrency)
        connector = aiohttp.TCPConnector(limit=self.settings.concurrency, ssl=credentials.context)
        patience = self.settings.timeout if nonce is None else min(self.settings.timeout, self.confirm_timeout)
        question = (VERDICT,) if nonce is None else (CONFIRMATION,)

        def path(node: Node) -> str:
            parts = [] if nonce is None else [f"confirm={nonce}"]
            parts += [] if self.taker is None else [self.taker.query(node)]
            return f"/v1/verdict?{'&'.join(parts)}" if parts else "/v1/verdict"

        async def ask(node: Node) -> NodeReport:
            if node.state is not NodeState.RUNNING:
                return NodeReport(failure=f"it is {node.state.value}")
            base = self.settings.base_url(node)
            if base is None:
                return NodeReport(failure="the cloud reports no address for it; set signals.targets")
            async with limit:  # in the order in which they came
                if self.clock.monotonic() > until:
                    return NodeReport(failure=_NO_TIME)
                asked = self.clock.monotonic()
                if nonce is None:
                    self._asked[node.id] = asked
                try:
                    # The deadline covers the whole answer: an agent that trickles is as silent as one that is dead.
                    async with (
                        asyncio.timeout(patience),
                        session.get(
                            f"{base}{path(node)}",
                            headers=credentials.header(base),
                            allow_redirects=False,
                            server_hostname=self.settings.server_name(node),
                        ) as response,
                    ):
                        if response.status != 200:  # noqa: PLR2004  HTTP
                            return NodeReport(failure=refusal_of(response.status))
                        body = await body_of(response, _LARGEST_ANSWER_BYTES)
                    self.answered(self.clock.monotonic() - asked, question)
                except TimeoutError:
                    self.answered(self.clock.monotonic() - asked, question)
                    if nonce is None:
                        self._silent[node.id] = self.clock.monotonic()
                    return NodeReport(failure=f"its agent did not answer within {format_duration(patience)}")
                except (aiohttp.ClientError, OSError, ValueError) as error:
                    return NodeReport(failure=failure_of(error))
            self._silent.pop(node.id, None)
            report = read_answer(body, node, self.clock.now(), self.max_age_seconds)
            return self.at_work.hold(node.id, report, self.clock.uptime())

        headers = {"Cache-Control": "no-cache, no-store", "Accept": "application/json"}

        async def take(node: Node) -> NodeReport:
            report = await ask(node)
            return report if self.taker is None else self.taker.take(node, report, confirms=nonce is not None)

        async with plain_session(connector, headers) as session:
            return list(await asyncio.gather(*(_ask_apart(node, take) for node in nodes)))


async def _ask_apart(node: Node, ask: Callable[[Node], Awaitable[NodeReport]]) -> NodeReport:
    """Ask one agent; whatever its address or its answer may cause, the others are asked."""
    try:
        return await ask(node)
    except Exception as error:
        log.exception("The agent of %s cannot be asked", node.id)
        return NodeReport(failure=f"its agent cannot be asked ({type(error).__name__})")


def _times(verdict: NodeVerdict) -> Iterator[datetime]:
    """Every time of an answer: each is compared with others, or shown in UTC, by rounds that are for all nodes."""
    told: list[datetime | None] = [verdict.at, None if verdict.tally is None else verdict.tally.since]
    told += [each.since for each in _activities(verdict)]
    told += [gpu.health.since for gpu in verdict.gpus if gpu.health is not None]
    told += [each.at for each in verdict.last_busy]
    for notice in verdict.cloud_notices or ():
        told += (notice.deadline, notice.seen_at, notice.checkpoint_at)
    return (each for each in told if each is not None)


def _activities(verdict: NodeVerdict) -> Iterator[Activity]:
    """Of the node, its GPUs and its pods."""
    yield verdict.activity
    yield from (gpu.activity for gpu in verdict.gpus)
    yield from (pod.activity for pod in (*verdict.pods, *(verdict.other_pods or ())))


def _impossible(verdict: NodeVerdict) -> str | None:
    """Why no machine can be as the answer says: a round that counted with it would fail, and all nodes with it."""
    for at in _times(verdict):
        if at.tzinfo is None:
            return "a time of the answer has no zone"
        if not in_calendar(at):
            return f"a time of the answer is of the year {at.year}"
    durations = [verdict.age_seconds, verdict.interval_seconds]
    durations += [each.held_seconds for each in _activities(verdict)]
    durations += [each.ago_seconds for each in verdict.last_busy]
    if min(durations) < 0:
        return "the answer holds a negative duration"
    if max(durations) > LONGEST_SECONDS:
        return "the answer holds a duration of more than a century"
    if len(verdict.last_busy) > _MOST_BUSY:
        return f"the answer holds more than {_MOST_BUSY} signals that were busy last"
    if len({gpu.uuid for gpu in verdict.gpus}) != len(verdict.gpus):
        return "the answer lists a GPU twice"
    return None


def _of_one(node: Node, signal: NodeReport, sharing: int) -> NodeReport:
    """Believe a name only where one machine has it: clouds let many share one, and one agent would speak for all."""
    if signal.verdict is None or signal.verdict.node_id == node.id or sharing == 1:
        return signal
    return NodeReport(failure=f"{sharing} nodes share the name {node.name!r}; set agent.node_id to the instance id")


def _why_unconfirmed(verdict: NodeVerdict, nonce: str, waited_seconds: float, max_look_seconds: float) -> str | None:
    """Why an answer does not confirm what was asked `waited_seconds` ago; None: it does."""
    looked = verdict.looked_seconds
    if verdict.confirm is None:
        return "its agent is too old to confirm; upgrade it (or something on the way answers for it)"
    if verdict.confirm != nonce:
        return "its agent's answer is one to another question; is there a cache on the way?"
    if looked is None and verdict.activity.state is State.UNKNOWN:
        return None  # it could not look: its own words say more, and what is unknown lets nothing go
    if looked is None or not 0 <= looked <= max_look_seconds:
        age = "of unknown age" if looked is None else f"{format_duration(looked)} old"
        return f"its agent confirms from a look {age}; up to {format_duration(max_look_seconds)} are accepted"
    if looked > waited_seconds + _TOLERANCE_SECONDS:
        age = f"{format_duration(looked)} old, and was asked {format_duration(waited_seconds)} ago"
        return f"its agent confirms from a look that is {age}: it did not look again"
    return None


def read_answer(body: bytes, node: Node, now: datetime, max_age_seconds: float) -> NodeReport:
    """Believe an answer only if it is whole, from the node that was asked, fresh by both clocks, and possible."""
    if len(body) > _LARGEST_ANSWER_BYTES:
        return NodeReport(failure="its agent's answer is too large to be a verdict")
    try:
        verdict = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return NodeReport(failure=f"its agent's answer is no verdict: {error}")
    if verdict.schema != VERDICT_SCHEMA:
        return NodeReport(
            failure=f"its agent speaks verdict schema {verdict.schema}, not {VERDICT_SCHEMA}; upgrade one"
        )
    if verdict.node_id not in {node.id, node.name}:
        return NodeReport(failure=f"the answer is from {verdict.node_id!r}, another node than was asked")
    if (wrong := _impossible(verdict)) is not None:
        return NodeReport(failure=wrong)
    skew = (now - verdict.at).total_seconds()
    if verdict.age_seconds > max_age_seconds or abs(skew) > max_age_seconds:
        ages = f"{format_duration(verdict.age_seconds)} by its own count, {format_age(skew)} by our clock"
        return NodeReport(failure=f"its verdict is stale ({ages}); check the agent and both clocks")
    return NodeReport(verdict=verdict, received_at=now)
