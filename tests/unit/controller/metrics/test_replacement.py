"""What the controller tells of sick machines that it has replaced: from the ledger to metrics and report."""

from dataclasses import replace
from datetime import timedelta

from prometheus_client.parser import text_string_to_metric_families as parse

from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.round import step
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Reason, Status, Verb
from gpuwatch.money.report.blocks import Table
from gpuwatch.money.report.fleet_sections import health
from gpuwatch.money.report.history import ActionHistory
from gpuwatch.policies.replacement import CLOUD, FAILING_SINCE, KIND, Loss
from tests.support.builders.fleet import NOW, Desk, a_node, an_observation
from tests.support.builders.ledger_fixture import a_report
from tests.support.builders.past_steps import a_done

HOUR = timedelta(hours=1)
REASON = Reason(code="expired", sentence="It has been idle for 2h.")
SINCE = {FAILING_SINCE: (NOW - 6 * HOUR).isoformat(), KIND: "g6.xlarge", CLOUD: "aws"}


def test_machines_that_were_replaced_are_counted_with_the_time_that_it_took() -> None:
    """By pool, cloud and type; one that is still awaited has no time."""
    desk = Desk()
    desk.fleet.put(a_node("i-1"))
    metrics = ControllerMetrics("enforce", "ml", desk.clock)
    done = step(desk.parts)
    lost = replace(a_done(), verb=Verb.TERMINATE, at=NOW - 4 * HOUR, arguments=SINCE)
    recent = (lost, replace(lost, at=NOW - HOUR), replace(a_done(), verb=Verb.LAUNCH, at=NOW - 2 * HOUR))
    ledger = replace(done.observation.ledger, recent=recent)
    metrics.round(replace(done, observation=replace(done.observation, ledger=ledger)), 0.1)

    found = {
        sample.name: sample.value
        for family in parse(metrics.page().body.decode())
        for sample in family.samples
        if sample.labels.get("cloud") == "aws" and sample.labels.get("instance_type") == "g6.xlarge"
    }
    assert found == {
        "gpuwatch_sick_machines_terminated": 2.0,
        "gpuwatch_sick_machines_replaced": 1.0,
        "gpuwatch_replacement_seconds": 4 * 3600.0,
    }


def test_the_ledger_tells_each_loss_and_what_came_for_it() -> None:
    """In the report's days: from failing to gone, and to the machine that came."""
    ledger = Ledger.in_memory()

    round_id = ledger.record_round(an_observation(a_node("i-1")))

    def settled(verb: Verb, hours: float, arguments: dict[str, str]) -> None:
        at = NOW + hours * HOUR
        intent = ledger.intend(verb, f"i-{hours}", "default", at, REASON, round_id, arguments=arguments)
        ledger.settle(intent, Status.SETTLED, "done", at)

    settled(Verb.LAUNCH, -1, {})
    settled(Verb.TERMINATE, 0, SINCE)
    settled(Verb.TERMINATE, 0.5, {})
    settled(Verb.LAUNCH, 1, {})
    settled(Verb.TERMINATE, 2, SINCE)
    actions = ActionHistory(ledger).actions(NOW - 24 * HOUR, NOW + 24 * HOUR, 10)

    assert [(each.seconds, each.gone_at - each.failing_since) for each in actions.sick_machines] == [
        (7 * 3600.0, 6 * HOUR),
        (None, 8 * HOUR),
    ]
    assert {(each.cloud, each.instance_type, each.pool) for each in actions.sick_machines} == {
        ("aws", "g6.xlarge", "default")
    }
    assert ActionHistory(ledger).actions(NOW + 24 * HOUR, NOW + 48 * HOUR, 10).sick_machines == ()


def test_the_report_has_a_line_for_each_cloud_and_type() -> None:
    """With the mean hours from failing to the end, and to the machine that came; none without a sick machine."""
    report = a_report(Ledger.in_memory())
    assert list(health(report)) == []
    loss = Loss(
        node_id="i-1",
        pool="default",
        cloud="aws",
        instance_type="g6.xlarge",
        failing_since=NOW - 6 * HOUR,
        gone_at=NOW - 4 * HOUR,
        came_at=NOW - 3 * HOUR,
    )
    losses = (loss, replace(loss, gone_at=NOW - HOUR, came_at=None))
    facts = replace(report.facts, actions=replace(report.facts.actions, sick_machines=losses))
    (table,) = health(replace(report, facts=facts))
    assert isinstance(table, Table)
    assert table.rows == (("aws", "g6.xlarge", "2", "3.5", "1", "3.0"),)
