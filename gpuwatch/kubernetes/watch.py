"""One kind of object, listed once and then followed, in a thread of its own.

Each watch ends after half of the silence that is allowed, at the API server's side, and the next one goes on from the
version where it ended: so each of them is heard at least that often, also where nothing happens. A version that the
server has forgotten (410) means a new list. Nothing is believed to be whole before the first list was read to its end.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Generic

import msgspec

from gpuwatch.clouds.errors import AuthFailedError, CloudError, CloudUnavailableError
from gpuwatch.kubernetes.client import Api
from gpuwatch.kubernetes.errors import GONE, GoneError, Status, refusal
from gpuwatch.kubernetes.kept import F, Kept
from gpuwatch.kubernetes.objects import Described, Event
from gpuwatch.kubernetes.unreadable import decode_whole
from gpuwatch.kubernetes.wire import Stream
from gpuwatch.model.duration import backoff_seconds
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

_EVENT = msgspec.json.Decoder(Event)
_STATUS = msgspec.json.Decoder(Status)
_DESCRIBED = msgspec.json.Decoder(Described)
_FIRST_PAUSE_SECONDS = 0.5
_QUICK_SECONDS = 0.2
_LATE_SECONDS = 5.0  # after the end that was asked for


class Watch(Generic[F]):
    """Follows one kind. `read` makes facts of an object's JSON; None: the object counts as gone."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        path: str,
        read: Callable[[bytes], F | None],
        *,
        accept: tuple[str, str],
        silence_seconds: float,
        selector: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is asked yet. `accept` are the media types of a list and of a watch."""
        self.level = logging.WARNING  # of a failure in the log
        self.path = path
        self.kept: Kept[F] = Kept()
        self.failure: CloudError | None = None  # the last one since it was heard
        self._api, self._clock, self._read = api, clock, read
        self._accept = accept
        self._selector = dict(selector or {})
        self._seconds = max(1, int(silence_seconds / 2))
        self._longest_pause = silence_seconds / 4
        self._listed = threading.Event()
        self._ended = threading.Event()
        self._heard = clock.uptime()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)

    def start(self) -> None:
        """Begin to list and follow."""
        self._thread.start()

    def close(self) -> None:
        """Ask the watch to end soon."""
        self._ended.set()
        stream = self._stream
        if stream is not None:
            stream.stop()

    @property
    def listed(self) -> bool:
        """Whether a list was ever whole."""
        return self._listed.is_set()

    @property
    def silent_seconds(self) -> float:
        """How long ago it was heard; before that, since it was made."""
        return max(0.0, self._clock.uptime() - self._heard)

    def wait(self, seconds: float) -> None:
        """Wait for the first list, or for the first failure, for so long."""
        until = self._clock.monotonic() + seconds
        while not self._listed.wait(0.02) and self.failure is None and self._clock.monotonic() < until:
            pass

    def _run(self) -> None:
        version: str | None = None
        server, failures = self._api.server, 0
        while not self._ended.is_set():
            began, failure = self._clock.monotonic(), None
            if server != self._api.server:  # the kubeconfig names another one now, and versions are each one's own
                server, version = self._api.server, None
            try:
                version = self._list() if version is None else self._follow(version)
                self._well()
            except GoneError as error:
                _LOG.info("%s: everything is listed again: %s", self.path, error)
                version = None
            except CloudError as error:
                failure = error
            except Exception as error:  # noqa: BLE001  a silent thread would be worse than any error
                _LOG.exception("%s cannot be followed; everything is listed again", self.path)
                version, failure = None, CloudUnavailableError(f"it cannot be followed: {error}")
            if failure is not None:
                self._note_failure(failure)
            # A watch that ends at once, again and again, is paced like one that fails.
            quick = self._clock.monotonic() - began < _QUICK_SECONDS
            failures = failures + 1 if failure is not None or quick else 0
            if failures > 1 or failure is not None:
                wait = backoff_seconds(failures, first=_FIRST_PAUSE_SECONDS, longest=self._longest_pause)
                self._ended.wait(wait)

    def _note_failure(self, failure: CloudError) -> None:
        """Nothing was heard; said once in the log."""
        if not self._ended.is_set():
            if self.failure is None or str(self.failure) != str(failure):
                refused = self.listed and isinstance(failure, AuthFailedError)  # what is shown no more would be missed
                level = logging.WARNING if refused else self.level
                _LOG.log(level, "The API server shows nothing of %s: %s", self.path, failure)
            self.failure = failure

    def _well(self) -> None:
        """It was heard now."""
        self._heard = self._clock.uptime()
        self.failure = None

    def _list(self) -> str:
        """Everything there is; the version to go on from."""
        found: list[F] = []
        version = ""
        for page in self._api.pages(self.path, self._selector, self._accept[0]):
            version = page.metadata.resource_version
            facts = [self._read(bytes(item)) for item in page.items or ()]
            found += [each for each in facts if each is not None]
        self.kept.replace(found)
        self._well()
        self._listed.set()
        return version

    def _follow(self, version: str) -> str:
        """Changes until the server ends the watch; the version to go on from."""
        query = {
            **self._selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._seconds),
        }
        with self._api.watch(self.path, query, self._accept[1], self._seconds + _LATE_SECONDS) as stream:
            self._stream = stream
            self._well()
            try:
                for line in stream.lines():
                    version = self._take_event(line)
                    self._well()
                    if self._ended.is_set():
                        break
            finally:
                self._stream = None
        return version

    def _take_event(self, line: bytes) -> str:
        """One event; the version that it is of."""
        try:
            event = decode_whole(line, _EVENT)
            if event.type == "ERROR":
                raise refusal(f"watch of {self.path}", _STATUS.decode(event.object))
            meta = _DESCRIBED.decode(event.object).metadata
            if event.type == "BOOKMARK":
                return meta.resource_version
            seen = None if event.type == "DELETED" else self._read(bytes(event.object))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise GoneError(f"an event cannot be read ({error})", code=str(GONE)) from None
        if seen is None:
            self.kept.drop(meta.uid)
        else:
            self.kept.put(seen)
        return meta.resource_version
