"""What Azure must allow for what the code does, and no more: custom roles.

`gpuwatch export iam` writes them; the files in iam/azure/ are these with a subscription of nobody.
`tests/integration/clouds/azure/test_roles.py` holds them to the calls that the code makes. Azure has conditions for
data in its storage alone, none for machines. So what changes machines is given at the fleet's own resource group. What
can change more than its work needs (a whole machine, or a scale set's whole model) is a role of its own.
"""

import json
from collections.abc import Mapping, Sequence

NOBODYS = "/subscriptions/00000000-0000-0000-0000-000000000000"
NOBODYS_GROUP = f"{NOBODYS}/resourceGroups/gpu-fleet"

_COMPUTE, _NETWORK = "Microsoft.Compute", "Microsoft.Network"
_MACHINE, _SET = f"{_COMPUTE}/virtualMachines", f"{_COMPUTE}/virtualMachineScaleSets"

READ = (
    "Microsoft.Authorization/locks/read",
    "Microsoft.Authorization/permissions/read",
    f"{_COMPUTE}/disks/read",
    f"{_COMPUTE}/images/read",
    f"{_COMPUTE}/locations/usages/read",
    f"{_COMPUTE}/skus/read",
    f"{_COMPUTE}/snapshots/read",
    f"{_SET}/networkInterfaces/read",
    f"{_SET}/read",
    f"{_SET}/virtualMachines/instanceView/read",
    f"{_SET}/virtualMachines/read",
    f"{_MACHINE}/instanceView/read",
    f"{_MACHINE}/read",
    "Microsoft.Insights/autoscalesettings/read",
    f"{_NETWORK}/networkInterfaces/read",
    f"{_NETWORK}/publicIPAddresses/read",
    "Microsoft.Resources/subscriptions/read",
    "Microsoft.Resources/subscriptions/resourceGroups/read",
    "Microsoft.Resources/subscriptions/resources/read",
)
# A power-off is in none of them: it would leave a machine that is off and billed.
ACT = (
    f"{_MACHINE}/deallocate/action",
    f"{_MACHINE}/start/action",
    f"{_SET}/virtualMachines/deallocate/action",
    f"{_SET}/virtualMachines/start/action",
    "Microsoft.Resources/tags/write",
)
FOLLOW = (f"{_COMPUTE}/locations/operations/read",)  # of the subscription, whatever the machine's resource group
END = (f"{_MACHINE}/delete", f"{_SET}/virtualMachines/delete")
GROUPS = (f"{_SET}/delete/action",)
SHIELD = (f"{_SET}/virtualMachines/write",)
GROW = (f"{_SET}/write",)
WRITE = f"{_MACHINE}/write"
LAUNCH = (
    f"{_COMPUTE}/disks/write",
    WRITE,
    f"{_NETWORK}/networkInterfaces/join/action",
    f"{_NETWORK}/networkInterfaces/write",
    f"{_NETWORK}/networkSecurityGroups/join/action",
    f"{_NETWORK}/virtualNetworks/subnets/join/action",
)

# What Azure itself asks for on the way to a machine with the disks and interfaces of its template.
RIDES_ALONG = frozenset(LAUNCH) - {WRITE}

# For people: `gpuwatch scan` asks with their own credentials, in every subscription.
SCAN = (
    f"{_COMPUTE}/skus/read",
    f"{_SET}/read",
    f"{_SET}/virtualMachines/instanceView/read",
    f"{_SET}/virtualMachines/read",
    f"{_MACHINE}/instanceView/read",
    f"{_MACHINE}/read",
    "Microsoft.Insights/autoscalesettings/read",
    "Microsoft.Insights/metrics/read",
    "Microsoft.Resources/subscriptions/read",
    "Microsoft.Resources/subscriptions/resourceGroups/read",
)

_LOOK = (*READ, *FOLLOW)
ROLES: Mapping[str, tuple[str, ...]] = {
    "observe": _LOOK,
    "reclaim": (*_LOOK, *ACT),
    "terminate": (*_LOOK, *ACT, *END, *GROUPS),
    "scale": GROW,
    "launch": LAUNCH,
    "shield": SHIELD,
    "scan": SCAN,
}
_SAYS = {
    "observe": "Looks at machines, and changes nothing",
    "reclaim": "Stops, starts and tags machines",
    "terminate": "As reclaim, and ends machines and members of scale sets",
    "scale": "In addition, grows scale sets; can change all of their model",
    "launch": "In addition, makes machines; can change machines of its resource group",
    "scan": "Looks at machines and their use in every subscription",
    "shield": "In addition, protects members of scale sets from scale-ins",
}
_GROUPS_OF_RESOURCES = "/resourcegroups/"
_LOOKS = frozenset({"observe", "scan"})  # given at the subscription, the others at resource groups if there are any


def role(name: str, *, scopes: Sequence[str] = (NOBODYS_GROUP,)) -> dict[str, object]:
    """The definition of a role, as `az role definition create` takes it."""
    groups = [scope for scope in scopes if _GROUPS_OF_RESOURCES in scope.lower()]
    subscriptions = dict.fromkeys("/".join(scope.split("/")[:3]) for scope in scopes)
    return {
        "Name": f"gpuwatch {name}",
        "IsCustom": True,
        "Description": f"gpuwatch: {_SAYS[name]}.",
        "Actions": sorted(ROLES[name]),
        "NotActions": [],
        "AssignableScopes": list(subscriptions) if name in _LOOKS else groups or list(scopes),
    }


def render(document: Mapping[str, object]) -> str:
    """As the files in iam/azure/ are written."""
    return json.dumps(document, indent=2) + "\n"
