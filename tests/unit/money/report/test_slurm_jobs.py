"""The report's section about Slurm jobs that hold GPUs and do not use them."""

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from gpuwatch.ledger import Ledger
from gpuwatch.model.currency import Currency, show_in
from gpuwatch.model.slurm import SlurmJob, SlurmNode
from gpuwatch.money.report.document import report_document
from gpuwatch.money.report.inventory import inventory
from gpuwatch.money.report.pages import as_text
from gpuwatch.money.report.report import Report
from gpuwatch.runtime.json_document import document
from tests.support.builders.fleet import NOW, a_node, an_observation
from tests.support.builders.ledger_fixture import a_report
from tests.support.builders.money import a_price


def reported(*users: str, **machine: Any) -> Report:  # noqa: ANN401  of a node
    """A report of a round where each of them has a job on an idle machine of one GPU."""
    nodes = []
    for number, user in enumerate(users, 1):
        job = SlurmJob(id=str(number), user=user, gpus=1, indexes=(0,), started_at=NOW - timedelta(hours=3))
        known = SlurmNode(name=f"gpu-{number}", states=("MIXED",), jobs=(job,), gpus=1)
        nodes.append(a_node(f"i-{number}", slurm=known, **machine))
    seen = replace(an_observation(*nodes), prices={"g6.xlarge": a_price("2")})
    report = a_report(Ledger.in_memory(), date(2026, 3, 2))
    return replace(report, facts=replace(report.facts, inventory=inventory(seen, (), (), None)))


def lines(report: Report) -> list[str]:
    """Of the section, without the space between columns."""
    _, found, after = as_text(report).partition("GPUs that Slurm jobs hold and do not use")
    return [" ".join(line.split()) for line in (found + after).splitlines()] if found else []


def test_users_and_their_jobs_are_named_with_what_they_cost() -> None:
    """The most expensive first; what adds up is added up."""
    told = lines(reported("ann", "bob", "ann"))
    assert "At 2026-03-02 13:00 Slurm jobs held 3 GPUs without use for an hour and more, at $6.00 an hour." in told
    assert told.index("ann 2 2 $4.00") < told.index("bob 1 1 $2.00")
    assert "1 ann i-1 1 1 2h $2.00" in told


def test_a_machine_without_a_known_price_is_counted_and_marked() -> None:
    """Its sum lacks something."""
    told = lines(reported("ann", instance_type="p9"))
    assert any("at $0.00+? an hour" in line for line in told)
    assert "1 ann i-1 1 1 2h ?" in told


def test_a_long_list_is_cut_and_says_so() -> None:
    """The JSON document has all of them."""
    report = reported(*(f"user{number}" for number in range(12)))
    assert "By job: 10 of 12" in " ".join(lines(report))
    jobs = document("report", report_document(report))["jobs"]
    assert len(jobs) == 12
    assert jobs[0] == {
        "job": "1",
        "user": "user0",
        "node_id": "i-1",
        "pool": "default",
        "gpus": 1,
        "unused_gpus": 1,
        "held_seconds": 7200.0,
        "usd_per_hour": "2",
    }


def test_a_fleet_without_such_jobs_has_no_such_section() -> None:
    """Nor one without rounds."""
    assert lines(reported()) == []
    assert report_document(a_report(Ledger.in_memory(), date(2026, 3, 2))).jobs == ()


def test_prices_of_jobs_are_in_the_currency_that_people_read() -> None:
    """The heads of the columns say the same currency as their cells."""
    show_in(Currency(code="CNY", usd=Decimal("0.125"), as_of=date(2026, 3, 1)))
    told = lines(reported("ann"))
    assert "user unused GPUs jobs CNY/h" in told
    assert "ann 1 1 ¥16.00" in told


def test_machines_of_jobs_are_called_as_everywhere_in_the_report() -> None:
    """With their cloud, where clouds have names."""
    assert "1 ann n (i-1 in bj) 1 1 2h $2.00" in lines(reported("ann", name="n", cloud="bj"))
