"""Launches: a PUT of one machine. Its name is made of the ledger's key. The same key is the same name.

A template is a file with the body that Resource Manager takes. What a launch adds to it are the tags, and by its
arguments the size, the region and the subnet.
"""

import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuwatch.clouds import FLEET_TAG, POOL_TAG, CloudError, CloudUnavailableError, NotFoundError
from gpuwatch.clouds.azure.errors import typed
from gpuwatch.clouds.azure.instances import Machine, one
from gpuwatch.clouds.azure.operations import follow
from gpuwatch.clouds.azure.places import Subscription, Subscriptions
from gpuwatch.clouds.azure.resource_ids import machine
from gpuwatch.clouds.azure.settings import TemplateSettings
from gpuwatch.clouds.permit import permit_in_force
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import DEFAULT_POOL, NodeState
from gpuwatch.runtime.clock import Clock

_LONGEST_TAG = 256  # a tag's value


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One launch: where, under which name, and the body without the fleet's tags."""

    place: Subscription
    path: str
    body: Mapping[str, Any]

    @property
    def size(self) -> str | None:
        """The machine type that it asks for."""
        found = ((self.body.get("properties") or {}).get("hardwareProfile") or {}).get("vmSize")
        return None if found is None else str(found)

    @property
    def region(self) -> str:
        """Where it would be."""
        return str(self.body.get("location") or "")


def name_for(key: str) -> str:
    """The machine's name for a key: letters and digits, and as long as a host's name may be."""
    return f"gpuwatch-{hashlib.sha256(key.encode()).hexdigest()[:24]}"


def ordered(
    places: Subscriptions, templates: Mapping[str, TemplateSettings], arguments: Mapping[str, str], key: str
) -> Order:
    """What a launch with these arguments asks for.

    Raises:
        CloudError: the template is not there or cannot be read.

    """
    name = arguments["template"]
    if name not in templates:
        named = ", ".join(sorted(templates)) or "none"
        raise CloudError(
            f"no template is named {name!r} in cloud.azure.templates; there are: {named}", code="NoTemplate"
        )
    template = templates[name]
    place = places.at(arguments.get("account") or template.subscription)
    body = _filled(_read(name, template.body or ""), arguments)
    return Order(place=place, path=machine(place.id, template.resource_group or "", name_for(key)), body=body)


def launched(order: Order, key: str, pool: str | None, *, fleet: str, clock: Clock) -> Machine:
    """Ask for the machine; where one of that name is there, it is that one. Source: VirtualMachines CreateOrUpdate.

    Raises:
        CloudError: it was not accepted, or failed while it was watched.

    """
    try:
        return _usable(one(order.place, order.path, urgent=True))
    except NotFoundError:
        pass
    tags = {**(order.body.get("tags") or {}), FLEET_TAG: fleet, POOL_TAG: pool or DEFAULT_POOL, DECISION_TAG: key}
    too_long = next((name for name in tags if len(str(tags[name])) > _LONGEST_TAG), None)
    if too_long is not None:
        raise ValueError(f"the tag {too_long} is longer than the {_LONGEST_TAG} characters that Azure takes")
    answer = order.place.change(
        "PUT",
        order.path,
        permit_in_force(),
        body={**order.body, "tags": tags},
        headers={"If-None-Match": "*"},  # whatever has come under this name since is not changed
    )
    described = answer.body if isinstance(answer.body, dict) else {}
    if not (described.get("properties") or {}).get("vmId"):
        raise CloudUnavailableError(f"PUT {order.path}: an answer without the machine's id", code="NoObject")
    follow(order.place, answer, f"PUT {order.path}", clock)
    return Machine(path=str(described.get("id") or order.path), described=described, view=None)


def found(place: Subscription, resource_group: str, key: str) -> Machine | None:
    """The machine that was launched with that key; None: it does not exist now."""
    try:
        return one(place, machine(place.id, resource_group, name_for(key)))
    except NotFoundError:
        return None


def _usable(there: Machine) -> Machine:
    """A machine of an earlier try; raises its own failure where it could not be made."""
    if there.failure is not None and not there.power and there.state is not NodeState.TERMINATING:
        code, message = there.failure
        raise typed(f"launch of {there.name}", code, message)
    return there


def _read(name: str, path: str) -> dict[str, Any]:
    try:
        body = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CloudError(f"the template {name} cannot be read: {path}: {error}", code="NoTemplate") from None
    if not isinstance(body, dict) or not isinstance(body.get("properties"), dict):
        raise CloudError(f"the template {name} in {path} has no properties of a virtual machine", code="NoTemplate")
    return {key: value for key, value in body.items() if key not in {"id", "name", "type", "etag"}}


def _filled(template: dict[str, Any], arguments: Mapping[str, str]) -> dict[str, Any]:
    """The template with a launch's own size, region and subnet."""
    body = deepcopy(template)
    properties = body["properties"]
    if arguments.get("region"):
        body["location"] = arguments["region"]
    if arguments.get("instance_type"):
        properties["hardwareProfile"] = {
            **(properties.get("hardwareProfile") or {}),
            "vmSize": arguments["instance_type"],
        }
    if arguments.get("subnet"):
        for interface in (properties.get("networkProfile") or {}).get("networkInterfaceConfigurations") or ():
            for each in (interface.get("properties") or {}).get("ipConfigurations") or ():
                each.setdefault("properties", {})["subnet"] = {"id": arguments["subnet"]}
    return body
