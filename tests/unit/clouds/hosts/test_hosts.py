"""Hosts of one's own: where they are named, that a damaged source changes nothing, and that nothing is done to them."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import OWNER_TAG, Cloud, CloudError, NotFoundError, ProtectedError
from gpuwatch.clouds.hosts.cloud import HostsCloud
from gpuwatch.clouds.hosts.settings import HostSettings, HostsSettings
from gpuwatch.clouds.hosts.sources import LEAVES_SECONDS, read_targets
from gpuwatch.clouds.settings import CloudSettings, connect, contradictions
from gpuwatch.clouds.silence import Past, Recalling
from gpuwatch.controller.join.register import Book, Host, Register
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import NOW, a_permit

GOOD = [{"targets": ["gpu-1.lab:9460", "10.0.0.2"], "labels": {"pool": "train", "owner": "anna", "team": "vision"}}]


class Lab:
    """A cloud of hosts whose sources a test changes."""

    def __init__(self, folder: Path, **named: object) -> None:
        """`file` is written by `write`."""
        self.clock, self.file = ManualClock(), folder / "hosts.json"
        settings = HostsSettings(**named) if named else HostsSettings(file=str(self.file))  # type: ignore[arg-type]
        self.cloud: Cloud = connect(CloudSettings(provider="hosts", hosts=settings), fleet="lab", clock=self.clock)

    def write(self, text: str) -> None:
        """The file has that, and another time than before."""
        self.file.write_text(text, encoding="utf-8")

    @property
    def names(self) -> list[str]:
        """The ids of all hosts."""
        return [node.id for node in self.cloud.nodes()]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Two hosts in a file."""
    made = Lab(tmp_path)
    made.write(json.dumps(GOOD))
    return made


def test_hosts_of_a_file_are_enrolled_running_and_of_ones_own(lab: Lab) -> None:
    """Labels are pool, owner and tags; the name before the first dot is the host's, and an address is no name."""
    assert isinstance(lab.cloud, HostsCloud)
    address, named = lab.cloud.nodes()

    assert (named.id, named.name, named.address) == ("gpu-1.lab", "gpu-1", "gpu-1.lab")
    assert (address.id, address.name, address.address) == ("10.0.0.2", "10.0.0.2", "10.0.0.2")
    assert (named.pool, named.owner, named.tags["team"]) == ("train", "anna", "vision")
    assert (named.enrolled, named.state, named.capacity_type) == (True, NodeState.RUNNING, CapacityType.OWN)
    assert lab.cloud.node("gpu-1.lab") == named
    assert lab.cloud.node("gpu-9") is None


def test_every_change_is_refused_and_says_why(lab: Lab) -> None:
    """There is no power control; a host that nobody names is not known."""
    changes: list[Callable[[str], object]] = [
        lambda name: lab.cloud.stop(name, "key", permit=a_permit()),
        lambda name: lab.cloud.start(name, "key"),
        lambda name: lab.cloud.terminate(name, "key", permit=a_permit()),
    ]
    for change in changes:
        with pytest.raises(ProtectedError, match="no power control over it"):
            change("gpu-1.lab")
        with pytest.raises(NotFoundError, match="no host is named gpu-9"):
            change("gpu-9")
    with pytest.raises(ValueError, match="gpuwatch never writes"):
        lab.cloud.tag("gpu-1.lab", {OWNER_TAG: "ben"}, "key")
    for other in (
        lambda: lab.cloud.launch({}, "key"),
        lambda: lab.cloud.group("g"),
        lambda: lab.cloud.grow("g", 2, "key"),
        lambda: lab.cloud.shrink("g", 1, "key"),
        lambda: lab.cloud.protect("gpu-1.lab", "g", "key", on=True),
        lambda: lab.cloud.tag("gpu-1.lab", {}, "key"),
    ):
        with pytest.raises(CloudError):
            other()
    assert (list(lab.cloud.groups()), list(lab.cloud.leftovers()), lab.cloud.find("key")) == ([], [], None)


