"""Queries to a Prometheus-compatible HTTP API. An answer is whole and of the time asked about, or a doubt.

https://prometheus.io/docs/prometheus/latest/querying/api/ ; parameters that one engine does not know, it ignores.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.controller.observe.credentials import Credentials, credentials_of, failure_of
from gpuwatch.controller.observe.plain_http import body_of
from gpuwatch.controller.observe.plain_http import session as plain_session
from gpuwatch.controller.observe.settings import PromqlSettings
from gpuwatch.model.bounds import BoundedFloat
from gpuwatch.model.duration import format_duration
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.reloading_file import ReloadingFile

if TYPE_CHECKING:
    import aiohttp

_OTHERS = frozenset((*range(300, 401), 404, 405, 501))  # HTTP, without a body of the API: a proxy before it gives 502
_LARGEST_ANSWER_BYTES = 64 * 1024**2  # 12,500 nodes make 2 to 3 MB
_AT_A_TIME = 4
_MOST_SKEW_SECONDS = 5.0
_SAME_TIME_SECONDS = 0.01
# Caches (VictoriaMetrics, Thanos, Mimir) and answers that lack a part (Thanos, VictoriaMetrics) are of no use here.
_PARAMETERS = {"nocache": "1", "partial_response": "false", "deny_partial_response": "1", "dedup": "true"}
_HEADERS = {"Cache-Control": "no-store", "Accept": "application/json"}

Labels = dict[str, str]
Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a query gave: rows of labels and value, or one number without labels; `doubt` is why neither is of use.

    Over a range: `series` of labels and points, each a Unix time and a value.
    """

    rows: tuple[tuple[Labels, float], ...] = ()
    scalar: float | None = None
    series: tuple[tuple[Labels, Points], ...] = ()
    doubt: str | None = None


class _Sample(msgspec.Struct, gc=False):
    metric: Labels
    value: tuple[BoundedFloat, str]


class _Series(msgspec.Struct, gc=False):
    metric: Labels
    values: list[tuple[BoundedFloat, str]]


class _Data(msgspec.Struct, rename={"kind": "resultType"}):
    kind: str
    result: msgspec.Raw


class _Body(msgspec.Struct, rename={"error_type": "errorType", "partial": "isPartial"}):
    status: str
    data: _Data | None = None
    error: str = ""
    error_type: str = ""
    warnings: list[str] = []
    infos: list[str] = []
    partial: bool = False


_BODY = msgspec.json.Decoder(_Body)
_ROWS = msgspec.json.Decoder(list[_Sample])
_SCALAR = msgspec.json.Decoder(tuple[BoundedFloat, str])
_MATRIX = msgspec.json.Decoder(list[_Series])


