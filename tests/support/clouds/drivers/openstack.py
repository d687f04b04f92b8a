"""Keystone v3 and Nova v2.1 on one address, as their API references have them: tokens, servers in pages, actions."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuwatch.runtime.clock import Clock
from tests.support.clouds.faults import Asked
from tests.support.clouds.server import Refused, Request, Response

USER, PASSWORD, TOKEN = "demo", "notarealpassword", "gAAAAtoken"
REGION, FLAVOR, PAGE = "RegionOne", "gpu-4", 2
_REFUSED = {Refused.THROTTLED: 429, Refused.INTERNAL: 500, Refused.EXPIRED: 401}


@dataclass(slots=True)
class OpenStack:
    """One project; `refusals` are statuses of the next request of an operation."""

    clock: Clock
    servers: dict[str, dict[str, Any]] = field(default_factory=dict)
    refusals: dict[str, list[int]] = field(default_factory=dict)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    def add(self, metadata: Mapping[str, str], **more: Any) -> str:  # noqa: ANN401  fields of a server
        """A server that runs."""
        node_id = f"0000-{next(self.numbers):04d}"
        self.servers[node_id] = {
            "id": node_id,
            "name": "trainer",
            "status": "ACTIVE",
            "tenant_id": "p-1",
            "user_id": "u-1",
            "hostId": "h",
            "image": {"id": "img-1", "links": []},
            "flavor": {"id": FLAVOR, "links": []},
            "addresses": {"private": [{"addr": "10.0.0.7", "version": 4, "OS-EXT-IPS:type": "fixed"}]},
            "metadata": dict(metadata),
            "created": "2026-01-01T00:00:00Z",
            "updated": "2026-01-01T00:00:00Z",
            "links": [{"rel": "self", "href": f"http://nova.example/v2.1/servers/{node_id}"}],
            "security_groups": [],
            "OS-EXT-AZ:availability_zone": "nova",
            **more,
        }
        return node_id

    def asked(self, request: Request) -> Asked:
        """By method and path."""
        last = request.path.rpartition("/")[2]
        if last == "tokens":
            return Asked(operation="token", region="")
        change = request.method != "GET"
        named = {"action": "act", "metadata": "tag", "detail": "list"}.get(last, "terminate" if change else "get")
        return Asked(operation=next(iter(request.json)) if named == "act" else named, region="", change=change)

    def answer(self, request: Request) -> Response:
        """Carry it out."""
        asked = self.asked(request)
        if self.refusals.get(asked.operation):
            return self._refused(self.refusals[asked.operation].pop(0))
        if asked.operation == "token":
            return self._token(request)
        if request.headers.get("x-auth-token") != TOKEN:
            return self._refused(401)
        if asked.operation == "list":
            return self._page(request)
        server = self.servers.get(request.path.split("/")[3])
        if server is None:
            return self._refused(404)
        if asked.operation == "tag":
            server["metadata"] |= request.json["metadata"]
            return Response(body={"metadata": server["metadata"]})
        if asked.operation == "terminate":
            del self.servers[server["id"]]
            return Response(status=204)
        if server["status"] != {"os-stop": "ACTIVE", "os-start": "SHUTOFF"}[asked.operation]:
            return self._refused(409)
        server["status"] = {"os-stop": "SHUTOFF", "os-start": "ACTIVE"}[asked.operation]
        return Response(status=202)

    def refusal(self, request: Request, kind: Refused) -> Response:
        """In its words."""
        del request
        return self._refused(_REFUSED[kind])

    @staticmethod
    def _refused(status: int) -> Response:
        headers = {"Retry-After": "7"} if status == 429 else {}
        return Response(status=status, headers=headers, body={"fault": {"code": status, "message": "it does not go"}})

    def _token(self, request: Request) -> Response:
        user = request.json["auth"]["identity"]["password"]["user"]
        if (user["name"], user["password"]) != (USER, PASSWORD):
            return self._refused(401)
        url = f"http://{request.headers['host']}/v2.1"
        point = {"id": "e", "interface": "public", "region": REGION, "region_id": REGION, "url": url}
        service = {"id": "s", "type": "compute", "name": "nova", "endpoints": [point]}
        token = {
            "methods": ["password"],
            "expires_at": "2099-01-01T00:00:00.000000Z",
            "issued_at": "2026-01-01T00:00:00.000000Z",
            "user": {"id": "u-1", "name": USER, "domain": {"id": "default", "name": "Default"}},
            "roles": [{"id": "r", "name": "member"}],
            "catalog": [service],
        }
        return Response(status=201, headers={"X-Subject-Token": TOKEN}, body={"token": token})

    def _page(self, request: Request) -> Response:
        """So many servers after a marker, and where the next are."""
        ids = sorted(self.servers)
        first = ids.index(request.query["marker"]) + 1 if "marker" in request.query else 0
        shown = ids[first : first + PAGE]
        body: dict[str, Any] = {"servers": [self.servers[each] for each in shown]}
        if first + PAGE < len(ids):
            href = f"http://{request.headers['host']}/v2.1/servers/detail?marker={shown[-1]}"
            body["servers_links"] = [{"rel": "next", "href": href}]
        return Response(body=body)
