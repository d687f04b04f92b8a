"""Accounts and regions: each pair is a place with its own clients and its own pace."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

import boto3
import botocore.session
from botocore.credentials import CredentialProvider, CredentialResolver, DeferredRefreshableCredentials

from gpuwatch.clouds import regions
from gpuwatch.clouds.aws.client import ClientPool
from gpuwatch.clouds.aws.errors import asking
from gpuwatch.clouds.aws.settings import AwsSettings
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.provider import ALL, AccountSettings
from gpuwatch.clouds.regions import Account, doors
from gpuwatch.clouds.sending import sending
from gpuwatch.runtime.clock import Clock

_SESSION_NAME = "gpuwatch"  # in CloudTrail
# Where an account is asked for its regions if no region is set for the credentials, either. The regions of another
# partition (China, GovCloud) are known to that partition alone: there AWS_DEFAULT_REGION must name one of them.
_ANY_REGION = "us-east-1"
_CLOSED = "not-opted-in"


class Region(regions.Region):
    """One account in one region. `reading` is for lists; `acting` for mutations and what is asked right before them."""

    def __init__(
        self, owner: Account, region: str, session: boto3.Session, *, clock: Clock, endpoint_url: str | None
    ) -> None:
        """Nothing is sent yet."""
        super().__init__(owner, region)
        self.session, self.clock = session, clock
        self._options: dict[str, Any] = {"clock": clock, "endpoint_url": endpoint_url}
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

    def beside(self, region: str) -> Self:
        """Another region of the same account."""
        return type(self)(self.owner, region, self.session, **self._options)

    def with_session(self, session: boto3.Session) -> Self:
        """The same region with other credentials, and their own account."""
        return type(self)(Account(None, None), self.region, session, **self._options)

    def enabled_regions(self) -> list[str]:
        """The regions that the account may use, without those that are disabled or not opted in.

        Source: DescribeRegions without AllRegions.

        Raises:
            CloudError: no answer.

        """
        with self.asking("DescribeRegions"):
            found = self.reading.ec2.describe_regions()["Regions"]
            return sorted(each["RegionName"] for each in found if each.get("OptInStatus") != _CLOSED)

    def _ask_number(self) -> str:
        """Source: GetCallerIdentity, which needs no permission."""
        with self.asking("GetCallerIdentity", service="STS"):
            return self.reading.sts.get_caller_identity()["Account"]


class Regions(regions.Regions[Region]):
    """All places of AWS."""

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
            CloudError: there is no region.

        """
        options: dict[str, Any] = {"clock": clock, "endpoint_url": endpoint_url}

        def door(name: str | None, account: AccountSettings, own: tuple[str, ...]) -> Region:
            first = (session.region_name or _ANY_REGION) if ALL in own else own[0]
            entered, number = session, None
            if account.role_arn is not None:
                line = ClientPool.for_reading(session, first, endpoint_url, clock)
                entered, number = _assume_role(line, account), AwsSettings.account_of(account.role_arn)
            return Region(Account(name, number), first, entered, **options)

        named = regions or tuple(filter(None, [session.region_name]))
        super().__init__(
            doors(accounts, named, door, hint="[us-east-1], or AWS_DEFAULT_REGION"), key="cloud.aws.accounts"
        )
        # The first region with the credentials that we were given; the accounts' roles are assumed with these.
        self.entrance = self._doors[0][0].with_session(session)


class _Role(CredentialProvider):
    """Credentials of an assumed role, fetched when they are first used, and again before they expire."""

    METHOD = "gpuwatch-assume-role"

    def __init__(self, line: ClientPool, account: AccountSettings) -> None:
        """Nothing is asked yet."""
        super().__init__()
        self._line, self._account = line, account

    def load(self) -> DeferredRefreshableCredentials:
        """Return the credentials of the role."""
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


def _assume_role(line: ClientPool, account: AccountSettings) -> boto3.Session:
    """A session in another account, entered through `line`."""
    core = botocore.session.Session()
    core.register_component("credential_provider", CredentialResolver([_Role(line, account)]))
    return boto3.Session(botocore_session=core)
