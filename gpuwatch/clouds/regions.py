"""Clouds of accounts and regions: each pair is a place with its own calls and its own pace."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from gpuwatch.clouds import CloudError, Leftover, NotFoundError
from gpuwatch.clouds.keys import Credentials
from gpuwatch.clouds.permissions import Identity, Permission
from gpuwatch.clouds.placed import Acts, Group, PlacedCloud, Where_contra
from gpuwatch.clouds.provider import ALL, AccountSettings
from gpuwatch.clouds.survey import CloudUse, Surveyed, elsewhere, every_place, use_by_place
from gpuwatch.model.fleet import Node, NodeGroup


class Account:
    """One account: its name in the settings (None where there is but one), and its number once that is known."""

    def __init__(self, name: str | None, number: str | None) -> None:
        """Nothing is asked yet."""
        self.name, self.number = name, number
        self.asking = threading.Lock()


class Region(ABC):
    """One account in one region."""

    def __init__(self, owner: Account, region: str) -> None:
        """Nothing is sent yet."""
        self.owner, self.region = owner, region
        self.name = f"{region} of account {owner.name}" if owner.name else region

    @abstractmethod
    def beside(self, region: str) -> Self:
        """Another region of the same account."""

    @abstractmethod
    def enabled_regions(self) -> Sequence[str]:
        """Ask for the names of the regions that the account may use; raises CloudError."""

    @abstractmethod
    def _ask_number(self) -> str:
        """Ask for the account's number; raises CloudError."""

    def holds(self, thing: Node | NodeGroup) -> bool:
        """Whether it is of this region, and of no other account as far as that is known."""
        return thing.region == self.region and thing.account in {None, self.owner.number or thing.account}

    @property
    def account(self) -> str:
        """The account's number: the role's, else asked for once.

        Raises:
            CloudError: no answer.

        """
        with self.owner.asking:
            if self.owner.number is None:
                self.owner.number = self._ask_number()
            return self.owner.number


AnyRegion = TypeVar("AnyRegion", bound=Region)
Described = TypeVar("Described")  # a machine as its cloud describes it


class Regions(Generic[AnyRegion]):
    """All places, in the order of the settings; the first is where a launch goes that names none.

    `entrance` is a place with the credentials that we were given; the accounts' roles are assumed with these.

    `doors` are a place of each account with the names of its regions, and `key` is the section of the accounts.
    """

    entrance: AnyRegion

    def __init__(self, doors: Sequence[tuple[AnyRegion, tuple[str, ...]]], *, key: str) -> None:
        """Nothing is sent yet."""
        self._doors, self._key = doors, key
        self._all: list[AnyRegion] | None = None
        self._expanding = threading.Lock()

    @property
    def all(self) -> list[AnyRegion]:
        """Every place; for `all` the account's regions are asked for once.

        Raises:
            CloudError: they could not be had.

        """
        with self._expanding:
            if self._all is None:
                self._all = [
                    door if region == door.region else door.beside(region)
                    for door, own in self._doors
                    for region in (door.enabled_regions() if ALL in own else own)
                ]
            return self._all

    def __str__(self) -> str:
        """Return the names of all regions."""
        return ", ".join(place.name for place in self.all)

    @property
    def homes(self) -> list[AnyRegion]:
        """One place of each account, the first."""
        return list({id(place.owner): place for place in reversed(self.all)}.values())[::-1]

    def place_at(self, region: str | None, account: str | None) -> AnyRegion:
        """The first place of that region and account, where they are given.

        Raises:
            NotFoundError: the settings have no such place.

        """
        for place in self.all:
            if region in (None, place.region) and (account is None or account == place.account):
                return place
        asked = " of account ".join(filter(None, [region or "any region", account]))
        raise NotFoundError(f"{asked} is not among cloud.regions and {self._key}: {self}")


def doors(
    accounts: Mapping[str, AccountSettings],
    regions: Sequence[str],
    door: Callable[[str | None, AccountSettings, tuple[str, ...]], AnyRegion],
    *,
    hint: str,
) -> list[tuple[AnyRegion, tuple[str, ...]]]:
    """Make a place of each account, with its regions; without accounts in the settings of the credentials' own.

    Raises:
        CloudError: there is no region: every list would be empty, and look like an empty fleet.

    """
    found = []
    for name, account in accounts.items() or [(None, AccountSettings())]:
        own = tuple(dict.fromkeys(account.regions or regions))
        if not own:
            raise CloudError(f"no region is known; set cloud.regions, for example {hint}", code="NoRegion")
        found.append((door(name, account, own), own))
    return found


class ActsOfRegions(Acts[Where_contra], Protocol[Where_contra]):
    """The same of a cloud of accounts and regions."""

    def protect(self, place: Where_contra, node_id: str, group_id: str, *, on: bool, fleet: str) -> None:
        """Set a member's protection against its group's own scale-in, or lift it."""
        ...

    def tag(self, place: Where_contra, node_id: str, tags: Mapping[str, str]) -> None:
        """Set tags; the others stay."""
        ...


class StandingInRegions(Protocol[Where_contra]):
    """What a cloud's module `standing` has for the base."""

    def identity(self, place: Where_contra) -> Identity:
        """Return who we are to the cloud."""
        ...

    def credentials(self, place: Where_contra) -> Credentials:
        """The long-lived keys by which the place knows us."""
        ...

    def may_read(self, place: Where_contra) -> Iterable[Permission]:
        """Try what is read in a place."""
        ...


