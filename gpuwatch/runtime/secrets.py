"""The controller's secrets: each in its own file, or in another store that a reference names instead of a file.

credential:NAME is a credential that systemd hands over (LoadCredential=). Other references lead to the stores of the
cloud: STORE:NAME is a secret, and STORE:NAME#KEY one text of its JSON where the store allows it. A store is asked again
every few minutes at most; while it gives no answer, its last one stays in use for a day.
No secret is ever part of an error, a log line or a repr.
"""

import errno
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import ClassVar, Protocol

from gpuwatch.model.setting import Contradiction
from gpuwatch.runtime.clock import Clock, SystemClock
from gpuwatch.runtime.reloading_file import signatures

_LOG = logging.getLogger(__name__)

CREDENTIAL = "credential"
_FRESH_SECONDS = 300.0
_RETRY_SECONDS = 60.0
_KEPT_SECONDS = 86400.0
_PLAIN_FILES = frozenset({"users_file"})  # what an agent reads as well, and no secret but hashes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """The last answer, when it came, and when to ask again, all by the monotonic clock."""

    value: bytes | None = field(default=None, repr=False)
    at: float = 0.0
    again_at: float
    failure: str | None = None


class SecretCache:
    """What the stores have answered, by reference; any thread may ask."""

    def __init__(self, clock: Clock, fetch: Callable[[str, str], bytes]) -> None:
        """`fetch` asks a store for a name, and raises OSError."""
        self._clock = clock
        self._fetch = fetch
        self._turn = threading.Lock()
        self._kept: dict[str, _Kept] = {}

    def read(self, named: str) -> bytes:
        """The secret; raises OSError."""
        with self._turn:
            now = self._clock.monotonic()
            kept = self._kept.get(named)
            if kept is None or now >= kept.again_at:
                kept = self._kept[named] = self._ask_source(named, kept, now)
        if kept.value is None:
            raise unread(named, kept.failure or "")
        return kept.value

    def _ask_source(self, named: str, before: _Kept | None, now: float) -> _Kept:
        try:
            value = self._fetch(*_parts(named))
        except OSError as error:
            why = str(error.strerror or error)
            if before is None or before.value is None or now - before.at >= _KEPT_SECONDS:
                return _Kept(failure=why, again_at=now + _RETRY_SECONDS)
            if before.failure != why:
                _LOG.warning("%s cannot be read, its last value stays in use: %s", named, why)
            return replace(before, failure=why, again_at=now + _FRESH_SECONDS)
        return _Kept(value=value, at=now, again_at=now + _FRESH_SECONDS)


class Stores(Protocol):
    """Where references to other stores lead. Two that are equal lead to the same place.

    `forms` are the ways to write a reference, as examples: STORE:NAME.
    """

    @property
    def forms(self) -> tuple[str, ...]:
        """The ways to write a reference."""
        ...

    def fetch(self, store: str, name: str) -> bytes:
        """The secret; raises OSError."""


class NoStores:
    """A cloud without stores, and the time before the settings are read."""

    forms: ClassVar[tuple[str, ...]] = ()

    def fetch(self, store: str, name: str) -> bytes:
        """Raise OSError: there are no stores."""
        raise unread(f"{store}:{name}", "no store is set up")


class _Process:
    """The vault of this process, which all readers share: as the settings say since `use`."""

    stores: Stores = NoStores()
    vault = SecretCache(SystemClock(), stores.fetch)


def use(stores: Stores) -> None:
    """Ask these stores from now on; known secrets are kept unless the stores are others."""
    if stores != _Process.stores:
        _Process.stores, _Process.vault = stores, SecretCache(SystemClock(), stores.fetch)


def read_secret(named: str) -> bytes:
    """What a file, or what a reference leads to, holds.

    Raises:
        OSError: it cannot be read; `strerror` has the reason.

    """
    if is_reference(named):
        wrong = _mistake(named)
        if wrong is not None:
            raise unread(named, wrong)
        store, name = _parts(named)
        if store != CREDENTIAL:
            return _Process.vault.read(named)
        path = _credential(name)
        if not path.is_file():
            raise unread(named, f"systemd has handed over no credential {name}; write LoadCredential={name}:FILE")
        return path.read_bytes()
    return Path(named).read_bytes()


