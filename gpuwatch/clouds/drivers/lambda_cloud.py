"""A driver for Lambda's cloud, by its API v1 (cloud.lambda.ai/api/v1/openapi.json, version 1.10.0). It has no stop."""

from typing import Any
from urllib.parse import quote

from gpuwatch.clouds.drivers.talk import KINDS, Asked, refuse, send, serve, tag_in_file, tags_kept

STATES = {"booting": "pending", "active": "running", "terminating": "terminating", "terminated": "terminated"}
CODES = {
    "instance-operations/launch/insufficient-capacity": "no_capacity",
    "global/quota-exceeded": "quota",
    "global/invalid-api-key": "auth",
    "global/account-inactive": "auth",
}
LONGEST_NAME = 64


def _ask_cloud(asked: Asked, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  JSON
    base = asked["endpoint"] or "https://cloud.lambda.ai/api/v1"
    status, said = send(f"{base}{path}", method, asked["secrets"]["api_key"], body)
    if status not in KINDS:
        return said["data"]
    code = said["error"]["code"]
    if code.startswith("provider/"):  # of whoever is behind Lambda: nobody knows what happened
        raise ValueError(code)
    kind = CODES.get(code, KINDS[status])
    # What a launch does not find is a key, a file system or an image.
    kind = "refused" if kind == "not_found" and asked["call"] == "launch" else kind
    return refuse(kind, code, said["error"]["message"])


def _machine(found: dict[str, Any]) -> dict[str, Any]:
    end = found["actions"]["terminate"]
    said = {
        "id": found["id"],
        "state": STATES.get(found["status"], "unknown"),
        "type": found["instance_type"]["name"],
        "gpus": found["instance_type"]["specs"]["gpus"],
        "name": found.get("name") or found["id"],
        "region": found["region"]["name"],
        "tags": {each["key"]: each["value"] for each in found.get("tags", [])},
        "address": found.get("ip"),
        "local_disks": True,
        "cannot_terminate": None if end["available"] else end.get("reason_description") or "Lambda does not allow it",
    }
    return {name: value for name, value in said.items() if value is not None}


def _list(asked: Asked) -> dict[str, Any]:
    machines = [_machine(each) for each in _ask_cloud(asked, "GET", "/instances")]
    machines = [each for each in machines if asked["region"] in {None, each["region"]}]
    tags_kept(asked, machines)
    return {"machines": machines}


def _get(asked: Asked) -> dict[str, Any]:
    machine = _machine(_ask_cloud(asked, "GET", f"/instances/{quote(asked['id'], safe='')}"))
    tags_kept(asked, [machine])
    return {"machine": machine}


def _terminate(asked: Asked) -> dict[str, Any]:
    ended = _ask_cloud(asked, "POST", "/instance-operations/terminate", {"instance_ids": [asked["id"]]})
    return {"id": next(each["id"] for each in ended["terminated_instances"] if each["id"] == asked["id"])}


def _find_launch(asked: Asked) -> dict[str, Any]:
    found = [each for each in _list(asked)["machines"] if each["name"] == asked["key"][:LONGEST_NAME]]
    return {"key": asked["key"], **({"machine": found[0]} if found else {})}


def _launch(asked: Asked) -> dict[str, Any]:
    there = _find_launch(asked)  # the API takes no key
    if "machine" in there:
        return {"key": asked["key"], "id": there["machine"]["id"]}
    wanted, ssh_key = asked["arguments"], asked["options"].get("ssh_key")
    if ssh_key is None or not wanted.get("region") or not wanted.get("instance_type"):
        refuse("refused", "Incomplete", "a launch needs launch.region, launch.instance_type and options.ssh_key")
    body = {
        "region_name": wanted["region"],
        "instance_type_name": wanted["instance_type"],
        "ssh_key_names": [ssh_key],
        "name": asked["key"][:LONGEST_NAME],
        "image": {"family": wanted["template"]},
        "tags": [{"key": name, "value": text} for name, text in asked["tags"].items()],
    }
    (made,) = _ask_cloud(asked, "POST", "/instance-operations/launch", body)["instance_ids"]
    return {"key": asked["key"], "id": made}


def _prices(asked: Asked) -> dict[str, Any]:
    types = [each["instance_type"] for each in _ask_cloud(asked, "GET", "/instance-types").values()]
    known = {each["name"]: each["price_cents_per_hour"] / 100 for each in types if each["price_cents_per_hour"] > 0}
    return {"prices": [{"type": each, "usd_per_hour": known[each]} for each in asked["types"] if each in known]}


def main() -> None:
    """Answer the request on standard input."""
    calls = {
        "list": _list,
        "get": _get,
        "terminate": _terminate,
        "launch": _launch,
        "find": _find_launch,
        "prices": _prices,
    }
    serve(
        "Lambda",
        {**calls, "tag": tag_in_file},
        lambda asked: [*calls, *(["tag"] if "tags" in asked["options"] else [])],
    )


if __name__ == "__main__":
    main()
