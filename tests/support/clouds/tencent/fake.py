"""Tencent Cloud on loopback: signed JSON as API 3.0, on a state that changes with time.

Every request is held to the cloud's own description before it is answered, and every answer before it leaves: what the
real cloud would refuse, or never say, is a defect of the code or of the fake, and ends the test.
"""

import hashlib
import hmac
import re
import uuid
from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, Self

from gpuwatch.runtime.clock import Clock
from tests.support.clouds.faults import Asked
from tests.support.clouds.server import Refused, Request, Response
from tests.support.clouds.tencent.cvm import Cvm
from tests.support.clouds.tencent.description import description, versions
from tests.support.clouds.tencent.others import AccessKeys, Others
from tests.support.clouds.tencent.roles import Roles
from tests.support.clouds.tencent.scaling import Scaling
from tests.support.clouds.tencent.state import Refusal, State

SECRET_ID, SECRET_KEY = "AKIDexample", "notarealkey"
_SIGNED = re.compile(
    r"TC3-HMAC-SHA256 Credential=(?P<id>[^/]+)/(?P<day>[\d-]+)/(?P<service>\w+)/tc3_request, "
    r"SignedHeaders=content-type;host, Signature=(?P<signature>[0-9a-f]{64})"
)
_SKEW_SECONDS = 300
_REQUEST_ID = "7f117776-3d20-4f00-839b-b22b04625f47"
_REFUSED = {
    Refused.THROTTLED: "RequestLimitExceeded",
    Refused.INTERNAL: "InternalError",
    Refused.EXPIRED: "AuthFailure.TokenFailure",
}

Act = Callable[[str, Mapping[str, Any]], dict[str, Any]]


class FakeTencent:
    """An account with its regions; `refusals` are codes of the next call of an action."""

    def __init__(self, clock: Clock) -> None:
        self.state = State(clock)
        self.refusals: dict[str, list[str]] = {}
        self.roles = Roles({SECRET_ID: SECRET_KEY}, clock)
        self.seen: set[str] = set()  # "cvm:StopInstances" of every request
        self.signed_by: dict[str, set[str]] = {}  # the same by the id of the key
        self.said: dict[int, str] = {}  # by the request: the code of its refusal, "" where it was carried out
        self.sent: list[tuple[str, Mapping[str, Any]]] = []  # every request's action and parameters

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """What the cloud was, for reads that are late; its clock is the same."""
        twin = type(self)(self.state.clock)
        twin.state = deepcopy(self.state, {id(self.state.clock): self.state.clock} | memo)
        return twin

    # The server's questions.

    def asked(self, request: Request) -> Asked:
        """The action and region, which are headers."""
        action = request.headers.get("x-tc-action", "")
        dry = action == "RunInstances" and request.json.get("DryRun")
        change = not dry and not action.startswith(("Describe", "Get", "Inquiry", "Assume", "List"))
        return Asked(operation=action, region=request.headers.get("x-tc-region", ""), change=change)

    def answer(self, request: Request) -> Response:
        """Carry a request out. A mistake of the caller in form is the test's end, and no answer."""
        asked = self.asked(request)
        try:
            service = self._signed(request)
            assert request.headers["x-tc-version"] == versions()[service]
            parameters = request.json
            self.seen.add(f"{service}:{asked.operation}")
            by = request.headers["authorization"].partition("Credential=")[2].partition("/")[0]
            self.signed_by.setdefault(by, set()).add(f"{service}:{asked.operation}")
            self.sent.append((asked.operation, parameters))
            wrong = description(service).wrong_request(asked.operation, parameters)
            assert not wrong, f"a request that Tencent Cloud does not know: {wrong}"
            self.state.pass_time()
            self.state.request = str(uuid.UUID(int=len(self.sent)))
            self._refuse(asked.operation)
            said = {**self._act(asked.operation)(asked.region, parameters), "RequestId": self.state.request}
            self.state.pass_time()
        except Refusal as refusal:
            self.said[id(request)] = refusal.code
            return _error(refusal.code, str(refusal))
        self.said[id(request)] = ""
        wrong = description(service).wrong_answer(asked.operation, said)
        assert not wrong, f"an answer that Tencent Cloud would not give: {wrong}"
        return Response(body={"Response": said})

    def refusal(self, request: Request, kind: Refused) -> Response:
        """An error as the cloud says it: with the HTTP status 200."""
        del request
        return _error(_REFUSED[kind], "injected")

    # Pages are numbered: a lost one is an answer that is cut off, and still counts all.

    def continues(self, request: Request) -> bool:
        """Whether it asks for a page after the first."""
        return bool(request.json.get("Offset"))

    def without_token(self, response: Response) -> Response:
        """A first page that ends too early."""
        body: Any = deepcopy(response.body)
        for items in body["Response"].values():
            if isinstance(items, list):
                del items[len(items) // 2 :]
        return Response(body=body)

    # Within.

    def _refuse(self, action: str) -> None:
        """What a test wants refused, once."""
        if self.refusals.get(action):
            raise Refusal(self.refusals[action].pop(0))

    def _act(self, action: str) -> Act:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", action).lower()
        for part in (Cvm(self.state), Scaling(self.state), Others(self.state), self.roles, AccessKeys(self.state)):
            found: Act | None = getattr(part, name, None)
            if found is not None:
                return found
        raise AssertionError(f"the fake has no {action}")

    def _signed(self, request: Request) -> str:
        """The service of a request that is signed well; the documented check, in its order."""
        found = _SIGNED.fullmatch(request.headers.get("authorization", ""))
        if found is None:
            raise Refusal("AuthFailure.InvalidAuthorization", "no signature")
        stamp = int(request.headers["x-tc-timestamp"])
        if abs(request.at.timestamp() - stamp) > _SKEW_SECONDS:
            raise Refusal("AuthFailure.SignatureExpire", "the signature has expired")
        secret = self.roles.secret(found["id"], request.headers.get("x-tc-token"))
        if signature(request, secret, stamp, found["service"]) != found["signature"]:
            raise Refusal("AuthFailure.SignatureFailure", "the signature is wrong")
        return found["service"]


def signature(request: Request, secret: str, stamp: int, service: str) -> str:
    """TC3-HMAC-SHA256 (cloud.tencent.com/document/api/213/30654)."""
    day = datetime.fromtimestamp(stamp, UTC).strftime("%Y-%m-%d")
    names = "content-type;host"
    heads = f"content-type:{request.headers['content-type']}\nhost:{request.headers['host']}\n"
    body = hashlib.sha256(request.body).hexdigest()
    canonical = f"{request.method}\n/\n\n{heads}\n{names}\n{body}"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    signing = f"TC3{secret}".encode()
    for part in (day, service, "tc3_request"):
        signing = hmac.new(signing, part.encode(), hashlib.sha256).digest()
    text = f"TC3-HMAC-SHA256\n{stamp}\n{day}/{service}/tc3_request\n{hashed}"
    return hmac.new(signing, text.encode(), hashlib.sha256).hexdigest()


def _error(code: str, message: str) -> Response:
    return Response(body={"Response": {"Error": {"Code": code, "Message": message}, "RequestId": _REQUEST_ID}})
