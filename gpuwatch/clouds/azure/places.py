"""Subscriptions: each is a place that is asked by itself, with its own pace. A list is of all its regions together."""

import hashlib
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuwatch.clouds.azure.client import Answer, Line, Renewing
from gpuwatch.clouds.azure.settings import SubscriptionSettings
from gpuwatch.clouds.errors import AuthFailedError, CloudError, NotFoundError
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.provider import ALL
from gpuwatch.model.fleet import Node, NodeGroup
from gpuwatch.runtime.clock import Clock

# The ids of Azure's resources, which are paths. Azure does not keep their case: compare them by `same`.
#
# /subscriptions/SUB/resourceGroups/GROUP/providers/Microsoft.Compute/virtualMachines/NAME

_SUBSCRIPTION, _GROUP = 1, 3
COMPUTE = "Microsoft.Compute"


def same(path: str) -> str:
    """The form in which two ids of one resource are equal."""
    return path.strip("/").lower()


def name_of(path: str) -> str:
    """Return the last part of a resource's path."""
    return path.rstrip("/").rpartition("/")[2]


def subscription_of(path: str) -> str:
    """The subscription's id in small letters; "" if the path names none."""
    parts = path.strip("/").split("/")
    return parts[_SUBSCRIPTION].lower() if len(parts) > _SUBSCRIPTION and parts[0].lower() == "subscriptions" else ""


def group_of(path: str) -> str:
    """The resource group; "" if the path names none."""
    parts = path.strip("/").split("/")
    return parts[_GROUP] if len(parts) > _GROUP and parts[2].lower() == "resourcegroups" else ""


def scale_set_of(path: str) -> str | None:
    """The scale set of a member of a Uniform scale set; None: it is a machine by itself."""
    parts = path.strip("/").split("/")
    if len(parts) == 10 and parts[6].lower() == "virtualmachinescalesets":  # noqa: PLR2004  …/NAME/virtualMachines/ID
        return "/" + "/".join(parts[:8])
    return None


def machine(subscription: str, group: str, name: str) -> str:
    """The id of a virtual machine."""
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{COMPUTE}/virtualMachines/{name}"


def name_for(key: str) -> str:
    """The name of the machine that is launched with a key: letters and digits, and as long as a host's name may be."""
    return f"gpuwatch-{hashlib.sha256(key.encode()).hexdigest()[:24]}"


def region_name(text: str) -> str:
    """A region's name in one form: Azure and people write West US 3, WestUS3 and westus3."""
    return text.replace(" ", "").lower()


log = logging.getLogger(__name__)

_AGAIN_SECONDS = 3600.0  # after which the resource groups are asked for again; a new one is asked for at once
_SOON_SECONDS = 60.0  # after no answer


class ResourceGroups:
    """Which resource manages each resource group of a subscription: a cluster, a workspace, an application.

    A service that makes such a group says so (`managedBy`), whatever the group is called. Where the groups may not be
    seen, the names and tags of `owners.py` tell alone. Any thread may ask.
    """

    def __init__(self, clock: Clock) -> None:
        """Nothing is asked yet."""
        self.clock = clock
        self._managers: dict[str, str] | None = None  # of those that have one
        self._known: set[str] = set()
        self._due_at = 0.0
        self._denied = False
        self._lock = threading.Lock()

    def manager(self, place: "Subscription", group: str) -> str | None:
        """The id of what manages a resource group; None: nothing does, or nobody may see it.

        Raises:
            CloudError: no answer, and there never was one.

        """
        key = group.lower()
        with self._lock:
            now = self.clock.monotonic()
            if self._managers is None or now >= self._due_at or key not in self._known:
                self._learn(place, now)
            self._known.add(key)
            return (self._managers or {}).get(key)

    def _learn(self, place: "Subscription", now: float) -> None:
        """Source: Resource Groups List."""
        try:
            listed = place.list_all(f"{place.root}/resourcegroups", version="resources")
        except AuthFailedError as error:
            if not self._denied:
                log.warning("%s: what services of Azure manage is known by names and tags alone", error)
            self._denied, self._due_at, self._managers = True, now + _AGAIN_SECONDS, self._managers or {}
        except CloudError:
            if self._managers is None:
                raise
            self._due_at = now + _SOON_SECONDS
        else:
            found = {str(each.get("name", "")).lower(): str(each.get("managedBy") or "") for each in listed}
            self._denied, self._due_at, self._known = False, now + _AGAIN_SECONDS, {*found}
            self._managers = {name: manager for name, manager in found.items() if manager}


