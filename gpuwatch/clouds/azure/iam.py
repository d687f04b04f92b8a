"""What Azure must allow for what the code does, and no more: custom roles.

`gpuwatch export iam` writes them; the files in iam/azure/ are these with a subscription of nobody.
`tests/integration/clouds/azure/test_roles.py` holds them to the calls that the code makes. A role of Azure has no
conditions by tags: give it at the fleet's resource groups alone.
"""

import json
from collections.abc import Mapping, Sequence

NOBODYS = "/subscriptions/00000000-0000-0000-0000-000000000000"

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
LAUNCH = (
    f"{_COMPUTE}/disks/write",
    f"{_MACHINE}/write",
    f"{_NETWORK}/networkInterfaces/join/action",
    f"{_NETWORK}/networkInterfaces/write",
    f"{_NETWORK}/networkSecurityGroups/join/action",
    f"{_NETWORK}/virtualNetworks/subnets/join/action",
)

# What Azure itself asks for on the way to a machine with the disks and interfaces of its template.
RIDES_ALONG = frozenset(LAUNCH) - {f"{_MACHINE}/write"}

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
)

ROLES: Mapping[str, tuple[str, ...]] = {
    "observe": READ,
    "reclaim": (*READ, *FOLLOW, *ACT, *END, *GROUPS),
    "scale": (*READ, *FOLLOW, *ACT, *END, *GROUPS, *GROW, *LAUNCH),
    "shield": SHIELD,
    "scan": SCAN,
}
_SAYS = {
    "observe": "Looks at machines, and changes nothing",
    "reclaim": "Stops, starts, tags and ends machines",
    "scale": "As reclaim, and grows scale sets and launches machines",
    "scan": "Looks at machines and their use in every subscription",
    "shield": "Protects members of scale sets from scale-ins",
}


def role(name: str, *, scopes: Sequence[str] = (NOBODYS,)) -> dict[str, object]:
    """The definition of a role, as `az role definition create` takes it."""
    return {
        "Name": f"gpuwatch {name}",
        "IsCustom": True,
        "Description": f"gpuwatch: {_SAYS[name]}.",
        "Actions": sorted(ROLES[name]),
        "NotActions": [],
        "AssignableScopes": list(scopes),
    }


def render(document: Mapping[str, object]) -> str:
    """As the files in iam/azure/ are written."""
    return json.dumps(document, indent=2) + "\n"
