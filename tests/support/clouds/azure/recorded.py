"""Recorded answers of Azure Resource Manager by their kinds, and a Resource Manager that gives one of them."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

from gpuwatch.clouds.azure.cloud import AzureCloud
from gpuwatch.clouds.azure.settings import SubscriptionSettings
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.azure.world import StaticCredential
from tests.support.clouds.recorded import NOW, Recorded, answering, recorded
from tests.support.clouds.replay import Replay
from tests.support.clouds.server import Request, Response
from tests.support.fakes.cloud_worlds import FLEET

SUB = "99999999-9999-9999-9999-999999999999"
VMS, SETS, DISKS = "virtualmachines", "virtualmachinescalesets", "disks"
_OF_A_THING = frozenset({"InstanceView", "CheckIPAddressAvailability"})  # what is asked of one thing


@dataclass(frozen=True, kw_only=True)
class Answer(Recorded):
    """One answer, by the kind of resource that it is about."""

    @cached_property
    def body(self) -> Any:  # noqa: ANN401  JSON
        """What came; None: it is no JSON."""
        told = self.line.get("body", self.line.get("text"))
        if isinstance(told, dict):
            told = told.get("data", told.get("string", told))
        try:
            return json.loads(told) if isinstance(told, str) else told
        except ValueError:
            return None

    @property
    def status(self) -> int:
        """The HTTP status; where none was recorded that of the body's own kind."""
        told = self.line.get("status")
        code = told.get("code") if isinstance(told, dict) else told
        return int(code or (400 if isinstance(self.body, dict) and "error" in self.body else 200))

    @property
    def refused(self) -> bool:
        """Whether it is an error."""
        return self.status >= 400

    @cached_property
    def kind(self) -> str:
        """The last kind of resource in its path, in small letters, such as disks; of a file's name the same."""
        uri = self.line.get("uri")
        if uri:
            parts = unquote(urlsplit(uri).path).lower().rpartition("/providers/")[2].split("/")
            return parts[-1] if len(parts) % 2 == 0 else parts[-2] if len(parts) > 2 else parts[0]
        named = self.source.rpartition("/")[2].removesuffix(".json")
        found = re.search(r".*_(Microsoft_[A-Za-z]+)(?:_(\w+))?$", named)
        if found is None or found[2] is None:
            return (named if found is None else found[1].replace("_", ".")).lower()
        words = found[2].split("_")
        return next((word for word in words if word in _OF_A_THING), words[0]).lower()

    @property
    def items(self) -> list[dict[str, Any]]:
        """The things in it: those of a list, or the one that it describes."""
        value = self.body.get("value") if isinstance(self.body, dict) else None
        return value if isinstance(value, list) else [self.body]

    @property
    def is_list(self) -> bool:
        """Whether it is a list of them."""
        return isinstance(self.body, dict) and isinstance(self.body.get("value"), list)

    def rewritten(self) -> str:
        """The body again, as it is now."""
        return json.dumps(self.body)


def of_kind(*kinds: str) -> Callable[[Answer], bool]:
    """Good answers about these."""
    return lambda it: it.kind in kinds and not it.refused and isinstance(it.body, dict)


@dataclass
class Arm:
    """Resource Manager with nothing but what a test puts there, by kind; every machine type has a GPU."""

    lists: dict[str, Any] = field(default_factory=dict)  # the answer as it is
    next_pages: dict[str, Any] = field(default_factory=dict)  # at the link of that answer
    refusal: Answer | None = None  # of all that is asked
    tagged: Answer | None = None  # to a change

    @property
    def things(self) -> list[dict[str, Any]]:
        """All that is in its lists."""
        return [each for body in (*self.lists.values(), *self.next_pages.values()) for each in body["value"]]

    def __call__(self, request: Request) -> Response:
        """Answer as it would; what is not there is an empty list."""
        path = request.path.lower()
        kind = path.rpartition("/")[2]
        if self.refusal is not None:
            return Response(status=self.refusal.status, body=self.refusal.body)
        if kind == "subscriptions":
            return Response(body={"value": []})
        if kind == "skus":
            return Response(body={"value": self._sizes()})
        if request.method != "GET":
            return Response(status=202) if self.tagged is None else Response(body=self.tagged.body)
        one = [each for each in self.things if str(each.get("id", "")).lower() == path]
        if one:
            return Response(body=one[0])
        of_subscription = path.count("/") < _LONG or kind == "metrics"
        body = (self.next_pages if "$skiptoken" in request.query else self.lists).get(kind) if of_subscription else None
        if request.query.get("statusOnly") == "true":
            body = {"value": [each for each in self.things if "instanceView" in (each.get("properties") or {})]}
        return Response(body=body or {"value": []})

    def _sizes(self) -> list[dict[str, Any]]:
        machines = [((each.get("properties") or {}).get("hardwareProfile") or {}).get("vmSize") for each in self.things]
        named = {str(name) for name in (*machines, *((each.get("sku") or {}).get("name") for each in self.things))}
        return [
            {"name": name, "resourceType": "virtualMachines", "capabilities": [{"name": "GPUs", "value": "1"}]}
            for name in sorted(named)
        ]


