"""What Google Cloud must allow for what the code does, and no more: custom roles, made of the table of calls.

`gpuwatch export iam` writes them; the files in iam/gcp/ are these. IAM's conditions know no labels, so a role holds
for all machines of a project; where that is too much, put the machines' tag (of the Resource Manager) into the
condition of the role's binding.
"""

import json
from collections.abc import Mapping

from gpuwatch.clouds.gcp import calls
from gpuwatch.clouds.gcp.calls import CALLS, Call

# A start is followed by its operation. To end a group's member and to grow the group is one permission of Google's.
_RECLAIM = (calls.STOP, calls.START, calls.RESUME, calls.SET_LABELS, calls.GET_OPERATION)
_SCAN = (calls.LIST_TIME_SERIES,)  # for people: the controller asks no monitor
_AGES = (calls.LIST_KEYS,)  # for the doctor alone
_TERMINATE = (calls.DELETE, calls.DELETE_MEMBERS)
# `iam.serviceAccounts.actAs` is not among these: it is given on the machines' own service account, not on the project.

ROLES: Mapping[str, tuple[str, tuple[Call, ...]]] = {
    "observe": (
        "gpuwatch observe: look at machines",
        tuple(each for each in CALLS if not (each.changes or each in (*_RECLAIM, *_SCAN, *_AGES))),
    ),
    "scan": ("gpuwatch scan: also read what Cloud Monitoring says of machines", _SCAN),
    "keys": ("gpuwatch keys: also see how old the keys of service accounts are", _AGES),
    "reclaim": ("gpuwatch reclaim: also stop and start machines", _RECLAIM),
    "terminate": ("gpuwatch terminate: also delete machines, and members of groups", (*_RECLAIM, *_TERMINATE)),
    "scale": (
        "gpuwatch scale: also launch machines and grow groups",
        (*_RECLAIM, *_TERMINATE, calls.INSERT, calls.RESIZE),
    ),
}


def role(name: str) -> dict[str, object]:
    """A custom role's definition, as `gcloud iam roles create --file` takes it."""
    title, own = ROLES[name]
    every = {*own, *ROLES["observe"][1]}
    return {
        "title": title.partition(":")[0],
        "description": title,
        "stage": "GA",
        "includedPermissions": sorted({permission for call in every for permission in call.permissions}),
    }


def render(document: Mapping[str, object]) -> str:
    """As the files in iam/gcp/ are written."""
    return json.dumps(document, indent=2) + "\n"
