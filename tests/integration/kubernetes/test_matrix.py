"""Every kind of workload on one real control plane, by one table: kept while busy, and ended only as its people say.

API server and controller are real, with the chart's role. EC2 is played by moto, agents, kubelets and the scheduler by
the test. `builders/workload_matrix.py` is the table; of rows with the same answers `make test` plays the first.
"""

import json
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from gpuwatch.clouds import FLEET_TAG
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.kubernetes import CORDONED_BY
from gpuwatch.model.workload_kinds import KINDS
from gpuwatch.policies.kubernetes import idle_pods
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.fleet import a_verdict
from tests.support.builders.kubernetes import node_object
from tests.support.builders.kubernetes_kinds import our_kind
from tests.support.builders.workload_matrix import EMPTIED, EVICTED, ROWS, Row
from tests.support.builders.workload_places import DRA, EXTRA_KINDS, Place
from tests.support.components import require
from tests.support.fakes.scraped_agent import an_agent, encoded
from tests.support.nightly import NIGHTLY
from tests.support.real.agents import free_port
from tests.support.real.kubernetes import Account, ControlPlane, control_plane
from tests.support.real.kubernetes_api import ApiError, Object
from tests.support.real.kubernetes_chart import chart_account
from tests.support.real.local_site import Site, a_site

pytestmark = pytest.mark.component("kube-apiserver")

PODS = {
    "action": "as-annotated",
    "timeout": "2s",
    "unused_timeout": "2s",
    "grace_period": "2s",
    "rest": "1h",
    "bare_pods": "delete",
}
IDLE = {"timeout": "2s", "grace_period": "2s", "owner_grace_period": "2s", "instance_store": "discard"}
POOL = {
    "warm_up": "0s",
    "idle": IDLE,
    "kubernetes": {"node_owner": "gpuwatch", "drain_timeout": "10m", "pods": PODS},
}
LIMITS = {
    "max_stops_per_round": 99,
    "max_stops_per_hour": 99,
    "max_stops_per_hour_ratio": 1.0,
    "mass_idleness_freeze": "0s",
    "allow_short_waits": True,
    "workloads": {"max_pods_per_round": 99, "max_pods_per_hour": 99, "max_gpus_per_hour": 99},
}
BESIDE = "beside"
PATIENCE_SECONDS = 60.0
PARTS = {"part of a GPU by MIG", "part of a GPU by an extended resource", "GPU of AMD's"}  # all are played
BUSY, ASKED, OVER = "busy", "idle", "consent"  # the three parts of the story


def one_of_each() -> tuple[Row, ...]:
    """The first of those that the same words and rule keep, and of which the same becomes by the same consent."""
    firsts: dict[tuple[str, ...], Row] = {}
    for each in ROWS:
        then = "annotation" if each.then.startswith("annotation ") else each.then.partition(" of the kind ")[0]
        part = each.name if each.name in PARTS else ""
        firsts.setdefault((each.idle, each.rule, each.consent.partition(" ")[2], then, part), each)
    return tuple(firsts.values())


PLAYED = ROWS if NIGHTLY else one_of_each()


@dataclass(slots=True)
class Shown:
    """What became of a row by then: EC2's state, the node, its workload, its pods that went, and who was touched."""

    state: str
    why: str = ""
    workloads: dict[str, str] = field(default_factory=dict)  # why each is as it is, by kind and name
    rules: frozenset[str] = frozenset()
    cordoned: bool = False
    gone: frozenset[str] = frozenset()
    touched: tuple[str, ...] = ()
    objects: dict[str, Object] = field(default_factory=dict)


