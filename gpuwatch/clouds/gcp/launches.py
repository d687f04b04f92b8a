"""One new machine from an instance template. Its name is made of the ledger's key: asked again it is the same machine.

Compute Engine takes a name once in a zone, for as long as the machine is there, and a request's UUID once within an
hour. So what was launched under a key is looked for by its name in all zones before anything is asked. The key and what
was asked for are in the machine's description, since labels may be anybody's.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpuwatch.clouds import FLEET_TAG, NO_GPU, POOL_TAG, CloudError, CloudUnavailableError
from gpuwatch.clouds.gcp.actions import follow, request_id
from gpuwatch.clouds.gcp.client import Client
from gpuwatch.clouds.gcp.errors import CONFLICT
from gpuwatch.clouds.gcp.groups import MachineTypes, Template, Templates, path_in_project, region_of, zones_with
from gpuwatch.clouds.gcp.iam import INSERT, LIST_INSTANCES
from gpuwatch.clouds.gcp.instances import Instance
from gpuwatch.clouds.gcp.owners import labels_of
from gpuwatch.clouds.permit import permit_in_force
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import DEFAULT_POOL
from gpuwatch.runtime.clock import Clock

MISMATCH = "IdempotentParameterMismatch"  # our own word: a key that launched something else
_DESCRIBED = re.compile(r"gpuwatch launch (?P<asked>[0-9a-f]{32}) of (?P<key>.*)", re.DOTALL)
_NO_VERSION = frozenset({"", "$Default", "$Latest"})  # Google's templates have no versions: each is one template
_TEMPLATE_PATH = re.compile(r"(?:global|regions/[^/]+)/instanceTemplates/[^/]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a machine is to be launched: a zone, and a subnet of its region where one is named."""

    zone: str
    subnet: str | None = None


def name_of(key: str) -> str:
    """The name of the machine that a key launches."""
    return f"gpuwatch-{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def existing(client: Client, key: str, may_be_in: Callable[[str], bool] = lambda _: True) -> Instance | None:
    """The machine that was launched with that key, in whatever zone; None: it is not there now.

    `may_be_in` says of a zone whether a launch with that key can have gone there: the silence of others is no doubt.

    Raises:
        CloudError: the list of a zone in which it may be could not be had.

    """
    found = client.scopes(LIST_INSTANCES, query={"filter": f'name = "{name_of(key)}"'})
    for instances in found.values():
        for each in instances if not isinstance(instances, CloudError) else ():
            match = _DESCRIBED.fullmatch(each.get("description", ""))
            if match is not None and match["key"] == key:
                return Instance(described=each, project=client.project)
    for scope, content in found.items():
        if isinstance(content, CloudError) and may_be_in(scope.rpartition("/")[2]):
            raise CloudUnavailableError(str(content), code=content.code)
    return None


def template_path(arguments: Mapping[str, str]) -> str:
    """The template's path within the project, of its name, its path or its link.

    Raises:
        CloudError: a version is asked for, which Google's templates do not have.

    """
    version = arguments.get("version", "")
    if version not in _NO_VERSION:
        raise CloudError(f"an instance template has no version {version!r}: name another template", code="NoVersion")
    template = arguments["template"]
    path = path_in_project(template) if "/projects/" in template else template
    return path if _TEMPLATE_PATH.fullmatch(path) else f"global/instanceTemplates/{template}"


def place_of(client: Client, arguments: Mapping[str, str], template: Template, region: str) -> Place:
    """The zone that the arguments name, or the first that has the type.

    An offer names it as `zone`; `subnet` is then a subnet. Else `subnet` is "us-central1-a" or "us-central1-a/subnet".

    Raises:
        CloudError: no zone of the region offers the type; `zone`, `subnet` and the region do not fit; or no answer.

    """
    named, wanted = arguments.get("subnet", ""), arguments.get("zone")
    if named or wanted:
        zone, slash, subnet = named.partition("/")
        if wanted is not None and not slash and zone != wanted:
            zone, subnet = wanted, zone
        if wanted not in {None, zone}:
            raise CloudError(f"zone is {wanted}, and subnet {named} is in another", code="TwoZones")
        if wanted is not None and region_of(wanted) != region:
            raise CloudError(f"zone {wanted} is not in {region}", code="TwoRegions")
        return Place(zone=zone, subnet=subnet or None)
    kind = arguments.get("instance_type") or template.machine_type
    zones = zones_with(client, region, kind)
    if not zones:
        raise CloudError(f"no zone of {region} offers the machine type {kind}", code="NoZone")
    return Place(zone=zones[0])


