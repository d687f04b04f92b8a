"""The clients of one account in one region, at one pace; a change leaves only while its permit holds.

That is `gpuwatch.clouds.sending` for botocore: its handlers come before every attempt, and its connections check.
"""

import re
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NotRequired, Self, TypedDict

import boto3
from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.config import Config
from botocore.credentials import RefreshableCredentials
from botocore.loaders import create_loader
from botocore.utils import parse_timestamp

from gpuwatch.clouds.aws.errors import asking, is_throttling
from gpuwatch.clouds.rate_limit import RateLimiter
from gpuwatch.clouds.recording import note_exchange
from gpuwatch.clouds.sending import WatchedConnection, attempt_begins
from gpuwatch.runtime.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.literals import DeviceTypeType, InstanceLifecycleTypeType, InstanceTypeType
    from mypy_boto3_ec2.type_defs import (
        CapacityReservationSpecificationResponseTypeDef,
        IamInstanceProfileTypeDef,
        InstanceBlockDeviceMappingTypeDef,
        InstanceStateTypeDef,
        OperatorResponseTypeDef,
        PlacementTypeDef,
        StateReasonTypeDef,
        TagTypeDef,
    )
    from mypy_boto3_sts import STSClient

# botocore tries a read up to three times. Mutations are sent once: the ledger decides about trying again, because only
# it knows whether the wish still stands.
_READING = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 3})
_ACTING = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 1})
_LOADER = create_loader()  # one for all sessions: EC2's model is large, and reading it takes a tenth of a second

# Half of EC2's own limits for an account in a region, which are 20 reads and 5 mutations a second.
_READS_PER_SECOND, _READS_AT_ONCE = 10.0, 50
_ACTS_PER_SECOND, _ACTS_AT_ONCE = 2.5, 25


class DescribedInstance(TypedDict):
    """What gpuwatch reads of an instance: botocore parses no other field. Source: DescribeInstances."""

    InstanceId: NotRequired[str]
    InstanceType: NotRequired["InstanceTypeType"]
    InstanceLifecycle: NotRequired["InstanceLifecycleTypeType"]
    ImageId: NotRequired[str]
    LaunchTime: NotRequired[datetime]
    State: NotRequired["InstanceStateTypeDef"]
    StateReason: NotRequired["StateReasonTypeDef"]
    StateTransitionReason: NotRequired[str]
    Placement: NotRequired["PlacementTypeDef"]
    PrivateIpAddress: NotRequired[str]
    CapacityReservationId: NotRequired[str]
    CapacityReservationSpecification: NotRequired["CapacityReservationSpecificationResponseTypeDef"]
    RootDeviceType: NotRequired["DeviceTypeType"]
    SpotInstanceRequestId: NotRequired[str]
    IamInstanceProfile: NotRequired["IamInstanceProfileTypeDef"]
    Operator: NotRequired["OperatorResponseTypeDef"]
    BlockDeviceMappings: NotRequired[list["InstanceBlockDeviceMappingTypeDef"]]
    Tags: NotRequired[list["TagTypeDef"]]


