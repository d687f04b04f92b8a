"""What the controller tells Prometheus of its rounds."""

import subprocess
import urllib.request
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from http import HTTPStatus
from zoneinfo import ZoneInfo

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from gpuwatch.controller import metrics
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.round import step
from gpuwatch.controller.web.serve import Discovery, Observers, make_server
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import NodeReport, NodeState
from gpuwatch.model.money import Price
from gpuwatch.money.report.saved import saved_by_pool
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.http.request import PROBES
from tests.support.builders.desk import an_intent
from tests.support.builders.fleet import NOW, Desk, a_node, a_verdict
from tests.support.components import require
from tests.support.paths import ROOT

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def a_telling(desk: Desk) -> ControllerMetrics:
    """Before the first round."""
    return ControllerMetrics("enforce", "ml", desk.clock)


def test_a_metric_that_cannot_be_made_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """P22: it is absent, the log names it once, and every other family is served."""
    desk = Desk()
    desk.fleet.put(a_node())
    telling = a_telling(desk)
    telling.round(step(desk.parts), 1.0)
    whole = {name for name, _ in samples(telling)}
    broken, _ = metrics.COLLECTED[0]

    def fails(_: object) -> list[object]:
        raise OverflowError("date value out of range")

    others = [(family, fails if family is broken else made) for family, made in metrics.COLLECTED]
    monkeypatch.setattr(metrics, "COLLECTED", tuple(others))
    left = {name for name, _ in (samples(telling) and samples(telling))}

    assert {name for name in whole - left if not name.startswith(broken.name)} == set()
    assert left
    assert len([each for each in caplog.messages if broken.name in each]) == 1


def samples(result: ControllerMetrics) -> Samples:
    """The page's values by name and labels."""
    text = result.page().body.decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def one(metrics: ControllerMetrics, name: str, **labels: str) -> float | None:
    """One value of fleet `ml`; None where there is no such series."""
    return samples(metrics).get((f"gpuwatch_{name}", tuple(sorted({"fleet": "ml", **labels}.items()))))


def test_before_the_first_round_nothing_is_told_of_the_fleet() -> None:
    """Only what the controller is, its currency, and histograms without a value: absent, never zero."""
    found = samples(a_telling(Desk()))

    assert {name for name, _ in found if "duration" not in name} == {
        "gpuwatch_controller_build_info",
        "gpuwatch_controller_info",
        "gpuwatch_controller_leader",
        "gpuwatch_currency_usd",
    }
    assert {value for (name, _), value in found.items() if "duration" in name} == {0.0}


def test_a_round_tells_machines_by_state_use_and_price() -> None:
    """Two running, of which one is idle, and one stopped; a price that is not known has no series."""
    desk = Desk()
    for name, state, held, count in (("i-1", State.IDLE, 3600.0, 4), ("i-2", State.BUSY, 60.0, 8)):
        seen = NodeReport(verdict=a_verdict(name, state, held, gpus=count))
        desk.fleet.put(a_node(name, gpu_count=count, signal=seen))
    desk.fleet.put(replace(a_node("i-3"), state=NodeState.STOPPED))
    result = a_telling(desk)
    result.round(step(desk.parts), 0.25)

    assert one(result, "fleet_nodes", pool="default", state="running") == 2
    assert one(result, "fleet_nodes", pool="default", state="stopped") == 1
    assert one(result, "fleet_running_gpus", pool="default", activity="busy") == 8
    assert one(result, "fleet_running_gpus", pool="default", activity="idle") == 4
    assert one(result, "fleet_node_activity_duration_seconds", node="i-2") == 60
    assert one(result, "fleet_node_activity_duration_seconds", node="i-3") is None
    assert one(result, "fleet_node_usd_per_hour", node="i-1") is None
    assert one(result, "controller_round_duration_seconds_bucket", le="0.25") == 1
    assert one(result, "controller_round_duration_seconds_bucket", le="0.1") == 0
    assert one(result, "controller_round_duration_seconds_sum") == 0.25