def read_secret_text(named: str) -> str:
    """Its text, without white space around it; raises as `read_secret`, also where it is not text."""
    try:
        return read_secret(named).decode().strip()
    except UnicodeDecodeError:
        raise unread(named, "it is not text") from None


def version_of(named: str) -> object:
    """Differs when the secret changed, where it is not a file: for `ReloadingFile`."""
    if not is_reference(named):
        return None
    try:
        store, name = _parts(named)
        return signatures([_credential(name)]) if store == CREDENTIAL else hash(read_secret(named))
    except OSError:
        return None


def is_reference(named: str) -> bool:
    """Whether it is a reference to a secret, not the name of a file."""
    return _refers(named, _Process.stores.forms)


def _refers(named: str, forms: Iterable[str]) -> bool:
    return _parts(named)[0] in {CREDENTIAL, *(_parts(form)[0] for form in forms)}


def contradictions(settings: object, forms: Sequence[str]) -> Iterator[Contradiction]:
    """Invalid references, and references where only a file is possible; `forms` are those of the cloud's stores."""
    for path, named in files_named(settings):
        if not _refers(named, forms):
            continue
        where = ".".join(path)
        if path[0] == "agent" or path[-1] in _PLAIN_FILES:
            yield Contradiction(keys=(path,), wrong=f"{where} takes no reference such as {named!r}", right="a file")
        elif (wrong := _mistake(named)) is not None:
            right = f"{', '.join(('credential:NAME', *forms))}, or a file"
            yield Contradiction(keys=(path,), wrong=f"{where} {named!r}: {wrong}", right=right)


def files_named(
    settings: object, path: tuple[str, ...] = (), ends: tuple[str, ...] = ("_file",)
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every key that ends so and is set, with its value."""
    if isinstance(settings, Mapping):
        for name, each in settings.items():
            yield from files_named(each, (*path, str(name)), ends)
    elif isinstance(settings, str):
        if path[-1].endswith(ends):
            yield path, settings
    elif is_dataclass(settings):
        for each in fields(settings):
            yield from files_named(getattr(settings, each.name), (*path, each.name), ends)


def open_to_all(path: Path) -> bool:
    """Whether every user of this machine may read a file.

    Raises:
        OSError: it is not there.

    """
    return bool(path.stat().st_mode & stat.S_IROTH)


def secrets_named(settings: object) -> dict[str, str]:
    """The files and references of a controller's settings, by their keys; an agent has its own."""
    found = files_named(settings, ends=("_file", "tls_key"))
    return {".".join(path): named for path, named in found if path[0] != "agent"}


def warn_of_open(files: Mapping[str, str | None]) -> None:
    """Name each file with a secret that every user may read in the log; the service works all the same."""
    for key, named in files.items():
        with suppress(OSError):
            if named is not None and not is_reference(named) and open_to_all(Path(named)):
                _LOG.warning("%s: every user of this machine may read %s; `chmod 600` it", key, named)


def _parts(named: str) -> tuple[str, str]:
    store, _, name = named.partition(":")
    return store, name


def _mistake(named: str) -> str | None:
    """Why a reference is invalid; None: it is valid."""
    store, name = _parts(named)
    if not name or (store != CREDENTIAL and "" in name.split("#", 1)):
        return "it has no name"
    if store == CREDENTIAL and ("/" in name or name in {".", ".."}):
        return "a credential's name cannot be a path"
    return None


def _credential(name: str) -> Path:
    """Where systemd puts it: systemd.exec(5), Credentials; raises OSError."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise unread(
            f"{CREDENTIAL}:{name}",
            "systemd hands this process no credentials ($CREDENTIALS_DIRECTORY is not set); "
            f"run it by a unit with LoadCredential={name}:FILE",
        )
    return Path(folder, name)


def unread(named: str, why: str) -> OSError:
    """An error with our own `strerror`."""
    return OSError(errno.EIO, why, named)