class LooksAtRegions(Protocol[Where_contra]):
    """What a cloud's module `survey` has for the base; the machines that are named are those of the place."""

    def list_unused(self, place: Where_contra, stopped: frozenset[str]) -> Iterable[Leftover]:
        """What nothing uses, and what belongs to these stopped machines."""
        ...

    def old_images(self, place: Where_contra, now: datetime) -> Iterable[Leftover]:
        """Images that nothing names."""
        ...

    def disks_in_use(self, place: Where_contra, node_ids: frozenset[str]) -> Iterable[Leftover]:
        """Disks of these machines."""
        ...

    def unencrypted_disks(self, place: Where_contra, node_ids: frozenset[str]) -> Iterable[str]:
        """Disks of these machines that are not encrypted, for people."""
        ...

    def use_in(
        self, place: Where_contra, node_ids: Sequence[str], begin: datetime, end: datetime
    ) -> Mapping[str, CloudUse]:
        """What the cloud's monitor says of machines of the place."""
        ...


class RegionCloud(PlacedCloud[AnyRegion, Group], Generic[AnyRegion, Described, Group]):
    """What clouds of accounts and regions have in common in addition."""

    NO_SUCH: ClassVar[str]  # the cloud's code for a machine that it does not know
    acts: ActsOfRegions[AnyRegion]
    own: StandingInRegions[AnyRegion]  # its module `standing`
    looks: LooksAtRegions[AnyRegion]  # its module `survey`
    _places: Regions[AnyRegion]

    @property
    def _all(self) -> Sequence[AnyRegion]:
        return self._places.all

    def _place_of(self, region: str | None, account: str | None) -> AnyRegion:
        return self._places.place_at(region, account)

    def _place_for(self, arguments: Mapping[str, str]) -> AnyRegion:
        """The place of a launch."""
        return self._places.place_at(arguments.get("region") or None, arguments.get("account") or None)

    @abstractmethod
    def _describe_machine(self, place: AnyRegion, node_id: str) -> Described:
        """Look for one machine in a place; raises NotFoundError where it is not there."""

    def _home(self, node_id: str) -> AnyRegion:
        """Find the place of an id; costs a call only where there are several and none has shown it yet."""
        places = self._candidates(node_id)
        return places[0] if len(places) == 1 else self._find_machine(node_id)[0]

    def _find_machine(self, node_id: str) -> tuple[AnyRegion, Described]:
        """Ask each place that may have it."""
        for place in self._candidates(node_id):
            try:
                found = self._describe_machine(place, node_id)
            except NotFoundError:
                continue
            self._homes[node_id] = place
            return place, found
        raise NotFoundError(f"{self.SERVICE} knows no machine {node_id} in {self._names}", code=self.NO_SUCH)

    def _candidates(self, node_id: str) -> Sequence[AnyRegion]:
        """The places in which an id may be found: its own, if that is known."""
        return [self._homes[node_id]] if node_id in self._homes else self._all

    def _machine_to_try(self, place: AnyRegion, node_ids: Iterable[str]) -> str | None:
        """One of these machines that is in the place."""
        return next((node_id for node_id in node_ids if self._homes.get(node_id) is place), None)

    def _protect(self, node_id: str, group_id: str, *, on: bool) -> None:
        self.acts.protect(self._home_of_group(group_id), node_id, group_id, on=on, fleet=self._fleet)

    def _tag(self, node_id: str, tags: Mapping[str, str]) -> None:
        self.acts.tag(self._home(node_id), node_id, tags)

    # Our own standing, and what people look at.

    def identity(self) -> Identity:
        """In the first place."""
        return self.own.identity(self._places.all[0])

    def credentials(self) -> Credentials:
        """Those that we were given."""
        return self.own.credentials(self._places.entrance)

    def _may_read(self, place: AnyRegion) -> Iterable[Permission]:
        return self.own.may_read(place)

    def _list_unused(self, place: AnyRegion, stopped: frozenset[str], now: datetime) -> Iterable[Leftover]:
        return [*self.looks.list_unused(place, self._here(place, stopped)), *self.looks.old_images(place, now)]

    def _disks_in_use(self, place: AnyRegion, node_ids: frozenset[str]) -> Iterable[Leftover]:
        return self.looks.disks_in_use(place, self._here(place, node_ids))

    def _unencrypted_disks(self, place: AnyRegion, node_ids: frozenset[str]) -> Iterable[str]:
        return self.looks.unencrypted_disks(place, self._here(place, node_ids))

    def _here(self, place: AnyRegion, node_ids: Iterable[str]) -> frozenset[str]:
        """Those of these machines that are, or may be, in the place."""
        return frozenset(node_id for node_id in node_ids if self._homes.get(node_id, place) is place)

    # For people who look for forgotten machines.

    @abstractmethod
    def _apart(self) -> Callable[[AnyRegion], Iterable[Node]]:
        """What lists the GPU machines of a place, whether the settings name it or not; nothing of it is remembered."""

    def elsewhere(self) -> Sequence[Surveyed]:
        """GPU machines in regions of our accounts that the settings do not name; they are never acted on."""
        return elsewhere(self._places, self._apart())

    def survey(self) -> Sequence[Surveyed]:
        """GPU machines in every region of each account, those of the settings first."""
        return every_place(self._places, self._apart())

    def use_of(self, nodes: Sequence[Node], seconds: float) -> Mapping[str, CloudUse]:
        """By the cloud's monitor, in the region and the account of each."""
        return use_by_place(self._places, nodes, self.looks.use_in, self._clock.now(), seconds)
