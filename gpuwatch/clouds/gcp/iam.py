"""The table of calls of Google's APIs, and what Google Cloud must allow for them, and no more: custom roles.

`gpuwatch export iam` writes them; the files in iam/gcp/ are these for a project of nobody. A role alone holds for all
of a project, and IAM knows no labels. So the roles that change machines are bound with a condition on a tag of the
Resource Manager and on the names of what gpuwatch launches, and a deny policy keeps protected machines.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

# Every call that gpuwatch makes of Google's APIs, with the permission that each needs.
#
# `clouds/gcp/iam.py` makes the roles of this table, and the tests hold it to Google's own description of the API.

COMPUTE, PROJECTS, MONITORING, BILLING = "compute", "cloudresourcemanager", "monitoring", "cloudbilling"
IAM = "iam"
HOSTS = {
    COMPUTE: "https://compute.googleapis.com",
    PROJECTS: "https://cloudresourcemanager.googleapis.com",
    MONITORING: "https://monitoring.googleapis.com",
    BILLING: "https://cloudbilling.googleapis.com",
    IAM: "https://iam.googleapis.com",
}

_COMPUTE = "/compute/v1/projects/{project}"
_INSTANCE = f"{_COMPUTE}/zones/{{zone}}/instances/{{instance}}"
# A group's own path: "zones/Z/instanceGroupManagers/N", or the same of a region.
_GROUP = f"{_COMPUTE}/{{group}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One method of an API. `name` is Google's, `also` the name of its twin for regions, `items` the list in a page.

    `page` is the parameter with the size of a page, which is so many times larger than that of other lists.
    """

    name: str
    method: str
    path: str
    permissions: tuple[str, ...] = ()
    items: str = ""
    changes: bool = False
    api: str = COMPUTE
    also: str = ""
    page: tuple[str, int] = ("maxResults", 1)


def _get(name: str, path: str, *permissions: str, also: str = "") -> Call:
    return Call(name=name, method="GET", path=path, permissions=permissions, also=also)


def _list(name: str, path: str, items: str, *permissions: str) -> Call:
    return Call(name=name, method="GET", path=path, items=items, permissions=permissions)


def _change(name: str, path: str, *permissions: str, method: str = "POST", also: str = "") -> Call:
    return Call(name=name, method=method, path=path, permissions=permissions, changes=True, also=also)


LIST_INSTANCES = _list(
    "compute.instances.aggregatedList", f"{_COMPUTE}/aggregated/instances", "instances", "compute.instances.list"
)
GET_INSTANCE = _get("compute.instances.get", _INSTANCE, "compute.instances.get")
GET_TYPE = _get(
    "compute.machineTypes.get", f"{_COMPUTE}/zones/{{zone}}/machineTypes/{{type}}", "compute.machineTypes.get"
)
LIST_TYPES = _list(
    "compute.machineTypes.aggregatedList",
    f"{_COMPUTE}/aggregated/machineTypes",
    "machineTypes",
    "compute.machineTypes.list",
)
GET_TEMPLATE = _get(
    "compute.instanceTemplates.get",
    f"{_COMPUTE}/{{template}}",
    "compute.instanceTemplates.get",
    also="compute.regionInstanceTemplates.get",
)
LIST_TEMPLATES = _list(
    "compute.instanceTemplates.aggregatedList",
    f"{_COMPUTE}/aggregated/instanceTemplates",
    "instanceTemplates",
    "compute.instanceTemplates.list",
)
LIST_IMAGES = _list("compute.images.list", f"{_COMPUTE}/global/images", "", "compute.images.list")
LIST_REGIONS = _list("compute.regions.list", f"{_COMPUTE}/regions", "", "compute.regions.list")
GET_PROJECT = _get("compute.projects.get", _COMPUTE, "compute.projects.get")
LIST_ZONE_OPERATIONS = _list(
    "compute.zoneOperations.list", f"{_COMPUTE}/zones/{{zone}}/operations", "", "compute.zoneOperations.list"
)
LIST_OPERATIONS = _list(
    "compute.globalOperations.aggregatedList",
    f"{_COMPUTE}/aggregated/operations",
    "operations",
    "compute.globalOperations.list",
)
GET_OPERATION = _get(
    "compute.zoneOperations.get", f"{_COMPUTE}/zones/{{zone}}/operations/{{operation}}", "compute.zoneOperations.get"
)
LIST_GROUPS = _list(
    "compute.instanceGroupManagers.aggregatedList",
    f"{_COMPUTE}/aggregated/instanceGroupManagers",
    "instanceGroupManagers",
    "compute.instanceGroupManagers.list",
)
GET_GROUP = _get(
    "compute.instanceGroupManagers.get",
    _GROUP,
    "compute.instanceGroupManagers.get",
    also="compute.regionInstanceGroupManagers.get",
)
LIST_MEMBERS = Call(
    name="compute.instanceGroupManagers.listManagedInstances",
    method="POST",  # and changes nothing
    path=f"{_GROUP}/listManagedInstances",
    permissions=("compute.instanceGroupManagers.get",),
    items="managedInstances",
    also="compute.regionInstanceGroupManagers.listManagedInstances",
)
LIST_AUTOSCALERS = _list(
    "compute.autoscalers.aggregatedList",
    f"{_COMPUTE}/aggregated/autoscalers",
    "autoscalers",
    "compute.autoscalers.list",
)
LIST_DISKS = _list("compute.disks.aggregatedList", f"{_COMPUTE}/aggregated/disks", "disks", "compute.disks.list")
LIST_ADDRESSES = _list(
    "compute.addresses.aggregatedList", f"{_COMPUTE}/aggregated/addresses", "addresses", "compute.addresses.list"
)
LIST_SNAPSHOTS = _list("compute.snapshots.list", f"{_COMPUTE}/global/snapshots", "", "compute.snapshots.list")
TEST_INSTANCE = Call(
    name="compute.instances.testIamPermissions",
    method="POST",  # and changes nothing
    path=f"{_INSTANCE}/testIamPermissions",
)
TEST_PROJECT = Call(
    name="cloudresourcemanager.projects.testIamPermissions",
    method="POST",  # and changes nothing
    path="/v3/projects/{project}:testIamPermissions",
    api=PROJECTS,
)

