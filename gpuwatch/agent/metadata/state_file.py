"""What must outlive the agent, but not the boot: which notices were seen, by when, and for which the program ran."""

import logging
import threading
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from gpuwatch.agent.metadata.base import Notice, NoticeKind

_LOG = logging.getLogger(__name__)

_MOST = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """A notice that stands, with the deadline that holds for it in aware UTC; None where none is told."""

    kind: NoticeKind
    action: str
    deadline: datetime | None
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remembered:
    deadline: datetime | None
    ran: bool = False


_DECODER = msgspec.json.Decoder(dict[str, _Remembered])


class NoticeMemory:
    """A small file, read once and written whenever it changes. Without it an agent remembers as long as it runs.

    Those who look for notices and those who wait for the program's end may both ask.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told = False
        self._lock = threading.Lock()
        self._known: dict[str, _Remembered] = {}
        try:
            self._known = _DECODER.decode(path.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            _LOG.warning("what was known of the cloud's notices cannot be read and is forgotten: %s: %s", path, error)

    def announced(self, notice: Notice, now: datetime) -> Announced:
        """The notice with its deadline, which for one that names none counts from its first sight."""
        with self._lock:
            known = self._known.get(notice.key)
            if known is None:
                deadline = notice.deadline
                if deadline is None and notice.lead_seconds is not None:
                    deadline = now + timedelta(seconds=notice.lead_seconds)
                known = _Remembered(deadline=None if deadline is None else deadline.astimezone(UTC))
                self._keep({**self._known, notice.key: known})
        return Announced(kind=notice.kind, action=notice.action, deadline=known.deadline, key=notice.key)

    def ran(self, key: str) -> bool:
        """Whether the program was started for it."""
        return key in self._known and self._known[key].ran

    @property
    def subjects_that_ran(self) -> frozenset[tuple[str, str]]:
        """Kind and action of the notices that are remembered and had a run."""
        words = (key.split(" ") for key, known in self._known.items() if known.ran)
        return frozenset((kind, action) for kind, action, *_ in ([*each, ""] for each in words))

    def note_run(self, key: str) -> None:
        """The program is about to be started: written down before, so that it never is a second time."""
        with self._lock:
            known = self._known.get(key, _Remembered(deadline=None))
            self._keep({**self._known, key: replace(known, ran=True)})

    def forget(self, standing: Collection[str], now: datetime) -> None:
        """Drop what is announced no more and past: announced again, it is another one."""
        with self._lock:
            kept = {
                key: known
                for key, known in self._known.items()
                if key in standing or known.deadline is None or known.deadline > now
            }
            if len(kept) < len(self._known):
                self._keep(kept)

    def _keep(self, known: dict[str, _Remembered]) -> None:
        """Replace the file as a whole."""
        self._known = dict(list(known.items())[-_MOST:])
        draft = self._path.with_name(f"{self._path.name}.new")
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode(self._known))
            draft.replace(self._path)
        except OSError as error:
            if not self._told:
                _LOG.warning("after a restart agent.instance.on_interruption may run again: %s", error)
            self._told = True
