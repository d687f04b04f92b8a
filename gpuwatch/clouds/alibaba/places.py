"""Accounts and regions: each pair is a place with its own calls and its own pace."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from gpuwatch.clouds import regions
from gpuwatch.clouds.alibaba import client
from gpuwatch.clouds.alibaba.client import Client, Source, Wire
from gpuwatch.clouds.alibaba.settings import AlibabaSettings
from gpuwatch.clouds.errors import reading
from gpuwatch.clouds.provider import ALL, AccountSettings
from gpuwatch.clouds.rate_limit import RateLimiter
from gpuwatch.clouds.regions import Account, doors
from gpuwatch.runtime.clock import Clock

# A part of Alibaba's own limits of an account in a region, which differ by call and are 100 a minute for some.
_READS_PER_SECOND, _READS_AT_ONCE = 8.0, 40
_ACTS_PER_SECOND, _ACTS_AT_ONCE = 1.5, 15
_FIRST_REGION = "cn-hangzhou"  # knows the names of all others


class Owner(Account):
    """One account with its credentials."""

    def __init__(self, name: str | None, number: str | None, key: Source) -> None:
        """Nothing is asked yet."""
        super().__init__(name, number)
        self.key = key


class Region(regions.Region):
    """One account in one region. `reading` is for lists; `acting` for changes and what is asked right before them."""

    owner: Owner

    def __init__(self, owner: Owner, region: str, *, clock: Clock, wire: Wire, endpoint_url: str | None) -> None:
        """Nothing is sent yet."""
        super().__init__(owner, region)
        self._options: dict[str, Any] = {"clock": clock, "wire": wire, "endpoint_url": endpoint_url}
        own: dict[str, Any] = {"region": region, "where": self.name, "key": owner.key, **self._options}
        reads = RateLimiter(clock, per_second=_READS_PER_SECOND, burst=_READS_AT_ONCE)
        acts = RateLimiter(clock, per_second=_ACTS_PER_SECOND, burst=_ACTS_AT_ONCE)
        self.reading = Client(**own, pace=reads)
        self.acting = Client(**own, pace=acts)

    def beside(self, region: str) -> Self:
        """Another region of the same account."""
        return type(self)(self.owner, region, **self._options)

    def enabled_regions(self) -> list[str]:
        """The names of the regions that the account can use. Source: DescribeRegions."""
        call = "ecs:DescribeRegions"
        answer = self.reading.ask(call, {})
        with reading(self.reading.name_call(call)):
            return sorted(each["RegionId"] for each in answer["Regions"]["Region"])

    def _ask_number(self) -> str:
        """Source: GetCallerIdentity, which needs no permission."""
        call = "sts:GetCallerIdentity"
        answer = self.reading.ask(call, {})
        with reading(self.reading.name_call(call)):
            return str(answer["AccountId"])


class Regions(regions.Regions[Region]):
    """All places of Alibaba Cloud."""

    def __init__(
        self,
        *,
        provider: Any,  # noqa: ANN401  the SDK has no types
        regions: Sequence[str],
        accounts: Mapping[str, AccountSettings],
        clock: Clock,
        wire: Wire,
        endpoint_url: str | None,
    ) -> None:
        """Nothing is sent yet; roles are assumed at the first call.

        Raises:
            CloudError: there is no region.

        """
        options: dict[str, Any] = {"clock": clock, "wire": wire, "endpoint_url": endpoint_url}

        def door(name: str | None, account: AccountSettings, own: tuple[str, ...]) -> Region:
            entered, number = provider, None
            if account.role_arn is not None:
                entered = client.of_role(provider, account.role_arn, account.external_id)
                number = AlibabaSettings.account_of(account.role_arn) or None
            whose = "the controller" if name is None else f"account {name}"
            owner = Owner(name, number, client.source(entered, whose, clock))
            return Region(owner, _FIRST_REGION if ALL in own else own[0], **options)

        super().__init__(doors(accounts, regions, door, hint="[cn-shanghai]"), key="cloud.alibaba.accounts")
        given = Owner(None, None, client.source(provider, "the controller", clock))
        self.entrance = Region(given, _FIRST_REGION, **options)  # with what we were given; it assumes the roles