@dataclass(slots=True)
class World:
    """The cluster with a place for each row, and its agents: all of them busy until `idle_since`."""

    site: Site
    plane: ControlPlane
    port: int
    places: dict[str, Place]
    idle_since: datetime | None = None
    always_busy: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    gone: dict[str, set[str]] = field(default_factory=dict)
    shown: dict[str, dict[str, Shown]] = field(default_factory=dict)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """As the agent of the machine that is named first in the path."""
        asked = urlparse(request.path)
        machine, now = asked.path.split("/")[1], SystemClock().now()
        if self.idle_since is None or machine == self.always_busy:
            verdict = a_verdict(machine, State.BUSY, 60.0, at=now)
        else:
            verdict = a_verdict(machine, State.IDLE, (now - self.idle_since).total_seconds(), at=now)
        nonce = next(iter(parse_qs(asked.query).get("confirm", ())), None)
        if nonce is not None:
            verdict = replace(verdict, confirm=nonce, looked_seconds=0.0)
        body = encoded(verdict)
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def launch(self, names: list[str]) -> dict[str, str]:
        """A machine with one GPU for each name; gives their ids."""
        image = self.site.ec2.register_image(Name="image")["ImageId"]
        made = self.site.ec2.run_instances(
            ImageId=image,
            InstanceType="g4dn.xlarge",
            MinCount=len(names),
            MaxCount=len(names),
            TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": FLEET_TAG, "Value": "lab"}]}],
        )["Instances"]
        ids = [str(each["InstanceId"]) for each in made]
        for name, each in zip(names, ids, strict=True):
            self.site.ec2.create_tags(Resources=[each], Tags=[{"Key": "Name", "Value": name}])
        return dict(zip(names, ids, strict=True))

    def page(self, path: str) -> Any:  # noqa: ANN401  JSON
        """Of the controller's API; None: it does not answer yet."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}", timeout=30) as answer:
                return json.load(answer)
        except OSError:
            return None

    def confirm_ends(self) -> None:
        """What kubelets do: a pod that was asked to go is gone."""
        teams = {at.team: name for name, at in self.places.items()}
        for pod in self.plane.admin.list("Pod"):
            about = pod["metadata"]
            if "deletionTimestamp" in about:
                self.gone.setdefault(teams.get(about["namespace"], about["namespace"]), set()).add(about["name"])
                self.plane.admin.delete("Pod", about["name"], about["namespace"])

    def look(self) -> dict[str, Shown]:
        """All rows as the controller, EC2 and the API server have them."""
        page = self.page("nodes?limit=500")
        if page is None:
            return {}
        workloads = self.workloads()
        rows = {each["id"]: each for each in page["nodes"]}
        instances = [each for one in self.site.ec2.describe_instances()["Reservations"] for each in one["Instances"]]
        states = {str(each.get("InstanceId")): each["State"]["Name"] for each in instances}
        cordoned = {
            each["metadata"]["name"]
            for each in self.plane.admin.list("Node")
            if CORDONED_BY in each["metadata"].get("annotations", {})
        }
        return {
            name: Shown(
                state=states[at.machine],
                why=rows.get(at.machine, {}).get("why", ""),
                workloads=workloads.get(at.team, {}),
                cordoned=at.node in cordoned,
                gone=frozenset(self.gone.get(name, ())),
            )
            for name, at in self.places.items()
        }

    def workloads(self) -> dict[str, dict[str, str]]:
        """Of each namespace those that hold GPUs, and why each is as it is, by the newest round on record."""
        ledger = Ledger.open(self.site.folder / "ledger.db", read_only=True)
        try:
            past = ledger.round_at(SystemClock().now())
        finally:
            ledger.close()
        assert past.rulebook is not None
        found: dict[str, dict[str, str]] = {}
        for step in idle_pods.steps(past.observation, past.rulebook.idle_pods(past.observation.fleet.pools)):
            its = step.use.workload
            name = f"{its.kind}/{its.name}" + (f" of {its.owner}" if its.owner else "")
            found.setdefault(its.namespace, {})[name] = step.reason.sentence
        return found

    def objects(self, row: Row) -> dict[str, Object]:
        """Of a row, those that are left, by their path."""
        found = {}
        for path in self.places[row.name].paths:
            try:
                found[path] = self.plane.admin.ask("GET", path)
            except ApiError as error:
                if error.status != 404:
                    raise
        return found

    def keep(self, part: str, shown: dict[str, Shown]) -> None:
        """What is judged later: with the objects as they are, and each rule of the guard that refuses an end now."""
        for row in PLAYED:
            one = shown[row.name]
            one.objects = self.objects(row)
            one.touched = tuple(
                path
                for path, version in self.versions.items()
                if path in self.places[row.name].paths
                and (path not in one.objects or one.objects[path]["metadata"]["resourceVersion"] != version)
            )
            answers = self.page(f"nodes/{self.places[row.name].machine}")["if_stopped_now"]["answers"]
            one.rules = frozenset(each["rule"] for each in answers if each["refused"])
        self.shown[part] = shown

    def until(self, part: str, met: Callable[[Row, Shown], bool]) -> None:
        """Wait until each row is as the table says, and for a round more; who is not by then is judged as well."""
        clock = SystemClock()
        end, after = clock.now() + timedelta(seconds=PATIENCE_SECONDS), 0
        shown, rounds = dict[str, Shown](), set[str]()
        while clock.now() < end and after < 2:
            self.confirm_ends()
            number = json.dumps(self.page("rounds?limit=1"))
            if number not in rounds:
                rounds.add(number)
                shown = self.look()
                after += bool(shown) and all(met(row, shown[row.name]) for row in PLAYED)
            clock.sleep(0.2)
        self.keep(part, shown or self.look())


def words(at: Place, text: str) -> str:
    """Of the table, with the names of the place."""
    return text.format(team=at.team, node=at.node)


def consents(world: World, row: Row) -> None:
    """What people write."""
    at = world.places[row.name]
    where, _, said = words(at, row.consent).partition(" ")
    key, _, value = said.partition("=")
    kind, _, name = where.partition("/")
    known = next((each for each in KINDS if each.label == kind), None)
    resource = (
        known.resource
        if known is not None
        else {"Pod": "pods", "DaemonSet": "daemonsets"}.get(kind, "poddisruptionbudgets")
    )
    (path,) = (each for each in at.paths if each.endswith(f"/{resource}/{name}"))
    change: Object = {"metadata": {"annotations": {f"gpuwatch.io/{key}": value}}}
    if kind == "PodDisruptionBudget":
        path, change = f"{path}/status", {"status": {key: int(value)}}
    world.plane.admin.ask("PATCH", path, change, "application/merge-patch+json")


def emptied(shown: Shown) -> bool:
    """Whether its node is."""
    return shown.state == "stopped"


def is_idle_as_told(world: World, row: Row, shown: Shown) -> bool:
    """By the table's column `idle`."""
    if row.idle == EMPTIED:
        return emptied(shown)
    at = world.places[row.name]
    return (
        shown.state == "running"
        and words(at, row.idle) in shown.why
        and row.seen.format(node=at.node) in {"", *shown.workloads}
    )


