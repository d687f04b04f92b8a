"""Compute Engine over HTTP: a state and its answers, each held to Google's own description of the API."""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from gpuwatch.clouds.gcp.iam import CALLS
from gpuwatch.runtime.clock import Clock
from tests.support.clouds.faults import Asked
from tests.support.clouds.gcp.catalogues import gpus_in, listed, regions, types_of
from tests.support.clouds.gcp.description import Method, check_answer, check_request, method_of
from tests.support.clouds.gcp.machines import (
    EMPTY,
    SECONDS,
    ZONES,
    Group,
    Project,
    RefusedError,
    Resource,
    check_labels,
    fingerprint,
    told,
)
from tests.support.clouds.gcp.monitoring import MEASURED, time_series
from tests.support.clouds.gcp.parts import catalogue, fits, method_key, named, page_of, resource_of, scope_of
from tests.support.clouds.policy_languages import GoogleResource
from tests.support.clouds.server import Refused, Request, Response

_REFUSALS = {
    Refused.THROTTLED: (429, "rateLimitExceeded", "RESOURCE_EXHAUSTED"),
    Refused.INTERNAL: (503, "backendError", "UNAVAILABLE"),
    Refused.EXPIRED: (401, "authError", "UNAUTHENTICATED"),
}
_PERMISSIONS = {name: call.permissions for call in CALLS for name in (call.name, call.also) if name}
_CHANGES = {name for call in CALLS if call.changes for name in (call.name, call.also)}

Answering = Callable[[Project, Mapping[str, str], Request], Resource]


