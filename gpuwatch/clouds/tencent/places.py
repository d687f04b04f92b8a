"""Accounts and regions: each pair is a place with its own ways to ask and its own pace."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

from gpuwatch.clouds import regions
from gpuwatch.clouds.errors import reading
from gpuwatch.clouds.provider import ALL, AccountSettings
from gpuwatch.clouds.regions import Account, doors
from gpuwatch.clouds.tencent.client import Line
from gpuwatch.clouds.tencent.credentials import AssumedRole, Renewed, Signer, own_credentials
from gpuwatch.clouds.tencent.settings import TencentSettings
from gpuwatch.runtime.clock import Clock

_ANY_REGION = "ap-guangzhou"  # for calls that are about no region


class Region(regions.Region):
    """One account in one region. `reading` is for lists; `acting` for changes and what is asked right before them."""

    def __init__(
        self,
        owner: Account,
        region: str,
        signer: Signer,
        *,
        clock: Clock,
        endpoint_url: str | None,
        timeouts: tuple[float, float],
    ) -> None:
        """Nothing is sent yet."""
        super().__init__(owner, region)
        self.signer = signer
        self._options: dict[str, Any] = {"clock": clock, "endpoint_url": endpoint_url, "timeouts": timeouts}
        line = partial(Line, signer=signer, region=region, where=self.name, **self._options)
        self.reading, self.acting = line(), line(once=True)

    def beside(self, region: str) -> Self:
        """Another region of the same account."""
        return type(self)(self.owner, region, self.signer, **self._options)

    def enabled_regions(self) -> list[str]:
        """The regions that the account may use. Source: DescribeRegions.

        Raises:
            CloudError: no answer.

        """
        answer = self.reading.ask("cvm", call := "DescribeRegions")
        with reading(self.reading.name_call(call)):
            return sorted(each["Region"] for each in answer["RegionSet"] if each.get("RegionState") == "AVAILABLE")

    def _ask_number(self) -> str:
        """Its uin. Source: GetCallerIdentity."""
        answer = self.reading.ask("sts", call := "GetCallerIdentity")
        with reading(self.reading.name_call(call)):
            return str(answer["AccountId"])


class Regions(regions.Regions[Region]):
    """All places of Tencent Cloud."""

    def __init__(
        self,
        *,
        regions: Sequence[str],
        accounts: Mapping[str, AccountSettings],
        key_file: str | None,
        clock: Clock,
        endpoint_url: str | None,
        timeouts: tuple[float, float],
    ) -> None:
        """Nothing is sent yet.

        Raises:
            CloudError: there is no region.

        """
        signer: Signer = own_credentials(key_file, clock)
        options: dict[str, Any] = {"clock": clock, "endpoint_url": endpoint_url, "timeouts": timeouts}

        def door(name: str | None, account: AccountSettings, own: tuple[str, ...]) -> Region:
            first = Region(Account(name, None), _ANY_REGION if ALL in own else own[0], signer, **options)
            if account.role_arn is None:
                return first
            role = Renewed(lambda: AssumedRole(account, partial(_assume, first), clock), clock)
            owner = Account(name, TencentSettings.account_of(account.role_arn))
            return Region(owner, first.region, role, **options)

        super().__init__(doors(accounts, regions, door, hint="[ap-guangzhou]"), key="cloud.tencent.accounts")
        # With what we were given; it assumes the roles.
        self.entrance = Region(Account(None, None), _ANY_REGION, signer, **options)


def _assume(door: Region, wanted: Mapping[str, object]) -> Mapping[str, object]:
    return door.reading.ask("sts", "AssumeRole", **wanted)
