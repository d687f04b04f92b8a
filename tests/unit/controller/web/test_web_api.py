"""/api/v1: what the last round saw and decided, the ledger's past, and money, over real HTTP."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import msgspec
import pytest
from openapi_spec_validator import validate

from gpuwatch.cli.controller import observers_of, one_round
from gpuwatch.config.settings import Settings
from gpuwatch.controller.context import Round
from gpuwatch.controller.web.api import ENDPOINTS, PREFIX
from gpuwatch.controller.web.openapi import render_md
from gpuwatch.guard import RULES as GUARD_RULES
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.report.gather import gather_report
from gpuwatch.money.report.health_share import health_share
from gpuwatch.money.report.period import period_of
from gpuwatch.runtime.http.request import Request
from tests.support.builders.fleet import NOW, RULES, Desk, a_node, a_verdict, an_observation
from tests.support.builders.served_page import PRICE, Site, a_site, populate
from tests.support.paths import ROOT


@pytest.fixture
def site() -> Iterator[Site]:
    """A busy machine, an idle one that waits, one whose time has come, a stopped and a foreign one; one round."""
    desk = Desk(prices={"g6.xlarge": PRICE})
    desk.fleet.put(a_node("i-busy", State.BUSY, 60.0, name="trainer", owner="ann"))
    desk.fleet.put(a_node("i-waits", held=600.0, pool="training"))
    desk.fleet.put(a_node("i-due", held=7200.0))
    desk.fleet.put(replace(a_node("i-off"), state=NodeState.STOPPED, signal=NodeReport()))
    desk.fleet.put(a_node("i-foreign", held=7200.0, enrolled=False))
    with a_site(desk) as site:
        site.round()
        yield site


def test_the_fleet_is_told_with_sums_and_money(site: Site) -> None:
    """GPUs by use, what all costs an hour and what of it does nothing; money is text with all its digits."""
    result = site.ask("/api/v1/fleet").json

    assert (result["fleet"], result["mode"], result["at"], result["trouble"]) == (
        "test",
        "enforce",
        "2026-03-02T12:00:00Z",
        None,
    )
    assert result["totals"] == {
        "nodes": 5,
        "running": 4,
        "gpus": 5,
        "gpus_by_activity": {"busy": 1, "occupied": 0, "parked": 0, "stalled": 0, "idle": 3, "unknown": 0, "off": 1},
        "usd_per_hour": "17.016",
        "usd_per_hour_not_used": "11.344",
        "unpriced": 0,
        "foreign": 1,
        "usd_per_hour_foreign": "5.672",
        "foreign_unpriced": 0,
        "elsewhere": None,
    }
    assert [pool["name"] for pool in result["pools"]] == ["default", "training"]


def test_the_health_of_the_fleet_is_the_reports_number(site: Site) -> None:
    """Of running GPUs, by type and driver; of these agents none says anything of health."""
    share = health_share([tuple(site.desk.fleet.nodes_.values())])

    assert share is not None
    assert site.ask("/api/v1/fleet").json["health"] == json.loads(msgspec.json.encode(share))
    assert (share.gpus, share.ratios["unknown"]) == (4, 1.0)


def test_what_comes_next_and_when_is_told_of_each_node(site: Site) -> None:
    """Of one that waits the times of notice and removal, of one that is due now, of a busy one nothing."""
    document = {row["id"]: row["next"] for row in site.ask("/api/v1/fleet").json["nodes"]}

    assert document["i-busy"] is None
    assert document["i-off"] is None
    assert document["i-waits"] == {
        "verb": "notice",
        "at": "2026-03-02T12:20:00Z",
        "removal_at": "2026-03-02T12:30:00Z",
        "removal": "stop",
        "refused_by": [],
    }
    assert document["i-due"] == {
        "verb": "notice",
        "at": "2026-03-02T12:00:00Z",
        "removal_at": "2026-03-02T12:10:00Z",
        "removal": "stop",
        "refused_by": [],
    }
    assert (document["i-foreign"]["verb"], document["i-foreign"]["refused_by"]) == ("notice", ["not_enrolled"])


def test_after_the_notice_the_removal_is_told_with_its_time(site: Site) -> None:
    """The grace began in the round that gave the notice, and every action of the hour is there, the newest first."""
    site.round()
    result = site.ask("/api/v1/fleet").json
    due = next(row for row in result["nodes"] if row["id"] == "i-due")

    assert due["next"] == {
        "verb": "stop",
        "at": "2026-03-02T12:10:00Z",
        "removal_at": "2026-03-02T12:10:00Z",
        "removal": None,
        "refused_by": [],
    }
    assert [(action["target"], action["verb"], action["status"]) for action in result["actions"]] == [
        ("i-due", "notice", "settled")
    ]


def test_a_round_is_sent_once(site: Site) -> None:
    """The tag lasts as long as the round: 304 without a body, and another answer after the next round."""
    first = site.ask("/api/v1/fleet")
    again = site.ask("/api/v1/fleet", If_None_Match=first.headers["etag"])
    site.round()
    next_one = site.ask("/api/v1/fleet", If_None_Match=first.headers["etag"])

    assert (again.status, again.body) == (304, b"")
    assert next_one.status == 200
    assert next_one.json["at"] == "2026-03-02T12:01:00Z"


def test_the_fleet_comes_packed_to_those_who_take_it(site: Site) -> None:
    """Gzip, the same JSON."""
    packed = site.ask("/api/v1/fleet", Accept_Encoding="gzip")

    assert packed.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed.body)) == site.ask("/api/v1/fleet").json


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("activity=busy", ["i-busy"]),
        ("pool=training", ["i-waits"]),
        ("text=TRAINER", ["i-busy"]),
        ("text=ann&activity=idle", []),
        ("limit=2&offset=1", ["i-waits", "i-due"]),
    ],
)
def test_nodes_are_found_by_pool_activity_and_text(site: Site, query: str, ids: list[str]) -> None:
    """All conditions count, a page is cut out of what is left."""
    assert [row["id"] for row in site.ask(f"/api/v1/nodes?{query}").json["nodes"]] == ids


def test_a_node_is_explained_whole(site: Site) -> None:
    """By its name: its evidence, what would change it, every guard rule's answer, its GPUs and its past."""
    site.round()
    result = site.ask("/api/v1/nodes/i-due").json

    assert result["activity"]["evidence"][0]["name"] == "gpu0.utilization_max"
    assert result["step"]["change"] == "Any activity within 9m withdraws the notice."
    assert {answer["rule"] for answer in result["if_stopped_now"]["answers"]} == {
        name for name, rule in GUARD_RULES.items() if rule.machines is not None and "stop" in rule.machines.verbs
    }
    assert [entry["intent"]["verb"] for entry in result["history"]] == ["notice"]
    assert site.ask("/api/v1/nodes/trainer").json["row"]["id"] == "i-busy"


