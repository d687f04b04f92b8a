"""What runs on this host before its machine is stopped, as the controller asks for it: `agent.before_stop`.

Rules, all of them:

1. Nothing runs unless the controller asks, and only while the node is neither busy nor in doubt.
2. One run at a time. It is over when all its commands have ended, and `QUIET_SECONDS` later: from then on the load of
   the host is no longer theirs, and the controller's last question is about what else is done here.
3. A run that ended well allows a stop for `_DONE_SECONDS`, until somebody works here again. After one that did not, the
   machine stays, and the next one begins `_REST_SECONDS` later at the earliest, doubled each time up to an hour.
4. While a run is under way, and `QUIET_SECONDS` after it, the load of all processors, disks and network cards
   together keeps no machine: the commands save and send. All other evidence counts as ever.
"""

import logging
import math
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from gpuwatch.agent.before_stop_runs import ADMINISTRATOR, BeforeStopSettings, Ran, Runs, StopRequest
from gpuwatch.agent.posted import Answer
from gpuwatch.model.activity import BeforeStop, Evidence, Preparing, State
from gpuwatch.model.duration import backoff_seconds, format_duration
from gpuwatch.runtime.clock import Clock

if TYPE_CHECKING:
    from gpuwatch.agent.evidence.registry import HostSignals
    from gpuwatch.agent.state import AgentCore

_LOG = logging.getLogger(__name__)

PATH = "/v1/before-stop"
SOCKET = Path("/run/gpuwatch-before-stop.sock")  # systemd/gpuwatch-before-stop.socket
QUIET_SECONDS = 65.0  # the longest span over which the host's load is measured, and a look
_DONE_SECONDS = 1800.0
_REST_SECONDS, _LONGEST_REST_SECONDS = 600.0, 3600.0
_ANSWER_SECONDS = 30.0  # on top of the commands' own time
_LARGEST_BYTES = 1 << 20
_MOST_NAMED = 3
# Not the packets that the host forwards for others.
_OF_THE_HOST = frozenset({("cpu", "cores"), ("disk", "bytes per second"), ("network", "bytes per second")})

Ask = Callable[[StopRequest, float], Runs]


