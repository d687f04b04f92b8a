"""Kinds that own pods: people name the owner of a pod at will, and take nothing from others with that."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from gpuwatch.clouds.errors import AuthFailedError, CloudUnavailableError, NotFoundError
from gpuwatch.kubernetes.asked import AskedNow
from gpuwatch.kubernetes.client import Api
from gpuwatch.kubernetes.facts import OwnerFacts
from gpuwatch.kubernetes.objects import ApiResource, ApiResources, ListMeta, OwnerReference, Page
from gpuwatch.kubernetes.owners import Owners
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW

SILENCE = 30.0


@dataclass(slots=True)
class Server:
    """An API server that knows some kinds of one group; `refused` ones may not be listed, `gone` ones are no more."""

    kinds: tuple[str, ...]
    server: str = "https://one"
    refused: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    above: dict[str, str] = field(default_factory=dict)  # which kind owns one
    asked: list[str] = field(default_factory=list)

    def get(self, path: str, kind: object, *_: object, **__: object) -> object:
        """The resources of a version."""
        del kind
        self.asked.append(path)
        left = [name for name in self.kinds if name not in self.gone]
        return ApiResources(resources=[ApiResource(name=f"{name.lower()}s", kind=name) for name in left])

    def pages(self, path: str, *_: object) -> Iterator[Page]:
        """One object of each kind, named as its kind."""
        name = self._may(path)
        owner = {"apiVersion": "x.io/v1", "kind": self.above.get(name), "name": "top", "uid": "top", "controller": True}
        its = {"ownerReferences": [owner]} if name in self.above else {}
        item = msgspec.json.encode({"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", **its}})
        yield Page(metadata=ListMeta(resource_version="7"), items=[msgspec.Raw(item)], kind="List")

    @contextmanager
    def watch(self, path: str, query: Mapping[str, str], *_: object) -> Iterator[Any]:
        """It is refused, or ends soon without a word."""
        del query
        self._may(path)
        raise NotFoundError("HTTP 404: the page was not found", code="404")
        yield  # unreachable: what makes this a generator

    def _may(self, path: str) -> str:
        name = next(each for each in self.kinds if path.endswith(f"/{each.lower()}s"))
        self.asked.append(path)
        if name in self.refused:
            raise AuthFailedError(f"you may not list {name}", code="Forbidden")
        if name in self.broken:
            raise CloudUnavailableError(f"conversion webhook for {name} failed", code="InternalError")
        return name


def owners(server: Server, clock: ManualClock) -> Owners:
    """What follows them."""
    return Owners(cast("Api", server), clock, SILENCE)


def of(kind: str, version: str = "x.io/v1", name: str = "own") -> OwnerReference:
    """What a pod says of its owner."""
    return OwnerReference(api_version=version, kind=kind, name=name, uid=f"uid-{kind}", controller=True)


def test_kinds_that_may_not_be_read_leave_room_for_the_others() -> None:
    """Pods that claim to be of forty kinds which nobody lets us read do not hide who owns the rest."""
    kinds = tuple(f"Kind{letter}{number}" for letter in "abcd" for number in range(10))
    server, clock = Server(kinds=(*kinds, "Real"), refused=set(kinds)), ManualClock(wall=NOW)
    found = owners(server, clock)
    for _ in range(3):
        found.follow([of(kind) for kind in kinds], 10.0)
    found.follow([of("Real")], 10.0)

    assert not isinstance(found.owner_of(of("Real"), "team"), str)
    assert "may not list" in str(found.owner_of(of("Kinda0"), "team"))
    found.close()


def test_a_kind_that_is_taken_away_is_no_trouble_of_the_whole() -> None:
    """Its definition was deleted: its pods' owners cannot be read, and the cluster is known as before."""
    server, clock = Server(kinds=("Notebook",)), ManualClock(wall=NOW)
    found = owners(server, clock)
    found.follow([of("Notebook")], 10.0)
    (watch,) = found.watches
    while watch.failure is None:
        threading.Event().wait(0.01)
    clock.advance(SILENCE + 1)
    server.gone.add("Notebook")
    found.follow([of("Notebook")], 0.0)

    assert found.watches == []
    assert "cannot be read" in str(found.owner_of(of("Notebook"), "team"))
    found.close()


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("v1", "Secret"),
        ("v1", "ConfigMap"),
        ("../version", "Secret"),
        ("v1?x=", "Real"),
        ("v1\r\nX-Evil: 1", "Real"),
        ("%2e%2e/api", "Real"),
        ("", "Real"),
    ],
)
def test_an_owner_s_words_make_no_question_of_their_own(version: str, kind: str) -> None:
    """The API server takes any text as the version of an owner; no Secret is listed, whatever our rights are."""
    server = Server(kinds=("Secret", "ConfigMap", "Real"))
    found = owners(server, ManualClock(wall=NOW))
    found.follow([of(kind, version)], 0.0)

    assert server.asked == []
    assert "gpuwatch asks for no" in str(found.owner_of(of(kind, version), "team"))