def test_a_node_is_explained_in_a_past_round(site: Site) -> None:
    """Under the rules of then, without what came later."""
    site.round()
    result = site.ask("/api/v1/nodes/i-due?round=1").json

    assert (result["round"], result["at"]) == (1, "2026-03-02T12:00:00Z")
    assert result["row"]["next"]["verb"] == "notice"


def test_past_rounds_are_listed_and_told(site: Site) -> None:
    """Newest first; one round with its holds by reason, and its changes with all answers."""
    site.round()
    listed = site.ask("/api/v1/rounds?limit=1").json["rounds"]
    result = site.ask("/api/v1/rounds/1").json  # ids are links of the ledger's chain
    pools = {pool["pool"]: pool for pool in result["pools"]}

    assert [(line["at"], line["nodes"]) for line in listed] == [("2026-03-02T12:01:00Z", 5)]
    assert (result["id"], result["nodes"], result["enforce"]) == (1, 5, True)
    assert pools["training"]["held"] == {"waiting": 1}
    assert {review["step"]["node_id"] for review in pools["default"]["reviews"]} == {"i-due", "i-foreign"}


def test_money_is_what_was_metered(site: Site) -> None:
    """After an hour three machines of $5.672, and one that is not ours, have been billed; parts add up to the whole."""
    for _ in range(60):
        site.round()
    today, month = (site.ask(f"/api/v1/cost?period={period}&by=node").json for period in ("today", "month"))

    assert today["total"] == month["total"]
    assert sum(Decimal(group["usd"]) for group in today["groups"]) == Decimal(today["total"]["usd"])
    assert today["total"]["machine_hours"] == sum(group["machine_hours"] for group in today["groups"])
    assert Decimal("5.67") <= Decimal(today["total"]["usd"]) <= Decimal("17.02")  # two were stopped meanwhile
    assert Decimal("5.57") <= Decimal(today["total"]["usd_foreign"]) <= Decimal("5.68")


