"""Renews the certificate that `gpuwatch agent join` has got, over that certificate itself, before it ends.

The key stays: the handshake proves that it is ours, and the controller certifies it again. It also names the
authorities that hosts believe, so that they know the next one before it signs. What cannot be renewed is
tried again every hour, and the old certificate stays in use; `gpuwatch_tls_certificate_expires_timestamp_seconds` shows
its end, and an alert waits for it.
"""

import http.client
import logging
import os
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.runtime import joined
from gpuwatch.runtime.certificates import Validity, by_handshake
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.auth import files_of
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.tls import TlsFiles, client_context

_LOG = logging.getLogger(__name__)

LOOK_SECONDS = 3600.0
_ROOM_BYTES = 16384
_LEFT_RATIO = 1 / 3  # of its time: the rest is for a controller that is away


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller gives: the certificate, and those of the authorities that hosts believe, in PEM."""

    certificate: str
    authority: str


class Renewal:
    """One agent's certificate, looked at by a thread of its own; without `agent.controller` it does nothing."""

    def __init__(self, settings: AgentSettings, clock: Clock) -> None:
        """Nothing is asked before `start`."""
        self._url = settings.controller
        self._files = files_of(settings, "agent")
        self._clock = clock

    def start(self) -> None:
        """Begin; returns at once."""
        if self._url is not None:
            threading.Thread(target=self._run, name="renewal", daemon=True).start()

    def step(self) -> bool:
        """Renew the certificate if it is time; whether there is a new one."""
        if self._url is None:
            return False
        remedy = ""
        try:
            validity = _validity(self._files)
            left, whole = validity.end - self._clock.now(), validity.end - validity.begin
            if left > whole * _LEFT_RATIO:
                return False
            if left <= timedelta(0):
                remedy = "; it has ended: let this host join again, with a new token"
            self._renew(self._url)
        except joined.AnswerError as error:
            told = legible(str(error), 300)
            _LOG.warning("the certificate of agent.tls_certificate cannot be renewed: %s%s", told, remedy)
        except (OSError, ValueError, http.client.HTTPException) as error:
            words = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or error
            told = f"{self._url}: {legible(str(words), 300)}{remedy}"
            _LOG.warning("the certificate of agent.tls_certificate is not renewed yet: %s", told)
        else:
            return True
        return False

    def _renew(self, url: str) -> None:
        """Ask, and put what comes in place if it fits our key.

        Raises:
            joined.AnswerError: the controller refuses.
            OSError, ValueError, http.client.HTTPException: it gives no answer, or one that cannot be used.

        """
        certificate = self._files.certificate
        if certificate is None:
            return
        fresh = certificate.with_name(f".{certificate.name}.new")
        try:
            _write(fresh, " " * _ROOM_BYTES)  # before the question: a full disk wastes no certificate
            body = joined.ask_controller(url, joined.RENEW_PATH, b"{}", client_context(self._files), self._clock)
            answer = msgspec.json.decode(body, type=_Answer)
            _write(fresh, answer.certificate)
            validity = _validity(replace(self._files, certificate=fresh))  # raises where it is not of our key
            validity.check_time(self._clock.now())  # ours is better than one of a controller whose clock is wrong
            self._believe(answer.authority)
            fresh.replace(certificate)
        finally:
            fresh.unlink(missing_ok=True)
        _LOG.info(
            "the certificate of agent.tls_certificate was renewed; it is valid until %s", f"{validity.end:%Y-%m-%d}"
        )

    def _believe(self, shown: str) -> None:
        """Believe the authorities that the controller names, if one of ours is among them; the file's others stay.

        Raises:
            OSError: the file cannot be written.

        """
        path = self._files.ca
        if path is None:
            return
        believed = joined.read_authorities(shown, path.read_text(encoding="ascii", errors="replace"))
        if believed is not None:
            fresh = path.with_name(f".{path.name}.new")
            try:
                _write(fresh, believed)
                fresh.replace(path)
            finally:
                fresh.unlink(missing_ok=True)

    def _run(self) -> None:
        """Look again and again; the thread ends with the agent."""
        while True:
            try:
                self.step()
            except Exception:  # noqa: BLE001  the thread must go on
                _LOG.exception("the look at the certificate failed")
            self._clock.sleep(LOOK_SECONDS)


def _validity(files: TlsFiles) -> Validity:
    (found,) = by_handshake(replace(files, ca=None))["agent.tls_certificate"]
    return found


def _write(path: Path, text: str) -> None:
    """Write a file that the agent's user alone may read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())  # a power cut after the replacement leaves no empty file
