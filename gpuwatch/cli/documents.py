"""Every document that `--json` prints: which type has its fields. docs/json.md and a test are made from this list."""

from importlib import import_module
from typing import Any

# The words of the command with dots between them, and where its type is; nothing of it is loaded here.
DOCUMENTS = {
    "acknowledge": "gpuwatch.model.orders:Acknowledgement",
    "recommend.restarts": "gpuwatch.simulate.backtest.restarts:RestartsDocument",
    "approve": "gpuwatch.controller.order_documents:ApproveDocument",
    "audit.log": "gpuwatch.controller.order_documents:AuditLogDocument",
    "audit.verify": "gpuwatch.controller.order_documents:AuditVerifyDocument",
    "backtest": "gpuwatch.simulate.backtest.document:BacktestDocument",
    "blocked": "gpuwatch.money.blocked.blocked:Blocked",
    "budget": "gpuwatch.money.budgets.table:BudgetDocument",
    "cloud.test": "gpuwatch.clouds.driver.suite:SuiteDocument",
    "config.check": "gpuwatch.cli.config:CheckDocument",
    "config.show": "gpuwatch.cli.config:ShowDocument",
    "cost": "gpuwatch.money.report.cost:CostDocument",
    "cost.rates": "gpuwatch.money.bill.rates_file:RatesDocument",
    "cost.reconcile": "gpuwatch.money.bill.statement:ReconcileDocument",
    "demo": "gpuwatch.simulate.demo:DemoDocument",
    "doctor.agent": "gpuwatch.cli.doctor.report:DoctorDocument",
    "doctor.controller": "gpuwatch.cli.doctor.report:DoctorDocument",
    "explain": "gpuwatch.controller.explain:NodePage",
    "forecast": "gpuwatch.money.forecast.forecast:ForecastDocument",
    "join.list": "gpuwatch.controller.join.listing:JoinedDocument",
    "notify.test": "gpuwatch.notify.send_test:SentDocument",
    "pause": "gpuwatch.model.orders:Pause",
    "plan": "gpuwatch.controller.plan_page:PlanPage",
    "prices": "gpuwatch.money.prices.listing:PricesDocument",
    "recommend.commitments": "gpuwatch.money.advice.commitments_document:CommitmentsDocument",
    "recommend.instance": "gpuwatch.money.advice.instance_report:InstanceDocument",
    "recommend.ownership": "gpuwatch.money.advice.ownership:Advice",
    "recommend.rightsize": "gpuwatch.money.advice.rightsizing_report:RightsizingReport",
    "recommend.spot": "gpuwatch.simulate.spot.advice:SpotAdvice",
    "recommend.vendors": "gpuwatch.money.advice.vendors:VendorsDocument",
    "report": "gpuwatch.money.report.document:ReportDocument",
    "resume": "gpuwatch.controller.order_documents:ResumeDocument",
    "rounds": "gpuwatch.controller.order_documents:RoundsPage",
    "scan": "gpuwatch.money.scan:ScanDocument",
    "snooze": "gpuwatch.agent.evidence.snoozes:SnoozesDocument",
    "status": "gpuwatch.model.nodes_page:StatusPage",
    "top": "gpuwatch.cli.top.source:TopPage",
    "unused": "gpuwatch.money.unused:UnusedDocument",
    "version": "gpuwatch.cli.version:VersionDocument",
}


def document_type(kind: str) -> Any:  # noqa: ANN401  a dataclass or a struct
    """The type of a document.

    Raises:
        KeyError: there is no such document.

    """
    module, _, name = DOCUMENTS[kind].partition(":")
    return getattr(import_module(module), name)