@dataclass(frozen=True, slots=True, kw_only=True)
class PromApi:
    """One API. `most_skew_seconds` is how far its clock may be from ours before nothing it says is believed."""

    settings: PromqlSettings
    clock: Clock
    most_skew_seconds: float = _MOST_SKEW_SECONDS
    _credentials: list[ReloadingFile[Credentials]] = field(default_factory=list, init=False, repr=False)

    def instant(
        self, expressions: Mapping[str, str], at: datetime, *, at_a_time: int = _AT_A_TIME
    ) -> dict[str, Answer]:
        """An answer to each expression, by its name, as of that moment. Never raises: what goes wrong is a doubt."""
        about = {"time": f"{at.timestamp():.3f}"}
        return self._answers("query", expressions, about, partial(read_answer, at=at), at_a_time)

    def query_range(self, expressions: Mapping[str, str], begin: float, end: float, step: float) -> dict[str, Answer]:
        """An answer to each expression at every step from `begin` to `end`, Unix times; it raises the same."""
        about = {"start": f"{begin:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        return self._answers("query_range", expressions, about, partial(read_answer, at=(begin, step)))

    def _answers(
        self,
        path: str,
        expressions: Mapping[str, str],
        about: Mapping[str, str],
        read: Callable[[int, bytes], Answer],
        at_a_time: int = _AT_A_TIME,
    ) -> dict[str, Answer]:
        """All of them, or why Prometheus cannot be asked."""
        if self.settings.url is None:
            return dict.fromkeys(expressions, Answer(doubt="signals.promql.url is not set"))
        try:
            if not self._credentials:
                self._credentials.append(credentials_of(self.settings))
            credentials = self._credentials[0].value
            headers = {**self.settings.headers, **_HEADERS, **credentials.header(self.settings.url)}
        except (OSError, ValueError) as error:
            return dict.fromkeys(expressions, Answer(doubt=f"Prometheus cannot be asked: {error}"))
        requests = {name: {"query": expression, **about} for name, expression in expressions.items()}
        return asyncio.run(self._ask_all(path, requests, read, credentials, headers, at_a_time))

    async def _ask_all(
        self,
        path: str,
        requests: Mapping[str, Mapping[str, str]],
        read: Callable[[int, bytes], Answer],
        credentials: Credentials,
        headers: Mapping[str, str],
        at_a_time: int,
    ) -> dict[str, Answer]:
        """One session for all; few at a time, so that one answer is read and dropped while the next is made."""
        import aiohttp  # noqa: PLC0415  a quarter of a second that only a controller needs

        limit = asyncio.Semaphore(at_a_time)
        connector = aiohttp.TCPConnector(limit=at_a_time, ssl=credentials.context)

        async def ask(parameters: Mapping[str, str]) -> Answer:
            async with limit:
                return await self._ask(session, path, parameters, read)

        try:
            async with plain_session(connector, headers) as session:
                answers = await asyncio.gather(*map(ask, requests.values()))
        except ValueError as error:  # a header that is none
            answers = [Answer(doubt=f"Prometheus cannot be asked: {error}")] * len(requests)
        return dict(zip(requests, answers, strict=True))

    async def _ask(
        self,
        session: "aiohttp.ClientSession",
        path: str,
        parameters: Mapping[str, str],
        read: Callable[[int, bytes], Answer],
    ) -> Answer:
        """One query and its answer, in full, within the deadline."""
        import aiohttp  # noqa: PLC0415  likewise

        seconds = self.settings.timeout
        form = {**parameters, "timeout": f"{seconds * 1000:.0f}ms", **_PARAMETERS}
        try:
            async with (
                asyncio.timeout(seconds),
                session.post(
                    f"{(self.settings.url or '').rstrip('/')}/api/v1/{path}",
                    data=form,
                    allow_redirects=False,
                    server_hostname=self.settings.tls_server_name,
                ) as response,
            ):
                doubt = self._why_skewed(response.headers.get("Date"))
                body = await body_of(response, _LARGEST_ANSWER_BYTES)
        except TimeoutError:
            return Answer(doubt=f"Prometheus did not answer within {format_duration(seconds)}")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            words = failure_of(error).replace("its agent", "Prometheus").replace("signals.", "signals.promql.")
            return Answer(doubt=words)
        return Answer(doubt=doubt) if doubt is not None else read(response.status, body)

    def _why_skewed(self, date: str | None) -> str | None:
        """Why the two clocks do not agree; the header has whole seconds."""
        try:
            theirs = parsedate_to_datetime(date or "")
            skew = (theirs - self.clock.now()).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return f"Prometheus does not say what time it is (Date: {date})"
        if abs(skew) <= self.most_skew_seconds:
            return None
        return f"the clock of Prometheus is {format_duration(skew)} ahead of ours; check both"


def read_answer(status: int, body: bytes, at: datetime | tuple[float, float]) -> Answer:
    """Believe an answer only if it is whole, without a warning, and about the moment (begin and step) asked about."""
    if len(body) > _LARGEST_ANSWER_BYTES:
        return Answer(doubt="Prometheus' answer is too large")
    try:
        reply = _BODY.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if status in _OTHERS:
            return Answer(doubt=f"another program than Prometheus answers (HTTP {status}); check the URL of Prometheus")
        if status != 200:  # noqa: PLR2004  HTTP
            return Answer(doubt=f"Prometheus gave HTTP {status}")
        words = "Prometheus gave no answer of its API; another program may listen at its URL"
        return Answer(doubt=f"{words}: {error}"[:500])
    if status != 200 or reply.status != "success" or reply.data is None:  # noqa: PLR2004  HTTP
        words = " ".join(filter(None, (f"HTTP {status}", reply.error_type, reply.error)))
        return Answer(doubt=f"Prometheus refused the query: {words}"[:500])
    for remark in (*reply.warnings, *reply.infos):
        return Answer(doubt=f"Prometheus doubts its answer: {remark}"[:500])
    if reply.partial:
        return Answer(doubt="Prometheus' answer lacks what a part of its storage has")
    try:
        if isinstance(at, datetime):
            return _read_data(reply.data, at.timestamp())
        return _read_matrix(reply.data, *at)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        return Answer(doubt=f"Prometheus gave no {reply.data.kind} as its API has it: {error}"[:500])


def _read_matrix(data: _Data, begin: float, step: float) -> Answer:
    """Series over a range; each begins at one of its steps."""
    if data.kind != "matrix":
        return Answer(doubt=f"the query gives a {data.kind}, not series")
    found = _MATRIX.decode(data.result)
    beside = (abs((each.values[0][0] - begin + step / 2) % step - step / 2) for each in found if each.values)
    if any(not seconds <= _SAME_TIME_SECONDS for seconds in beside):
        return Answer(doubt="Prometheus answered for another time")
    return Answer(series=tuple((each.metric, [(at, float(text)) for at, text in each.values]) for each in found))


def _read_data(data: _Data, at: float) -> Answer:
    """Rows or a number; each must be of the moment."""
    if data.kind == "scalar":
        moment, text = _SCALAR.decode(data.result)
        late = abs(moment - at) > _SAME_TIME_SECONDS
        return Answer(doubt="Prometheus answered for another time") if late else Answer(scalar=float(text))
    if data.kind != "vector":
        return Answer(doubt=f"the query gives a {data.kind}, not samples of one moment")
    rows = _ROWS.decode(data.result)
    if any(not abs(row.value[0] - at) <= _SAME_TIME_SECONDS for row in rows):
        return Answer(doubt="Prometheus answered for another time")
    return Answer(rows=tuple((row.metric, float(row.value[1])) for row in rows))