def test_what_is_known_of_prices_is_summed_by_use() -> None:
    """At two dollars an hour, one idle machine."""
    desk = Desk(prices={"g6.xlarge": Price(usd_per_hour=Decimal(2), as_of=NOW.date(), source="a test")})
    desk.fleet.put(a_node("i-1", State.IDLE))
    result = a_telling(desk)
    result.round(step(desk.parts), 0.1)

    assert one(result, "fleet_usd_per_hour", pool="default", activity="idle") == 2
    assert one(result, "fleet_node_usd_per_hour", node="i-1") == 2


def test_waste_is_of_the_gpus_and_not_of_the_machine() -> None:
    """Of a busy machine at $16 an hour seven of eight GPUs are idle; a busy one wastes nothing, nor a foreign one."""
    desk = Desk(prices={"g6.xlarge": Price(usd_per_hour=Decimal(16), as_of=NOW.date(), source="a test")})
    verdict = a_verdict("i-1", State.BUSY, 60.0, gpus=8)
    idle = a_verdict("i-1", State.IDLE, 60.0, gpus=8).gpus
    some = replace(verdict, gpus=(*verdict.gpus[:1], *idle[1:]))
    desk.fleet.put(a_node("i-1", State.BUSY, 60.0, gpu_count=8, signal=NodeReport(verdict=some)))
    desk.fleet.put(a_node("i-2", State.BUSY, 60.0))
    desk.fleet.put(a_node("i-3", enrolled=False))
    result = a_telling(desk)
    result.round(step(desk.parts), 0.1)

    assert one(result, "fleet_node_wasted_usd_per_hour", node="i-1") == 14
    assert one(result, "fleet_usd_per_hour", pool="default", activity="idle") == 14
    assert one(result, "fleet_usd_per_hour", pool="default", activity="busy") == 2 + 16
    assert one(result, "fleet_running_gpus", pool="default", activity="idle") == 7
    assert one(result, "fleet_running_gpus", pool="default", activity="busy") == 2
    assert one(result, "fleet_node_wasted_usd_per_hour", node="i-2") is None
    assert one(result, "fleet_node_wasted_usd_per_hour", node="i-3") is None


def test_what_our_own_stops_save_is_told_while_nobody_has_started_the_machine_again() -> None:
    """Of two stopped machines gpuwatch stopped one, at two dollars an hour, until it starts it again."""
    desk = Desk(prices={"g6.xlarge": Price(usd_per_hour=Decimal(2), as_of=NOW.date(), source="a test")})
    desk.fleet.put(a_node("i-1", State.IDLE))
    desk.fleet.put(replace(a_node("i-2"), state=NodeState.STOPPED))
    result = a_telling(desk)
    for _ in range(15):
        result.round(step(desk.parts), 0.1)
        desk.rest(60.0)
    before = one(result, "fleet_saved_usd_per_hour", pool="default")
    saved = []
    for _ in range(2):
        result.tell_savings(saved_by_pool(desk.ledger, ZoneInfo("UTC"), desk.clock.now(), 60.0, desk.rulebook))
        saved.append(one(result, "fleet_saved_usd_per_hour", pool="default"))
        intent = an_intent(desk.ledger, Verb.START)
        desk.ledger.settle(intent, Status.SETTLED, "it runs", desk.clock.now())  # type: ignore[arg-type]  # an Intent

    assert before is None
    assert saved == [2, None]
    assert one(result, "fleet_saved_usd_per_hour", pool="default") is None


def test_decisions_refusals_and_actions_are_counted_by_pool_rule_and_verb() -> None:
    """A notice that is given counts as an action, and one that a rule forbids as its refusal."""
    desk = Desk()
    desk.fleet.put(a_node("i-1", State.IDLE))
    desk.fleet.put(replace(a_node("i-2", State.IDLE), protected="a test"))
    result = a_telling(desk)
    for _ in range(2):
        result.round(step(desk.parts), 0.1)
        desk.clock.sleep(60)

    assert one(result, "controller_actions_total", pool="default", verb="notice", status="settled") == 1
    assert (one(result, "controller_refusals_total", pool="default", rule="protected", verb="notice") or 0) == 2
    assert one(result, "controller_blocked_actions", pool="default", rule="protected", verb="notice") == 1
    assert one(result, "fleet_node_notice_timestamp_seconds", node="i-1") is not None
    assert one(result, "controller_rounds_total", result="done") == 2


