"""Model servers that the administrator named, or that were found: busy while they answer requests, or did lately.

A loaded model says nothing about use: its memory is held and its engine may spin. The servers' own pages count
requests. A server that was found and hides its page gives no evidence. `connections` gets the ports of those without
requests: what goes on there is monitoring.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from gpuwatch.agent.attribution.process import user_name
from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError, make_finding, several
from gpuwatch.agent.evidence.found_servers import FoundServers, published_ports
from gpuwatch.agent.evidence.loopback import Page, fetch, parse
from gpuwatch.agent.evidence.server_pages import Requests, requests_on
from gpuwatch.agent.evidence.settings import ModelServerSettings
from gpuwatch.agent.evidence.tcp_listeners import LISTEN, sockets
from gpuwatch.model.activity import Evidence, State, WorkOwner
from gpuwatch.model.duration import format_duration
from gpuwatch.runtime.printable import legible

_SETTING = "agent.evidence.model_servers.silent_after"
_FOUND_TIMEOUT_SECONDS = 0.5  # a server that hangs must not hang the signal
_MOST_FOUND = 6  # in one look
_ASK_AGAIN_SECONDS = 600.0  # a port without a page
_QUIET_SECONDS = 120.0  # for so long a look counts
_LOCALHOST = ("127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A server at its last good look: its page (None: nobody listened), and since when it was not asked."""

    page: Requests | None
    silent_from: float  # on the monotonic clock
    was_asked: bool = False  # and not: looked at for the first time


@dataclass(frozen=True, slots=True, kw_only=True)
class _Word:
    """What one server says, and for how many seconds it has been silent."""

    says: State
    note: str
    server: str
    silent_seconds: float | None = None