def is_ended_as_told(world: World, row: Row, shown: Shown) -> bool:
    """By the table's column `then`; who says nothing is as before."""
    if not row.consent:
        return is_idle_as_told(world, row, shown)
    at = world.places[row.name]
    if row.then == EMPTIED:
        return emptied(shown)
    if row.then == EVICTED:
        return bool(shown.gone)
    if row.then.startswith(("spec.", "annotation ")):
        return is_set(world.objects(row), row)
    text = words(at, row.then)
    return shown.state == "running" and any(text in each for each in (shown.why, *shown.workloads.values()))


def is_set(objects: dict[str, Object], row: Row) -> bool:
    """Whether the object that has the word of its people bears the field, or the annotation, that ends its pods."""
    kind, _, name = row.consent.partition(" ")[0].partition("/")
    (made,) = (
        each for each in objects.values() if each["metadata"]["name"] == name and each["kind"] == kind.partition(".")[0]
    )
    if row.then.startswith("annotation "):
        return row.then.removeprefix("annotation ") in made["metadata"].get("annotations", {})
    path, _, value = row.then.partition("=")
    found: Any = made
    for part in path.split("."):
        found = found.get(part, {})
    return str(found) == value


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """All rows, and the whole story of them."""
    require("kube-apiserver")
    plane, folder = control_plane(), tmp_path_factory.mktemp("matrix")
    # An API server learns those of their projects for half a minute of a processor; test_own_ends has each of them.
    plane.custom(*(our_kind(each) for each in KINDS if each.group and "." in each.group), *EXTRA_KINDS)
    with a_site(folder, Path()) as site:
        made = World(site, plane, free_port(), {})
        machines = made.launch([*(f"row-{number}" for number in range(len(PLAYED))), BESIDE])
        made.always_busy = machines[BESIDE]
        plane.admin.create(node_object(BESIDE, gpus=64, provider_id=f"aws:///us-east-1a/{machines[BESIDE]}"))
        for number, row in enumerate(PLAYED):
            node = f"row-{number}"
            made.places[row.name] = at = Place(plane.admin, plane.namespace(), node, BESIDE, machines[node])
            row.make(at)
        made.versions = {
            path: each["metadata"]["resourceVersion"] for row in PLAYED for path, each in made.objects(row).items()
        }
        account = chart_account(plane, [at.team for at in made.places.values()])
        try:
            tell(made, account)
            yield made
        finally:
            plane.admin.delete("DeviceClass", DRA)
            for each in plane.admin.list("ResourceSlice"):
                plane.admin.delete("ResourceSlice", each["metadata"]["name"])
            for each in plane.admin.list("PersistentVolume"):
                plane.admin.ask(
                    "PATCH",
                    f"/api/v1/persistentvolumes/{each['metadata']['name']}",
                    {"metadata": {"finalizers": None}},
                    "application/merge-patch+json",
                )
                plane.admin.delete("PersistentVolume", each["metadata"]["name"])
            plane.empty()