def test_a_round_in_trouble_a_failed_one_and_a_follower_are_told_apart_and_keep_the_last_good_picture() -> None:
    """The timestamp of the last good round stays, so that an alert can see its age."""
    desk = Desk()
    desk.fleet.put(a_node("i-1", State.IDLE))
    found = a_telling(desk)
    good = step(desk.parts)
    found.round(good, 0.1)
    at = one(found, "controller_last_round_timestamp_seconds")
    desk.clock.sleep(timedelta(hours=1).total_seconds())
    found.round(replace(good, trouble="no credentials"), 0.1)
    found.round(None, 0.1)
    found.round(None, 0.1, leading=False)

    assert [
        one(found, "controller_rounds_total", result=result) for result in ("done", "trouble", "failed", "waiting")
    ] == [1, 1, 1, 1]
    assert one(found, "controller_round_duration_seconds_count") == 3
    assert one(found, "controller_last_round_timestamp_seconds") == at
    assert one(found, "controller_leader") == 0
    assert one(found, "fleet_nodes", pool="default", state="running") == 1


def test_both_text_formats_hold_the_same_series() -> None:
    """A Prometheus that asks for OpenMetrics loses nothing."""
    desk = Desk()
    desk.fleet.put(a_node("i-1", State.IDLE))
    result = a_telling(desk)
    result.round(step(desk.parts), 0.1)
    page = result.page("application/openmetrics-text; version=1.0.0")
    opened = {sample.name for family in parse_openmetrics(page.body.decode()) for sample in family.samples}  # type: ignore[no-untyped-call]  # untyped

    assert opened == {name for name, _ in samples(result)}


def test_no_family_is_unknown_to_the_page_of_the_manual() -> None:
    """docs/CONTROLLER_METRICS.md is what `make docs` writes."""
    written = ROOT / "docs" / "CONTROLLER_METRICS.md"

    assert written.read_text(encoding="utf-8") == metrics.render_md()
    assert len({family.name for family in metrics.families()}) == len(metrics.families())


def test_every_series_names_its_fleet() -> None:
    """Two fleets in one Prometheus are told apart by that label, whatever Prometheus itself knows of its targets."""
    desk = Desk()
    desk.fleet.put(a_node("i-1", State.IDLE))
    result = a_telling(desk)
    result.round(step(desk.parts), 0.1)

    assert {dict(labels).get("fleet") for _, labels in samples(result)} == {"ml"}
    assert {family.labels[0] for family in metrics.families() if family.name.startswith("gpuwatch_")} == {"fleet"}


def test_a_controller_is_ready_once_a_round_is_over() -> None:
    """Also one that waits for another that leads: it has asked the ledger."""
    result = ControllerMetrics("observe", "test", SystemClock())
    server = make_server(
        ControllerSettings(port=0),
        Observers(discovery=Discovery(signals=ObserveSettings()), metrics=result),
        SystemClock(),
    )
    assert server is not None
    try:
        before = [server.routes[path]("").status for path in PROBES]
        result.round(None, 0.1, leading=False)
        after = [server.routes[path]("").status for path in PROBES]
    finally:
        server.server_close()

    assert before == [HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE]
    assert after == [HTTPStatus.OK] * 2


@pytest.mark.component("promtool")
def test_the_page_is_served_and_promtool_has_nothing_to_say_against_it() -> None:
    """Over HTTP, on loopback."""
    desk = Desk()
    desk.fleet.put(a_node("i-1", State.IDLE))
    result = a_telling(desk)
    result.round(step(desk.parts), 0.1)
    observers = Observers(discovery=Discovery(signals=ObserveSettings()), metrics=result)
    server = make_server(ControllerSettings(port=0), observers, SystemClock())
    assert server is not None
    server.start()
    try:
        with urllib.request.urlopen(f"{server.url}/metrics") as answer:  # noqa: S310  loopback
            page = answer.read()
    finally:
        server.close()
    checked = subprocess.run(
        [require("promtool"), "check", "metrics"], input=page, capture_output=True, check=False, timeout=30
    )

    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