class ClientPool:
    """One way to ask a place: its clients, made when they are first needed, and the pace that they share."""

    _making = threading.Lock()  # a session makes one client at a time
    _asked = threading.local()  # the last request of this thread, which botocore does not tell again with the answer

    def __init__(
        self, session: boto3.Session, options: Mapping[str, Any], pace: RateLimiter, *, changes: bool = False
    ) -> None:
        """Nothing is sent yet; the options are those of every client. `changes`: what is sent may need a permit."""
        self._changes = changes
        self._session: Any = session
        self.pace = pace
        self._create: Any = session.client  # its type is one overload for each of AWS's services
        self._options = options
        self._clients: dict[str, Any] = {}

    @classmethod
    def for_reading(cls, session: boto3.Session, region: str, endpoint_url: str | None, clock: Clock) -> Self:
        """Tried up to three times."""
        options = {"region_name": region, "endpoint_url": endpoint_url, "config": _READING}
        return cls(session, options, RateLimiter(clock, per_second=_READS_PER_SECOND, burst=_READS_AT_ONCE))

    @classmethod
    def for_acting(cls, session: boto3.Session, region: str, endpoint_url: str | None, clock: Clock) -> Self:
        """Return clients that send each request once."""
        options = {"region_name": region, "endpoint_url": endpoint_url, "config": _ACTING}
        return cls(session, options, RateLimiter(clock, per_second=_ACTS_PER_SECOND, burst=_ACTS_AT_ONCE), changes=True)

    @property
    def ec2(self) -> "EC2Client":
        """Return the client of EC2."""
        client: EC2Client = self._client("ec2")
        return client

    @property
    def autoscaling(self) -> "AutoScalingClient":
        """Return the client of EC2 Auto Scaling."""
        client: AutoScalingClient = self._client("autoscaling")
        return client

    @property
    def sts(self) -> "STSClient":
        """The Security Token Service."""
        client: STSClient = self._client("sts")
        return client

    @property
    def cloudwatch(self) -> Any:  # noqa: ANN401  for one call its types are not worth a package
        """Return the client of CloudWatch."""
        return self._client("cloudwatch")

    @property
    def quotas(self) -> Any:  # noqa: ANN401  likewise
        """Return the client of Service Quotas."""
        return self._client("service-quotas")

    @property
    def iam(self) -> Any:  # noqa: ANN401  likewise
        """Identity and Access Management."""
        return self._client("iam")

    @property
    def kms(self) -> Any:  # noqa: ANN401  likewise
        """The Key Management Service."""
        return self._client("kms")

    def _client(self, service: str) -> Any:  # noqa: ANN401  one of those above
        with self._making:
            if service not in self._clients:
                core = self._session._session  # noqa: SLF001  as in `_renew`
                core.register_component("data_loader", _LOADER)
                core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
                with asking("credentials", service=service.upper()):  # it looks for credentials at once
                    client = self._create(service, **self._options)
                client.meta.events.register_first("request-created", self._before_each_attempt)
                client.meta.events.register("before-send", self._keep_request)
                client.meta.events.register("response-received", self._after_each_attempt)
                client.meta.events.register_first("needs-retry", self._with_new_token)
                if service == "ec2":
                    _parse_what_is_read(client)
                if self._changes:
                    watch(client)
                self._clients[service] = client
            return self._clients[service]

    def _before_each_attempt(self, **_: object) -> None:
        """Wait before the request is signed, since a signature holds for minutes only."""
        self.pace.wait()

    def _keep_request(self, request: Any, **_: object) -> None:  # noqa: ANN401  botocore's own
        self._asked.request = request

    def _after_each_attempt(
        self,
        event_name: str,
        response_dict: Mapping[str, Any] | None = None,
        parsed_response: Mapping[str, Any] | None = None,
        **_: object,
    ) -> None:
        """Slow down where AWS says that we should."""
        if response_dict is not None:
            asked, (service, action) = self._asked.request, event_name.split(".")[1:]
            call = f"{service.replace('-', '')}.{action}"  # auto-scaling, as botocore's events have it
            status, told, body = response_dict["status_code"], response_dict["headers"], response_dict["body"]
            sent = None if not asked.body else asked.body
            note_exchange("aws", asked.method, asked.url, call=call, sent=sent, status=status, headers=told, body=body)
        if parsed_response and is_throttling(parsed_response.get("Error", {}).get("Code", "")):
            self.pace.slow_down()

    def _with_new_token(
        self, response: tuple[Any, Mapping[str, Any]] | None = None, attempts: int = 0, **_: object
    ) -> float | None:
        """Renew a token that AWS says has expired; a read is then sent once more, after so many seconds.

        botocore renews by its own clock alone, and reads a file of credentials once.
        """
        code = (response or (None, {}))[1].get("Error", {}).get("Code", "")
        if code not in _EXPIRED or not _renew(self._session, self._asked.request.headers.get(_TOKEN)):
            return None
        return 0.0 if attempts == 1 and not self._changes else None


_AS_AWS_WRITES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", re.ASCII)


def parse_time(value: Any) -> datetime:  # noqa: ANN401  as botocore's own
    """A time in an answer. botocore's own parser is for any form, and a fifth of a list of machines' parsing."""
    if isinstance(value, str) and _AS_AWS_WRITES.fullmatch(value):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            return parse_timestamp(value)
    return parse_timestamp(value)


def _parse_what_is_read(client: Any) -> None:  # noqa: ANN401  that of EC2
    """Leave out of a parsed instance what gpuwatch does not read: its network interfaces alone take as long as it."""
    answer = client.meta.service_model.operation_model("DescribeInstances").output_shape
    members = answer.members["Reservations"].member.members["Instances"].member.members
    for name in members.keys() - DescribedInstance.__annotations__.keys():
        del members[name]


_EXPIRED, _TOKEN = frozenset({"ExpiredToken", "ExpiredTokenException"}), "X-Amz-Security-Token"
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_renewing = threading.Lock()


def _renew(session: Any, used: object) -> bool:  # noqa: ANN401  boto3 shows botocore's session to nobody
    """Renew a session's credentials where `used` is still their token; whether there is another one now."""
    core = session._session  # noqa: SLF001  likewise
    known = core.get_credentials()
    token = used.decode() if isinstance(used, bytes) else used
    with _renewing:
        if known is None or known.token != token:
            return known is not None  # another call was faster
        if isinstance(known, RefreshableCredentials):
            setattr(known, "_expiry_time", _LONG_AGO)  # noqa: B010  it has no other door, and its stub not even this
            return True
        fresh = core.get_component("credential_provider").load_credentials()
        if fresh is None or fresh.method != known.method or fresh.token == token:
            return False
        known.access_key, known.secret_key, known.token = fresh.access_key, fresh.secret_key, fresh.token
        return True


def watch(client: Any) -> None:  # noqa: ANN401  a client of any of AWS's services
    """Check the permit of `sending` at every attempt and every write of this client."""
    # The widest pattern that is registered first comes before all other handlers, those that answer by themselves too.
    client.meta.events.register_first("before-send.*.*", _before_send)
    # The classes are botocore's own; only the dictionary that names them has no public door.
    client._endpoint.http_session._pool_classes_by_scheme.update(http=_Pool, https=_SecurePool)  # noqa: SLF001


def _before_send(**_: object) -> None:
    attempt_begins()


class _Connection(WatchedConnection, AWSHTTPConnection):  # type: ignore[misc]  # botocore's own mixture of signatures
    """Plain HTTP, as to an endpoint of one's own."""


class _SecureConnection(WatchedConnection, AWSHTTPSConnection):  # type: ignore[misc]  # likewise
    """An HTTPS connection that checks the permit last."""


class _Pool(AWSHTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(AWSHTTPSConnectionPool):
    ConnectionCls = _SecureConnection