STOP = _change("compute.instances.stop", f"{_INSTANCE}/stop", "compute.instances.stop")
START = _change("compute.instances.start", f"{_INSTANCE}/start", "compute.instances.start")
RESUME = _change("compute.instances.resume", f"{_INSTANCE}/resume", "compute.instances.resume")
DELETE = _change("compute.instances.delete", _INSTANCE, "compute.instances.delete", method="DELETE")
SET_LABELS = _change("compute.instances.setLabels", f"{_INSTANCE}/setLabels", "compute.instances.setLabels")
INSERT = _change(
    "compute.instances.insert",
    f"{_COMPUTE}/zones/{{zone}}/instances",
    "compute.instances.create",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
    "compute.instances.setTags",
    "compute.instanceTemplates.useReadOnly",
    "compute.disks.create",
    "compute.images.useReadOnly",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
)
RESIZE = _change(
    "compute.instanceGroupManagers.resize",
    f"{_GROUP}/resize",
    "compute.instanceGroupManagers.update",
    also="compute.regionInstanceGroupManagers.resize",
)
DELETE_MEMBERS = _change(
    "compute.instanceGroupManagers.deleteInstances",
    f"{_GROUP}/deleteInstances",
    "compute.instanceGroupManagers.update",
    also="compute.regionInstanceGroupManagers.deleteInstances",
)

# For `gpuwatch scan` alone. A page counts points, not machines.
LIST_TIME_SERIES = Call(
    name="monitoring.projects.timeSeries.list",
    method="GET",
    path="/v3/projects/{project}/timeSeries",
    items="timeSeries",
    permissions=("monitoring.timeSeries.list",),
    api=MONITORING,
    page=("pageSize", 20),
)

# For the doctor alone; the project of a service account is in its name.
LIST_KEYS = Call(
    name="iam.projects.serviceAccounts.keys.list",
    method="GET",
    path="/v1/projects/-/serviceAccounts/{account}/keys",
    permissions=("iam.serviceAccountKeys.list",),
    api=IAM,
)

# For prices alone: the list of what Compute Engine sells is the same for everybody, and wants no permission.
LIST_SKUS = Call(
    name="cloudbilling.services.skus.list",
    method="GET",
    path="/v1/services/6F81-5844-456A/skus",
    items="skus",
    api=BILLING,
    page=("pageSize", 10),
)

CALLS: tuple[Call, ...] = tuple(each for each in tuple(globals().values()) if isinstance(each, Call))


# A start is followed by its operation. To end a group's member, to grow the group and to give it another template is
# one permission of Google's, so it is a role of its own; so is what makes machines, which can also change them.
_RECLAIM = (STOP, START, RESUME, SET_LABELS, GET_OPERATION)
_SCAN = (LIST_TIME_SERIES,)  # for people: the controller asks no monitor
_AGES = (LIST_KEYS,)  # for the doctor alone
_SCALE = (RESIZE, DELETE_MEMBERS)
_OBSERVE = tuple(each for each in CALLS if not (each.changes or each in (*_RECLAIM, *_SCAN, *_AGES)))
# `iam.serviceAccounts.actAs` is not among these: it is given on the machines' own service account, not on the project.