def no_gpu(
    client: Client, types: MachineTypes, arguments: Mapping[str, str], template: Template, place: Place
) -> str | None:
    """Why a launch would bring no node; None also where nobody can tell before it."""
    kind = arguments.get("instance_type") or template.machine_type
    try:
        facts = types.get(client, place.zone, kind)
    except CloudError:
        return None
    if template.gpu_count > 0 or facts is None or facts.gpu_count > 0:
        return None
    return f"the instance template {arguments['template']} makes a machine of type {kind}, which has no GPU of NVIDIA"


def launch(  # noqa: PLR0913  a launch has many parts
    client: Client,
    clock: Clock,
    templates: Templates,
    types: MachineTypes,
    arguments: Mapping[str, str],
    key: str,
    *,
    fleet: str,
    region: str,
) -> tuple[str, str]:
    """Its id and zone. Source: instances.insert, with the template's own properties but for name and labels."""
    labels = labels_of({FLEET_TAG: fleet, POOL_TAG: arguments.get("pool") or DEFAULT_POOL, DECISION_TAG: key})
    named = arguments.get("zone") or arguments.get("subnet", "").partition("/")[0]

    def may_be_in(zone: str) -> bool:
        return zone == named if named else region_of(zone) == region

    there = existing(client, key, may_be_in)
    if there is not None:
        return _same(there, arguments, key)
    path = template_path(arguments)
    template = templates.read(client, path)
    place = place_of(client, arguments, template, region)
    why = no_gpu(client, types, arguments, template, place)
    if why is not None:
        raise CloudError(why, code=NO_GPU)
    body: dict[str, object] = {
        "name": name_of(key),
        "description": f"gpuwatch launch {_digest_of_request(arguments)} of {key}",
        "labels": {**template.labels, **labels},  # the body's labels take the place of the template's
    }
    if arguments.get("instance_type"):
        body["machineType"] = f"zones/{place.zone}/machineTypes/{arguments['instance_type']}"
    if place.subnet is not None:
        subnet = f"projects/{client.project}/regions/{region_of(place.zone)}/subnetworks/{place.subnet}"
        body["networkInterfaces"] = [{"subnetwork": subnet}]
    query = {
        "sourceInstanceTemplate": f"projects/{client.project}/{path}",
        "requestId": request_id("launch", key, _digest_of_request(arguments)),
    }
    try:
        operation = client.change(INSERT, permit_in_force(), query=query, body=body, zone=place.zone)
    except CloudError as error:
        there = existing(client, key, may_be_in) if error.code == CONFLICT else None
        if there is None:
            raise
        return _same(there, arguments, key)
    if not operation.get("targetId"):
        raise CloudUnavailableError(f"{INSERT.name}: the operation names no machine", code="NoOperation")
    follow(client, clock, place.zone, operation)
    return str(operation["targetId"]), place.zone


def _same(there: Instance, arguments: Mapping[str, str], key: str) -> tuple[str, str]:
    """The machine that the key launched before, if these arguments did it."""
    match = _DESCRIBED.fullmatch(there.described.get("description", ""))
    if match is None or match["asked"] != _digest_of_request(arguments):
        raise CloudUnavailableError(f"the key {key} launched something else: {there.id}", code=MISMATCH)
    return there.id, there.zone


def _digest_of_request(arguments: Mapping[str, str]) -> str:
    """What a launch asks for, as 32 characters."""
    return hashlib.sha256(json.dumps(sorted(arguments.items())).encode()).hexdigest()[:32]
