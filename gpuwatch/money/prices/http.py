"""How clouds are asked over HTTP: with a deadline, a limit on the answer, and patience with "too many requests"."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from gpuwatch.money.prices.fetch import FetchError
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.client import opener
from gpuwatch.runtime.network_errors import network_text
from gpuwatch.runtime.secrets import read_secret_text

_LARGEST_ANSWER_BYTES = 64 * 1024**2
_LATER = frozenset({429, 500, 502, 503, 504})
_LONGEST_PAUSE_SECONDS = 60.0


@dataclass(slots=True, kw_only=True)
class Asker:
    """Asks one API, at most once in `pause_seconds`."""

    clock: Clock
    name: str
    timeout_seconds: float = 20.0
    pause_seconds: float = 0.2
    times: int = 3  # 1 where a request is signed for one use
    _next: float = field(default=0.0, init=False)

    def ask(self, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> Any:  # noqa: ANN401  any JSON
        """The JSON at a URL, posted to where there is a body.

        Raises:
            FetchError: no usable answer; the text names no header.

        """
        text = self.text(url, {"Accept": "application/json", **(headers or {})}, body)
        try:
            return json.loads(text, parse_float=str)
        except ValueError as error:
            raise FetchError(f"{self.name} gave no usable answer: {error}") from error

    def text(self, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> bytes:
        """What is at a URL, whole.

        Raises:
            FetchError: no usable answer; the text names no header.

        """
        try:
            with self.open_answer(url, headers, body) as answer:
                text: bytes = answer.read(_LARGEST_ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise FetchError(f"{self.name} gave no usable answer: {network_text(error, url) or error}") from error
        if len(text) > _LARGEST_ANSWER_BYTES:
            raise FetchError(f"{self.name} gave no usable answer: it is larger than {_LARGEST_ANSWER_BYTES} bytes")
        return text

    def open_answer(
        self, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> http.client.HTTPResponse:
        """The answer before its body is read; a busy server is asked again, as late as it says.

        Raises:
            FetchError: no answer, or one of an error.

        """
        wait = 1.0
        for attempt in range(1, self.times + 1):
            self.clock.sleep(max(0.0, self._next - self.clock.monotonic()))
            self._next = self.clock.monotonic() + self.pause_seconds
            try:
                return self._once(url, headers or {}, body)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code not in _LATER or attempt == self.times:
                    raise FetchError(f"{self.name} answered {error.code} {error.reason}") from error
                retry_after = error.headers.get("Retry-After", "")
                self.clock.sleep(min(_LONGEST_PAUSE_SECONDS, float(retry_after) if retry_after.isdecimal() else wait))
                wait *= 2
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise FetchError(f"{self.name} gave no usable answer: {network_text(error, url) or error}") from error
        raise AssertionError  # the last attempt has returned or raised

    def _once(self, url: str, headers: Mapping[str, str], body: bytes | None) -> http.client.HTTPResponse:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is no http URL")
        all_headers = {"Accept-Encoding": "identity", **headers}
        request = urllib.request.Request(url, data=body, headers=all_headers)  # noqa: S310  checked above
        answer: http.client.HTTPResponse = opener().open(request, timeout=self.timeout_seconds)
        return answer


def secret_of(file: Path, setting: str) -> str:
    """The one line of a file that holds a key.

    Raises:
        FetchError: it cannot be read, or holds none; the text names the setting.

    """
    try:
        text = read_secret_text(str(file))
    except OSError as error:
        raise FetchError(f"{setting}: {file} cannot be read: {error.strerror}") from None
    if not text or "\n" in text:
        raise FetchError(f"{setting}: {file} does not hold one line with a key")
    return text


def key_pair_of(file: Path, setting: str) -> tuple[str, str]:
    """An access key's id and secret, written as ID:SECRET.

    Raises:
        FetchError: as `secret_of`.

    """
    key_id, _, secret = secret_of(file, setting).partition(":")
    if not secret:
        raise FetchError(f"{setting}: {file} does not hold a line such as ID:SECRET")
    return key_id, secret


def amount_of(amount: object) -> Decimal | None:
    """A price; None: it is no amount, or zero, which clouds write for what is not sold that way."""
    try:
        price = Decimal(str(amount))
    except InvalidOperation:
        return None
    return price if price.is_finite() and price > 0 else None
