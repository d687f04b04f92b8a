"""Recorded answers of Google's Compute Engine by their kinds, and a Compute Engine that gives one of them."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from google.auth.credentials import AnonymousCredentials

from gpuwatch.clouds.gcp.cloud import GcpCloud
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.recorded import NOW, Recorded, answering
from tests.support.clouds.replay import Replay
from tests.support.clouds.server import Request, Response
from tests.support.fakes.cloud_worlds import FLEET

Json = dict[str, Any]

PROJECT, ZONE = "cloud-custodian", "us-central1-a"
_AGGREGATED, _LIST = "AggregatedList", "List"
_LINK = re.compile(r"projects/(?P<project>[^/]+)/(?P<scope>global|(?:zones|regions)/[^/]+)/[^/]+/[^/]+$")
# The plurals of what gpuwatch reads, which are the names of the lists.
PLURALS = {
    "instance": "instances",
    "instanceGroupManager": "instanceGroupManagers",
    "autoscaler": "autoscalers",
    "disk": "disks",
    "address": "addresses",
    "snapshot": "snapshots",
    "image": "images",
    "operation": "operations",
    "machineType": "machineTypes",
    "instanceTemplate": "instanceTemplates",
    "region": "regions",
}
_SINGULARS = {plural: kind for kind, plural in PLURALS.items()}


@dataclass(frozen=True, kw_only=True)
class Answer(Recorded):
    """One answer, by Google's own word for its kind."""

    @cached_property
    def body(self) -> Any:  # noqa: ANN401  JSON
        """What came; None: nothing, or no JSON."""
        data = self.line.get("data")
        told = data.get("body") if isinstance(data, dict) else self.line.get("text", self.line.get("body"))
        try:
            return json.loads(told) if isinstance(told, str) else told
        except ValueError:
            return None

    @property
    def status(self) -> int:
        """The HTTP status; where none was recorded that in the body."""
        told = self.line.get("status") or ((self.line.get("data") or {}).get("headers") or {}).get("status")
        error = self.body.get("error") if isinstance(self.body, dict) and self.kind != "operation" else None
        return int((error or {}).get("code") or told or 200)

    @property
    def refused(self) -> bool:
        """Whether it is an error."""
        return self.status >= 400

    @property
    def whole_kind(self) -> str:
        """Without the API's name: instance, instanceList, instanceAggregatedList; "" where nothing names one."""
        told = str(self.body.get("kind", "")).rpartition("#")[2] if isinstance(self.body, dict) else ""
        return told or self._asked_kind

    @property
    def _asked_kind(self) -> str:
        """By the request, where it was recorded: an answer of some parts alone does not name its kind."""
        parts = urlsplit(str(self.line.get("uri", ""))).path.partition("/compute/v1/projects/")[2].split("/")
        if len(parts) < 2:
            return "project" if parts[0] else ""
        last, before = _SINGULARS.get(parts[-1], ""), _SINGULARS.get(parts[-2], "")
        if parts[1] == "aggregated":
            return f"{last}{_AGGREGATED}"
        return f"{last}{_LIST}" if last else before

    @property
    def kind(self) -> str:
        """Of one thing in it: instance."""
        return self.whole_kind.removesuffix(_AGGREGATED).removesuffix(_LIST)

    @property
    def plural(self) -> str:
        """The name of the list of such things; "" of what gpuwatch does not read."""
        return PLURALS.get(self.kind, "")

    @property
    def is_aggregated(self) -> bool:
        """Whether it is a list by scopes, whatever it calls itself: some recordings have another list's name."""
        return isinstance(self.body, dict) and isinstance(self.body.get("items"), dict)

    @property
    def items(self) -> list[Json]:
        """The things in it."""
        if self.is_aggregated:
            return [each for content in self.body["items"].values() for each in content.get(self.plural) or ()]
        if self.whole_kind.endswith(_LIST):
            return list(self.body.get("items") or ())
        return [self.body]

    def rewritten(self) -> str:
        """The body again, as it is now."""
        return json.dumps(self.body)


def place_of(thing: Mapping[str, Any]) -> tuple[str, str]:
    """The project and the scope of a thing, by its own link."""
    found = _LINK.search(str(thing.get("selfLink", "")))
    scope = str(thing.get("zone") or thing.get("region") or "").rpartition("/projects/")[2].partition("/")[2]
    if found is None:
        return PROJECT, scope or "global"
    return found["project"], scope or found["scope"]


