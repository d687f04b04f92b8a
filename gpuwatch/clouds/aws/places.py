"""Accounts and regions: each pair is a place with its own clients and its own pace."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Self

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import CredentialProvider, CredentialResolver, DeferredRefreshableCredentials
from botocore.loaders import create_loader

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.clouds.aws.errors import asking, throttled
from gpuwatch.clouds.aws.permit_check import sending, watch
from gpuwatch.clouds.aws.settings import AccountSettings, account_of
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.places import Answer, everywhere
from gpuwatch.clouds.provider import ALL
from gpuwatch.clouds.rate_limit import RateLimiter
from gpuwatch.model.fleet import Node, NodeGroup
from gpuwatch.runtime.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_sts import STSClient

# botocore tries a read up to three times. Mutations are sent once: the ledger decides about trying again, because only
# it knows whether the wish still stands.
_READING = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 3})
_ACTING = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 1})

# Half of EC2's own limits for an account in a region, which are 20 reads and 5 mutations a second.
_READS_PER_SECOND, _READS_AT_ONCE = 10.0, 50
_ACTS_PER_SECOND, _ACTS_AT_ONCE = 2.5, 25

_SESSION_NAME = "gpuwatch"  # in CloudTrail
# Where an account is asked for its regions if no region is set for the credentials, either. The regions of another
# partition (China, GovCloud) are known to that partition alone: there AWS_DEFAULT_REGION must name one of them.
_ANY_REGION = "us-east-1"
_CLOSED = "not-opted-in"

_LOADER = create_loader()  # one for all accounts: EC2's model is large


class ClientPool:
    """One way to ask a place: its clients, made when they are first needed, and the pace that they share."""

    _making = threading.Lock()  # a session makes one client at a time

    def __init__(
        self, session: boto3.Session, options: Mapping[str, Any], pace: RateLimiter, *, changes: bool = False
    ) -> None:
        """Nothing is sent yet; the options are those of every client. `changes`: what is sent may need a permit."""
        self._changes = changes
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
        """Sent once."""
        options = {"region_name": region, "endpoint_url": endpoint_url, "config": _ACTING}
        return cls(session, options, RateLimiter(clock, per_second=_ACTS_PER_SECOND, burst=_ACTS_AT_ONCE), changes=True)

    @property
    def ec2(self) -> "EC2Client":
        """EC2."""
        client: EC2Client = self._client("ec2")
        return client

    @property
    def autoscaling(self) -> "AutoScalingClient":
        """EC2 Auto Scaling."""
        client: AutoScalingClient = self._client("autoscaling")
        return client

    @property
    def sts(self) -> "STSClient":
        """The Security Token Service."""
        client: STSClient = self._client("sts")
        return client

    @property
    def cloudwatch(self) -> Any:  # noqa: ANN401  for one call its types are not worth a package
        """CloudWatch."""
        return self._client("cloudwatch")

    @property
    def quotas(self) -> Any:  # noqa: ANN401  likewise
        """Service Quotas."""
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
                client = self._create(service, **self._options)
                client.meta.events.register_first("request-created", self._before_each_attempt)
                client.meta.events.register("response-received", self._after_each_attempt)
                if self._changes:
                    watch(client)
                self._clients[service] = client
            return self._clients[service]

    def _before_each_attempt(self, **_: object) -> None:
        """Wait before the request is signed, since a signature holds for minutes only."""
        self.pace.wait()

    def _after_each_attempt(self, parsed_response: Mapping[str, Any] | None = None, **_: object) -> None:
        """Slow down where AWS says that we should."""
        if parsed_response and throttled(parsed_response.get("Error", {}).get("Code", "")):
            self.pace.slow_down()


class Region:
    """One account in one region. `reading` is for lists; `acting` for mutations and what is asked right before them."""

    def __init__(
        self,
        session: boto3.Session,
        region: str,
        *,
        account: str | None,
        number: str | None,
        clock: Clock,
        endpoint_url: str | None,
    ) -> None:
        """Nothing is sent yet. `account` is its name in the settings, where there are several."""
        self.region, self.session = region, session
        self._beside = {"account": account, "number": number, "clock": clock, "endpoint_url": endpoint_url}
        self.name = f"{region} of account {account}" if account else region
        self.called = account
        self._number = number
        self.reading = ClientPool.for_reading(session, region, endpoint_url, clock)
        self.acting = ClientPool.for_acting(session, region, endpoint_url, clock)

    def asking(self, call: str, *, service: str = "EC2") -> AbstractContextManager[None]:
        """Typed errors that name this place."""
        return asking(call, service=service, where=self.name)

    @contextmanager
    def changing(self, call: str, permit: Permit | None, *, service: str = "EC2") -> Iterator[None]:
        """The same for a change, which leaves only while its permit holds."""
        with sending(f"{service} {call} in {self.name}", permit), self.asking(call, service=service):
            yield

    def beside(self, region: str) -> "Region":
        """Another region of the same account."""
        options: Any = self._beside
        return Region(self.session, region, **options)

    def entered(self, session: boto3.Session) -> "Region":
        """The same region with other credentials, and their own account."""
        options: Any = {**self._beside, "account": None, "number": None}
        return Region(session, self.region, **options)

    def enabled(self) -> list[str]:
        """The regions that the account may use, without those that are disabled or not opted in.

        Source: DescribeRegions without AllRegions.

        Raises:
            CloudError: no answer.

        """
        with self.asking("DescribeRegions"):
            found = self.reading.ec2.describe_regions()["Regions"]
            return sorted(each["RegionName"] for each in found if each.get("OptInStatus") != _CLOSED)

    def holds(self, thing: Node | NodeGroup) -> bool:
        """Whether it is of this region, and of no other account as far as that is known."""
        return thing.region == self.region and thing.account in {None, self._number or thing.account}

    @property
    def account(self) -> str:
        """The account's number: the role's, else asked for once. Source: GetCallerIdentity, which needs no permission.

        Raises:
            CloudError: no answer.

        """
        if self._number is None:
            with self.asking("GetCallerIdentity", service="STS"):
                self._number = self.reading.sts.get_caller_identity()["Account"]
        return self._number


class Regions:
    """All places, in the order of the settings; the first is where a launch goes that names none."""

    def __init__(
        self,
        *,
        session: boto3.Session,
        regions: Sequence[str],
        accounts: Mapping[str, AccountSettings],
        clock: Clock,
        endpoint_url: str | None,
    ) -> None:
        """Nothing is sent yet; the roles are assumed at the first call and again before they expire.

        Raises:
            CloudError: there is no region: every list would be empty, and look like an empty fleet.

        """
        regions = regions or tuple(filter(None, [session.region_name]))
        self._session = session
        self._all: list[Region] | None = None
        self._expanding = threading.Lock()
        self._named: list[tuple[Region, tuple[str, ...]]] = []  # a door to each account, and its regions
        for name, account in accounts.items() or [(None, AccountSettings())]:
            own = tuple(dict.fromkeys(account.regions or regions))
            if not own:
                raise CloudError(
                    "no region is known; set cloud.regions, for example [us-east-1], or AWS_DEFAULT_REGION"
                )
            first = (session.region_name or _ANY_REGION) if ALL in own else own[0]
            entered, number = session, None
            if account.role_arn is not None:
                line = ClientPool.for_reading(session, first, endpoint_url, clock)
                entered, number = _assumed(line, account), account_of(account.role_arn)
            door = Region(entered, first, account=name, number=number, clock=clock, endpoint_url=endpoint_url)
            self._named.append((door, own))

    @property
    def all(self) -> list[Region]:
        """Every place; for `all` the account's enabled regions are asked for, once.

        Raises:
            CloudError: they could not be had.

        """
        with self._expanding:
            if self._all is None:
                self._all = [
                    door if region == door.region else door.beside(region)
                    for door, own in self._named
                    for region in (door.enabled() if ALL in own else own)
                ]
            return self._all

    def __str__(self) -> str:
        """Their names."""
        return ", ".join(place.name for place in self.all)

    @property
    def entrance(self) -> Region:
        """The first region with the credentials that we were given; the accounts' roles are assumed with these."""
        return self._named[0][0].entered(self._session)

    @property
    def homes(self) -> list[Region]:
        """One place of each account, the first."""
        return list({id(place.session): place for place in reversed(self.all)}.values())[::-1]

    def everywhere(self, ask: Callable[[Region], Answer]) -> list[Answer]:
        """Each place's answer; none at all if one place failed.

        Raises:
            CloudError: of the first place, in their order, that failed.

        """
        return everywhere(self.all, ask)

    def at(self, region: str | None, account: str | None) -> Region:
        """The first place of that region and account, where they are given.

        Raises:
            NotFoundError: the settings have no such place.

        """
        for place in self.all:
            if region in (None, place.region) and (account is None or account == place.account):
                return place
        asked = " of account ".join(filter(None, [region or "any region", account]))
        raise NotFoundError(f"{asked} is not among cloud.regions and cloud.aws.accounts: {self}")


