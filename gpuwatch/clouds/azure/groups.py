"""Scale sets in our words. A group is known by its resource id in small letters.

Azure gives scale sets no bounds. If an autoscale setting drives one, its bounds are the group's. In both kinds of scale
sets a member's end takes its place too: Azure makes no new one by itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuwatch.clouds.azure import instances
from gpuwatch.clouds.azure.instances import Machine
from gpuwatch.clouds.azure.owners import managed_by
from gpuwatch.clouds.azure.places import Subscription, group_of, region_name, same, subscription_of
from gpuwatch.clouds.groups import Owned
from gpuwatch.clouds.tags import tags_in_any_case
from gpuwatch.model.fleet import GroupRefusal, NodeGroup

KIND = "virtualMachineScaleSets"
_MOST_MEMBERS = 1000  # page "What are Virtual Machine Scale Sets?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Of an autoscale setting that is switched on; the narrowest of its profiles."""

    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSet(Owned):
    """One scale set, as Azure describes it."""

    described: Mapping[str, Any]
    bounds: Bounds | None = None
    manager: str | None = None  # of its resource group

    @property
    def path(self) -> str:
        """Its resource id as Azure spells it."""
        return str(self.described["id"])

    @property
    def id(self) -> str:
        """Its resource id in one form."""
        return f"/{same(self.path)}"

    @property
    def name(self) -> str:
        """Return the scale set's name."""
        return str(self.described.get("name", ""))

    @property
    def uniform(self) -> bool:
        """Whether its members are made by one profile and named by numbers; older answers do not tell the mode."""
        mode = (self.described.get("properties") or {}).get("orchestrationMode") or "Uniform"
        return str(mode).lower() == "uniform"

    @property
    def tags(self) -> dict[str, str]:
        """Return the scale set's tags."""
        return tags_in_any_case(self.described.get("tags"))

    @property
    def size(self) -> str | None:
        """The type of its members; None: mixed (`Mix`), or not known."""
        name = str((self.described.get("sku") or {}).get("name") or "")
        return name if name and name != "Mix" else None

    @property
    def desired(self) -> int | None:
        """How many members it wants; None: it keeps no number."""
        capacity = (self.described.get("sku") or {}).get("capacity")
        return capacity if isinstance(capacity, int) else None

    @property
    def region(self) -> str:
        """Return the scale set's region."""
        return region_name(str(self.described.get("location") or ""))

    @property
    def owner(self) -> str | None:
        """The other system that drives it, whatever its tags consent to."""
        return managed_by(self.tags, group_of(self.path), of_group=self.manager)

    def as_node_group(
        self, node_ids: tuple[str, ...], lost: Sequence[Machine] = (), *, fleet: str, now: datetime
    ) -> NodeGroup:
        """The group in our words, with its GPU members; `lost` are those that Azure had no place for."""
        bounds = self.bounds or Bounds(least=0, most=_MOST_MEMBERS)
        return NodeGroup(
            min_size=bounds.least,
            max_size=bounds.most,
            desired=len(node_ids) if self.desired is None else self.desired,
            region=self.region,
            zones=tuple(f"{self.region}-{zone}" for zone in self.described.get("zones") or ()),
            instance_type=self.size,
            account=subscription_of(self.path),
            node_ids=node_ids,
            refused=next((GroupRefusal(at=now, why=": ".join(each.failure)) for each in lost if each.failure), None),
            gives_back_places=bool(lost) and len(lost) >= (self.desired or 0) - len(node_ids),
            **self.consent(fleet, now),
        )


def every_group(place: Subscription) -> list[ScaleSet]:
    """Every scale set of the subscription. Sources: VirtualMachineScaleSets ListAll, autoscaleSettings."""
    described = place.everything(KIND)
    bounds = _bounds(place) if described else {}
    return [
        ScaleSet(described=each, bounds=bounds.get(same(path)), manager=place.manager_of(path))
        for each, path in ((each, str(each["id"])) for each in described)
    ]


def one_group(place: Subscription, group_id: str) -> ScaleSet:
    """The scale set of that id as it is now. Source: VirtualMachineScaleSets Get.

    Raises:
        NotFoundError: no scale set has that id.
        CloudError: no answer.

    """
    described = place.get(group_id, urgent=True).body
    bounds = _bounds(place).get(same(group_id))
    return ScaleSet(described=described, bounds=bounds, manager=place.manager_of(group_id))


def _bounds(place: Subscription) -> dict[str, Bounds]:
    """By the scale set, of the settings that are switched on."""
    settings = place.everything("autoscalesettings", provider="Microsoft.Insights", version="autoscale")
    found: dict[str, Bounds] = {}
    for each in settings:
        properties = each.get("properties") or {}
        ranges = [profile.get("capacity") or {} for profile in properties.get("profiles") or ()]
        if properties.get("enabled") and properties.get("targetResourceUri") and ranges:
            found[same(str(properties["targetResourceUri"]))] = Bounds(
                least=max(int(each.get("minimum", 0)) for each in ranges),
                most=min(int(each.get("maximum", _MOST_MEMBERS)) for each in ranges),
            )
    return found


def all_machines(place: Subscription) -> list[Machine]:
    """Every machine of a subscription, members of Uniform scale sets among them, whatever it is for.

    Raises:
        CloudError: a part of it could not be had.

    """
    found = instances.list_machines(place)
    for group in every_group(place):
        if group.uniform:
            found += instances.members(place, group.described)
    return found


def members_of(place: Subscription, group: ScaleSet) -> list[Machine]:
    """The members of a scale set."""
    there = instances.members(place, group.described) if group.uniform else instances.list_machines(place)
    return [each for each in there if each.group == group.id]