@given(cut=st.integers(0, len(json.dumps(GOOD)) - 1))
def test_a_file_that_is_cut_anywhere_changes_nothing(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    """Its hosts stay for as long as it is damaged, and why is told; then it counts again."""
    lab = Lab(tmp_path_factory.mktemp("lab"))
    lab.write(json.dumps(GOOD))
    before = lab.names
    lab.write(json.dumps(GOOD)[:cut])
    for _ in range(3):
        lab.clock.advance(LEAVES_SECONDS + 1)
        assert lab.names == before
    assert isinstance(lab.cloud, Recalling)
    (silence,) = lab.cloud.outlook().silent
    assert (silence.known, "it is not JSON" in silence.reason) == (True, True)

    lab.write(json.dumps([{"targets": ["gpu-3"]}]))
    assert "gpu-3" in lab.names
    assert lab.cloud.outlook().silent == ()


def test_a_host_leaves_a_minute_after_nobody_names_it(lab: Lab) -> None:
    """A half-written list may be a shorter one; one that comes back in time never left."""
    assert lab.names == ["10.0.0.2", "gpu-1.lab"]
    lab.write(json.dumps([{"targets": ["gpu-1.lab"]}]))
    assert lab.names == ["10.0.0.2", "gpu-1.lab"]
    lab.clock.advance(LEAVES_SECONDS - 1)
    lab.write(json.dumps(GOOD))
    assert lab.names == ["10.0.0.2", "gpu-1.lab"]
    lab.write(json.dumps([{"targets": ["gpu-1.lab"]}]))
    lab.clock.advance(LEAVES_SECONDS)
    assert lab.names == ["gpu-1.lab"]


def test_without_a_readable_source_nothing_is_listed_as_if_it_were_all(lab: Lab) -> None:
    """What the ledger knows is there, unknown; without that the list fails and names file and reason."""
    (known, _) = lab.cloud.nodes()
    lab.write("[")
    fresh = connect(
        CloudSettings(provider="hosts", hosts=HostsSettings(file=str(lab.file))), fleet="lab", clock=lab.clock
    )
    with pytest.raises(CloudError, match=r"hosts\.json cannot be used: it is not JSON"):
        fresh.nodes()
    assert isinstance(fresh, Recalling)
    fresh.recall(lambda: Past(nodes=(known,), places=frozenset({"x"})))
    (node,) = fresh.nodes()
    assert (node.id, node.state, "is not JSON" in (node.unseen or "")) == (known.id, NodeState.UNKNOWN, True)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{}", "it holds no list"),
        ('[{"targets": "gpu-1"}]', "entry 1 has no list `targets`"),
        ('[{"targets": ["http://gpu-1"]}]', "entry 1: 'http://gpu-1' is not a target"),
        ('[{"targets": [7]}]', "entry 1: 7 is not a target"),
        ('[{"targets": [], "labels": 3}]', "entry 1 has no list `targets`"),
        ('[{"targets": ["a", "b"], "labels": {"node": "x"}}]', "names one host, and 2 targets"),
        ("[" * 100_000, "it is not JSON"),
    ],
)
def test_mistakes_in_a_file_say_where_and_what_would_be_right(lab: Lab, written: str, told: str) -> None:
    """A damaged file is never a shorter list."""
    lab.write(written)
    with pytest.raises(ValueError, match=told):
        read_targets(lab.file)


def test_yaml_and_addresses_of_all_kinds_are_read(tmp_path: Path) -> None:
    """As Prometheus takes them; the label `node` names a host."""
    file = tmp_path / "hosts.yml"
    file.write_text(
        "- targets: ['[fd00::1]:9100', 'fd00::2']\n- targets: [10.0.0.3]\n  labels: {node: gpu-3, type: a}\n"
    )
    assert [(each.id, each.address, each.type) for each in read_targets(file)] == [
        ("fd00::1", "fd00::1", None),
        ("fd00::2", "fd00::2", None),
        ("gpu-3", "10.0.0.3", "a"),
    ]