_LONG = 7  # parts of a path that is below a resource group


def as_list(answer: Answer, **more: dict[str, Any]) -> Arm:
    """Its list as it was recorded, with what its link leads to, or one thing as a list of one."""
    body = answer.body if answer.is_list else {"value": answer.items}
    arm = Arm(lists={answer.kind: body, **{kind: {"value": [each]} for kind, each in more.items()}})
    if answer.is_list and body.get("nextLink"):
        after = [each for each in recorded("azure", Answer) if each.source == answer.source.replace(".json", "_1.json")]
        empty: dict[str, Any] = {"value": []}
        arm.next_pages[answer.kind] = body if LOOP in answer.source else after[0].body if after else empty
    return arm


LOOP = "INFINITE_LOOP"  # in the name of an answer whose link leads back to itself


@contextmanager
def azure(arm: Arm) -> Iterator[AzureCloud]:
    """The adapter, at Azure's own address."""
    with answering(arm):
        yield AzureCloud(
            fleet=FLEET,
            clock=ManualClock(wall=NOW),
            subscriptions={"main": SubscriptionSettings(id=SUB)},
            credential=StaticCredential(),
        )


@contextmanager
def replayed(replay: Replay) -> Iterator[AzureCloud]:
    """The adapter for the subscriptions of a recording."""
    found = sorted({parts[1] for url in replay.urls if len(parts := urlsplit(url).path.split("/subscriptions/")) > 1})
    names = dict.fromkeys(each.partition("/")[0] for each in found)
    with answering(replay):
        yield AzureCloud(
            fleet=replay.fleet,
            endpoint_url=replay.endpoint,
            clock=ManualClock(wall=replay.at),
            subscriptions={name: SubscriptionSettings(id=name) for name in names},
            credential=StaticCredential(),
        )


def a_machine(path: str, **properties: object) -> dict[str, Any]:
    """A machine that an answer about something else needs; not recorded."""
    return {
        "id": path,
        "name": path.rpartition("/")[2],
        "location": "eastus",
        "properties": {"vmId": "11111111-2222-4333-8444-555555555555", **_SIZE, **properties},
    }


_SIZE = {"hardwareProfile": {"vmSize": "Standard_NC4as_T4_v3"}}
OWN = f"/subscriptions/{SUB}/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/own"
RUNNING = {"statuses": [{"code": "PowerState/running"}]}


def one_machine(**properties: object) -> Arm:
    """Resource Manager with one machine that nobody recorded."""
    return Arm(lists={VMS: {"value": [a_machine(OWN, **properties)]}})


_READ = frozenset(
    {
        *(VMS, SETS, DISKS, "snapshots", "images", "networkinterfaces", "publicipaddresses", "locks"),
        *("metrics", "skus", "usages", "subscriptions", "autoscalesettings"),
    }
)


def things_of(answer: Answer) -> Iterator[tuple[str, object]]:
    """What a good answer has, by kinds; the page itself is one more."""
    if answer.refused and isinstance(answer.body, dict):
        yield "error", answer.body
    if answer.refused or not isinstance(answer.body, dict) or answer.kind not in _READ:
        return
    for each in answer.items:
        yield str(each.get("type") or answer.kind).rpartition("/")[2].lower(), each
    if answer.is_list:
        yield "page", {key: value for key, value in answer.body.items() if key != "value"}