def test_an_owner_s_name_is_one_part_of_the_path() -> None:
    """A name with slashes leads nowhere else."""
    asked: list[str] = []

    def path(_: object) -> str:
        return "/apis/x.io/v1/reals"

    def get(path: str, *_: object, **__: object) -> object:
        asked.append(path)
        raise NotFoundError("none", code="404")

    found = AskedNow(cast("Api", SimpleNamespace(get=get)), path).owner(of("Real", name="../../secrets/x"), "team")

    assert found is None
    assert asked == ["/apis/x.io/v1/namespaces/team/reals/..%2F..%2Fsecrets%2Fx"]


def test_what_owns_a_kind_that_is_seen_late_is_found_in_a_later_round() -> None:
    """Its first list takes its time, and no round waits for it: a JobSet that was made after the controller began."""
    server, clock = Server(kinds=("Job", "JobSet"), above={"Job": "JobSet"}), ManualClock(wall=NOW)
    found = owners(server, clock)
    found.follow([], 0.0)
    found.follow([of("Job")], 0.0)
    (watch,) = [each for each in found.watches if each.path.endswith("/jobs")]
    while not watch.listed:
        threading.Event().wait(0.01)
    found.follow([of("Job")], 10.0)

    assert sorted(each.path.rpartition("/")[2] for each in found.watches) == ["jobs", "jobsets"]
    found.close()


def test_a_kind_with_a_broken_webhook_blinds_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Its own pods are in doubt; what owns the others is known as before, and people read one line."""
    server, clock = (
        Server(kinds=("Broken", "Refused", "Real"), broken={"Broken"}, refused={"Refused"}),
        ManualClock(wall=NOW),
    )
    found = owners(server, clock)
    for _ in range(3):
        found.follow([of("Broken"), of("Refused"), of("Real")], 10.0)

    assert "conversion webhook for Broken failed" in str(found.owner_of(of("Broken"), "team"))
    assert not isinstance(found.owner_of(of("Real"), "team"), str)
    lines = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(lines) == 1
    assert "Broken of x.io/v1, Refused of x.io/v1" in lines[0]
    assert "controller.kubernetes.workloads" in lines[0]
    found.close()


def test_a_pod_that_owns_others_is_asked_of_the_pods() -> None:
    """Spark's driver: pods are followed already."""
    server, clock = Server(kinds=()), ManualClock(wall=NOW)
    driver = OwnerFacts("team", "driver", "uid-Pod", 1, None, {})
    found = Owners(cast("Api", server), clock, SILENCE, {"uid-Pod": driver}.get)
    found.follow([of("Pod", "v1")], 0.0)

    assert found.owner_of(of("Pod", "v1"), "team") is driver
    assert (found.watches, server.asked) == ([], [])


def test_the_last_question_takes_a_broken_kind_for_a_doubt_and_asks_it_once() -> None:
    """Silence of one kind is no silence of the API server, whose other nodes go on."""

    class Broken:
        """Answers no question about objects."""

        asked = 0

        def get(self, path: str, *_: object, **__: object) -> object:
            """No answer."""
            self.asked += 1
            raise CloudUnavailableError(f"GET {path}: conversion webhook failed", code="InternalError")

    server = Broken()
    now = AskedNow(cast("Api", server), lambda kind: f"/apis/{kind[0]}/{kind[1].lower()}s")
    for number in range(3):
        owner = OwnerReference(api_version="x.io/v1", kind="Broken", name=str(number), uid=str(number), controller=True)
        assert "conversion webhook failed" in str(now.owner(owner, "team"))
    assert server.asked == 1
