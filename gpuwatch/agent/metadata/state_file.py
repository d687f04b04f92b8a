"""The file of notices that outlives the agent, but not the boot: their deadlines, and for which the program ran."""

import logging
import threading
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from gpuwatch.agent.metadata.base import Notice
from gpuwatch.model.cloud_notice import NoticeKind

_LOG = logging.getLogger(__name__)

_MOST = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """A notice in force, with its deadline in aware UTC (None if the cloud gives none), first seen at `seen_at`."""

    kind: NoticeKind
    action: str
    deadline: datetime | None
    key: str
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remembered:
    deadline: datetime | None
    ran: bool = False
    seen_at: datetime | None = None  # an earlier agent did not note it


_DECODER = msgspec.json.Decoder(dict[str, _Remembered])


class NoticeMemory:
    """A small file, read once and written at each change. Without it the notices are known while the agent runs.

    Any thread may use it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._logged = False
        self._lock = threading.Lock()
        self._known: dict[str, _Remembered] = {}
        try:
            self._known = _DECODER.decode(path.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            _LOG.warning("what was known of the cloud's notices cannot be read and is forgotten: %s: %s", path, error)

    def with_deadline(self, notice: Notice, now: datetime) -> Announced:
        """The notice with its deadline, which for one that names none counts from its first sight."""
        with self._lock:
            known = self._known.get(notice.key)
            if known is None:
                deadline = notice.deadline
                if deadline is None and notice.lead_seconds is not None:
                    deadline = now + timedelta(seconds=notice.lead_seconds)
                utc = None if deadline is None else deadline.astimezone(UTC)
                known = _Remembered(deadline=utc, seen_at=now.astimezone(UTC))
                self._keep({**self._known, notice.key: known})
        return Announced(
            kind=notice.kind,
            action=notice.action,
            deadline=known.deadline,
            key=notice.key,
            seen_at=known.seen_at or now.astimezone(UTC),
        )

    def ran(self, key: str) -> bool:
        """Whether the program was started for it."""
        return key in self._known and self._known[key].ran

    @property
    def subjects_that_ran(self) -> frozenset[tuple[str, str]]:
        """Kind and action of the notices that are remembered and had a run."""
        words = (key.split(" ") for key, known in self._known.items() if known.ran)
        return frozenset((kind, action) for kind, action, *_ in ([*each, ""] for each in words))

    def note_run(self, key: str) -> None:
        """Record a run before the program starts, so that it never runs a second time."""
        with self._lock:
            known = self._known.get(key, _Remembered(deadline=None))
            self._keep({**self._known, key: replace(known, ran=True)})

    def forget(self, standing: Collection[str], now: datetime) -> None:
        """Drop past notices that the cloud no longer announces."""
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
            if not self._logged:
                _LOG.warning("after a restart agent.metadata.on_interruption may run again: %s", error)
            self._logged = True
