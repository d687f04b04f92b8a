"""From the controller's page through a real Prometheus and a real Alertmanager to a mail, a chat and a pager."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parse

from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.round import step
from gpuwatch.model.activity import State
from gpuwatch.model.budget import BudgetState, Scope
from gpuwatch.model.money import Price
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import HOUR, NOW, Desk, a_node
from tests.support.paths import ROOT
from tests.support.real.agents import eventually
from tests.support.real.alerting import ALERTS, Mails, Posted, alertmanager, impatient_rules, mail_server, text_of, web
from tests.support.real.certificates import Authority
from tests.support.real.tsdb import History, prometheus

pytestmark = [pytest.mark.component("prometheus"), pytest.mark.component("prometheus-alertmanager")]
TEAM, MONEY = "gpu-team@example.com", "gpu-budget@example.com"


@dataclass(slots=True)
class Site:
    """A controller that only observes three machines, of which one is idle, and a budget."""

    spent: Decimal = Decimal(500)
    forecast: Decimal = Decimal(4100)
    lost: bool = False
    hot: bool = False
    told: ControllerMetrics = field(init=False)
    desk: Desk = field(init=False)

    def __post_init__(self) -> None:
        """Its first round, now."""
        now = SystemClock().now()
        price = Price(usd_per_hour=Decimal("98.32"), as_of=now.date(), source="a test")
        self.desk = Desk(clock=ManualClock(wall=now), enforce=False, prices={"g6.xlarge": price})
        for number, state in enumerate((State.IDLE, State.BUSY, State.BUSY)):
            launched = now - timedelta(days=2)
            node = a_node(f"i-{number}", state, 3 * HOUR, name=f"trainer-{number}", owner="ann", launched_at=launched)
            self.desk.fleet.put(node)
        self.told = ControllerMetrics("observe", "ml", self.desk.clock)
        self.round()

    def round(self) -> None:
        """Another look at the fleet and at the budget."""
        seen = step(self.desk.parts)
        budget = BudgetState(
            name="research",
            scope=Scope(),
            usd_per_month=Decimal(5000),
            month="2026-03",
            ends_at=NOW,
            thresholds=(0.5, 0.8, 1.0),
            spent_usd=self.spent,
            forecast_usd=self.forecast,
        )
        self.told.round(replace(seen, observation=replace(seen.observation, budgets=(budget,))), 0.1)

    def controller(self) -> bytes:
        """The controller's page."""
        return self.told.page().body

    def agent(self) -> bytes:
        """What matters here of the page of an agent: a GPU is lost, and was slowed down by heat."""
        lines = [
            'gpuwatch_node_info{node_id="i-1"} 1\n',
            'gpuwatch_gpu_activity{uuid="GPU-6",gpu="2",state="busy"} 1\n',
        ]
        gpu = 'uuid="GPU-7",gpu="3"'
        if self.lost:
            lines.append(f'gpuwatch_gpu_down_info{{{gpu},cause="lost"}} 1\n')
        if self.hot:
            lines.append(f'gpuwatch_gpu_health_cause_info{{{gpu},code="thermal_throttling",remedy="drain"}} 1\n')
        return "".join(lines).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """All that people were sent, and by whom."""

    mails: Mails
    posted: list[Posted]
    alertmanager: str

    def subjects(self, recipient: str) -> list[str]:
        """Of the mails to one address, in their order."""
        return [str(mail["Subject"]) for mail in self.mails.to(recipient)]

    def chat(self) -> list[str]:
        """The titles of what was written to Slack."""
        return [post.body["attachments"][0]["title"] for post in self.posted if post.path == "/slack"]

    def everything(self) -> str:
        """What all mails and posts say."""
        return "\n".join([*(text_of(mail) for mail in self.mails.messages), *(str(each.body) for each in self.posted)])

    def inhibited(self) -> set[str]:
        """The alerts that Alertmanager has and tells nobody, as others say more."""
        alerts = asked(f"http://{self.alertmanager}/api/v2/alerts?active=false&silenced=false&inhibited=true")
        return {alert["labels"]["alertname"] for alert in alerts}

    def looks(self) -> float:
        """How often Alertmanager has asked itself whether a group is news."""
        with urllib.request.urlopen(f"http://{self.alertmanager}/metrics") as answer:
            families = {family.name: family for family in parse(answer.read().decode())}
        return families["alertmanager_nflog_queries"].samples[0].value


@pytest.fixture
def site() -> Site:
    """Observed once."""
    return Site()


@pytest.fixture
def heard(site: Site, tmp_path: Path) -> Iterator[Heard]:
    """Prometheus scrapes the site, and Alertmanager tells."""
    pages, authority = {"/controller": site.controller, "/agent": site.agent}, Authority(tmp_path / "ca")
    with (
        mail_server("gpuwatch", authority.issue("mail")) as (smarthost, mails),
        web(pages) as (address, posted),
        alertmanager(tmp_path / "alertmanager", smarthost, authority.ca, address) as text,
    ):
        jobs = {"gpuwatch-controller": "/controller", "gpuwatch": "/agent"}
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(impatient_rules(tmp_path))],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [text]}]}]},
            "scrape_configs": [
                {"job_name": job, "metrics_path": path, "static_configs": [{"targets": [address]}]}
                for job, path in jobs.items()
            ],
        }
        with prometheus(tmp_path / "prometheus", History(), yaml.safe_dump(configuration)):
            yield Heard(mails=mails, posted=posted, alertmanager=text)


