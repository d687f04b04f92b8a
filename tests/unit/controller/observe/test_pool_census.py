"""What the controller tells agents of their pool: counted from their answers, and believed only where it gave it."""

from collections.abc import Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.controller.observe.pool_census import CensusTaker
from gpuwatch.controller.observe.scrape import ObserveSettings, ScrapeSource
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.model.pool_programs import HostPrograms, PoolPrograms, census_id, key_of, salt_of
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.fleet import a_node, a_verdict
from tests.support.fakes.scraped_agent import an_agent, encoded

SALT = salt_of("default")
ACME = key_of(SALT, "acme")
NODES = [a_node(f"i-{number}") for number in range(12)]
HANDED = HostPrograms(lasting=ACME, ports=(22, 9999))


def a_report(node: Node, programs: HostPrograms | None) -> NodeReport:
    """An idle node's answer."""
    return NodeReport(verdict=replace(a_verdict(node.id, State.IDLE), programs=programs))


class Agents:
    """Agents that keep what they are told, and a controller that asks them each minute."""

    def __init__(self, nodes: list[Node] = NODES) -> None:
        self.nodes, self.taker, self.at = nodes, CensusTaker("default"), 0.0
        self.heard: dict[str, str | None] = {}
        self.bytes = 0

    def restart_controller(self) -> None:
        """It knows nothing."""
        self.taker = CensusTaker("default")

    def ask(
        self, said: Mapping[str, HostPrograms | None] | None = None, *, confirms: str | None = None
    ) -> dict[str, NodeReport]:
        """One round, or the confirmation of one node; `said` are the answers of nodes that say something else."""
        if confirms is None:
            self.taker.begin_round(self.nodes, self.at)
        found = {}
        for node in self.nodes:
            if confirms not in {None, node.id}:
                continue
            query = self.taker.query(node)
            self.bytes += len(query)
            asked = {name: values[0] for name, values in parse_qs(query).items()}
            used = self.heard.get(node.id)  # looked at before the question came
            if "pool" in asked:
                self.heard[node.id] = asked["census"]
                assert census_id(asked["pool"]) == asked["census"]
            elif asked.get("census") == "none":
                self.heard[node.id] = None
            programs = (
                None if used == asked.get("census", "none").replace("none", "") or None else HostPrograms(census=used)
            )
            if "count" in asked:
                programs = replace(HANDED, census=used)
            if said is not None and node.id in said:
                programs = said[node.id]
            found[node.id] = self.taker.take(node, a_report(node, programs), confirms=confirms is not None)
        if confirms is None:
            self.taker.end_round(self.at)
            self.at += 60.0
        return found


def test_the_second_round_gives_what_the_first_one_counted_and_later_ones_only_name_it() -> None:
    """A round costs an id a node; the census itself goes once to each agent."""
    agents = Agents()
    agents.ask()
    assert set(agents.heard.values()) <= {None}
    for _ in range(3):
        agents.ask()
    (census,) = set(agents.heard.values())
    assert census is not None
    agents.bytes = 0
    agents.ask()

    assert agents.bytes <= 60 * len(NODES)


def test_what_was_handed_over_stays_nowhere() -> None:
    """No verdict that goes on to the round holds it."""
    for report in Agents().ask().values():
        assert report.verdict is not None
        assert report.verdict.programs is None


def test_nine_machines_are_told_nothing() -> None:
    """Nor are twelve of which three are stopped."""
    few = Agents(NODES[:9])
    stopped = Agents([*NODES[:9], *(replace(node, state=NodeState.STOPPED) for node in NODES[9:])])
    for agents in (few, stopped):
        for _ in range(3):
            agents.ask()
        assert set(agents.heard.values()) == {None}


def test_each_pool_has_its_own_census() -> None:
    """What half of a fleet runs is common in its own pool."""
    other = [replace(a_node(f"j-{number}"), pool="other") for number in range(20)]
    agents = Agents([*NODES, *other])
    agents.ask({node.id: HostPrograms(ports=(22,)) for node in other})
    agents.ask()
    agents.ask()

    assert len({agents.heard[node.id] for node in NODES}) == 1
    assert agents.heard[NODES[0].id] != agents.heard[other[0].id]


def test_a_verdict_that_rests_on_anothers_census_is_unknown() -> None:
    """Whoever reaches an agent may tell it that people's work is the machine's own: that lets nothing go."""
    agents = Agents()
    for _ in range(20):
        agents.ask()
    forged = {"i-3": HostPrograms(census="F" * 12)}
    found = agents.ask(forged)
    confirmed = agents.ask(forged, confirms="i-3")

    assert "another controller" in (found["i-3"].failure or "")
    assert "another controller" in (confirmed["i-3"].failure or "")
    assert all(report.failure is None for name, report in found.items() if name != "i-3")