def ask_runner(request: StopRequest, seconds: float, path: Path = SOCKET) -> Runs:
    """Have root's unit run the commands, and wait for their ends.

    Raises:
        OSError: it does not listen, or does not answer in time.
        ValueError: what it answers is nothing of the kind.

    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as runner:
        runner.settimeout(seconds + _ANSWER_SECONDS)
        runner.connect(str(path))
        runner.sendall(msgspec.json.encode(request))
        runner.shutdown(socket.SHUT_WR)
        body = bytearray()
        while len(body) < _LARGEST_BYTES and (more := runner.recv(65536)):
            body += more
    return msgspec.json.decode(bytes(body), type=Runs)


class StopOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request: what is to be done to the machine."""

    verb: Literal["stop", "terminate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """How the last run ended, and when, by the monotonic clock."""

    at: float
    well: bool
    sentence: str
    failures: int  # in a row


class BeforeStops:
    """The runs on this host; any number of threads may ask."""

    def __init__(
        self,
        settings: BeforeStopSettings,
        clock: Clock,
        node: Callable[[], tuple[str, State, float]],
        ask: Ask = ask_runner,
    ) -> None:
        """Nothing runs. `node` returns this host's id for the controller, its state, and seconds since it was busy."""
        self._settings, self._clock, self._node, self._ask = settings, clock, node, ask
        self._lock = threading.Lock()
        self._began: float | None = None  # of the run that is under way
        self._last: _Ended | None = None

    def now(self) -> BeforeStop | None:
        """How far this host is; None: nothing is to run here."""
        if not self._settings.wanted:
            return None
        *_, rested = self._node()
        with self._lock:
            return self._state(self._clock.monotonic(), rested)

    def begin(self, verb: Literal["stop", "terminate"]) -> BeforeStop | None:
        """Begin a run, if one is due; returns at once with how far this host is, None if nothing is to run here."""
        if not self._settings.wanted:
            return None
        node_id, state, rested = self._node()
        with self._lock:
            now = self._clock.monotonic()
            found = self._state(now, rested)
            if found.state is not Preparing.READY:
                return found
            if state in {State.BUSY, State.UNKNOWN}:
                return BeforeStop(state=Preparing.REFUSED, sentence=f"Nothing runs before a stop: it is {state.value}.")
            self._began = now
            request = StopRequest(verb=verb, node_id=node_id)
            try:
                threading.Thread(target=self._run, args=(request,), name="before-stop", daemon=True).start()
            except RuntimeError as error:
                self._end(now, well=False, sentence=f"The commands before a stop could not begin: {error}.")
            return self._state(now, rested)

    def without_own_load(self, found: tuple[Evidence, ...], now: float) -> tuple[Evidence, ...]:
        """The evidence without the load of the whole host, while it may be that of the commands."""
        last, began = self._last, self._began
        if began is None and (last is None or now - last.at >= QUIET_SECONDS):
            return found
        note = "commands of agent.before_stop run, or have just ended"
        return tuple(
            replace(each, says=State.IDLE, note=note)
            if each.says is State.BUSY and (each.name, each.unit) in _OF_THE_HOST
            else each
            for each in found
        )

    def _state(self, now: float, rested: float) -> BeforeStop:
        """How far this host is, after so many seconds without work. Needs the lock."""
        last = self._last
        if self._began is not None:
            most = format_duration(self._settings.timeout)
            since = format_duration(now - self._began)
            return BeforeStop(
                state=Preparing.RUNNING,
                sentence=f"The commands before its stop have been running for {since}, of {most} at most.",
            )
        if last is None:
            return BeforeStop(state=Preparing.READY, sentence="The commands before its stop have not run yet.")
        ago = now - last.at
        if last.well and ago < QUIET_SECONDS:
            left = format_duration(QUIET_SECONDS - ago)
            sentence = f"{last.sentence} Its load is looked at again in {left}, when it is no longer theirs."
            return BeforeStop(state=Preparing.RUNNING, sentence=sentence)
        if last.well and ago < _DONE_SECONDS and rested >= ago:
            return BeforeStop(state=Preparing.DONE, sentence=last.sentence)
        rest = backoff_seconds(last.failures, first=_REST_SECONDS, longest=_LONGEST_REST_SECONDS)
        if not last.well and ago < rest:
            again = format_duration(rest - ago)
            return BeforeStop(state=Preparing.REFUSED, sentence=f"{last.sentence} They run again in {again}.")
        return BeforeStop(state=Preparing.READY, sentence="The commands before its stop are due to run again.")

    def _run(self, request: StopRequest) -> None:
        """Have the commands run, and keep how they ended."""
        try:
            runs = self._ask(request, self._settings.timeout)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            sentence = f"The commands before a stop could not be run: {why}; is gpuwatch-before-stop.socket enabled?"
            well = False
        else:
            well, sentence = outcome_of(runs)
        _LOG.log(logging.INFO if well else logging.WARNING, "%s", sentence)
        with self._lock:
            self._end(self._clock.monotonic(), well=well, sentence=sentence)

    def _end(self, now: float, *, well: bool, sentence: str) -> None:
        failures = 0 if well else 1 + (0 if self._last is None else self._last.failures)
        self._last, self._began = _Ended(at=now, well=well, sentence=sentence, failures=failures), None


def stops_of(settings: BeforeStopSettings, core: "AgentCore", host: "HostSignals", clock: Clock) -> BeforeStops:
    """What runs on this host before a stop; its load is left out of the evidence."""

    def node() -> tuple[str, State, float]:
        verdict = core.verdict(clock.monotonic())
        # Others reset the idle time, too, such as a program at rest: no work.
        worked = [each.ago_seconds for each in verdict.last_busy if each.evidence.says is State.BUSY]
        return core.node_id, verdict.activity.state, min(worked, default=math.inf)

    stops = BeforeStops(settings, clock, node)
    host.without_own = stops.without_own_load
    return stops


def orders(stops: BeforeStops) -> Answer:
    """The answer to POST /v1/before-stop: how far the host is, as `BeforeStop`; null: nothing is to run here."""
    decoder = msgspec.json.Decoder(StopOrder)
    return lambda body: stops.begin(decoder.decode(body).verb)


def outcome_of(runs: Runs) -> tuple[bool, str]:
    """Whether all commands ended well, and how; of those that did not, which and why."""
    bad = [each for each in runs.ran if each.status != 0]
    return not bad, _sentence(bad or runs.ran, well=not bad)


def _sentence(ran: Sequence[Ran], *, well: bool) -> str:
    """Say how these commands ended."""
    if not ran:
        return "No command was there to run before its stop."
    words = [_words(each, well=well) for each in ran[:_MOST_NAMED]]
    more = len(ran) - _MOST_NAMED
    return f"{'; '.join([*words, *([f'{more} more'] if more > 0 else [])])}."


def _words(ran: Ran, *, well: bool) -> str:
    whose = "The administrator's" if ran.whose == ADMINISTRATOR else f"{ran.whose}'s"
    took = format_duration(round(ran.seconds, 1))
    said = f": {ran.says.rstrip('.')}" if ran.says else ""
    if well:
        return f"{whose} command before its stop ended well after {took}{said}"
    if ran.status is None:
        return f"{whose} command before its stop failed{said}"
    return f"{whose} command before its stop said not now, with status {ran.status} after {took}{said}"