def test_savings_are_those_of_the_report(site: Site) -> None:
    """Two machines of $5.672 are stopped within two hours; today, this month and the report agree to the cent."""
    for _ in range(120):
        site.round()
    found = site.ask("/api/v1/savings").json
    now, zone = site.desk.clock.now(), ZoneInfo("UTC")
    report = gather_report(site.desk.ledger, period_of(zone, now), now, CostSettings(), 60.0)

    assert found["today"]["usd"] == found["month"]["usd"] == f"{float(report.facts.saved.whole.usd):.2f}"
    assert found["month"]["stops"] == len(site.desk.fleet.stops()) > 0
    assert float(found["month"]["usd"]) > 5
    assert (found["metered_since"], found["month"]["since"]) == ("2026-03-02T12:00:00Z", "2026-03-01T00:00:00Z")


def test_savings_are_counted_again_after_five_minutes(site: Site) -> None:
    """Rounds between answer from what was counted: reading a month's rows every minute would hold up the rounds."""
    counted = []
    for _ in range(12):
        counted.append(site.ask("/api/v1/savings").json["at"])
        site.round()

    assert counted == sorted(counted)
    assert len(set(counted)) == 3


def test_before_the_first_round_there_is_nothing_to_tell() -> None:
    """503 and why; the page itself and its description are there."""
    with a_site(Desk()) as site:
        answer = site.ask("/api/v1/fleet")

        assert (answer.status, answer.json) == (503, {"error": "no round has seen the fleet yet"})
        assert site.ask("/").status == 200
        assert site.ask("/api/v1/openapi.json").status == 200


def test_a_controller_that_waits_says_who_leads(site: Site) -> None:
    """An old picture would pass for the present."""
    site.web.state.update(None, leading=False)
    answer = site.ask("/api/v1/fleet")

    assert answer.status == 503
    assert answer.json["error"].startswith("this controller waits, ")


def test_a_round_in_trouble_leaves_the_last_picture_and_says_so(site: Site) -> None:
    """With its time, so that nobody takes it for the present."""
    blind = Round(
        observation=an_observation(now=NOW + timedelta(minutes=1)), trouble="The cloud gave no whole picture."
    )
    site.web.state.update(blind, leading=True)
    result = site.ask("/api/v1/fleet").json

    assert (result["trouble"], result["at"]) == ("The cloud gave no whole picture.", "2026-03-02T12:00:00Z")
    assert len(result["nodes"]) == 5


def test_a_gpu_that_cannot_be_told_is_unknown_and_never_idle() -> None:
    """A machine without a verdict has as many unknown GPUs as its type."""
    desk = Desk()
    desk.fleet.put(replace(a_node("i-1", gpu_count=4), signal=NodeReport(failure="its agent does not answer")))
    with a_site(desk) as site:
        site.round()
        row = site.ask("/api/v1/fleet").json["nodes"][0]

    assert [gpu["activity"] for gpu in row["gpus"]] == ["unknown"] * 4
    assert (row["activity"], row["held_seconds"], row["doubt"]) == ("unknown", None, "its agent does not answer")
    assert row["next"] is None


def test_parked_nodes_are_announced_only_where_the_pool_removes_them() -> None:
    """`report`, the default, announces nothing."""
    stops = replace(RULES, idle=replace(RULES.idle, parked="stop"))
    for rules, expected in ((RULES, None), (stops, "notice")):
        desk = Desk(rules=rules)
        verdict = a_verdict("i-1", State.PARKED, 60.0)
        desk.fleet.put(a_node("i-1", signal=NodeReport(verdict=verdict)))
        with a_site(desk) as site:
            site.round()
            result = site.ask("/api/v1/fleet").json["nodes"][0]["next"]

        assert (result and result["verb"]) == expected


