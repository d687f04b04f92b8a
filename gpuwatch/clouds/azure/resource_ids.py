"""PURE: the ids of Azure's resources, which are paths. Azure does not keep their case: compare them by `same`.

/subscriptions/SUB/resourceGroups/GROUP/providers/Microsoft.Compute/virtualMachines/NAME
"""

_SUBSCRIPTION, _GROUP = 1, 3
COMPUTE = "Microsoft.Compute"


def same(path: str) -> str:
    """The form in which two ids of one resource are equal."""
    return path.strip("/").lower()


def name_of(path: str) -> str:
    """The last part."""
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