ROLES: Mapping[str, tuple[str, tuple[Call, ...]]] = {
    "observe": ("gpuwatch observe: look at machines", _OBSERVE),
    "scan": ("gpuwatch scan: also read what Cloud Monitoring says of machines", (*_OBSERVE, *_SCAN)),
    "keys": ("gpuwatch keys: also see how old the keys of service accounts are", (*_OBSERVE, *_AGES)),
    "reclaim": ("gpuwatch reclaim: also stop and start machines", (*_OBSERVE, *_RECLAIM)),
    "terminate": ("gpuwatch terminate: also delete machines", (*_OBSERVE, *_RECLAIM, DELETE)),
    "scale": ("gpuwatch scale: in addition, grow groups and delete their members", _SCALE),
    "launch": ("gpuwatch launch: in addition, launch machines", (INSERT,)),
}

NOBODYS = "projects/my-gpu-project"
_OWN, _NEW, _GROUPS = "own", "new", "groups"
# The condition with which a role is bound; the others look.
CONDITION_OF: Mapping[str, str] = {"reclaim": _OWN, "terminate": _OWN, "launch": _NEW, "scale": _GROUPS}
_PROJECT = "resource.type == 'cloudresourcemanager.googleapis.com/Project'"  # where the doctor asks
_OTHER_THINGS = "resource.type != 'compute.googleapis.com/Instance'"
_LAUNCHED = "resource.name.extract('/instances/{name}').startsWith('gpuwatch-')"
_GROUP_NAME = "resource.name.extract('/instanceGroupManagers/{name}').startsWith"


def role(name: str) -> dict[str, object]:
    """A custom role's definition, as `gcloud iam roles create --file` takes it."""
    title, own = ROLES[name]
    return {
        "title": title.partition(":")[0],
        "description": title,
        "stage": "GA",
        "includedPermissions": sorted({permission for call in own for permission in call.permissions}),
    }


def condition(name: str, *, fleet: str = "default", scope: str = NOBODYS) -> dict[str, object]:
    """A binding's condition, as `--condition-from-file` takes it; `scope` is the project that has the tags.

    What gpuwatch launches is known by its name, so its template need not give it the tag. Groups are, too.
    Source: https://docs.cloud.google.com/iam/docs/configuring-resource-based-access
    """
    tagged = f"resource.matchTag('{scope.removeprefix('projects/')}/gpuwatch-fleet', '{fleet}')"
    known = {
        _OWN: (f"machines of the fleet {fleet}", f"{_OTHER_THINGS} || {tagged} || {_LAUNCHED}"),
        _NEW: ("what gpuwatch launches", f"{_OTHER_THINGS} || {_LAUNCHED}"),
        _GROUPS: (
            f"groups with a name that begins with gpuwatch-{fleet}-",
            f"{_PROJECT} || {_GROUP_NAME}('gpuwatch-{fleet}-')",
        ),
    }
    title, expression = known[name]
    return {
        "title": f"gpuwatch {name}",
        "description": f"Of machines and groups, only {title}.",
        "expression": expression,
    }


def denial(*, scope: str = NOBODYS) -> dict[str, object]:
    """The deny policy that keeps protected machines, as `gcloud iam policies create --policy-file` takes it."""
    project = scope.removeprefix("projects/")
    account = f"gpuwatch@{project}.iam.gserviceaccount.com"
    rule = {
        "deniedPrincipals": [f"principal://iam.googleapis.com/projects/-/serviceAccounts/{account}"],
        "deniedPermissions": ["compute.googleapis.com/instances.delete", "compute.googleapis.com/instances.stop"],
        "denialCondition": {
            "title": "protected machines",
            "expression": f"resource.matchTag('{project}/gpuwatch-protect', 'true')",
        },
    }
    return {"displayName": "gpuwatch leaves protected machines alone", "rules": [{"denyRule": rule}]}


def documents(*, fleet: str = "default", scope: str = NOBODYS) -> dict[str, dict[str, object]]:
    """All that there is to give, by the names of its files."""
    roles = {f"{name}.json": role(name) for name in ROLES}
    named = sorted(set(CONDITION_OF.values()))
    conditions = {f"{name}.condition.json": condition(name, fleet=fleet, scope=scope) for name in named}
    return {**roles, **conditions, "protected.deny.json": denial(scope=scope)}


def render(document: Mapping[str, object]) -> str:
    """As the files in iam/gcp/ are written."""
    return json.dumps(document, indent=2) + "\n"
