"""Accounts and regions: each pair is a place with its own calls and its own pace."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.clouds.alibaba import credentials
from gpuwatch.clouds.alibaba.client import Client
from gpuwatch.clouds.alibaba.credentials import Source
from gpuwatch.clouds.alibaba.settings import AccountSettings
from gpuwatch.clouds.alibaba.wire import Wire
from gpuwatch.clouds.errors import reading
from gpuwatch.clouds.provider import ALL
from gpuwatch.clouds.rate_limit import RateLimiter
from gpuwatch.model.fleet import Node, NodeGroup
from gpuwatch.runtime.clock import Clock

# A part of Alibaba's own limits of an account in a region, which differ by call and are 100 a minute for some.
_READS_PER_SECOND, _READS_AT_ONCE = 8.0, 40
_ACTS_PER_SECOND, _ACTS_AT_ONCE = 1.5, 15
_FIRST_REGION = "cn-hangzhou"  # knows the names of all others


class Account:
    """One account: its name in the settings (None where there is but one), its credentials, its number."""

    def __init__(self, name: str | None, key: Source, number: str | None) -> None:
        """Nothing is asked yet."""
        self.name, self.key, self.number = name, key, number


class Region:
    """One account in one region. `reading` is for lists; `acting` for changes and what is asked right before them."""

    def __init__(self, account: Account, region: str, *, clock: Clock, wire: Wire, endpoint_url: str | None) -> None:
        """Nothing is sent yet."""
        self.region, self.owner = region, account
        self.name = f"{region} of account {account.name}" if account.name else region
        self._options: dict[str, Any] = {"clock": clock, "wire": wire, "endpoint_url": endpoint_url}
        own: dict[str, Any] = {"region": region, "where": self.name, "key": account.key, **self._options}
        reads = RateLimiter(clock, per_second=_READS_PER_SECOND, burst=_READS_AT_ONCE)
        acts = RateLimiter(clock, per_second=_ACTS_PER_SECOND, burst=_ACTS_AT_ONCE)
        self.reading = Client(**own, pace=reads)
        self.acting = Client(**own, pace=acts)

    def beside(self, region: str) -> "Region":
        """Another region of the same account."""
        return Region(self.owner, region, **self._options)

    def holds(self, thing: Node | NodeGroup) -> bool:
        """Whether it is of this region, and of no other account as far as that is known."""
        return thing.region == self.region and thing.account in {None, self.owner.number or thing.account}

    @property
    def account(self) -> str:
        """The account's number: the role's, else asked for once. Source: GetCallerIdentity, which needs no permission.

        Raises:
            CloudError: no answer.

        """
        if self.owner.number is None:
            call = "sts:GetCallerIdentity"
            answer = self.reading.ask(call, {})
            with reading(self.reading.asked(call)):
                self.owner.number = str(answer["AccountId"])
        return self.owner.number

    def enabled(self) -> list[str]:
        """The names of the regions that the account can use. Source: DescribeRegions."""
        call = "ecs:DescribeRegions"
        answer = self.reading.ask(call, {})
        with reading(self.reading.asked(call)):
            return sorted(each["RegionId"] for each in answer["Regions"]["Region"])


class Regions:
    """All places, in the order of the settings; the first is where a launch goes that names none."""

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
            CloudError: there is no region: every list would be empty, and look like an empty fleet.

        """
        self._listing = threading.Lock()
        self._places: list[Region] = []
        options: dict[str, Any] = {"clock": clock, "wire": wire, "endpoint_url": endpoint_url}
        given = Account(None, credentials.source(provider, "the controller"), None)
        self.entrance = Region(given, _FIRST_REGION, **options)  # with what we were given; it assumes the roles
        for name, account in accounts.items() or [(None, AccountSettings())]:
            own = tuple(dict.fromkeys(account.regions or regions))
            if not own:
                raise CloudError("no region is known; set cloud.regions, for example [cn-shanghai]")
            entered, number = provider, None
            if account.role_arn is not None:
                entered = credentials.of_role(provider, account.role_arn, account.external_id)
                number = account.number
            whose = "the controller" if name is None else f"account {name}"
            owner = Account(name, credentials.source(entered, whose), number)
            self._places += [Region(owner, region, **options) for region in own]

    @property
    def all(self) -> list[Region]:
        """Every place; where the settings say `all`, the account is asked for its regions, once.

        Raises:
            CloudError: they could not be listed.

        """
        with self._listing:
            if any(place.region == ALL for place in self._places):
                self._places = [each for place in self._places for each in _resolved(place)]
            return self._places

    def __str__(self) -> str:
        """Their names."""
        return ", ".join(place.name for place in self._places)

    @property
    def homes(self) -> list[Region]:
        """One place of each account, the first."""
        return list({id(place.owner): place for place in reversed(self.all)}.values())[::-1]

    def at(self, region: str | None, account: str | None) -> Region:
        """The first place of that region and account, where they are given.

        Raises:
            NotFoundError: the settings have no such place.

        """
        for place in self.all:
            if region in (None, place.region) and (account is None or account == place.account):
                return place
        asked = " of account ".join(filter(None, [region or "any region", account]))
        raise NotFoundError(f"{asked} is not among cloud.regions and cloud.alibaba.accounts: {self}")


def _resolved(place: Region) -> list[Region]:
    if place.region != ALL:
        return [place]
    return [place.beside(region) for region in place.beside(_FIRST_REGION).enabled()]