def test_what_happens_reaches_people_once_and_in_words_they_can_act_on(site: Site, heard: Heard) -> None:
    """An idle machine, a budget from its forecast to its last dollar, a lost GPU; and that it is over."""
    eventually(lambda: heard.subjects(TEAM) and heard.subjects(MONEY) and len(heard.chat()) > 1, heard.everything)
    (idle,), (forecast,) = heard.mails.to(TEAM), heard.mails.to(MONEY)

    assert str(idle["Subject"]).startswith(
        "WARNING: Node i-0 has been idle for 3h 0m 0s and is not about to be stopped"
    )
    for words in ("owner ann, name trainer-0", "It costs $98.32 an hour", "docs/runbooks/fleet.md#gpunodeidle"):
        assert words in text_of(idle)
        assert words in text_of(idle, "html")
    slack = [post.body for post in heard.posted if post.path == "/slack"]
    assert "explain NODE" not in f"{text_of(idle)} {text_of(idle, 'html')} {slack}", "the whole runbook was sent"
    assert str(forecast["Subject"]).startswith("INFO: Budget research will be used to 82% at the end of the month")
    assert "Spent $500.00 of $5000.00, forecast for the month $4100.00." in text_of(forecast)
    assert sorted(heard.chat()) == sorted([idle["Subject"], forecast["Subject"]])

    looks, mails = heard.looks(), len(heard.mails.messages)
    eventually(lambda: heard.looks() >= looks + 6)

    assert len(heard.mails.messages) == mails, "the same was told twice"

    site.spent, site.lost = Decimal(5100), True
    site.round()
    eventually(lambda: len(heard.subjects(MONEY)) > 1 and heard.subjects(TEAM)[1:], heard.everything)
    pages = [post for post in heard.posted if post.path == "/alertmanager"]

    assert heard.subjects(MONEY)[1].startswith("WARNING: Budget research is spent to 102%")
    assert heard.subjects(TEAM)[1].startswith("CRITICAL: Node i-1 has lost GPU 3 (lost); drain the node and reboot it.")
    assert [post.body["groupLabels"] for post in pages] == [{"alertname": "GpuLost", "node": "i-1"}]
    assert {post.authorization for post in pages} == {"Bearer a token"}

    # Only now: in life heat is told after ten minutes, and the loss after one.
    site.hot = True
    site.desk.fleet.show("i-0", State.BUSY)
    site.round()
    eventually(lambda: "GpuThermalThrottling" in heard.inhibited(), heard.everything)
    eventually(lambda: heard.subjects(TEAM)[2:], heard.everything)
    looks = heard.looks()
    eventually(lambda: heard.looks() >= looks + 6)

    assert heard.subjects(TEAM)[2].startswith("RESOLVED: Node i-0 has been idle")
    assert (len(heard.subjects(TEAM)), len(heard.subjects(MONEY))) == (3, 2), heard.subjects(TEAM) + heard.subjects(
        MONEY
    )
    assert "GpuThermalThrottling" not in heard.everything(), "the heat of a GPU that is gone"
    assert "used to 82%" not in "".join(heard.subjects(MONEY)[1:]), "a forecast of what is spent already"


def test_no_rule_fails_on_the_pages_of_real_agents_and_controllers(site: Site, tmp_path: Path) -> None:
    """Agents with and without GPUs, and two controllers: a join that finds two rows where it needs one is an error."""
    pages = {f"/{path.stem}": path.read_bytes for path in (ROOT / "tests/golden").glob("*.prom")}
    with web({**pages, "/leads": site.controller, "/waits": site.controller}) as (address, _):
        jobs = {"gpuwatch": sorted(pages), "gpuwatch-controller": ["/leads", "/waits"]}
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS / "gpuwatch.yml")],
            "scrape_configs": [
                {
                    "job_name": job,
                    "static_configs": [
                        {"targets": [address], "labels": {"__metrics_path__": path, "instance": path}} for path in paths
                    ],
                }
                for job, paths in jobs.items()
            ],
        }
        with prometheus(tmp_path / "prometheus", History(), yaml.safe_dump(configuration)) as url:
            eventually(
                lambda: {"GpuLost", "GpuNodeIdle", "GpuwatchAgentBlind"} <= alerts_of(url), lambda: rules_of(url)
            )
            failed = [rule for rule in rules_of(url) if rule[1] != "ok"]

    assert failed == []


def asked(url: str) -> Any:  # noqa: ANN401  JSON
    """What Prometheus or Alertmanager answers."""
    with urllib.request.urlopen(url) as answer:  # noqa: S310  loopback
        return json.load(answer)


def rules_of(url: str) -> list[tuple[str, str, str]]:
    """Each rule's name, whether it could be evaluated, and why not."""
    rules = [rule for group in asked(f"{url}/api/v1/rules")["data"]["groups"] for rule in group["rules"]]
    return [(rule["name"], rule["health"], rule.get("lastError", "")) for rule in rules]


def alerts_of(url: str) -> set[str]:
    """What is told, or will be if it lasts."""
    return {alert["labels"]["alertname"] for alert in asked(f"{url}/api/v1/alerts")["data"]["alerts"]}
