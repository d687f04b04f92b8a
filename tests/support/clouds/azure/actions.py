"""The actions that a custom role must allow for a request, by Azure's page "Understand role definitions"."""

from tests.support.clouds.server import Request

_VERBS = {"PUT": "write", "PATCH": "write", "DELETE": "delete", "GET": "read"}


def actions_of(request: Request) -> set[str]:
    """Provider, types and verb; a POST names its own verb. With its instance view, a machine has a read of that too."""
    tail = request.path.rpartition("/providers/")[2] if "/providers/" in request.path else ""
    if request.path.endswith("/resourcegroups"):
        return {"Microsoft.Resources/subscriptions/resourceGroups/read"}
    if request.path.endswith("/resources"):
        return {"Microsoft.Resources/subscriptions/resources/read"}
    if not tail:
        return {"Microsoft.Resources/subscriptions/read"}
    provider, *parts = tail.split("/")
    if request.method == "POST":
        *parts, verb = parts
        return {"/".join([provider, *parts[::2], verb, "action"])}
    kind = "/".join([provider, *parts[::2]])
    if kind == "Microsoft.Resources/tags":
        return {"Microsoft.Resources/tags/write"}
    found = {f"{kind}/{_VERBS[request.method]}"}
    if "instanceView" in request.query.get("$expand", "") or "statusOnly" in request.query:
        found.add(f"{kind}/instanceView/read")
    return found
