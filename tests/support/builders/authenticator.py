"""An authenticator with a clock of its own, and what clients send it."""

import base64
from collections.abc import Callable
from http import HTTPStatus

import bcrypt

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.runtime.http.auth import Authenticator, users_of

ADDRESS = "10.1.2.3"


def hashed(password: str, cost: int = 4) -> str:
    """A bcrypt hash, at a cost that tests can pay; always the same, since it stands in the names of tests."""
    return bcrypt.hashpw(password.encode(), b"$2b$%02d$abcdefghijklmnopqrstuu" % cost).decode()


ALICE, BOB = hashed("apple"), hashed("banana")


def header(user: str, password: bytes | str) -> str:
    """What a client sends."""
    secret = password.encode() if isinstance(password, str) else password
    return "Basic " + base64.b64encode(user.encode() + b":" + secret).decode()


class Gate:
    """An authenticator with a clock of its own, which counts what it verifies."""

    def __init__(self, **changes: object) -> None:
        """Users by the settings; two of them if there are none."""
        settings = AgentSettings(**(changes or {"basic_auth_users": {"alice": ALICE, "bob": BOB}}))  # type: ignore[arg-type]
        self.clock = ManualClock()
        self.authenticator = Authenticator(users_of(settings, "agent"), self.clock)
        self.verified = 0
        self._matches: Callable[[bytes, bytes], bool] = self.authenticator._matches
        self.authenticator._matches = self._count  # type: ignore[assignment]  # names of parameters apart

    def status(self, authorization: str, address: str = ADDRESS) -> int:
        """200 if it lets the request pass."""
        response = self.authenticator(authorization, address)
        return HTTPStatus.OK if response is None else response.status

    def _count(self, password: bytes, against: bytes) -> bool:
        self.verified += 1
        return self._matches(password, against)
