"""A driver for Runpod, by its REST API v2 (api.runpod.io/v2/openapi.json). A machine is a pod."""

from typing import Any
from urllib.parse import quote

from gpuwatch.clouds.drivers.talk import KINDS, Asked, refuse, send, serve, tag_in_file, tags_kept

STATES = {
    "PROVISIONING": "pending",
    "STARTING": "pending",
    "RUNNING": "running",
    "EXITED": "stopped",
    "TERMINATED": "terminated",
}
# Pods have no tags: these come from variables that the pod was made with, and no other variable is read.
TAGS = ("fleet", "pool", "owner", "protect", "interruptible", "decision-id")
_UNREADABLE = 422


def _variable(tag: str) -> str:
    return f"GPUWATCH_{tag.upper().replace('-', '_')}"


def _ask_cloud(asked: Asked, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  JSON
    base = asked["endpoint"] or "https://api.runpod.io/v2"
    status, said = send(f"{base}{path}", method, asked["secrets"]["api_key"], body)
    if status not in KINDS:
        return said
    # No capacity has no code: a 400 is that, or a rule that the request breaks.
    places = KINDS[status] == "refused" and status != _UNREADABLE and asked["call"] in {"launch", "start"}
    kind = "no_capacity" if places else KINDS[status]
    return refuse(kind, f"{status} {said['title']}", "; ".join([said["detail"], *said.get("errors", [])]))


def _machine(pod: dict[str, Any]) -> dict[str, Any]:
    gpu, cluster = pod.get("gpu"), pod.get("cluster")
    kind = pod["cpu"]["id"] if gpu is None else f"{gpu['id']} x{gpu.get('count', 1)} {pod['cloud'].lower()}"
    variables = {f"gpuwatch:{tag}": _variable(tag) for tag in TAGS}
    said = {
        "id": pod["id"],
        "state": STATES.get(pod["status"], "unknown"),
        "type": kind,
        "gpus": 0 if gpu is None else gpu.get("count", 1),
        "name": pod["name"] or pod["id"],
        "region": pod["dataCenterId"],
        "tags": {tag: pod["env"][name] for tag, name in variables.items() if name in pod["env"]},
        "address": pod["globalNetworking"].get("ip"),
        "started_at": pod["startedAt"],
        "image": pod["image"],
        "local_disks": True,  # the container's disk is wiped
        "protected": "it is locked in Runpod" if pod["locked"] else None,
        "owned_by": f"the Runpod cluster {cluster['id']}" if cluster else None,
    }
    return {name: value for name, value in said.items() if value is not None}


def _list(asked: Asked) -> dict[str, Any]:
    pods = _ask_cloud(asked, "GET", "/pods?includeClusterPods=true")["pods"]
    region = asked["region"]
    machines = [_machine(pod) for pod in pods if region is None or pod["dataCenterId"] == region]
    tags_kept(asked, machines)
    return {"machines": machines}


def _get(asked: Asked) -> dict[str, Any]:
    machine = _machine(_ask_cloud(asked, "GET", f"/pods/{quote(asked['id'], safe='')}"))
    tags_kept(asked, [machine])
    return {"machine": machine}


def _act(asked: Asked) -> dict[str, Any]:
    """stop, start and terminate are the API's own words."""
    _ask_cloud(asked, "POST", f"/pods/{quote(asked['id'], safe='')}/action", {"action": asked["call"]})
    return {"id": asked["id"]}


def _find_launch(asked: Asked) -> dict[str, Any]:
    found = [each for each in _list(asked)["machines"] if each["name"] == asked["key"]]
    return {"key": asked["key"], **({"machine": found[0]} if found else {})}


def _launch(asked: Asked) -> dict[str, Any]:
    there = _find_launch(asked)  # the API takes no key
    if "machine" in there:
        return {"key": asked["key"], "id": there["machine"]["id"]}
    wanted = asked["arguments"]
    gpu, count, cloud = _parts_of_type(wanted.get("instance_type", ""))
    body = {
        "name": asked["key"],
        "templateId": wanted["template"],
        "gpu": {"id": gpu, "count": count},
        "cloud": cloud.upper(),
        "env": {_variable(tag.partition(":")[2]): text for tag, text in asked["tags"].items()},
    }
    if wanted.get("region"):
        body["dataCenterIds"] = [wanted["region"]]
    return {"key": asked["key"], "id": _ask_cloud(asked, "POST", "/pods", body)["id"]}


def _parts_of_type(kind: str) -> tuple[str, int, str]:
    """GPU, number and cloud of a type such as `NVIDIA A40 x2 secure`."""
    gpu, _, rest = kind.rpartition(" x")
    count, _, cloud = rest.partition(" ")
    if not gpu or not count.isdecimal() or cloud not in {"secure", "community"}:
        refuse("refused", "InstanceType", f"instance_type {kind!r} is not like 'NVIDIA A40 x2 secure'")
    return gpu, int(count), cloud


def _prices(asked: Asked) -> dict[str, Any]:
    catalogue = {each["id"]: each["price"] for each in _ask_cloud(asked, "GET", "/catalog/gpus")["gpus"]}
    rows = []
    for kind in asked["types"]:
        if kind.rpartition(" x")[0] in catalogue:
            gpu, count, cloud = _parts_of_type(kind)
            usd = round(catalogue[gpu][cloud] * count, 6)
            rows += [{"type": kind, "usd_per_hour": usd}] if usd > 0 else []
    return {"prices": rows}


def main() -> None:
    """Answer the request on standard input."""
    changes = dict.fromkeys(("stop", "start", "terminate"), _act)
    calls = {
        "list": _list,
        "get": _get,
        **changes,
        "launch": _launch,
        "find": _find_launch,
        "prices": _prices,
        "tag": tag_in_file,
    }
    serve("Runpod", calls, lambda asked: [each for each in calls if each != "tag" or "tags" in asked["options"]])


if __name__ == "__main__":
    main()