def test_what_a_pause_or_observing_holds_back_is_not_announced_as_if_it_came() -> None:
    """A step of the future names what is sure to refuse it; a pause that ends before does not."""
    found = {}
    for minutes, enforce in ((10, True), (60, True), (None, False)):
        desk = Desk(enforce=enforce)
        desk.fleet.put(a_node("i-1", held=600.0))
        if minutes is not None:
            desk.ledger.pause("default", "ann", "", NOW, NOW + timedelta(minutes=minutes))
        with a_site(desk) as site:
            site.round()
            found[minutes] = site.ask("/api/v1/fleet").json["nodes"][0]["next"]["refused_by"]

    assert found == {10: [], 60: ["paused"], None: ["observe_only"]}


@pytest.mark.parametrize(
    ("target", "status", "says"),
    [
        ("/api/v1/nodes?limit=0", 400, "limit"),
        ("/api/v1/nodes?activity=lazy", 400, "activity"),
        ("/api/v1/nodes?colour=red", 400, "colour"),
        ("/api/v1/nodes?limit=1&limit=2", 400, "twice"),
        ("/api/v1/nodes/nobody", 404, "There are: trainer"),
        ("/api/v1/nodes/i-busy?round=99", 404, "round 99"),
        ("/api/v1/rounds/99", 404, "round 99"),
        ("/api/v1/rounds/one", 400, "no round's number"),
        ("/api/v1/rounds/99999999999999999999", 400, "no round's number"),
        ("/api/v1/cost?period=yesterday", 400, "period"),
        ("/api/v1/cost?period=2026-02-31", 400, "2026-02-31"),
        ("/api/v1/cost?by=colour", 400, "by"),
        ("/api/v1/none", 404, "openapi.json"),
        ("/none", 404, "openapi.json"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(site: Site, target: str, status: int, says: str) -> None:
    """4xx with a sentence that names it, and never a failure of the server."""
    answer = site.ask(target)

    assert answer.status == status, answer.body
    assert says in answer.json["error"]


def test_other_methods_are_refused_with_those_that_there_are(site: Site) -> None:
    """405 with Allow, also for what only acts and for the page."""
    assert [
        (answer.status, answer.headers["allow"])
        for answer in (
            site.ask("/api/v1/fleet", "POST"),
            site.ask("/api/v1/pauses/default"),
            site.ask("/", "DELETE"),
            site.ask("/metrics", "POST"),
            site.ask("/api/v1/fleet", "PUT"),
        )
    ] == [(405, "GET, HEAD"), (405, "DELETE"), (405, "GET, HEAD"), (405, "GET, HEAD"), (405, "GET, HEAD, POST, DELETE")]


def test_the_description_is_valid_and_has_every_endpoint(site: Site) -> None:
    """OpenAPI 3.1, by its own validator."""
    result = site.ask("/api/v1/openapi.json").json
    validate(result)

    assert {(method.upper(), path) for path, each in result["paths"].items() for method in each} == {
        *((each.method, PREFIX + each.path) for each in ENDPOINTS),
        ("GET", f"{PREFIX}/openapi.json"),
    }


def test_the_manual_has_every_endpoint() -> None:
    """docs/api.md is as the code makes it: `make docs`."""
    page = ROOT / "docs" / "api.md"

    assert page.read_text(encoding="utf-8") == render_md()


def test_a_thousand_nodes_are_one_small_answer() -> None:
    """8,000 GPUs in less than 100 kB, packed."""
    desk = Desk()
    populate(desk, 1000)
    with a_site(desk) as site:
        site.round()
        packed = site.ask("/api/v1/fleet", Accept_Encoding="gzip").body

    assert len(packed) < 100_000


def test_the_controller_tells_the_page_each_round() -> None:
    """As `gpuwatch controller` puts it together from its settings."""
    desk, settings = Desk(), Settings(fleet="lab")
    desk.fleet.put(a_node("i-1"))
    seen = observers_of(settings, desk.parts)
    one_round(desk.parts, seen)
    assert seen.web is not None
    asked = Request(method="GET", target="/api/v1/fleet", client="127.0.0.1", headers={"host": "localhost:9461"})
    result = json.loads(seen.web.answer(asked).body)

    assert (result["fleet"], [row["id"] for row in result["nodes"]]) == ("lab", ["i-1"])


def test_progress_is_null_until_two_weeks_are_metered(site: Site) -> None:
    """It compares the first weeks with the last ones, as the report does."""
    assert site.ask("/api/v1/progress").json == {"progress": None}