class _Role(CredentialProvider):
    """Credentials of an assumed role, fetched when they are first used, and again before they expire."""

    METHOD = "gpuwatch-assume-role"

    def __init__(self, line: ClientPool, account: AccountSettings) -> None:
        """Nothing is asked yet."""
        super().__init__()
        self._line, self._account = line, account

    def load(self) -> DeferredRefreshableCredentials:
        """The role's credentials."""
        return DeferredRefreshableCredentials(refresh_using=self._fetch, method=self.METHOD)

    def _fetch(self) -> dict[str, str]:
        """Source: AssumeRole; botocore asks again some minutes before they expire."""
        role: Any = {"RoleArn": self._account.role_arn, "RoleSessionName": _SESSION_NAME}
        if self._account.external_id:
            role["ExternalId"] = self._account.external_id
        credentials = self._line.sts.assume_role(**role)["Credentials"]
        return {
            "access_key": credentials["AccessKeyId"],
            "secret_key": credentials["SecretAccessKey"],
            "token": credentials["SessionToken"],
            "expiry_time": credentials["Expiration"].isoformat(),
        }


def _assumed(line: ClientPool, account: AccountSettings) -> boto3.Session:
    """A session in another account, entered through `line`."""
    core = botocore.session.Session()
    core.register_component("data_loader", _LOADER)
    core.register_component("credential_provider", CredentialResolver([_Role(line, account)]))
    return boto3.Session(botocore_session=core)