class FakeGcp:
    """Some projects. `regions` are what the plan of faults calls each project's region."""

    def __init__(self, clock: Clock, projects: Mapping[str, str]) -> None:
        """With nothing in them."""
        self.projects = {name: Project(name, clock, number) for number, name in enumerate(projects, start=4)}
        self.regions = dict(projects)
        self.unreachable: set[str] = set()  # zones
        self.unreachable_kinds: dict[str, set[str]] = {}  # zones of which one kind of list is not reached
        self.permissions: set[str] | None = None  # None: all
        self.allows: Callable[[str, GoogleResource], bool] = lambda *_: True  # bindings with conditions
        self.tags: dict[str, Mapping[str, str]] = {}  # the Resource Manager's, by the names of machines
        self.refusing: dict[str, list[tuple[int, str, str]]] = {}  # by the name of a method, once each
        self.before: dict[str, Callable[[], None]] = {}  # what somebody else does just before such a call, once
        self.after: dict[str, Callable[[], None]] = {}  # and right after it
        self.asked_for: list[str] = []
        self.measured = dict(MEASURED)  # by metric and aligner: what Cloud Monitoring has of every machine
        self.skus: list[Resource] = []
        self.service_account_keys: list[Resource] = []
        self.tokens: set[str] | None = None  # that are taken; None: nobody looks

    # As the server of all fakes wants it.

    def asked(self, request: Request) -> Asked:
        """The method by Google's name of it."""
        method, variables = method_of(request.method, request.path)
        name = method.name
        return Asked(operation=name, region=self.regions.get(_project_of(variables), ""), change=name in _CHANGES)

    def answer(self, request: Request) -> Response:
        """Carry it out, held to the description both ways."""
        method, variables = method_of(request.method, request.path)
        body = request.json if request.body else None
        check_request(method, variables, request.query, body)
        self.asked_for.append(method.name)
        try:
            answer = self._carried_out(method, variables, request)
        except RefusedError as error:
            return _error(error.status, error.reason, error.message)
        check_answer(method, answer)
        return Response(body=json.loads(json.dumps(answer)))

    def refusal(self, request: Request, kind: Refused) -> Response:
        """With Google's words."""
        del request
        status, reason, name = _REFUSALS[kind]
        return _error(status, reason, kind.value, name)

    def continues(self, request: Request) -> bool:
        """By its token."""
        return "pageToken" in request.query

    def without_token(self, response: Response) -> Response:
        """No nextPageToken."""
        if not isinstance(response.body, dict):
            return response
        return replace(response, body={key: value for key, value in response.body.items() if key != "nextPageToken"})

    def refuse(self, name: str, status: int, reason: str, message: str = "injected") -> None:
        """The next such call is refused."""
        self.refusing.setdefault(name, []).append((status, reason, message))

    # One call.

    def _carried_out(self, method: Method, variables: Mapping[str, str], request: Request) -> Resource:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.tokens is not None and token not in self.tokens:
            raise RefusedError(401, "authError", "Invalid Credentials")
        if method.name.startswith("cloudbilling."):  # of no project
            return catalogue(self.skus, request)
        if method.name.startswith("iam."):  # of a service account
            self._permitted(method.name, "the service account", request)
            return {"keys": self.service_account_keys} if self.service_account_keys else {}
        name = _project_of(variables)
        if name not in self.projects:
            raise RefusedError(404, "notFound", f"The resource 'projects/{name}' was not found")
        project = self.projects[name]
        project.tick()
        self._permitted(method.name, f"'projects/{project.name}'", request)
        self.before.pop(method.name, lambda: None)()
        if self.refusing.get(method.name):
            raise RefusedError(*self.refusing[method.name].pop(0))
        request_id = request.query.get("requestId")
        if request_id is not None:
            assert uuid.UUID(request_id).int, "the zero UUID is not supported"
            if request_id in project.requests:
                return told(project.requests[request_id])
        answer = self._answers[method_key(method.name)](project, variables, request)
        if request_id is not None:
            project.requests[request_id] = answer
        project.tick()
        self.after.pop(method.name, lambda: None)()
        return told(answer)

    def _holds(self, permission: str, request: Request) -> bool:
        given = self.permissions is None or permission in self.permissions
        return given and self.allows(permission, resource_of(permission, request, self.tags))

    def _permitted(self, name: str, where: str, request: Request) -> None:
        missing = sorted(each for each in _PERMISSIONS[name] if not self._holds(each, request))
        if missing:
            raise RefusedError(403, "forbidden", f"Required '{missing[0]}' permission for {where}")

    @property
    def _answers(self) -> Mapping[str, Answering]:
        return {
            "instances.aggregatedList": self._aggregated("instances", self._machines),
            "instances.get": lambda project, at, _: project.machine(at["zone"], at["instance"]).told,
            "instances.stop": _stop,
            "instances.start": _start,
            "instances.resume": _start,
            "instances.delete": _delete,
            "instances.setLabels": _set_labels,
            "instances.insert": _insert,
            "instances.testIamPermissions": self._test,
            "projects.testIamPermissions": self._test,
            "machineTypes.get": _type,
            "machineTypes.aggregatedList": self._aggregated("machineTypes", types_of),
            "instanceTemplates.get": lambda project, at, _: named(
                project.templates, f"global/instanceTemplates/{at['instanceTemplate']}"
            ),
            "instanceGroupManagers.aggregatedList": self._aggregated(
                "instanceGroupManagers", lambda project: [group.told for group in project.groups.values()]
            ),
            "instanceGroupManagers.get": lambda project, at, _: _group(project, at).told,
            "instanceGroupManagers.listManagedInstances": _members,
            "instanceGroupManagers.resize": _resize,
            "instanceGroupManagers.deleteInstances": _delete_members,
            "autoscalers.aggregatedList": self._aggregated(
                "autoscalers", lambda project: [each.autoscaler for each in project.groups.values() if each.autoscaler]
            ),
            "disks.aggregatedList": self._aggregated("disks", lambda project: list(project.disks.values())),
            "addresses.aggregatedList": self._aggregated("addresses", lambda project: list(project.addresses.values())),
            "globalOperations.aggregatedList": self._aggregated("operations", lambda project: project.operations),
            "zoneOperations.list": _zone_operations,
            "zoneOperations.get": lambda project, at, _: named(
                {each["name"]: each for each in project.operations}, at["operation"]
            ),
            "snapshots.list": lambda project, _, request: listed(project, "snapshot", project.snapshots, request),
            "regions.list": regions,
            "images.list": lambda project, _, request: listed(project, "image", project.images, request),
            "instanceTemplates.aggregatedList": self._aggregated(
                "instanceTemplates", lambda project: list(project.templates.values())
            ),
            "projects.timeSeries.list": lambda project, _, request: time_series(project, request, self.measured),
            "projects.get": lambda project, _, __: {
                "kind": "compute#project",
                "name": project.name,
                "quotas": [{"metric": "GPUS_ALL_REGIONS", "limit": 16.0, "usage": gpus_in(project, "")}],
            },
        }

    def _machines(self, project: Project) -> list[Resource]:
        return [machine.told for machine in project.machines.values()]

    def _aggregated(self, name: str, every: Callable[[Project], list[Resource]]) -> Answering:
        def answer(project: Project, at: Mapping[str, str], request: Request) -> Resource:
            del at
            away = self.unreachable | self.unreachable_kinds.get(name, set())
            if away and request.query.get("returnPartialSuccess") != "true":
                raise RefusedError(503, "backendError", f"{min(away)} cannot be reached")
            there = [each for each in every(project) if scope_of(each).removeprefix("zones/") not in away]
            page, token = page_of(
                [each for each in there if fits(each, request.query.get("filter", ""))], request.query
            )
            items: Resource = {}
            for scope in dict.fromkeys([*(f"zones/{zone}" for zone in ZONES), *map(scope_of, page)]):
                own = [told(each) for each in page if scope_of(each) == scope]
                code = "UNREACHABLE" if scope.removeprefix("zones/") in away else "NO_RESULTS_ON_PAGE"
                items[scope] = {name: own} if own else {"warning": {"code": code, "message": f"{code} in {scope}"}}
            silent = [f"projects/{project.name}/zones/{each}" for each in away]
            more = {"unreachables": silent, "warning": {"code": "UNREACHABLE"}} if silent else {}
            kind = name.removesuffix("es" if name == "addresses" else "s")
            return {
                "kind": f"compute#{kind}AggregatedList",
                "id": f"projects/{project.name}/aggregated/{name}",
                "selfLink": project.link(f"aggregated/{name}"),
                "items": items,
                **more,
                **token,
            }

        return answer

    def _test(self, project: Project, at: Mapping[str, str], request: Request) -> Resource:
        if "zone" in at:
            project.machine(at["zone"], at["resource"])
        wanted = request.json["permissions"]
        return {"permissions": [each for each in wanted if self._holds(each, request)]}


