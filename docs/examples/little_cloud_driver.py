#!/usr/bin/python3
"""A driver for gpuwatch: it speaks for Little Cloud, a made-up cloud with a usual HTTP API.

Install it: install -o root -m 755 little_cloud_driver.py /usr/local/lib/gpuwatch/little-cloud
"""

import contextlib
import http.client
import json
import sys
import urllib.parse

STATES = {
    "booting": "pending",
    "on": "running",
    "going-down": "stopping",
    "off": "stopped",
    "deleting": "terminating",
    "deleted": "terminated",
}
# What the cloud's status codes and codes mean. Any other 4xx is a refusal, anything else is no usable answer.
KINDS = {401: "auth", 403: "auth", 404: "not_found", 409: "busy", 429: "throttled"}
CODES = {"sold-out": "no_capacity", "quota": "quota", "locked": "protected", "no-gpu": "no_gpu"}
CALLS = ["list", "get", "stop", "start", "terminate", "launch", "find", "tag", "prices"]


class Refused(Exception):
    """The cloud said no, or nothing was sent."""

    def __init__(self, kind, code, message):
        self.error = {"kind": kind, "code": code, "message": message}


def ask(request, method, path, body=None, **query):
    """Send one request, once; whatever is no answer ends the driver, and gpuwatch takes that for a doubt."""
    url = urllib.parse.urlsplit(request["endpoint"] or "https://api.little.example")
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    query = urllib.parse.urlencode({name: value for name, value in query.items() if value is not None})
    headers = {"Authorization": f"Bearer {request['secrets']['token']}", "Content-Type": "application/json"}
    with contextlib.closing(kind(url.netloc, timeout=30)) as connection:
        try:
            connection.connect()
        except OSError as error:
            raise Refused("not_sent", "NoConnection", f"no connection to {url.netloc}: {error}") from None
        connection.request(method, f"{path}?{query}" if query else path, json.dumps(body) if body else None, headers)
        with connection.getresponse() as answer:
            said = json.loads(answer.read())
    if 400 <= answer.status < 500:
        found = CODES.get(said["code"]) or KINDS.get(answer.status, "refused")
        raise Refused(found, said["code"], said["message"])
    if answer.status != 200:
        raise RuntimeError(f"{method} {path}: status {answer.status}")
    return said


def machine(found):
    """A machine of the cloud in gpuwatch's words."""
    said = {
        "id": found["id"],
        "state": STATES.get(found["status"], "unknown"),
        "type": found["size"],
        "gpus": found["gpus"],
        "name": found["labels"].get("Name", found["id"]),
        "region": found["region"],
        "zone": found["zone"],
        "capacity": "spot" if found["spot"] else "on_demand",
        "tags": found["labels"],
        "started_at": found["booted_at"],
    }
    if found["last_stop"]:
        said["last_stop"] = {"request": found["last_stop"]}
    return said


def all_machines(request):
    """Every page, or an error: a list that lacks machines would be a lie."""
    found, account, page = {}, None, 0
    while True:
        said = ask(request, "GET", "/v1/machines", region=request["region"], page=page)
        if page and not {each["id"] for each in said["machines"]} - set(found):
            raise RuntimeError(f"page {page} has no machine that the pages before it did not have")
        found.update({each["id"]: each for each in said["machines"]})
        account, page = said["account"], page + 1
        if not said["more"]:
            break
    if len(found) != said["total"]:
        raise RuntimeError(f"the pages have {len(found)} machines, and the cloud counts {said['total']}")
    return {"machines": [machine(each) for each in found.values()], "account": account}


def get(request):
    said = ask(request, "GET", f"/v1/machines/{request['id']}", region=request["region"])
    return {"machine": machine(said["machine"]), "account": said["account"]}


def find(request):
    said = ask(request, "GET", "/v1/machines", region=request["region"], key=request["key"])
    found = {"machine": machine(said["machines"][0]), "account": said["account"]} if said["machines"] else {}
    return {"key": request["key"], **found}


def stop(request):
    said = ask(request, "POST", f"/v1/machines/{request['id']}/stop")
    return {"id": said["id"], "ran": said["was"] == "on", "request": said["request"]}


def start(request):
    return {"id": ask(request, "POST", f"/v1/machines/{request['id']}/start")["id"]}


def terminate(request):
    return {"id": ask(request, "DELETE", f"/v1/machines/{request['id']}")["id"]}


def tag(request):
    return {"id": ask(request, "PATCH", f"/v1/machines/{request['id']}", request["tags"])["id"]}


def launch(request):
    wanted = request["arguments"]
    body = {"template": wanted["template"], "region": request["region"], "labels": request["tags"]}
    # The cloud takes a key and makes one machine for it. Without that: use the key as the name, and look for it first.
    return {"key": request["key"], "id": ask(request, "POST", "/v1/machines", {**body, "key": request["key"]})["id"]}


def prices(request):
    said = ask(request, "GET", "/v1/prices", region=request["region"])
    rows = [each for each in said["prices"] if each["size"] in request["types"]]
    return {"prices": [{"type": each["size"], "usd_per_hour": each["hourly"]} for each in rows]}


def main():
    request = json.load(sys.stdin)
    call = request["call"]
    handlers = {name: globals()[name] for name in CALLS if name != "list"} | {"list": all_machines}
    try:
        if request["gpuwatch"] != 1 or call not in {"describe", *handlers}:
            raise Refused("refused", "Unknown", "this driver speaks version 1 of gpuwatch's protocol")
        said = {"name": "Little Cloud", "calls": CALLS} if call == "describe" else handlers[call](request)
    except Refused as refused:
        said = {"error": refused.error}
    json.dump({"gpuwatch": 1, "call": call, **said}, sys.stdout)


main()
