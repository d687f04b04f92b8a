"""AWS's query protocol as it is on the wire: what a request asks, and answers in moto's place."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import parse_qs

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ConnectionClosedError
from moto.core.botocore_stubber import MockRawResponse

END_MEMBER = "TerminateInstanceInAutoScalingGroup"

# What EC2 refuses by state and moto accepts: action -> the states it cannot act from.
WRONG_STATES = {
    "StopInstances": {"pending", "shutting-down", "terminated"},
    "StartInstances": {"stopping", "shutting-down", "terminated"},
}
# The state that EC2 shows for a while after an action: action -> its name and code.
PASSING_STATES = {
    "RunInstances": ("pending", 0),
    "StartInstances": ("pending", 0),
    "StopInstances": ("stopping", 64),
    "TerminateInstances": ("shutting-down", 32),
    END_MEMBER: ("shutting-down", 32),
}
LAUNCHING = {"RunInstances", "StartInstances"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request that was sent, and whether EC2 carried it out."""

    action: str
    node_ids: tuple[str, ...]
    done: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """What the caller gets, instead of the effect or after it; None lets a call pass."""

    answer: Callable[[AWSPreparedRequest], AWSResponse] | None
    after_effect: bool = False
    twice: bool = False


class Crash(BaseException):
    """The process dies here; nothing in the product catches it."""


def fields_of(request: AWSPreparedRequest) -> dict[str, str]:
    """What a request asks."""
    body: Any = request.body or b""
    text = body.decode() if isinstance(body, bytes) else str(body)
    return {key: values[0] for key, values in parse_qs(text, keep_blank_values=True).items()}


def node_ids_of(request: AWSPreparedRequest) -> tuple[str, ...]:
    """The instances that a request names."""
    fields = sorted(fields_of(request).items())
    return tuple(value for key, value in fields if key.startswith(("InstanceId", "ResourceId.")))


def answer_of(request: AWSPreparedRequest, status: int, body: str) -> AWSResponse:
    """An answer as botocore reads it."""
    raw: Any = MockRawResponse(body)
    return AWSResponse(str(request.url), status, HTTPHeaders(), raw)


def error_of(request: AWSPreparedRequest, code: str, message: str) -> str:
    """EC2 has its own form; the other services share another, or speak JSON."""
    if "X-Amz-Target" in request.headers:
        return json.dumps({"__type": code, "message": message})
    text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    if "//ec2." in str(request.url):
        return f"<Response><Errors>{text}</Errors><RequestID>0</RequestID></Response>"
    return f"<ErrorResponse>{text}<RequestId>0</RequestId></ErrorResponse>"


def disconnect(request: AWSPreparedRequest) -> NoReturn:
    """The connection breaks."""
    raise ConnectionClosedError(endpoint_url=request.url)


def crash(request: AWSPreparedRequest) -> NoReturn:
    """The caller dies."""
    raise Crash(request.url)
