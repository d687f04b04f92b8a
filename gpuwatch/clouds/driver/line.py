"""The line to a driver: a request of one call, one run of the executable, an answer that is held to the protocol.

An answer must name the machine or the key that was asked for; one about another is a doubt.
"""

import json
import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from gpuwatch.clouds.driver.process import Ended, check_executable, environment_of, run
from gpuwatch.clouds.driver.protocol import ALWAYS, CALLS, VERSION, nonsense, read_answer
from gpuwatch.clouds.driver.settings import DriverSettings
from gpuwatch.clouds.errors import AuthFailedError, CloudError, CloudUnavailableError
from gpuwatch.clouds.permit import Permit
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.secrets import read_secret_text

_AT_ONCE = 4  # processes of one driver
_LINES, _LONGEST = 3, 300  # of what it wrote to standard error
_SHORTEST_SECRET = 4  # characters; a shorter one would mask words
NOT_OFFERED = "NotOffered"  # our own code


class Line:
    """One driver. Any thread may ask."""

    def __init__(self, driver: DriverSettings, *, fleet: str, clock: Clock, endpoint_url: str | None) -> None:
        """Nothing is run yet.

        Raises:
            CloudError: the executable is not fit to be run.

        """
        self.path, self._clock, self._driver = Path(driver.executable or ""), clock, driver
        check_executable(self.path)
        options = dict(driver.options)
        self._common = {"gpuwatch": VERSION, "fleet": fleet, "endpoint": endpoint_url, "options": options}
        self._turn, self._running = threading.Lock(), threading.BoundedSemaphore(_AT_ONCE)
        self._described: tuple[object, Mapping[str, Any]] | None = None

    def describe(self) -> Mapping[str, Any]:
        """What the driver offers; asked again when its file is another one.

        Raises:
            CloudError: no answer.

        """
        found = check_executable(self.path)
        file = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
        with self._turn:
            if self._described is None or self._described[0] != file:
                self._described = file, self._ask("describe", None, None, {})
            return self._described[1]

    def offers(self, call: str) -> bool:
        """Whether the driver has the call; raises CloudError."""
        return call in ALWAYS or call in self.describe()["calls"]

    def ask(
        self, call: str, region: str | None = None, *, permit: Permit | None = None, **more: object
    ) -> dict[str, Any]:
        """The answer to a call; a change leaves only while its permit holds, and is killed when the permit ends.

        Raises:
            PermitExpiredError: it did not hold; the driver got no request.
            CloudError: the driver's refusal, or no usable answer.

        """
        if not self.offers(call):
            raise CloudError(f"{call}: the driver {self.path.name} does not offer it", code=NOT_OFFERED)
        return self._ask(call, region, permit, more)

    def _ask(self, call: str, region: str | None, permit: Permit | None, more: Mapping[str, object]) -> dict[str, Any]:
        with self._running:
            secrets = read_secrets(self._driver)
            seconds = self._driver.call_timeout
            if permit is not None:
                seconds = max(0.0, min(seconds, permit.max_age_seconds - permit.age_seconds))
            ends = self._clock.now() + timedelta(seconds=seconds)
            due = {"deadline": ends.isoformat()} if CALLS[call].change else {}
            request = {**self._common, "call": call, "region": region, "secrets": secrets, **due, **more}
            ended = run(
                self.path,
                json.dumps(request).encode(),
                environment=environment_of(self._driver.environment),
                seconds=seconds,
                before=lambda: None if permit is None else permit.check(),
            )
        asked = f"{call} {more['id']}" if "id" in more else call
        return answer_of(call, asked, ended, driver=self.path.name, request=request)


def read_secrets(driver: DriverSettings) -> dict[str, str]:
    """The secrets as they are now.

    Raises:
        AuthFailedError: one of them cannot be read.

    """
    try:
        return {name: read_secret_text(named) for name, named in driver.secrets.items()}
    except OSError as error:
        raise AuthFailedError(
            f"a secret of the driver {Path(driver.executable or '').name} cannot be read: "
            f"{error.filename}: {error.strerror}",
            code="DriverSecret",
        ) from None


def answer_of(call: str, asked: str, ended: Ended, *, driver: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a run that has ended, held to the protocol and to its request.

    Raises:
        CloudError: the driver's refusal, or no usable answer.

    """
    secrets: Mapping[str, str] = request["secrets"]
    if ended.status != 0:
        raise CloudUnavailableError(
            f"{asked}: the driver {driver} {_end(ended, secrets)}", code=f"DriverStatus{ended.status}"
        )
    try:
        found = read_answer(call, ended.output, asked)
        if (wrong := _about_another(call, found, request)) is not None:
            raise nonsense(asked, wrong)
    except CloudError as error:
        error.args = (mask_secrets(str(error), secrets), *error.args[1:])
        raise
    return found


def _about_another(call: str, found: Mapping[str, Any], request: Mapping[str, Any]) -> str | None:
    """Why an answer is not about the machine, or the key, that was asked for; None: it is."""
    if call == "get":
        machine, gone = found.get("machine"), found.get("gone")
        one = (machine is None) != (gone is None) and request["id"] in {gone, (machine or {}).get("id")}
        return None if one else f"it is not about {request['id']}"
    both = [name for name in ("id", "key") if name in request and name in found]
    other = next((name for name in both if found[name] != request[name]), None)
    return None if other is None else f"it is about {found.get(other)!r}, and not about {request[other]!r}"


def _end(ended: Ended, secrets: Mapping[str, str]) -> str:
    """How it ended, with the first lines of what it complained about."""
    how = f"was killed by signal {-ended.status}" if ended.status < 0 else f"failed with status {ended.status}"
    lines = ended.complaints.decode("utf-8", "replace").strip().splitlines()
    # Of a traceback the last line says what was wrong.
    shown = lines if len(lines) <= _LINES else [*lines[: _LINES - 1], "…", lines[-1]]
    words = mask_secrets(" / ".join(each.strip() for each in shown), secrets)
    return f"{how}: {legible(words, _LONGEST)}" if words else how


def mask_secrets(words: str, secrets: Mapping[str, str]) -> str:
    """The words without any secret."""
    for each in sorted(secrets.values(), key=len, reverse=True):
        if len(each) >= _SHORTEST_SECRET:
            words = words.replace(each, "***")
    return words


__all__ = ["NOT_OFFERED", "Line", "answer_of", "mask_secrets", "read_secrets", "run"]
