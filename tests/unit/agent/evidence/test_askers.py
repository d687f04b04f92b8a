"""agent/evidence/askers.py: who asks decides, not how the server is called; times and bytes are made."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.agent.evidence import askers
from gpuwatch.agent.evidence.askers import Arrivals, Ask, Asked, Askers, Came, Uneven
from gpuwatch.agent.evidence.sock_diag import Sock
from tests.support.nightly import examples

HERE, PORT = b"\x0a\0\0\x05", 6443
LOOK_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Client:
    """A machine that connects: each `every` seconds for `lasts`, or once and for good. Bytes are a second's."""

    number: int
    asks: float  # what it sends
    gets: float
    begin: float = -3600.0
    every: float | None = None
    lasts: float = 1e9
    port: int = PORT
    network: int = 10

    def at(self, now: float) -> Sock | None:
        """Its connection at a moment."""
        turn = 0 if self.every is None else int((now - self.begin) // self.every)
        since = now - self.begin - turn * (self.every or 0.0)
        if now < self.begin or since >= self.lasts:
            return None
        sent, received = int(self.gets * since), int(self.asks * since)
        return Sock(
            cookie=self.number * 10**6 + turn,
            inode=1,
            uid=0,
            local=(HERE, self.port),
            remote=(bytes((self.network, 0, self.number // 250, self.number % 250)), 40000),
            moved=sent + received,
            received=received,
        )


def played(
    clients: Iterable[Client],
    hours: float,
    *,
    pages: Collection[int] = (),
    elsewhere: Collection[Ask] = (),
) -> list[Asked]:
    """What is said at each look."""
    follows, said, crowd = Askers(), list[Asked](), tuple(clients)
    for number in range(int(hours * 3600 / LOOK_SECONDS)):
        now = number * LOOK_SECONDS
        sockets = [found for each in crowd if (found := each.at(now)) is not None]
        said.append(follows.look_at(sockets, elsewhere, pages, now))
    return said


def are_used(said: Iterable[Asked]) -> bool:
    """Whether anything ever counted."""
    return any(each.used or each.machines for each in said)


def machines(count: int, **of_each: float) -> list[Client]:
    """So many machines that do the same."""
    return [Client(number=number, **of_each) for number in range(1, count + 1)]  # type: ignore[arg-type]  # numbers


@settings(max_examples=examples(15), deadline=None)
@given(page=st.integers(300, 9_000), readers=st.integers(1, 2), kept=st.booleans())
def test_a_page_that_one_or_two_machines_read_evenly_is_no_use(page: int, readers: int, kept: bool) -> None:
    """A Prometheus and its double each keep a connection, or make one each minute: up to 20 kB/s in all."""
    clients = machines(readers, asks=page / 10, gets=page) if kept else []
    short = machines(readers, asks=page / 10, gets=page, every=60.0, lasts=20.0)
    assert not are_used(played(clients or short, 1.5))


@settings(max_examples=examples(15), deadline=None)
@given(count=st.integers(3, 6), asks=st.integers(0, 900), gets=st.integers(0, 900))
def test_three_machines_that_stay_connected_use_a_server(count: int, asks: int, gets: int) -> None:
    """Agents of a control plane, senders to a log server, clients of a licence: however much or little they move."""
    said = played(machines(count, asks=asks, gets=gets), 0.1)
    assert (said[-1].port, said[-1].machines) == (PORT, count)


@settings(max_examples=examples(15), deadline=None)
@given(count=st.integers(1, 40), asks=st.integers(0, 400), gets=st.integers(0, 400), every=st.integers(10, 600))
def test_what_is_short_and_small_is_no_use(count: int, asks: int, gets: int, every: int) -> None:
    """Health checks of load balancers, scanners of the internet, probes of a control plane."""
    clients = machines(count, asks=asks, gets=max(gets, asks), every=float(every), lasts=8.0)
    assert not are_used(played(clients, 1.0))


def test_clients_that_come_each_half_hour_are_several() -> None:
    """A puppet server: twelve machines fetch a catalogue and leave a report, and between them nobody is connected."""
    clients = [
        Client(number=each, asks=9_000, gets=20_000, begin=150.0 * each, every=1800.0, lasts=14.0)
        for each in range(1, 13)
    ]
    said = played(clients, 2.0)
    assert min(each.machines for each in said[360:]) >= 3


def test_machines_that_report_again_and_again_use_a_server() -> None:
    """Agents of a monitoring server bring some hundred bytes each minute and take few."""
    several, pair = (machines(count, asks=150, gets=20, begin=5.0, every=60.0, lasts=6.0) for count in (5, 2))
    assert played(several, 0.1)[-1].machines == 5
    assert played(pair, 0.4)[-1].machines == 2
    assert not are_used(played(pair, 0.1))


def test_scanners_of_the_internet_that_bring_something_are_no_use() -> None:
    """Each of a hundred sends a request once, and gets a word."""
    once = [
        Client(number=each, asks=150, gets=20, begin=30.0 * each - 5.0, every=1e6, lasts=6.0, network=80)
        for each in range(1, 101)
    ]
    assert not are_used(played(once, 1.0))


def test_hundreds_that_report_between_two_looks_cost_one_pass_over_those_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server of logs with a fleet of senders: no look at all of the last hour's for each of them."""
    looked = list[bytes]()

    def note(peer: bytes) -> IPv4Address | IPv6Address:
        looked.append(peer)
        return ip_address(peer)

    monkeypatch.setattr(askers, "ip_address", note)
    once = [Client(number=each, asks=500, gets=20, begin=5.0 + 15.0 * (each % 10), every=1e6) for each in range(2000)]
    said = played(once, 0.1)
    assert said[-1].machines > 1000
    assert len(looked) < 10 * 2000 + 2000 + 1


OTHER = Ask(peer=b"\x0a\0\x09\x09", port=PORT)


def test_equals_that_ask_each_other_are_no_use_until_they_move_something() -> None:
    """BGP between all nodes is silent; the members of an etcd replicate."""
    silent = machines(4, asks=2, gets=2)
    assert not are_used(played(silent, 0.3, elsewhere=[OTHER]))
    assert played(silent, 0.3)[-1].machines == 4
    assert played(machines(2, asks=3000, gets=2000), 0.3, elsewhere=[OTHER])[-1].machines == 2


@settings(max_examples=examples(10), deadline=None)
@given(count=st.integers(1, 5), asks=st.integers(40, 250), lasts=st.sampled_from([20.0, 1e9]))
def test_a_relay_that_passes_on_what_others_bring_is_no_equal_of_theirs(count: int, asks: int, lasts: float) -> None:
    """A gateway of logs or traces has the port of the server behind it. Those that it asks itself are equals."""
    every = None if lasts > 3600 else 120.0
    senders = machines(count, asks=asks, gets=asks / 20, lasts=lasts, every=every)  # type: ignore[arg-type]  # or None
    said = played(senders, 0.5, elsewhere=[OTHER])
    assert said[-1].machines == count
    both = [Ask(peer=found.remote[0], port=PORT) for each in senders if (found := each.at(0.0)) is not None]
    assert not are_used(played(senders, 0.5, elsewhere=both))


def test_a_page_that_is_there_to_be_read_may_have_many_readers() -> None:
    """A kubelet is read by its control plane and by whoever monitors the cluster."""
    readers = machines(6, asks=90, gets=2000)
    assert not are_used(played(readers, 0.3, pages=[PORT]))
    assert played(readers, 0.3)[-1].machines == 6


def test_a_download_is_no_reading_of_a_page() -> None:
    """Above 20 kB a second, and where ten minutes are three times those of the six hours before."""
    assert are_used(played(machines(1, asks=100, gets=40_000), 0.1))
    even = Client(number=1, asks=20, gets=200)
    person = Client(number=2, asks=90, gets=3_000, begin=6000.0, lasts=300.0)
    said = played([even, person], 2.0)
    assert not are_used(said[:600])
    assert are_used(said[600:])


def test_a_machine_that_moves_more_than_keep_alives_is_use_by_itself() -> None:
    """A swarm's only worker."""
    assert played(machines(1, asks=50, gets=50), 0.1)[-1].machines == 1
    assert not are_used(played(machines(1, asks=5, gets=5), 1.0))


def test_scanners_without_end_take_a_bounded_memory() -> None:
    """Each comes once, with an address of its own."""
    askers = Askers()
    for look in range(12):
        at = look * LOOK_SECONDS
        once = [Client(number=1000 * look + each, asks=20, gets=20, begin=at - 1.0).at(at) for each in range(1000)]
        askers.look_at([each for each in once if each is not None], (), (), at)
    assert len(askers._seen) == 4096


def arrived(*looks: tuple[float, set[Ask]]) -> list[str]:
    """The ports that somebody began to ask, over these looks."""
    arrivals = Arrivals()
    return [port for at, asks in looks for port in sorted(arrivals.take(asks, at).ports)]


def test_a_machine_that_comes_after_an_hour_begins_to_ask_and_one_that_stays_does_not() -> None:
    """Whether it stays, comes each half hour or reads a page: it came once; a minute later that is known."""
    share = Ask(peer=b"\x0a\0\x09\x1f", port=445)
    each_half_hour = [(1800.0 * turn, {share}) for turn in range(1, 20)]
    assert arrived((0.0, set()), *each_half_hour, (36060.0, set())) == ["tcp 445"]
    assert (
        arrived((0.0, set()), (60.0, {share}), (4000.0, set()), (8000.0, {share}), (8100.0, set())) == ["tcp 445"] * 2
    )


def test_who_asks_as_the_agent_begins_has_perhaps_asked_for_days() -> None:
    """A restart of the agent makes no arrival of a connection that was there."""
    share = Ask(peer=b"\x0a\0\x09\x1f", port=445)
    assert arrived((0.0, {share}), (60.0, {share}), (120.0, {share})) == []


def test_who_stays_connected_does_not_come_when_it_asks_for_more_than_usual() -> None:
    """A Prometheus is connected for weeks, and what it reads stands out now and then."""
    page = Ask(peer=b"\x0a\0\0\x07", port=9100)
    arrivals = Arrivals()
    looks = [(0.0, set()), (60.0, set()), (70_000.0, {page}), (70_100.0, {page})]
    assert [arrivals.take(asks, at, {page}) for at, asks in looks] == [Came()] * 4


@pytest.mark.parametrize(("minutes", "uses"), [(1, 1), (5, 1), (14, 1), (16, 5), (30, 5), (240, 5)])
def test_who_comes_again_after_a_quarter_of_an_hour_uses_the_server(minutes: int, uses: int) -> None:
    """A sensor each half hour, a report each four hours; a health check each few minutes comes once."""
    broker, arrivals, used = Ask(peer=b"\x0a\0\x28\x0b", port=1883), Arrivals(), 0
    arrivals.take(set(), 0.0)
    for turn in range(5):
        at = 60.0 + turn * minutes * 60.0
        used += bool(arrivals.take({broker}, at).used)
        used += bool(arrivals.take({broker} if minutes == 1 else set(), at + 60.0 - (minutes == 1)).used)
    assert used + bool(arrivals.take(set(), at + 120.0).used) == uses


def test_the_internet_uses_nothing_by_coming() -> None:
    """Who scans a port from there each hour needs nobody; a port of the server is remembered, as before."""
    stranger, arrivals = Ask(peer=b"\x08\x08\x08\x08", port=445), Arrivals()
    arrivals.take(set(), 0.0)
    arrivals.take({stranger}, 60.0)
    assert arrivals.take(set(), 120.0) == Came(ports=frozenset({"tcp 445"}))


def test_a_scanner_asks_many_ports_and_needs_none() -> None:
    """It comes each night at the same hour, on every port that is open."""
    scanned = {Ask(peer=b"\x0a\0\0\x63", port=port) for port in (22, 80, 445, 5432)}
    one = Ask(peer=b"\x0a\0\x09\x1f", port=445, protocol="udp")
    assert arrived((0.0, set()), (10.0, scanned | {one}), (100.0, set())) == ["udp 445"]


def visits(
    moments: Iterable[float], hours: float, *, network: int = 10, blind: Iterable[tuple[float, float]] = ()
) -> frozenset[str]:
    """What is ever asked unevenly, where a machine comes at these moments, for connections that are over at a look.

    `blind` are the times from which it is not known what came.
    """
    uneven, said, left = Uneven(), set[str](), sorted(moments)
    for number in range(int(hours * 3600 / LOOK_SECONDS)):
        now, came = number * LOOK_SECONDS, list[Sock]()
        while left and left[0] <= now:
            remote = (bytes((network, 0, 0, 9)), 40000)
            came.append(Sock(cookie=len(left), inode=1, uid=0, local=(HERE, 8000), remote=remote))
            left.pop(0)
        said |= uneven.take(None if any(begin <= now < end for begin, end in blind) else came, now)
    return frozenset(said)


@settings(max_examples=examples(12), deadline=None)
@given(
    periods=st.lists(st.floats(10, 1800), min_size=1, max_size=2),
    gap=st.floats(0, 3600),
    begin=st.floats(0, 7200),
    ends=st.floats(7, 16),
)
def test_a_health_check_is_even(periods: list[float], gap: float, begin: float, ends: float) -> None:
    """Of any period, two behind one address, begun and ended at any time, and with a gap: it is no use."""
    until = ends * 3600.0
    moments = [begin + turn * period for period in periods for turn in range(int((until - begin) / period))]

    assert not visits([each for each in moments if not 10_000 < each < 10_000 + gap], 24)


@settings(max_examples=examples(12), deadline=None)
@given(period=st.floats(10, 120), breaks=st.lists(st.tuples(st.floats(0, 9), st.floats(0.02, 0.4)), max_size=20))
def test_a_health_check_is_even_also_where_it_was_not_seen_at_times(
    period: float, breaks: list[tuple[float, float]]
) -> None:
    """The kernel shows no ends for a while after there were too many: such a half hour says nothing."""
    moments = [turn * period for turn in range(int(20 * 3600 / period))]
    blind = [(3600 * begin, 3600 * (begin + hours)) for begin, hours in breaks]

    assert not visits(moments, 20, blind=blind)


def test_machines_that_come_once_are_forgotten_where_there_are_too_many() -> None:
    """Pods and batch jobs have new addresses each time: an agent of weeks follows so many, and no more."""
    uneven = Uneven()
    for half_hour in range(6):
        peers = [(10 << 24 | half_hour << 16 | number).to_bytes(4, "big") for number in range(2000)]
        came = [Sock(cookie=int.from_bytes(each), inode=1, uid=0, local=(HERE, 80), remote=(each, 9)) for each in peers]
        uneven.take(came, half_hour * 1800.0)
        uneven.take([], half_hour * 1800.0 + 1.0)

    assert uneven.followed <= 4096


@pytest.mark.parametrize("per_hour", [24, 40, 200])
def test_an_application_is_not_even(per_hour: int) -> None:
    """People and programs come by chance, also so often that no quarter of an hour passes without them."""
    draw, at, moments = Random(per_hour), 0.0, list[float]()
    while at < 16 * 3600.0:
        at += draw.expovariate(per_hour / 3600.0)
        moments.append(at)

    assert visits(moments, 16) == {"tcp 8000"}
    assert not visits(moments, 16, network=9)  # of no private network: bots
