"""Launches from CVM's launch templates. The machine's name is the key: Tencent Cloud lists machines by no token."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuwatch.clouds import FLEET_TAG, NO_GPU, POOL_TAG, CloudError
from gpuwatch.clouds.permit import permit_in_force
from gpuwatch.clouds.tencent.client import Line
from gpuwatch.clouds.tencent.errors import asking
from gpuwatch.clouds.tencent.instances import MachineTypes
from gpuwatch.clouds.tencent.places import Region
from gpuwatch.clouds.tencent.settings import check_tag_value
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import DEFAULT_POOL

_TOKEN_LENGTH = 64  # of RunInstances' ClientToken, in ASCII
_LATEST, _DEFAULT = "$Latest", "$Default"
_PAY_AS_YOU_GO = ("POSTPAID_BY_HOUR", "SPOTPAID")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One version of a launch template; `data` is what it says, as RunInstances takes it."""

    id: str
    version: int
    data: Mapping[str, Any]


def check_key(key: str) -> None:
    """Hold a key to what Tencent Cloud takes.

    Raises:
        ValueError: it is no ClientToken.

    """
    if not key.isascii() or len(key) > _TOKEN_LENGTH:
        raise ValueError(
            f"the key {key!r} is not up to {_TOKEN_LENGTH} ASCII characters, which Tencent Cloud asks of a ClientToken"
        )


def launch(place: Region, arguments: Mapping[str, str], key: str, *, fleet: str, types: MachineTypes) -> str:
    """One machine from a template; gives its id. Source: RunInstances; the key is its ClientToken.

    Raises:
        CloudError: as `Cloud.launch`; with the code Prepaid the template would buy a month.

    """
    check_key(key)
    template = template_of(place.acting, arguments)
    why = unfit(place, template, arguments, types)
    if why is not None:
        raise CloudError(why, code=NO_GPU)
    request = request_of(place, template, arguments, key, fleet=fleet)
    answer = place.acting.change(permit_in_force(), "cvm", "RunInstances", **request)
    with asking(place.acting.name_call("RunInstances")):
        node_id: str = answer["InstanceIdSet"][0]
        return node_id


def request_of(
    place: Region, template: Template, arguments: Mapping[str, str], key: str, *, fleet: str
) -> dict[str, Any]:
    """What RunInstances is asked for one machine. What is given here replaces the template's, so tags are joined.

    Raises:
        CloudError: the template buys machines by the month or the year.

    """
    charge = template.data.get("InstanceChargeType") or _PAY_AS_YOU_GO[0]
    if charge not in _PAY_AS_YOU_GO:
        raise CloudError(f"the launch template {template.id} buys machines that are {charge}", code="Prepaid")
    check_tag_value("the pool", arguments.get("pool") or DEFAULT_POOL)
    own = {FLEET_TAG: fleet, POOL_TAG: arguments.get("pool") or DEFAULT_POOL, DECISION_TAG: key}
    tags = {**_tags(template), **own}
    request: dict[str, Any] = {
        "LaunchTemplate": {"LaunchTemplateId": template.id, "LaunchTemplateVersion": template.version},
        "InstanceCount": 1,
        "InstanceName": key,
        "ClientToken": key,
        "TagSpecification": [
            {"ResourceType": "instance", "Tags": [{"Key": name, "Value": tags[name]} for name in sorted(tags)]}
        ],
    }
    if arguments.get("instance_type"):
        request["InstanceType"] = arguments["instance_type"]
    if arguments.get("subnet"):
        request |= _place_request(place, template, arguments["subnet"])
    return request


def unfit(place: Region, template: Template, arguments: Mapping[str, str], types: MachineTypes) -> str | None:
    """Why a launch would bring no node; None also where nobody can tell before it."""
    name = arguments.get("instance_type") or template.data.get("InstanceType")
    try:
        kind = types.type(place, name) if name else None
    except CloudError:
        return None
    if kind is None or (kind.gpu_count > 0 and kind.nvidia):
        return None
    return f"the launch template {arguments['template']} makes a machine of type {name}, which has no GPU of NVIDIA"


def template_of(line: Line, arguments: Mapping[str, str]) -> Template:
    """The template that a launch names, by its id or name. Source: DescribeLaunchTemplateVersions.

    Raises:
        CloudError: there is no such template or version, or no answer.

    """
    named, version = arguments["template"], arguments.get("version") or _DEFAULT
    template_id = named if named.startswith("lt-") else _find_template(line, named)["LaunchTemplateId"]
    wanted: dict[str, Any] = {"DefaultVersion": True}
    if version == _LATEST:
        wanted = {"LaunchTemplateVersions": [_find_template(line, template_id)["LatestVersionNumber"]]}
    elif version != _DEFAULT:
        if not version.isdecimal():
            raise CloudError(
                f"the version {version!r} of the launch template {named} is not a number, {_DEFAULT} or {_LATEST}",
                code="NoTemplate",
            )
        wanted = {"LaunchTemplateVersions": [int(version)]}
    call = "DescribeLaunchTemplateVersions"
    answer = line.ask("cvm", call, LaunchTemplateId=template_id, **wanted)
    with asking(line.name_call(call)):
        for each in answer["LaunchTemplateVersionSet"]:
            return Template(
                id=template_id, version=each["LaunchTemplateVersion"], data=each["LaunchTemplateVersionData"]
            )
    raise CloudError(f"the launch template {named} has no version {version}", code="NoTemplate")


def _find_template(line: Line, named: str) -> Mapping[str, Any]:
    """A template by its id or name. Source: DescribeLaunchTemplates."""
    by_id = named.startswith("lt-")
    wanted: dict[str, Any] = (
        {"LaunchTemplateIds": [named]} if by_id else {"Filters": [{"Name": "LaunchTemplateName", "Values": [named]}]}
    )
    found = line.list_all("cvm", "DescribeLaunchTemplates", "LaunchTemplateSet", "LaunchTemplateId", **wanted)
    exact = [each for each in found if named in (each["LaunchTemplateId"], each.get("LaunchTemplateName"))]
    if len(exact) != 1:
        raise CloudError(f"there are {len(exact)} launch templates named {named}", code="NoTemplate")
    return exact[0]


def _place_request(place: Region, template: Template, subnet: str) -> dict[str, Any]:
    """Another subnet than the template's, with its network and zone. Source: DescribeSubnets of VPC."""
    call = "DescribeSubnets"
    answer = place.acting.ask("vpc", call, SubnetIds=[subnet])
    with asking(place.acting.name_call(call)):
        for each in answer["SubnetSet"]:
            network = {**(template.data.get("VirtualPrivateCloud") or {}), "VpcId": each["VpcId"], "SubnetId": subnet}
            where = {**(template.data.get("Placement") or {}), "Zone": each["Zone"]}
            return {"VirtualPrivateCloud": network, "Placement": where}
    raise CloudError(f"there is no subnet {subnet} in {place.name}", code="NoSubnet")


def _tags(template: Template) -> dict[str, str]:
    """The tags that the template gives its machines."""
    return {
        tag["Key"]: tag.get("Value") or ""
        for each in template.data.get("TagSpecification") or ()
        if each.get("ResourceType") == "instance"
        for tag in each.get("Tags") or ()
    }