class ModelServers:
    """Busy while a request runs or waits, or came within `silent_after`."""

    name = "model_servers"
    source = "the servers' own pages on loopback"

    def __init__(self, settings: ModelServerSettings, roots: Roots, deadline_seconds: float) -> None:
        self._pages = {name: parse(url) for name, url in settings.endpoints.items()}
        self._silent_after = settings.silent_after
        self._timeout_seconds = deadline_seconds / (len(self._pages) + 1)
        self._roots = roots
        self._known: dict[str, _Known] = {}
        self._found = FoundServers(roots) if settings.discover else None
        self._no_page: dict[int, float] = {}  # when a port was asked for one
        self._quiet: tuple[float, frozenset[int], frozenset[str]] = (-inf, frozenset(), frozenset())

    def quiet_ports(self, at: float) -> frozenset[int]:
        """The ports of the servers without a request for `silent_after`, by a look that is not too old."""
        return self._quiet[1] if 0 <= at - self._quiet[0] <= _QUIET_SECONDS else frozenset()

    def quiet_spaces(self, at: float) -> frozenset[str]:
        """The network namespaces of containers in which nothing else than such a server runs."""
        return self._quiet[2] if 0 <= at - self._quiet[0] <= _QUIET_SECONDS else frozenset()

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all servers; of those that were found only what is asked counts."""
        words = {name: self._ask_server(name, page, now, self._timeout_seconds) for name, page in self._pages.items()}
        words |= self._of_found(now)
        for state in (State.BUSY, State.UNKNOWN, State.IDLE):
            notes = [f"{legible(name, 40)}: {word.note}" for name, word in words.items() if word.says is state]
            if not notes:
                continue
            silent = min((w.silent_seconds for w in words.values() if w.silent_seconds is not None), default=None)
            busy = next((name for name, word in words.items() if word.says is State.BUSY), None)
            return (
                make_finding(
                    self,
                    state,
                    several(notes),
                    observed=silent,
                    limit=self._silent_after,
                    unit="seconds since a request",
                    owner=None if busy is None else self._owner(busy, words[busy].server),
                    setting=None if busy is None else _SETTING,
                ),
            )
        return ()

    def _of_found(self, now: Moment) -> dict[str, _Word]:
        """Look at the servers that were found; what the busy ones say."""
        found = self._found
        ports_of: Mapping[int, frozenset[int]] = {} if found is None else found.ports(now)
        view = now.processes
        seen = found is not None and view is not None and view.doubt is None
        spaces: Mapping[str, frozenset[int]] = published_ports(self._roots, view) if seen and view is not None else {}
        at, words, quiet, quiet_spaces, asked = now.monotonic_seconds, dict[str, _Word](), set[int](), set[str](), 0
        self._no_page = {port: since for port, since in self._no_page.items() if at - since < _ASK_AGAIN_SECONDS}
        for whose, ports in (*ports_of.items(), *spaces.items()):
            for port in sorted(ports):
                if port in self._no_page or asked >= _MOST_FOUND:
                    continue
                asked += 1
                page = Page(addresses=_LOCALHOST, port=port, target="/metrics")
                word = self._ask_server(f"port {port}", page, now, _FOUND_TIMEOUT_SECONDS)
                if not word.server:
                    self._no_page[port] = at
                elif word.says is State.BUSY:
                    words[f"port {port}"] = word
                elif word.says is State.IDLE and (word.silent_seconds or 0.0) >= self._silent_after:
                    if isinstance(whose, str):
                        quiet_spaces.add(whose)
                    else:  # a program that only began one may do more on other ports
                        quiet |= ports if found is not None and whose in found.named else {port}
        spaces_busy = {name for name, ports in spaces.items() if any(f"port {port}" in words for port in ports)}
        quiet_spaces -= spaces_busy
        open_ports = {port for ports in (*ports_of.values(), *spaces.values()) for port in ports}
        self._known = {
            name: known
            for name, known in self._known.items()
            if name in self._pages or int(name.removeprefix("port ")) in open_ports
        }
        self._quiet = (at, frozenset(quiet), frozenset(quiet_spaces))
        return words

    def _ask_server(self, name: str, page: Page, now: Moment, timeout_seconds: float) -> _Word:
        """One server. One that was expected and cannot be understood is unknown, one that does not run is idle."""
        before, at = self._known.get(name), now.monotonic_seconds
        try:
            requests = requests_on(fetch(page, timeout_seconds))
        except ConnectionRefusedError:
            self._known[name] = _Known(page=None, silent_from=at)
            return _Word(says=State.IDLE, note="it does not run", server="")
        except OSError as error:
            return _Word(says=State.UNKNOWN, note=f"it does not answer ({error.strerror or 'timed out'})", server="")
        except UnseenError as error:
            return _Word(says=State.UNKNOWN, note=str(error), server="")
        if before is None:
            known = _Known(page=requests, silent_from=at)
        elif before.page is None or requests.running or requests.asked_since(before.page):
            known = _Known(page=requests, silent_from=at, was_asked=True)
        else:
            known = _Known(page=requests, silent_from=before.silent_from, was_asked=before.was_asked)
        self._known[name] = known
        return self._word(known, requests, at, first=before is None)

    def _word(self, known: _Known, requests: Requests, at: float, *, first: bool) -> _Word:
        silent = at - known.silent_from
        ago = format_duration(silent)
        last = f"asked last {ago} ago" if known.was_asked else f"not asked for {ago}, since the agent looks"
        if requests.running:
            says, note = State.BUSY, f"{requests.server}, {requests.running:.0f} requests run or wait"
        elif first:
            says, note = State.UNKNOWN, f"{requests.server}, looked at for the first time"
        elif known.was_asked and silent < self._silent_after:
            says, note = State.BUSY, f"{requests.server}, {last}"
        else:
            says, note = State.IDLE, f"{requests.server}, {last}"
        return _Word(says=says, note=note, server=requests.server, silent_seconds=silent)

    def _owner(self, name: str, server: str) -> WorkOwner:
        """The user of the program that listens there; nobody for a port that is passed on to a container."""
        port = self._pages[name].port if name in self._pages else int(name.removeprefix("port "))
        try:
            uids = {each.uid for each in sockets(self._roots.proc) if each.state == LISTEN and each.local[1] == port}
        except (OSError, UnseenError):
            uids = set()
        return WorkOwner(user=user_name(uids.pop()) if len(uids) == 1 else None, process=server)