def test_a_controller_that_has_just_begun_believes_a_round_and_no_confirmation() -> None:
    """Agents have the census of the one before; its notices are not withdrawn, and nothing is stopped by it."""
    agents = Agents()
    for _ in range(5):
        agents.ask()
    agents.restart_controller()
    before = dict(agents.heard)
    found = agents.ask()
    assert agents.heard == before
    assert all(report.failure is None for report in found.values())

    unknown = agents.ask({"i-3": HostPrograms(census="F" * 12)}, confirms="i-3")
    assert unknown["i-3"].failure is not None


def test_a_census_that_was_replaced_counts_for_fifteen_minutes_in_rounds_alone() -> None:
    """Agents look again some seconds after they have heard the new one."""
    agents = Agents()
    for _ in range(20):
        agents.ask()
    old = agents.heard["i-3"]
    agents.nodes = NODES[:10]
    for _ in range(12):
        agents.ask()
    assert agents.heard["i-3"] != old
    late = {"i-3": HostPrograms(census=old)}

    assert agents.ask(late)["i-3"].failure is None
    assert agents.ask(late, confirms="i-3")["i-3"].failure is not None
    for _ in range(16):
        agents.ask()
    assert agents.ask(late)["i-3"].failure is not None


def test_one_machine_more_makes_no_new_census() -> None:
    """A pool that grows and shrinks would send its census to all agents all day."""
    many = [a_node(f"i-{number}") for number in range(40)]
    agents = Agents(many[:38])
    for _ in range(5):
        agents.ask()
    census = agents.heard["i-0"]
    agents.nodes = many
    for _ in range(30):
        agents.ask()

    assert agents.heard["i-0"] == agents.heard["i-39"] == census


@given(
    st.builds(
        HostPrograms,
        census=st.one_of(st.none(), st.text(max_size=20)),
        lasting=st.one_of(st.text(max_size=40), st.just(ACME * 200)),
        recent=st.text(max_size=40),
        ports=st.one_of(st.none(), st.lists(st.integers(-(2**53), 2**53), max_size=50).map(tuple)),
    )
)
def test_whatever_one_agent_says_the_others_are_told_and_believed_as_without_it(said: HostPrograms) -> None:
    """For any words of one agent of twenty."""
    nodes = [a_node(f"i-{number}") for number in range(20)]
    honest, broken = Agents(nodes), Agents(nodes)
    for _ in range(3):
        fine, found = honest.ask(), broken.ask({"i-7": said})
    one, other = (each.taker._censuses["default"].counted for each in (honest, broken))

    assert one.common.keys() == other.common.keys()
    assert one.ports.keys() == other.ports.keys()
    for name in fine.keys() - {"i-7"}:
        assert fine[name] == found[name]


def test_the_census_go_with_the_question_over_http() -> None:
    """An agent of this version and one of an earlier version are asked alike; who only looks on tells nothing."""
    asked: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.append(urlsplit(request.path).query)
        body = encoded(a_verdict("i-1", State.BUSY, at=SystemClock().now()))
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    with an_agent(answer) as url:
        settings = ObserveSettings(timeout=5.0, targets={"i-1": url})
        source = ScrapeSource(
            settings=settings, clock=SystemClock(), max_age_seconds=30.0, taker=CensusTaker("default")
        )
        assert source.observe([a_node("i-1")]).nodes[0].activity.state is State.BUSY
        source.observe([a_node("i-1")])
        source.confirm(a_node("i-1"))
        replace(source, taker=None).observe([a_node("i-1")])

    first, second, confirmed, beside = asked
    assert first == f"fleet={SALT}&count=1"
    assert second == f"fleet={SALT}&census=none"
    assert confirmed.startswith("confirm=")
    assert confirmed.endswith(f"&fleet={SALT}&census=none")
    assert not beside


def test_who_gives_no_census_confirms_nothing_that_rests_on_one() -> None:
    """With signals from Prometheus an agent is asked before a stop alone: it must not go by somebody's census."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        verdict = replace(a_verdict("i-1", State.IDLE, at=SystemClock().now()), programs=HostPrograms(census="F" * 12))
        body = encoded(verdict)
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    with an_agent(answer) as url:
        settings = ObserveSettings(timeout=5.0, targets={"i-1": url})
        report = ScrapeSource(settings=settings, clock=SystemClock(), max_age_seconds=30.0).confirm(a_node("i-1"))

    assert "another controller" in (report.failure or "")


def test_a_census_fits_the_head_of_a_request() -> None:
    """The longest that a pool may have: 16 KiB are read of a head."""
    ports = dict.fromkeys(range(30_000, 30_160), 65_000)
    common = {key_of(SALT, str(number)): 65_000 for number in range(120)}

    assert len(PoolPrograms(machines=80_000, common=common, ports=ports).text) < 6000
