"""Little Cloud, the made-up cloud of docs/examples/little_cloud_driver.py: a state that changes with time."""

import itertools
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Self

from gpuwatch.runtime.clock import Clock
from tests.support.clouds.faults import Asked
from tests.support.clouds.server import Refused, Request, Response

TOKEN = "notarealtoken"  # noqa: S105  of a fake
ACCOUNT = "lab-7"
PAGE = 5
GPU_SIZE, CPU_SIZE = "gpu-1", "cpu-2"
_PASSES = timedelta(seconds=60)
_NEXT = {"booting": "on", "going-down": "off", "deleting": "deleted"}
_REFUSED = {
    Refused.THROTTLED: (429, "too-many"),
    Refused.INTERNAL: (500, "internal"),
    Refused.EXPIRED: (401, "expired"),
}


@dataclass(slots=True, kw_only=True)
class Machine:
    """One machine; `since`: when it came into its status."""

    id: str
    size: str
    region: str
    labels: dict[str, str]
    since: datetime
    booted_at: datetime
    status: str = "on"
    spot: bool = False
    key: str = ""
    last_stop: str = ""


class Refusal(Exception):  # noqa: N818  the cloud's word
    """An error as an answer."""

    def __init__(self, status: int, code: str) -> None:
        """With its code."""
        super().__init__(code)
        self.status, self.code = status, code


@dataclass(slots=True)
class LittleCloud:
    """An account; `refusals` are status and code of the next request of an operation."""

    clock: Clock
    templates: dict[str, str] = field(default_factory=dict)  # the size of each
    spot: set[str] = field(default_factory=set)  # the templates of spot machines
    machines: dict[str, Machine] = field(default_factory=dict)
    refusals: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """What the cloud was, for reads that are late; its clock is the same."""
        return type(self)(self.clock, dict(self.templates), set(self.spot), deepcopy(self.machines, memo))

    def add(self, labels: Mapping[str, str], region: str, *, size: str = GPU_SIZE, **more: Any) -> Machine:  # noqa: ANN401  fields of Machine
        """A machine, which runs unless it is told otherwise."""
        now = self.clock.now()
        made = Machine(
            id=f"m-{next(self.numbers):06d}",
            size=size,
            region=region,
            labels=dict(labels),
            since=now,
            booted_at=now,
            **more,
        )
        self.machines[made.id] = made
        return made

    def become(self, machine: Machine, status: str) -> None:
        """It has that status from now on."""
        machine.status, machine.since = status, self.clock.now()

    def pass_time(self) -> None:
        """Whatever was in between for a minute has arrived."""
        for each in self.machines.values():
            if each.status in _NEXT and self.clock.now() - each.since >= _PASSES:
                self.become(each, _NEXT[each.status])

    # The server's questions.

    def asked(self, request: Request) -> Asked:
        """By method and path."""
        _, _, kind, *rest = request.path.split("/")
        region = request.query.get("region", "")
        if request.method == "GET":
            operation = "find" if "key" in request.query else "get" if rest else kind
            return Asked(operation=operation, region=region)
        named = {"PATCH": "tag", "DELETE": "terminate"}.get(request.method) or (rest[-1] if rest else "launch")
        if rest and rest[0] in self.machines:
            region = self.machines[rest[0]].region
        return Asked(operation=named, region=region, change=True)

    def answer(self, request: Request) -> Response:
        """Carry it out."""
        if request.headers["authorization"] != f"Bearer {TOKEN}":
            return Response(status=401, body={"code": "bad-token", "message": "no"})
        asked = self.asked(request)
        self.pass_time()
        try:
            self._refuse(asked.operation)
            acts: Mapping[str, Callable[[Request], object]] = {
                "machines": self._list,
                "find": self._list,
                "get": lambda asked: {"machine": self._shown(self._machine(asked)), "account": ACCOUNT},
                "launch": self._launch,
                "tag": self._tag,
                "prices": lambda _: {"prices": [{"size": GPU_SIZE, "hourly": "2.49"}]},
            }
            return Response(body=acts.get(asked.operation, self._move)(request))
        except Refusal as refusal:
            return Response(status=refusal.status, body={"code": refusal.code, "message": "no"})

    def refusal(self, request: Request, kind: Refused) -> Response:
        """In its words."""
        del request
        status, code = _REFUSED[kind]
        return Response(status=status, body={"code": code, "message": "injected"})

    def continues(self, request: Request) -> bool:
        """Whether it asks for a page after the first."""
        return request.query.get("page", "0") != "0"

    def without_token(self, response: Response) -> Response:
        """A first page that says that it is the last."""
        body: Any = deepcopy(response.body)
        if body.get("more"):
            body["more"] = False
        return Response(body=body)

    # Within.

    def _refuse(self, operation: str) -> None:
        """What a test wants refused, once."""
        if self.refusals.get(operation):
            raise Refusal(*self.refusals[operation].pop(0))

    def _machine(self, request: Request) -> Machine:
        found = self.machines.get(request.path.split("/")[3])
        if found is None or request.query.get("region", found.region) != found.region:
            raise Refusal(404, "no-such-machine")
        return found

    def _shown(self, machine: Machine) -> dict[str, object]:
        return {
            "id": machine.id,
            "status": machine.status,
            "size": machine.size,
            "gpus": 1 if machine.size.startswith("gpu") else 0,
            "region": machine.region,
            "zone": f"{machine.region}-a",
            "spot": machine.spot,
            "labels": machine.labels,
            "booted_at": machine.booted_at.isoformat(),
            "last_stop": machine.last_stop if machine.status in {"going-down", "off"} else "",
        }

    def _list(self, request: Request) -> object:
        found = [each for each in self.machines.values() if request.query.get("region", each.region) == each.region]
        if "key" in request.query:
            found = [each for each in found if each.key == request.query["key"]]
        first = int(request.query.get("page", "0")) * PAGE
        shown = [self._shown(each) for each in found[first : first + PAGE]]
        return {"machines": shown, "total": len(found), "more": first + PAGE < len(found), "account": ACCOUNT}

    def _launch(self, request: Request) -> object:
        wanted = request.json
        for each in self.machines.values():
            if each.key == wanted["key"]:
                return {"id": each.id}
        size, spot = self.templates.get(wanted["template"]), wanted["template"] in self.spot
        if size is None:
            raise Refusal(400, "no-such-template")
        if size == CPU_SIZE:
            raise Refusal(400, "no-gpu")
        made = self.add(wanted["labels"], wanted["region"], size=size, spot=spot, status="booting", key=wanted["key"])
        return {"id": made.id}

    def _tag(self, request: Request) -> object:
        machine = self._machine(request)
        machine.labels |= request.json
        return {"id": machine.id}

    def _move(self, request: Request) -> object:
        machine, verb = self._machine(request), self.asked(request).operation
        was, made = machine.status, f"r-{next(self.numbers):06d}"
        if verb == "terminate" and was in {"deleting", "deleted"}:
            return {"id": machine.id, "was": was, "request": made}
        to = {"stop": "going-down", "start": "booting", "terminate": "deleting"}[verb]
        if {"stop": was != "on", "start": was != "off"}.get(verb):
            raise Refusal(409, f"is-{was}")
        if verb == "start":
            machine.booted_at = self.clock.now()
        if verb == "stop":
            machine.last_stop = made
        self.become(machine, to)
        return {"id": machine.id, "was": was, "request": made}
