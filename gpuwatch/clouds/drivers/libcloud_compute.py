"""A driver over apache-libcloud: OpenStack, and other clouds if its compute API lists and stops machines there."""

from typing import Any

from libcloud.common.exceptions import BaseHTTPError, RateLimitReachedError
from libcloud.common.types import InvalidCredsError
from libcloud.compute.base import Node, NodeDriver
from libcloud.compute.providers import get_driver
from libcloud.compute.types import NodeState

from gpuwatch.clouds.drivers.talk import KINDS, Asked, keep_tags, refuse, serve, tags_kept

STATES = {
    NodeState.RUNNING: "running",
    NodeState.STARTING: "pending",
    NodeState.PENDING: "pending",
    NodeState.STOPPING: "stopping",
    NodeState.STOPPED: "stopped",
    NodeState.TERMINATED: "terminated",
}
VERBS = {"stop": "stop_node", "start": "start_node", "terminate": "destroy_node"}
OURS = ("provider", "gpus", "still_billed", "tags")  # of the options; the others are for libcloud's driver
OPENSTACK = "openstack"


def _connect(asked: Asked) -> Any:  # noqa: ANN401  one of libcloud's drivers
    """The driver of that cloud; it asks nothing yet."""
    options, secrets = asked["options"], asked["secrets"]
    given = {name: text for name, text in options.items() if name not in OURS} | secrets
    if options["provider"] == OPENSTACK:
        # The older versions of its API have no pages, and cut a long list off.
        given = {"api_version": "2.2", "ex_force_auth_version": "3.x_password"} | given
        given |= {"ex_force_auth_url": asked["endpoint"]} if asked["endpoint"] else {}
        given |= {"ex_force_service_region": asked["region"]} if asked["region"] else {}
    return get_driver(options["provider"])(**given)


def _machine(asked: Asked, node: Node) -> dict[str, Any]:
    kind = str(
        node.size.name if node.size else node.extra.get("flavorId") or node.extra.get("instance_type") or "unknown"
    )
    sizes = dict(each.split("=") for each in asked["options"].get("gpus", "").split())
    said = {
        "id": node.id,
        "state": STATES.get(node.state, "unknown"),
        "type": kind,
        "gpus": int(sizes.get(kind, 0)) if sizes else None,
        "name": node.name or node.id,
        "region": asked["region"],
        "zone": node.extra.get("availability_zone") or None,
        "tags": {name: str(text) for name, text in (node.extra.get("metadata") or {}).items()},
        "address": next(iter([*node.private_ips, *node.public_ips]), None),
        "still_billed": asked["options"].get("still_billed"),
    }
    return {name: value for name, value in said.items() if value is not None}


def _nodes(asked: Asked) -> list[Node]:
    found: list[Node] = _connect(asked).list_nodes()
    return found


def _list(asked: Asked) -> dict[str, Any]:
    machines = [_machine(asked, each) for each in _nodes(asked)]
    tags_kept(asked, machines)
    return {"machines": machines}


def _find_node(asked: Asked) -> Node:
    """By libcloud's common API a machine is only in a list."""
    found = next((each for each in _nodes(asked) if each.id == asked["id"]), None)
    return refuse("not_found", "NoSuchNode", f"{asked['id']} is not in the list") if found is None else found


def _get(asked: Asked) -> dict[str, Any]:
    machine = _machine(asked, _find_node(asked))
    tags_kept(asked, [machine])
    return {"machine": machine}


def _act(asked: Asked) -> dict[str, Any]:
    node = _find_node(asked)
    if not getattr(node.driver, VERBS[asked["call"]])(node):
        raise ValueError(f"{asked['call']}: the cloud did not accept it in the words that libcloud knows")
    return {"id": asked["id"]}


def _tag(asked: Asked) -> dict[str, Any]:
    if "tags" in asked["options"]:
        keep_tags(asked)
    else:  # POST adds; libcloud's own ex_set_metadata would replace what somebody sets meanwhile
        path, data = f"/servers/{asked['id']}/metadata", {"metadata": asked["tags"]}
        _connect(asked).connection.request(path, method="POST", data=data)
    return {"id": asked["id"]}


def _with_kinds(call: Any) -> Any:  # noqa: ANN401  a call
    """The same call, with libcloud's errors in the protocol's words; any other error is a doubt."""

    def carried(asked: Asked) -> dict[str, Any]:
        try:
            found: dict[str, Any] = call(asked)
        except InvalidCredsError as error:
            return refuse("auth", "InvalidCreds", str(error))
        except RateLimitReachedError as error:
            return refuse("throttled", "RateLimit", f"too many requests; again after {error.retry_after} s")
        except BaseHTTPError as error:
            if error.code not in KINDS:
                raise
            return refuse(KINDS[error.code], str(error.code), str(error.message))
        return found

    return carried


def _offers(asked: Asked) -> list[str]:
    """What this cloud's driver has of its own, and not only the base's refusal."""
    driver = type(_connect(asked))
    acts = [call for call, verb in VERBS.items() if getattr(driver, verb) is not getattr(NodeDriver, verb)]
    may_tag = "tags" in asked["options"] or asked["options"]["provider"] == OPENSTACK
    return ["list", "get", *acts, *(["tag"] if may_tag else [])]


def main() -> None:
    """Answer the request on standard input."""
    calls = {"list": _list, "get": _get, **dict.fromkeys(VERBS, _act), "tag": _tag}
    serve("libcloud", {name: _with_kinds(call) for name, call in calls.items()}, _offers)


if __name__ == "__main__":
    main()