# The calls.


def _stop(project: Project, at: Mapping[str, str], request: Request) -> Resource:
    machine = project.machine(at["zone"], at["instance"])
    if machine.told["status"] in {"TERMINATED", "STOPPING"}:
        return project.operation("stop", machine, done=True)
    _refuse_not_ready(machine.told, "RUNNING", "SUSPENDED")
    scratch = machine.brings_ssds or any(disk["type"] == "SCRATCH" for disk in machine.told["disks"])
    if scratch and "discardLocalSsd" not in request.query:
        sentence = "VM has a Local SSD attached but an undefined value for `discard-local-ssd`."
        raise RefusedError(400, "badRequest", sentence)
    machine.told["status"] = "STOPPING"
    project.later(machine, (SECONDS, "TERMINATED"))
    return project.operation("stop", machine)


def _start(project: Project, at: Mapping[str, str], request: Request) -> Resource:
    machine = project.machine(at["zone"], at["instance"])
    resumed = request.path.endswith("/resume")
    if machine.told["status"] in {"RUNNING", "PROVISIONING", "STAGING"}:
        return project.operation("start", machine, done=True)
    _refuse_not_ready(machine.told, "SUSPENDED" if resumed else "TERMINATED")
    machine.told.update(status="PROVISIONING", lastStartTimestamp=project.stamp())
    project.later(machine, (timedelta(seconds=30), "STAGING"), (SECONDS, "RUNNING"))
    return project.operation("start", machine)


def _delete(project: Project, at: Mapping[str, str], request: Request) -> Resource:
    del request
    machine = project.machine(at["zone"], at["instance"])
    if machine.told["deletionProtection"]:
        sentence = "Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion.'."
        raise RefusedError(400, "invalidResourceUsage", sentence)
    return project.delete(machine)


