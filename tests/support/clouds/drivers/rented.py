"""Runpod and Lambda as their API descriptions have them: states that change with time, and their own refusals."""

import itertools
import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

from gpuwatch.runtime.clock import Clock
from tests.support.clouds.faults import Asked
from tests.support.clouds.server import Refused, Request, Response

KEY = "notarealkey"
_PASSES = timedelta(seconds=60)
PASSES = {"PROVISIONING": "STARTING", "STARTING": "RUNNING", "booting": "active", "terminating": "terminated"}
_REFUSED = {Refused.THROTTLED: 429, Refused.INTERNAL: 500, Refused.EXPIRED: 401}


class Refusal(Exception):  # noqa: N818  the cloud's word
    """An error as an answer."""

    def __init__(self, status: int, code: str) -> None:
        """With its code."""
        super().__init__(code)
        self.status, self.code = status, code


@dataclass(slots=True)
class Rented:
    """What both have: machines in the API's own form, of which `since` is when they came into their status."""

    clock: Clock
    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    since: dict[str, Any] = field(default_factory=dict)
    refusals: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """What the cloud was, for reads that are late."""
        return type(self)(self.clock, deepcopy(self.machines, memo), dict(self.since))

    def become(self, node_id: str, status: str) -> None:
        """It has that status from now on."""
        self.machines[node_id]["status"], self.since[node_id] = status, self.clock.now()

    def answer(self, request: Request) -> Response:
        """Carry it out; no answer has a key."""
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return self.refused(401, "global/invalid-api-key")
        for node_id, each in self.machines.items():
            if each["status"] in PASSES and self.clock.now() - self.since[node_id] >= _PASSES:
                self.become(node_id, PASSES[each["status"]])
        asked = self.asked(request)
        try:
            self._refuse(asked.operation)
            return self.carried(asked.operation, request)
        except Refusal as refusal:
            return self.refused(refusal.status, refusal.code)

    def refusal(self, request: Request, kind: Refused) -> Response:
        """In its words."""
        del request
        return self.refused(_REFUSED[kind], "injected")

    def _refuse(self, operation: str) -> None:
        if self.refusals.get(operation):
            raise Refusal(*self.refusals[operation].pop(0))

    def machine(self, node_id: str, code: str) -> dict[str, Any]:
        """One of them."""
        if node_id not in self.machines:
            raise Refusal(404, code)
        return self.machines[node_id]

    def asked(self, request: Request) -> Asked:
        """By method and path."""
        raise NotImplementedError

    def carried(self, operation: str, request: Request) -> Response:
        """What comes of it."""
        raise NotImplementedError

    def refused(self, status: int, code: str) -> Response:
        """An error in its form."""
        raise NotImplementedError


class Runpod(Rented):
    """REST API v2."""

    def add(self, env: Mapping[str, str], **more: Any) -> str:  # noqa: ANN401  fields of a pod
        """A pod with every member that the description wants."""
        node_id = f"pod{next(self.numbers):04d}"
        now = self.clock.now().isoformat()
        self.machines[node_id] = {
            "id": node_id,
            "name": "trainer",
            "status": "RUNNING",
            "actions": ["stop", "restart", "terminate"],
            "image": "runpod/pytorch:1.0.2",
            "args": "",
            "disk": 50,
            "mounts": {},
            "ports": ["22/tcp"],
            "env": {**env, "HF_TOKEN": "theirs"},
            "registry": None,
            "gpu": {"id": "NVIDIA A40", "count": 2},
            "cloud": "SECURE",
            "dataCenterId": "EU-SE-1",
            "cudaVersion": "12.8",
            "ssh": {"proxy": None, "direct": None},
            "template": None,
            "cost": 0.88,
            "locked": False,
            "globalNetworking": {"enabled": False},
            "runtime": None,
            "createdAt": now,
            "startedAt": now,
            **more,
        }
        self.since[node_id] = self.clock.now()
        return node_id

    def asked(self, request: Request) -> Asked:
        """By method and path."""
        rest = request.path.split("/")[2:]
        named = request.json["action"] if rest[-1] == "action" else "launch" if request.method == "POST" else "get"
        named = "list" if named == "get" and rest == ["pods"] else "prices" if "catalog" in rest else named
        return Asked(operation=named, region="", change=request.method != "GET")

    def carried(self, operation: str, request: Request) -> Response:
        """What comes of it."""
        rest = request.path.split("/")[2:]
        if operation == "list":
            whole = request.query.get("includeClusterPods") == "true"
            return Response(body={"pods": [each for each in self.machines.values() if whole or "cluster" not in each]})
        if operation == "prices":
            price = {"secure": 0.44, "community": 0.35}
            gpu = {"id": "NVIDIA A40", "name": "A40", "pool": None, "manufacturer": "NVIDIA", "memory": 48}
            more = {"secure": True, "community": True, "price": price, "maxCount": {"secure": 10, "community": 2}}
            return Response(body={"gpus": [gpu | more]})
        if operation == "launch":
            return self._launched(request.json)
        pod = self.machine(rest[1], "Not Found")
        if operation == "get":
            return Response(body=pod)
        if operation not in self._actions(pod["status"]):
            raise Refusal(409, "Conflict")
        self.become(pod["id"], {"start": "PROVISIONING", "stop": "EXITED", "terminate": "TERMINATED"}[operation])
        return Response(status=204) if operation == "terminate" else Response(body=pod)

    @staticmethod
    def _actions(status: str) -> tuple[str, ...]:
        """The description's table."""
        first = {"RUNNING": ("stop", "restart"), "EXITED": ("start",), "ERROR": ("start",)}.get(status, ("stop",))
        return () if status == "TERMINATED" else (*first, "terminate")

    def _launched(self, body: dict[str, Any]) -> Response:
        known = {"name", "templateId", "gpu", "cloud", "env", "dataCenterIds"}
        if not body.get("name") or set(body) - known or body["gpu"]["count"] < 1:
            raise Refusal(422, "Unprocessable Entity")
        if body["gpu"]["id"] != "NVIDIA A40":
            raise Refusal(400, "Bad Request")
        region = next(iter(body.get("dataCenterIds", [])), "EU-SE-1")
        made = self.add(
            body["env"],
            name=body["name"],
            status="PROVISIONING",
            gpu=body["gpu"],
            cloud=body["cloud"],
            template=body["templateId"],
            dataCenterId=region,
        )
        return Response(status=201, body=self.machines[made])

    def refused(self, status: int, code: str) -> Response:
        """RFC 9457; a 429 says when to come again."""
        headers = {"Content-Type": "application/problem+json", **({"Retry-After": "7"} if status == 429 else {})}
        body = {"title": code, "status": status, "detail": "it does not go", "errors": ["gpu.count: too many"]}
        return Response(status=status, headers=headers, body=body if status != 500 else b"<html>")