@dataclass
class Compute:
    """Compute Engine with nothing but what a test puts there, by plurals; every machine type has a GPU."""

    things: dict[str, list[Json]] = field(default_factory=dict)
    answer: Answer | None = None  # whose body is given as it is, where it is the list that is asked for
    changed: Answer | None = None  # the answer to every change
    refusal: Answer | None = None  # of all that is asked
    project: Json = field(default_factory=dict)

    @classmethod
    def of(cls, answer: Answer, **more: list[Json]) -> "Compute":
        """With what an answer has."""
        return cls(things={**more, answer.plural: answer.items}, answer=answer)

    def __call__(self, request: Request) -> Response:
        """Answer as it would; what is not there is an empty list, or not found."""
        if self.refusal is not None:
            return Response(status=self.refusal.status, body=self.refusal.body)
        parts = request.path.partition("/projects/")[2].split("/")[1:]
        if not parts:
            return Response(body=self.project)
        reads = request.method == "GET" or parts[-1] in {"listManagedInstances", "testIamPermissions"}
        if not reads:
            return Response(body=None if self.changed is None else self.changed.body)
        if parts[0] == "aggregated":
            return Response(body=self._by_scopes(parts[1]))
        if parts[-1] == "listManagedInstances":
            return Response(body={})
        if parts[-1] in PLURALS.values():
            found = self.things.get(parts[-1], [])
            return Response(body={"items": found} if found else {})
        return self._one(parts)

    def _by_scopes(self, plural: str) -> Json:
        if self.answer is not None and self.answer.is_aggregated and self.answer.plural == plural:
            return dict(self.answer.body)
        scopes: dict[str, Any] = {f"zones/{ZONE}": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}
        for each in self.things.get(plural, []):
            content = scopes.setdefault(place_of(each)[1], {})
            content.pop("warning", None)
            content.setdefault(plural, []).append(each)
        return {"items": scopes}

    def _one(self, parts: list[str]) -> Response:
        plural, name = parts[-2:]
        wanted = f"{plural}/{name}"
        for each in self.things.get(plural, []):
            if str(each.get("selfLink", "")).endswith(wanted) and "/".join(parts[:-2]) in str(each["selfLink"]):
                return Response(body=each)
        if plural == "machineTypes":
            return Response(body={"name": name, "accelerators": [_T4]})
        if plural == "instanceTemplates":
            return Response(body={"name": name, "properties": {"machineType": "g2-standard-4"}})
        error = {"code": 404, "errors": [{"reason": "notFound", "message": f"{name} was not found"}]}
        return Response(status=404, body={"error": error})


_T4 = {"guestAcceleratorType": "nvidia-tesla-t4", "guestAcceleratorCount": 1}


@contextmanager
def compute_engine(compute: Compute, *, regions: tuple[str, ...] = ("all",)) -> Iterator[GcpCloud]:
    """The adapter, at Google's own address, for the project of what is there."""
    things = [each for every in compute.things.values() for each in every]
    project = place_of(things[0])[0] if things else PROJECT
    with answering(compute):
        yield GcpCloud(
            fleet=FLEET,
            clock=ManualClock(wall=NOW),
            regions=regions,
            projects=[project],
            credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]  # google-auth's own
        )


@contextmanager
def replayed(replay: Replay) -> Iterator[GcpCloud]:
    """The adapter for the projects of a recording."""
    projects = {found[1] for url in replay.urls if (found := re.search(r"/compute/v1/projects/([^/?]+)", url))}
    with answering(replay):
        yield GcpCloud(
            fleet=replay.fleet,
            clock=ManualClock(wall=replay.at),
            regions=("all",),
            projects=sorted(projects),
            credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]  # google-auth's own
        )


def link_to(path: str, project: str = PROJECT) -> str:
    """A link as Google writes it."""
    return f"https://www.googleapis.com/compute/v1/projects/{project}/{path}"


def an_instance(*, name: str = "own", node_id: str = "1234567890123456789", **more: object) -> Json:
    """A machine that an answer about something else needs; not recorded."""
    return {
        "kind": "compute#instance",
        "id": node_id,
        "name": name,
        "status": "RUNNING",
        "creationTimestamp": "2025-12-01T00:00:00.000-08:00",
        "zone": link_to(f"zones/{ZONE}"),
        "machineType": link_to(f"zones/{ZONE}/machineTypes/g2-standard-4"),
        "selfLink": link_to(f"zones/{ZONE}/instances/{name}"),
        "labelFingerprint": "42WmSpB8rSM=",
        **more,
    }


def things_of(answer: Answer) -> Iterator[tuple[str, object]]:
    """What a good answer has, by kinds; the page itself is one more."""
    if answer.refused and isinstance(answer.body, dict):
        yield "error", answer.body
    if answer.refused or not answer.plural:
        return
    for each in answer.items:
        yield answer.kind, each
    if answer.is_aggregated or answer.whole_kind.endswith(_LIST):
        page = {key: value for key, value in answer.body.items() if key != "items"}
        yield "aggregated page" if answer.is_aggregated else "page", page
        if answer.is_aggregated:
            for content in answer.body["items"].values():
                yield "scope", {key: value for key, value in content.items() if key != answer.plural}
