"""Accounts and regions: each pair is a place with its own ways to ask and its own pace."""

import threading
from collections.abc import Mapping, Sequence
from functools import partial

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.clouds.provider import ALL
from gpuwatch.clouds.tencent.client import Line
from gpuwatch.clouds.tencent.credentials import AssumedRole, Signer, own_credentials
from gpuwatch.clouds.tencent.settings import TencentAccountSettings, account_of
from gpuwatch.model.fleet import Node, NodeGroup
from gpuwatch.runtime.clock import Clock

_ANY_REGION = "ap-guangzhou"  # for calls that are about no region


class Place:
    """One account in one region. `reading` is for lists; `acting` for changes and what is asked right before them."""

    def __init__(
        self,
        *,
        signer: Signer,
        region: str,
        account: str | None,
        number: str | None,
        clock: Clock,
        endpoint_url: str | None,
        timeouts: tuple[float, float],
    ) -> None:
        """Nothing is sent yet. `account` is its name in the settings, where there are several; `number` its uin."""
        self.region, self.signer = region, signer
        self.name = f"{region} of account {account}" if account else region
        self._beside = partial(
            Place,
            signer=signer,
            account=account,
            number=number,
            clock=clock,
            endpoint_url=endpoint_url,
            timeouts=timeouts,
        )
        self._number = number
        self._asking = threading.Lock()
        line = partial(
            Line,
            signer=signer,
            region=region,
            where=self.name,
            clock=clock,
            endpoint_url=endpoint_url,
            timeouts=timeouts,
        )
        self.reading, self.acting = line(), line(once=True)

    def beside(self, region: str) -> "Place":
        """Another region of the same account."""
        return self._beside(region=region)

    def holds(self, thing: Node | NodeGroup) -> bool:
        """Whether it is of this region, and of no other account as far as that is known."""
        return thing.region == self.region and thing.account in {None, self._number or thing.account}

    @property
    def account(self) -> str:
        """The account's number (uin): the role's, else asked for once. Source: GetCallerIdentity.

        Raises:
            CloudError: no answer.

        """
        with self._asking:
            if self._number is None:
                self._number = str(self.reading.ask("sts", "GetCallerIdentity")["AccountId"])
            return self._number

    def enabled(self) -> tuple[str, ...]:
        """The regions that the account may use. Source: DescribeRegions.

        Raises:
            CloudError: no answer.

        """
        found = self.reading.ask("cvm", "DescribeRegions")["RegionSet"]
        return tuple(sorted(each["Region"] for each in found if each.get("RegionState") == "AVAILABLE"))


class Places:
    """All places, in the order of the settings; the first is where a launch goes that names none."""

    def __init__(
        self,
        *,
        regions: Sequence[str],
        accounts: Mapping[str, TencentAccountSettings],
        key_file: str | None,
        clock: Clock,
        endpoint_url: str | None,
        timeouts: tuple[float, float],
    ) -> None:
        """Nothing is sent yet.

        Raises:
            CloudError: there is no region: every list would be empty, and look like an empty fleet.

        """
        signer: Signer = own_credentials(key_file)
        place = partial(Place, clock=clock, endpoint_url=endpoint_url, timeouts=timeouts)
        # With what we were given; it assumes the roles.
        self.entrance = place(signer=signer, region=_ANY_REGION, account=None, number=None)
        self._all: list[Place] | None = None
        self._expanding = threading.Lock()
        self._named: list[tuple[Place, tuple[str, ...]]] = []  # a door to each account, and its regions
        for name, account in accounts.items() or [(None, TencentAccountSettings())]:
            own = tuple(dict.fromkeys(account.regions or regions))
            if not own:
                raise CloudError("no region is known; set cloud.regions, for example [ap-guangzhou]", code="NoRegion")
            region = _ANY_REGION if ALL in own else own[0]
            door, number = place(signer=signer, region=region, account=name, number=None), None
            if account.role_arn is not None:
                number = account_of(account.role_arn)
                role = AssumedRole(account, partial(_assume, door), clock)
                door = place(signer=role, region=region, account=name, number=number)
            self._named.append((door, own))

    @property
    def all(self) -> list[Place]:
        """Every place; for `all` the account's regions are asked for once.

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
    def homes(self) -> list[Place]:
        """One place of each account, the first."""
        return list({id(place.signer): place for place in reversed(self.all)}.values())[::-1]

    def at(self, region: str | None, account: str | None) -> Place:
        """The first place of that region and account, where they are given.

        Raises:
            NotFoundError: the settings have no such place.

        """
        for place in self.all:
            if region in (None, place.region) and (account is None or account == place.account):
                return place
        asked = " of account ".join(filter(None, [region or "any region", account]))
        raise NotFoundError(f"{asked} is not among cloud.regions and cloud.tencent.accounts: {self}")


def _assume(door: Place, wanted: Mapping[str, object]) -> Mapping[str, object]:
    return door.reading.ask("sts", "AssumeRole", **wanted)
