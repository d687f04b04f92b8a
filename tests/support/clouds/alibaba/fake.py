"""Alibaba Cloud's API as a state and its answers: signatures, permissions, errors; `ecs.py`, `ess.py` do the work."""

import json
import uuid
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from alibabacloud_tea_openapi.utils import Utils
from darabonba.request import DaraRequest

from tests.support.clouds.alibaba import ecs, ess, others
from tests.support.clouds.alibaba.checks import check_answer, check_request
from tests.support.clouds.alibaba.errors import Refusal
from tests.support.clouds.alibaba.state import State
from tests.support.clouds.faults import Asked
from tests.support.clouds.server import Refused, Request, Response

KEY_ID, SECRET = "LTAI5tFake", "a-secret"
SKEW = timedelta(minutes=15)
CHANGES = frozenset(
    {
        *("StopInstance", "StartInstance", "DeleteInstance", "RunInstances", "TagResources"),
        *("RemoveInstances", "ScaleWithAdjustment", "SetInstancesProtection"),
    }
)
_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_PRODUCTS = {
    "2014-05-26": "ecs",
    "2015-04-01": "sts",
    "2015-05-01": "ram",
    "2016-04-28": "vpc",
    "2019-01-01": "cms",
    "2022-02-22": "ess",
}
# Calls that answer with an error's status but in a way that is no refusal of a permission.
_REFUSALS = {
    Refused.THROTTLED: Refusal(400, "Throttling.User", "Request was denied due to user flow control."),
    Refused.INTERNAL: Refusal(500, "InternalError", "The request processing has failed due to some unknown error."),
    Refused.EXPIRED: Refusal(403, "InvalidSecurityToken.Expired", "Specified SecurityToken is expired."),
}
Handler = Callable[[State, Mapping[str, str], datetime], dict[str, Any]]
HANDLERS: dict[str, Handler] = {**ecs.HANDLERS, **ess.HANDLERS, **others.HANDLERS}


@dataclass(slots=True)
class Strike:
    """The next call of that name is refused in these words."""

    action: str
    refusal: Refusal


class FakeAlibaba:
    """One account in some regions."""

    def __init__(self, regions: tuple[str, ...] = ("cn-shanghai", "cn-beijing")) -> None:
        """An empty account."""
        self.state = State(regions)
        self.denied: set[str] = set()  # by RAM, such as ecs:StopInstance
        self.hidden: set[str] = set()  # lists that answer as if they were empty, as ECS did without the right
        self.strikes: list[Strike] = []
        self.calls: list[str] = []  # as RAM names them
        self._nonces: set[str] = set()
        self.ended: dict[str, Refusal] = {}  # session tokens that are not taken any more, and the words for it

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """As it is now, for reads that are late."""
        copy = type(self)(self.state.regions)
        copy.state, copy.denied = deepcopy(self.state, memo), set(self.denied)
        return copy

    def asked(self, request: Request) -> Asked:
        """The action, and the region that it is about."""
        action = request.headers.get("x-acs-action", "")
        return Asked(operation=action, region=self._region(request.query), change=action in CHANGES)

    def answer(self, request: Request) -> Response:
        """Carry it out."""
        try:
            return self._carried(request)
        except Refusal as refusal:
            return _refused(request, refusal)

    def refusal(self, request: Request, kind: Refused) -> Response:
        """In Alibaba's words."""
        return _refused(request, _REFUSALS[kind])

    def continues(self, request: Request) -> bool:
        """Whether it asks for a later page."""
        return bool(request.query.get("NextToken")) or int(request.query.get("PageNumber", "1")) > 1

    def without_token(self, response: Response) -> Response:
        """The token is lost."""
        body: Any = response.body
        if not isinstance(body, dict) or not body.get("NextToken"):
            return response
        return replace(response, body={name: value for name, value in body.items() if name != "NextToken"})

    def refuse(self, action: str, status: int, code: str) -> None:
        """The next such call is refused."""
        self.strikes.append(Strike(action, Refusal(status, code, "It was told to.")))

    def _carried(self, request: Request) -> Response:
        action, version = request.headers["x-acs-action"], request.headers["x-acs-version"]
        call = f"{_PRODUCTS[version]}:{action}"
        self._authentic(request)
        self.calls.append(call)
        check_request(version, action, request.query)
        assert request.method == "POST", f"{action} came as {request.method}"
        if call in self.denied and call.startswith("ram:"):
            raise Refusal(403, "NoPermission", "You are not authorized to do this action.")
        if call in self.hidden and request.query.get("DryRun") != "true":
            nothing = HANDLERS[action](State(self.state.regions), request.query, request.at)
            return Response(body={"RequestId": _request_id(), **nothing})
        if call in self.denied | self.hidden:
            raise Refusal(403, "Forbidden.RAM", "User not authorized to operate on the specified resource.")
        for strike in self.strikes:
            if strike.action == action:
                self.strikes.remove(strike)
                raise strike.refusal
        self.state.tick(request.at)
        assert action in HANDLERS, f"the fake does not know {action}"
        body = {"RequestId": _request_id(), **HANDLERS[action](self.state, request.query, request.at)}
        self.state.tick(request.at)
        check_answer(version, action, body)
        return Response(body=body)

    def _authentic(self, request: Request) -> None:
        """The signature, by the official signer, and the clock."""
        headers = request.headers
        if (token := headers.get("x-acs-security-token", "")) in self.ended:
            raise self.ended[token]
        scheme, _, rest = headers.get("authorization", "").partition(" ")
        parts = dict(part.partition("=")[::2] for part in rest.split(","))
        if scheme != "ACS3-HMAC-SHA256" or parts.get("Credential") != KEY_ID:
            raise Refusal(404, "InvalidAccessKeyId.NotFound", "Specified access key is not found.")
        at = datetime.strptime(headers["x-acs-date"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        if abs(request.at - at) > SKEW:
            raise Refusal(400, "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired.")
        nonce = headers["x-acs-signature-nonce"]
        if nonce in self._nonces:
            raise Refusal(400, "SignatureNonceUsed", "Specified signature nonce was used already.")
        self._nonces.add(nonce)
        signed = DaraRequest()
        signed.method, signed.pathname, signed.query = request.method, request.path, dict(request.query)
        signed.headers = {name: headers[name] for name in parts["SignedHeaders"].split(";")}
        assert {"host", "x-acs-action", "x-acs-date", "x-acs-content-sha256"} <= set(signed.headers)
        if Utils.get_authorization(signed, scheme, _EMPTY, KEY_ID, SECRET) != headers["authorization"]:
            raise Refusal(400, "SignatureDoesNotMatch", "server string to sign: a-session-token")

    def _region(self, query: Mapping[str, str]) -> str:
        if "RegionId" in query:
            return query["RegionId"]
        machine = self.state.machines.get(query.get("InstanceId", ""))
        group = self.state.groups.get(query.get("ScalingGroupId", ""))
        found = machine or group
        return self.state.regions[0] if found is None else found.region


def _refused(request: Request, refusal: Refusal) -> Response:
    body = {
        "RequestId": _request_id(),
        "HostId": request.host,
        "Code": refusal.code,
        "Message": refusal.message,
        "Recommend": f"https://api.aliyun.com/troubleshoot?q={refusal.code}",
    }
    return Response(status=refusal.status, body=json.dumps(body))


def _request_id() -> str:
    return str(uuid.uuid4()).upper()
