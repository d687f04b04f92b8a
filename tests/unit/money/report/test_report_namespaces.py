"""The report on a Kubernetes cluster: its namespaces and workloads next to pools and owners, to the same cent."""

from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Observation
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.report.blocks import Table
from gpuwatch.money.report.document import report_document
from gpuwatch.money.report.gather import gather_report
from gpuwatch.money.report.period import Period
from gpuwatch.money.report.report import Report
from gpuwatch.money.report.sections import sections
from gpuwatch.notify.reports import ReportContent
from gpuwatch.notify.transports.file import FORMATS
from tests.support.builders.fleet import NOW
from tests.support.builders.kubernetes_views import shown_cluster, shown_node, shown_pod
from tests.support.builders.money import a_busy_node, a_round

KNOBS = CostSettings()


def a_minute(at: datetime, *, cluster: bool) -> Observation:
    """Two machines with two GPUs each at $10 an hour; a pod of `cv` holds one GPU of the first."""
    known = shown_node("gpu-1", "i-1", shown_pod("serve-0", "gpu-1", gpus=1.0, namespace="cv"), gpus=2.0)
    first = replace(a_busy_node("i-1", at), kubernetes=known if cluster else None)
    seen = a_round(at, first, a_busy_node("i-2", at))
    return replace(seen, fleet=replace(seen.fleet, cluster=shown_cluster(known) if cluster else None))


def a_report(path: Path, *, cluster: bool = True) -> Report:
    """Of a day with two hours of that."""
    ledger = Ledger.open(path)
    for number in range(25):
        SpendBook(ledger).meter(a_minute(NOW + number * timedelta(minutes=5), cluster=cluster), KNOBS.metering(60))
    period = Period(zone=ZoneInfo("UTC"), first=NOW.date(), after=date.fromordinal(NOW.date().toordinal() + 1))
    report = gather_report(ledger, period, NOW + timedelta(hours=2), KNOBS, 60.0)
    ledger.close()
    return report


def test_namespaces_and_workloads_add_up_to_the_whole(tmp_path: Path) -> None:
    """In the text, on the page and in the document."""
    report = a_report(tmp_path / "ledger.db")
    tables = {part.caption: part for section in sections(report) for part in section.parts if isinstance(part, Table)}
    by = report_document(report).by

    assert {each.name: str(each.usd) for each in by["namespace"]} == {
        "(no cluster)": "20.00",
        "(unallocated)": "10.00",
        "cv": "10.00",
    }
    assert {each.name for each in by["workload"]} == {"(no cluster)", "(unallocated)", "Deployment cv/serve"}
    for name in ("namespace", "workload"):
        assert sum((each.usd or Decimal(0) for each in by[name]), Decimal(0)) == Decimal(40)
        assert [row[0] for row in tables[f"By {name}"].rows][-1] == "all"
    for form in ("txt", "html"):
        assert "Deployment cv/serve" in FORMATS[form](ReportContent(report))


def test_without_a_cluster_nothing_of_it_is_there(tmp_path: Path) -> None:
    """No slicing with one line that says nothing."""
    report = a_report(tmp_path / "ledger.db", cluster=False)

    assert not {"namespace", "workload", "workload-owner"} & report_document(report).by.keys()