@dataclass(frozen=True, slots=True, eq=False)  # a place is equal to itself alone
class Subscription:
    """One subscription. `regions` are those that are looked at, in one form; none: all."""

    id: str
    account: str  # its name in the settings
    regions: frozenset[str]
    line: Line = field(repr=False)
    groups: ResourceGroups = field(repr=False)

    @property
    def name(self) -> str:
        """Return the subscription's name for messages."""
        return f"subscription {self.account}"

    @property
    def root(self) -> str:
        """The path of the subscription."""
        return f"/subscriptions/{self.id}"

    def holds(self, thing: Node | NodeGroup) -> bool:
        """Whether it is of this subscription, where it is looked at."""
        return thing.account == self.id and self.covers(thing.region)

    def covers(self, region: str) -> bool:
        """Whether machines there are looked at."""
        return not self.regions or region_name(region) in self.regions

    def manager_of(self, path: str) -> str | None:
        """The id of what manages the resource group of a resource; raises CloudError."""
        group = group_of(path)
        return self.groups.manager(self, group) if group else None

    def get(self, path: str, *, version: str = "compute", urgent: bool = False, **query: str) -> Answer:
        """A read of one thing."""
        return self.line.get(path, version=version, where=self.name, urgent=urgent, **query)

    def list_all(self, path: str, *, version: str = "compute", **query: str) -> list[dict[str, Any]]:
        """A list to its last page."""
        return self.line.list_all(path, version=version, where=self.name, **query)

    def everything(
        self, kind: str, *, provider: str = COMPUTE, version: str = "compute", **query: str
    ) -> list[dict[str, Any]]:
        """All resources of a kind in the subscription."""
        return self.list_all(f"{self.root}/providers/{provider}/{kind}", version=version, **query)

    def change(
        self,
        method: str,
        path: str,
        permit: Permit | None,
        *,
        version: str = "compute",
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """A change, sent once."""
        return self.line.change(
            method, path, version=version, where=self.name, permit=permit, body=body, headers=headers
        )

    def beside(self, number: str, account: str) -> "Subscription":
        """Another subscription that the same credentials may see."""
        return Subscription(number, account, frozenset(), self.line, ResourceGroups(self.groups.clock))

    def beside_path(self, path: str) -> "Subscription":
        """The subscription of a resource, for a read."""
        return self.beside(subscription_of(path), subscription_of(path))


class Subscriptions:
    """All places, in the order of the settings; the first is where a launch goes that names none."""

    def __init__(
        self,
        *,
        credential: Renewing,
        subscriptions: Mapping[str, SubscriptionSettings],
        regions: Sequence[str],
        base: str,
        scope: str,
        clock: Clock,
        options: Mapping[str, Any],
    ) -> None:
        """Nothing is sent yet.

        Raises:
            CloudError: there is no subscription: every list would be empty, and look like an empty fleet.

        """
        if not subscriptions:
            raise CloudError(
                "no subscription is known; set cloud.azure.subscriptions, for example {main: {id: 00000000-0000-0000-"
                "0000-000000000000}}, or AZURE_SUBSCRIPTION_ID"
            )
        self.all = [
            Subscription(
                (each.id or "").lower(),
                name,
                _regions_to_look_at(each.regions or regions),
                Line(credential, base, scope=scope, clock=clock, options=options),
                ResourceGroups(clock),
            )
            for name, each in subscriptions.items()
        ]

    def __str__(self) -> str:
        """Return the names of all subscriptions."""
        return ", ".join(place.name for place in self.all)

    def place_at(self, account: str | None) -> Subscription:
        """The place with that name or id; None: the first.

        Raises:
            NotFoundError: the settings have no such place.

        """
        for place in self.all:
            if account is None or account.lower() in (place.account.lower(), place.id):
                return place
        raise NotFoundError(f"{account!r} is not among cloud.azure.subscriptions: {self}")

    def of_path(self, path: str) -> Subscription:
        """The place of a resource's id; raises CloudError."""
        number = subscription_of(path)
        if not number:
            raise NotFoundError(f"{path!r} is no id of a resource in Azure", code="ResourceNotFound")
        return self.place_at(number)


def _regions_to_look_at(regions: Sequence[str]) -> frozenset[str]:
    named = frozenset(region_name(region) for region in regions)
    return frozenset() if ALL in named else named
