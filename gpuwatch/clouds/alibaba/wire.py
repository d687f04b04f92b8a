"""Connections to Alibaba Cloud. Each request is sent once, and the permit of a change is checked at its first byte.

The SDK's own sending is not used: it has no place for that check, and repeats requests by settings of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from requests import PreparedRequest, RequestException, Session
from urllib3.exceptions import HTTPError

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.requests_sending import watched
from gpuwatch.clouds.sending import sending

_TIMEOUT = (5.0, 20.0)  # seconds to connect, and to wait for bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back: any status, a whole body."""

    status: int
    headers: Mapping[str, str]  # by names in small letters
    body: bytes


class Wire:
    """The connections of one process to one cloud, by the proxy and the authorities that the environment names."""

    def __init__(self, timeout: tuple[float, float] = _TIMEOUT) -> None:
        """Nothing is opened yet."""
        self._timeout = timeout
        self._session = watched(Session())
        self._session.auth = _as_it_is

    def post(self, asked: str, url: str, headers: Mapping[str, str], permit: Permit | None) -> Reply:
        """Post an empty body to a URL, once. `asked` names the call in errors; None: no permit is asked for.

        Raises:
            PermitExpiredError: the permit did not hold; nothing was sent.
            CloudUnavailableError: no whole answer.

        """
        with sending(asked, permit):
            try:
                answer = self._session.post(
                    url, data=b"", headers=dict(headers), timeout=self._timeout, allow_redirects=False
                )
                told = {name.lower(): value for name, value in answer.headers.items()}
                return Reply(status=answer.status_code, headers=told, body=answer.content)
            except (RequestException, HTTPError, OSError) as error:
                name = type(error).__name__
                raise CloudUnavailableError(f"{asked}: no usable answer ({name})", code=name) from None


def _as_it_is(request: PreparedRequest) -> PreparedRequest:
    """Without it, requests would put a password of ~/.netrc in place of the signature."""
    return request