def test_what_settings_say_of_a_host_holds_before_its_file(tmp_path: Path) -> None:
    """One host under one name, with what both say."""
    file = tmp_path / "hosts.json"
    file.write_text('[{"targets": ["10.0.0.7"], "labels": {"node": "gpu-7", "pool": "a", "owner": "anna"}}]')
    lab = Lab(tmp_path, machines={"gpu-7": HostSettings(pool="train")}, file=str(file))
    (node,) = lab.cloud.nodes()
    assert (node.pool, node.owner, node.address) == ("train", "anna", "10.0.0.7")


def test_hosts_that_have_joined_are_read_of_the_register_and_revoked_ones_leave(tmp_path: Path) -> None:
    """The register is the one that `controller.join` writes; a laptop that joined by mistake leaves by one command."""
    register = Register(tmp_path)
    hosts = {
        name: Host(node_id=name, key=name, address="10.0.0.8", joined_at=NOW, token="t")  # noqa: S106  an id
        for name in ("gpu-8", "pc")
    }
    register._write(Book(schema=1, hosts=hosts))
    lab = Lab(tmp_path, joined=str(tmp_path))
    assert [(node.id, node.address) for node in lab.cloud.nodes()] == [("gpu-8", "10.0.0.8"), ("pc", "10.0.0.8")]

    book = register.read()
    book.revoke("pc", NOW)
    register._write(book)
    lab.names  # noqa: B018  a look
    lab.clock.advance(LEAVES_SECONDS)
    assert lab.names == ["gpu-8"]


def test_addresses_of_a_dns_name_are_hosts_and_a_silent_resolver_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is called as reverse DNS says, else by its address; without an answer all stay."""
    answers = {"gpu.lab": ["10.0.0.1", "10.0.0.2"]}

    def addresses(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if name not in answers:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(0, 0, 0, "", (each, 0)) for each in answers[name]]

    def reverse(address: str) -> tuple[str, list[str], list[str]]:
        if address != "10.0.0.1":
            raise socket.herror(1, "Unknown host")
        return "gpu-1.lab", [], []

    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    monkeypatch.setattr(socket, "gethostbyaddr", reverse)
    lab = Lab(tmp_path, dns=("gpu.lab",))
    assert [(node.id, node.address) for node in lab.cloud.nodes()] == [
        ("10.0.0.2", "10.0.0.2"),
        ("gpu-1.lab", "10.0.0.1"),
    ]
    answers.clear()
    lab.clock.advance(LEAVES_SECONDS + 1)
    assert lab.names == ["10.0.0.2", "gpu-1.lab"]
    assert isinstance(lab.cloud, Recalling)
    assert "Temporary failure" in lab.cloud.outlook().silent[0].reason


@pytest.mark.parametrize(
    ("settings", "wrong", "right"),
    [
        (CloudSettings(provider="none"), "no cloud is named 'none'", "hosts, for machines without a cloud"),
        (CloudSettings(provider="hosts"), "cloud.hosts names no host", "machines, file, dns or joined"),
        (
            CloudSettings(provider="hosts", hosts=HostsSettings(machines={"a": HostSettings(address="http://a:1")})),
            "'http://a:1' is not an address",
            "signals.port",
        ),
        (
            CloudSettings(provider="hosts", hosts=HostsSettings(machines={"a ": HostSettings()})),
            "'a ' is not a host's name",
            "gpu-1",
        ),
        (CloudSettings(provider="hosts", hosts=HostsSettings(dns=("a:1",))), "'a:1' is not a DNS name", "gpu.lab"),
    ],
)
def test_mistakes_in_settings_name_key_value_and_remedy(settings: CloudSettings, wrong: str, right: str) -> None:
    """Who writes `none` is led to hosts."""
    (found,) = contradictions(settings)
    assert (found.wrong, right in found.right) == (wrong, True)


def test_how_many_gpus_a_host_had_outlives_a_restart(lab: Lab) -> None:
    """Its agent may be silent by then."""
    nodes = [
        Node(**{**{name: getattr(each, name) for name in each.__slots__}, "gpu_count": 4}) for each in lab.cloud.nodes()
    ]
    assert isinstance(lab.cloud, Recalling)
    lab.cloud.recall(lambda: Past(nodes=tuple(nodes)))
    assert [node.gpu_count for node in lab.cloud.nodes()] == [4, 4]