def tell(world: World, account: Account) -> None:
    """The story: all work, all rest, and people consent."""
    url = world.site.stack.enter_context(an_agent(world.answer))
    machines = [*(at.machine for at in world.places.values()), world.always_busy]
    world.site.targets = {each: f"{url}/{each}" for each in machines}
    cluster = {"name": "research", "kubeconfig": str(world.plane.kubeconfig(account.token))}
    more = {
        "signals": {"targets": world.site.targets, "timeout": "5s", "concurrency": 4},  # one small server has them all
        "kubernetes": cluster,
        "pools": {"default": POOL},
        "limits": LIMITS,
        "controller": {"port": world.port},
    }
    world.site.controller(world.site.configure("enforce", more=more))
    world.until(BUSY, lambda _, shown: bool(shown.why))
    world.idle_since = SystemClock().now()
    world.until(ASKED, lambda row, shown: is_idle_as_told(world, row, shown))
    for row in PLAYED:
        if row.consent:
            consents(world, row)
    world.until(OVER, lambda row, shown: is_ended_as_told(world, row, shown))


@pytest.fixture(params=PLAYED, ids=lambda row: row.name.replace(" ", "-"))
def row(request: pytest.FixtureRequest) -> Row:
    """Each in turn."""
    found: Row = request.param
    return found


def test_nothing_is_done_while_it_is_busy(world: World, row: Row) -> None:
    """Its machine runs, and neither its node nor one of its objects has another version than at its making."""
    shown = world.shown[BUSY][row.name]
    assert (shown.state, shown.touched, shown.gone) == ("running", (), frozenset())


def test_an_idle_one_is_kept_or_emptied(world: World, row: Row) -> None:
    """As the table says, with its words."""
    shown = world.shown[ASKED][row.name]
    assert is_idle_as_told(world, row, shown), shown
    if row.idle != EMPTIED:
        assert not shown.gone
        assert row.rule in {"", *shown.rules}
        assert shown.cordoned == (row.name == "PodDisruptionBudget that blocks")


def test_the_word_of_its_people_ends_it(world: World, row: Row) -> None:
    """By the one call that its kind has for it, or it says why not."""
    shown = world.shown[OVER][row.name]
    assert is_ended_as_told(world, row, shown), shown