class Lambda(Rented):
    """API v1, 1.10.0."""

    def add(self, tags: Mapping[str, str], **more: Any) -> str:  # noqa: ANN401  fields of an instance
        """An instance with every member that the description wants."""
        node_id = f"{next(self.numbers):032x}"
        free = {"available": True}
        self.machines[node_id] = {
            "id": node_id,
            "ip": "192.0.2.7",
            "status": "active",
            "ssh_key_names": ["ours"],
            "file_system_names": [],
            "region": {"name": "us-west-1", "description": "California, USA"},
            "instance_type": _lambda_type("gpu_8x_h100_sxm5", 8),
            "jupyter_token": "theirs",
            "actions": dict.fromkeys(("migrate", "rebuild", "restart", "cold_reboot", "terminate"), free),
            "tags": [{"key": name, "value": text} for name, text in tags.items()],
            **more,
        }
        self.since[node_id] = self.clock.now()
        return node_id

    def asked(self, request: Request) -> Asked:
        """By method and path."""
        rest = request.path.split("/")[1:]
        last = {"instances": "list", "instance-types": "prices"}.get(rest[-1], rest[-1])
        return Asked(
            operation=last if len(rest) < 2 or request.method != "GET" else "get",
            region="",
            change=request.method != "GET",
        )

    def carried(self, operation: str, request: Request) -> Response:
        """What comes of it."""
        gone = "global/object-does-not-exist"
        if operation == "list":
            shown: object = [each for each in self.machines.values() if each["status"] != "terminated"]
        elif operation == "prices":
            kind = _lambda_type("gpu_8x_h100_sxm5", 8)
            shown = {kind["name"]: {"instance_type": kind, "regions_with_capacity_available": []}}
        elif operation == "get":
            shown = self.machine(request.path.rpartition("/")[2], gone)
        elif operation == "launch":
            shown = self._launched(request.json)
        else:
            (node_id,) = request.json["instance_ids"]
            ended = self.machine(node_id, gone)
            self.become(node_id, "terminating")
            shown = {"terminated_instances": [ended]}
        return Response(body={"data": shown})

    def _launched(self, body: dict[str, Any]) -> object:
        if len(body["ssh_key_names"]) != 1 or len(body["name"]) > 64:
            raise Refusal(400, "global/invalid-parameters")
        if body["ssh_key_names"] != ["ours"]:
            raise Refusal(404, "global/object-does-not-exist")
        tags = {each["key"]: each["value"] for each in body["tags"]}
        made = self.add(
            tags, name=body["name"], status="booting", instance_type=_lambda_type(body["instance_type_name"], 8)
        )
        return {"instance_ids": [made]}

    def refused(self, status: int, code: str) -> Response:
        """Code and message; too many requests come from a gateway, as a text."""
        body: object = {"error": {"code": code, "message": "it does not go", "suggestion": "wait"}}
        if status in {429, 500}:
            body = b"slow down"
        return Response(status=status, headers={"Retry-After": "7"} if status == 429 else {}, body=body)


def _lambda_type(name: str, gpus: int) -> dict[str, Any]:
    specs = {"vcpus": 208, "memory_gib": 1800, "storage_gib": 22528, "gpus": gpus}
    said = {
        "name": name,
        "description": "8x H100",
        "gpu_description": "H100 (80 GB SXM5)",
        "price_cents_per_hour": 2392,
    }
    return json.loads(json.dumps(said | {"specs": specs}))  # type: ignore[no-any-return]