def _set_labels(project: Project, at: Mapping[str, str], request: Request) -> Resource:
    machine, wanted = project.machine(at["zone"], at["instance"]), request.json
    if wanted.get("labelFingerprint") != machine.told["labelFingerprint"]:
        raise RefusedError(412, "conditionNotMet", "Labels fingerprint either invalid or resource labels have changed")
    check_labels(wanted.get("labels", {}))
    machine.told.update(labels=wanted.get("labels", {}), labelFingerprint=fingerprint(wanted.get("labels", {})))
    return project.operation("setLabels", machine, done=True)


def _insert(project: Project, at: Mapping[str, str], request: Request) -> Resource:
    wanted, source = request.json, request.query["sourceInstanceTemplate"]
    template = named(project.templates, source.partition(f"projects/{project.name}/")[2])
    properties = {**template["properties"], **wanted}
    machine = project.add(at["zone"], wanted["name"], properties, status="PROVISIONING")
    project.later(machine, (timedelta(seconds=30), "STAGING"), (SECONDS, "RUNNING"))
    return project.operation("insert", machine)


def _type(project: Project, at: Mapping[str, str], request: Request) -> Resource:
    del request
    return named({each["name"]: each for each in types_of(project) if each["zone"] == at["zone"]}, at["machineType"])


def _members(project: Project, at: Mapping[str, str], request: Request) -> Resource:
    group = _group(project, at)
    if group.unlisted:
        raise RefusedError(503, "backendError", f"the members of {group.told['name']} cannot be listed")
    machines = [project.machines[number] for number in group.members]
    listed = [
        {
            "id": machine.told["id"],
            "instance": machine.told["selfLink"],
            "instanceStatus": machine.told["status"],
            "currentAction": machine.action,
        }
        for machine in machines
    ]
    listed += project.empty_places(group)
    page, token = page_of(listed, request.query)
    return {"managedInstances": page, **token}


def _resize(project: Project, at: Mapping[str, str], request: Request) -> Resource:
    group = _group(project, at)
    group.told["targetSize"] = int(request.query["size"])
    return project.group_operation("compute.instanceGroupManagers.resize", group)


def _delete_members(project: Project, at: Mapping[str, str], request: Request) -> Resource:
    group = _group(project, at)
    for link in request.json["instances"]:
        _, zone, _, name = link.split("/")[-4:]
        if name.startswith(EMPTY):
            group.told["targetSize"] -= 1
            continue
        machine = project.machine(zone, name)
        if machine.told["id"] not in group.members:
            raise RefusedError(400, "invalid", f"{link} is not a member of {group.told['name']}")
        machine.action = "DELETING"
        group.told["targetSize"] -= 1
        project.delete(machine)
    return project.group_operation("compute.instanceGroupManagers.deleteInstances", group)


def _zone_operations(project: Project, at: Mapping[str, str], request: Request) -> Resource:
    zone = project.link(f"zones/{at['zone']}")
    found = [each for each in project.operations if each.get("zone") == zone and fits(each, request.query["filter"])]
    page, token = page_of(found, request.query)
    path = f"zones/{at['zone']}/operations"
    head = {"kind": "compute#operationList", "id": f"projects/{project.name}/{path}", "selfLink": project.link(path)}
    return {**head, "items": [told(each) for each in page], **token}


# Parts of answers.


def _group(project: Project, at: Mapping[str, str]) -> Group:
    place = f"zones/{at['zone']}" if "zone" in at else f"regions/{at['region']}"
    path = f"{place}/instanceGroupManagers/{at['instanceGroupManager']}"
    if path not in project.groups:
        raise RefusedError(404, "notFound", f"The resource '{path}' was not found")
    return project.groups[path]


def _refuse_not_ready(told: Mapping[str, Any], *statuses: str) -> None:
    if told["status"] not in statuses:
        raise RefusedError(400, "resourceNotReady", f"The resource '{told['name']}' is not ready")


def _project_of(variables: Mapping[str, str]) -> str:
    """Of Compute Engine's paths, the Resource Manager's, and Cloud Monitoring's."""
    return variables.get("project") or (variables.get("resource") or variables.get("name", "")).rpartition("/")[2]


def _error(status: int, reason: str, message: str, name: str = "") -> Response:
    errors = [{"message": message, "domain": "global", "reason": reason}]
    error: Resource = {"code": status, "message": message, "errors": errors}
    return Response(status=status, body={"error": {**error, "status": name} if name else error})
