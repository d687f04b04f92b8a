"""One ledger with every kind of machine, asked everywhere: commands, documents, API, report, boards on a Prometheus.

By hand means: from single rows of the ledger. What a board adds up over a time range is Prometheus' estimate
(`increase`): it may be off by one scrape of the range. What it shows of one moment is exact.
"""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.cli.controller import one_round
from gpuwatch.cli.main import commands
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.observe.kubernetes import with_cluster
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.web.serve import Discovery, Observers
from gpuwatch.guard import Limits
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import NodeReport
from gpuwatch.model.money import Price, effective_source
from gpuwatch.money.accounting.store import Meter, SpendBook
from gpuwatch.money.report.saved import saved_by_pool
from tests.support.builders.fleet import NOW, RULES, a_node, a_verdict
from tests.support.builders.kubernetes_views import shown_cluster, shown_node, shown_pod
from tests.support.builders.served_page import METERING, Site, a_site
from tests.support.builders.slurm import SlurmDesk, a_slurm_machine
from tests.support.dashboards import load, panels, substituted
from tests.support.real.tsdb import History, prometheus

Ask = Callable[[str], Fraction]
pytestmark = pytest.mark.component("prometheus")
MINUTES, RATE = 120, Decimal("0.138")
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
BILL = effective_source(date(2026, 2, 1), date(2026, 2, 28), Decimal("0.375"))
USD = {"g6.xlarge": ("5.672", "a list"), "p4d.24xlarge": ("21.957642", "a list"), "p5.48xlarge": ("39.8", BILL)}


@dataclass(slots=True)
class Played:
    """The site, where its ledger lies, and what was scraped of its controller."""

    site: Site
    config: Path
    history: History = field(default_factory=History)

    def rows(self) -> dict[str, Fraction]:
        """The sums by hand."""
        sums = dict.fromkeys(("usd", "usd_wasted", "usd_unproven", "usd_foreign", "unpriced"), Fraction(0))
        for row in SpendBook(self.site.desk.ledger).rows(0, 2**40):
            ms, usd = sum(row.amounts[:7]), row.terms.usd_per_hour
            _useful, idle, parked, stalled, down, unknown, silent = row.amounts[7:14]
            if row.terms.foreign is not None:
                sums["usd_foreign"] += Fraction(usd or 0) * ms / 3_600_000
            elif usd is None:
                sums["unpriced"] += Fraction(ms, 3_600_000)
            else:
                a_gpu = Fraction(usd) / row.terms.gpus / 3_600_000
                sums["usd"] += Fraction(usd) * ms / 3_600_000
                sums["usd_wasted"] += a_gpu * (idle + parked + stalled + down)
                sums["usd_unproven"] += a_gpu * (unknown + silent)
        return sums

    def run(self, *arguments: str) -> str:
        """A command's answer."""
        result = CliRunner().invoke(commands, [*arguments, "--config", str(self.config)])
        assert result.exit_code == 0, result.output
        return result.output


def cents(usd: Fraction) -> Decimal:
    """As every surface shows it."""
    return Decimal(round(usd * 100)).scaleb(-2)


def in_pods(seen: Observation) -> Observation:
    """The machine i-pods is a node of a cluster; of its eight GPUs a pod of `cv` requests three."""
    pod = shown_pod("serve-0", "gpu-pods", gpus=3.0, namespace="cv")
    return replace(seen, fleet=with_cluster(seen.fleet, shown_cluster(shown_node("gpu-pods", "i-pods", pod))))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Two hours: busy, idle, parked, partly used, without an agent, without a price, committed, foreign, in Slurm.

    One machine is stopped, one is terminated with its pool's rule, and one is a node of Kubernetes.
    """
    folder = tmp_path_factory.mktemp("money")
    ledger = Ledger.connect(LedgerSettings(path=str(folder / "ledger.db")))
    ending = replace(RULES, idle=replace(RULES.idle, action="terminate"))
    prices = {
        kind: Price(usd_per_hour=Decimal(usd), source=source, as_of=NOW.date()) for kind, (usd, source) in USD.items()
    }
    desk = SlurmDesk(
        ledger=ledger, prices=prices, limits=Limits(), pools={"default": RULES, "batch": ending, "spare": RULES}
    )
    busy, idle = (a_verdict("i-pods", state, 60.0, gpus=8) for state in (State.BUSY, State.IDLE))
    some = replace(busy, gpus=(*busy.gpus[:2], *idle.gpus[2:]))
    for node in (
        a_slurm_machine(1),
        a_node("i-busy", State.BUSY, 60.0, owner="ann", instance_type="p4d.24xlarge"),
        a_node("i-idle", State.IDLE, 60.0, protected="its owner wants it"),
        a_node("i-parked", State.PARKED, 60.0, owner="ben", protected="its owner wants it"),
        a_node("i-off", pool="spare"),
        a_node("i-ended", pool="batch", instance_type="p4d.24xlarge"),
        a_node("i-plan", State.IDLE, 60.0, protected="its owner wants it", instance_type="p5.48xlarge"),
        a_node("i-pods", gpu_count=8, instance_type="p4d.24xlarge", signal=NodeReport(verdict=some), protected="a tag"),
        replace(a_node("i-mute", instance_type="p4d.24xlarge"), signal=NodeReport()),
        a_node("i-odd", State.BUSY, 60.0, instance_type="unheard.of"),
        a_node("i-theirs", enrolled=False, instance_type="p4d.24xlarge", tags={"gpuwatch:fleet": "vision"}),
    ):
        desk.fleet.put(node)
    config = folder / "gpuwatch.yaml"
    config.write_text(f"ledger: {{path: {folder / 'ledger.db'}}}\n", encoding="utf-8")
    metrics = ControllerMetrics("enforce", "test", desk.clock, rules=desk.rulebook)
    observers = Observers(discovery=Discovery(signals=ObserveSettings()), metrics=metrics)
    meter = Meter(ledger, METERING)
    with a_site(desk) as site:
        found = Played(site, config)
        for minute in range(MINUTES):
            done = one_round(replace(desk.parts, meter=lambda seen: meter(in_pods(seen))), observers)
            assert done is not None
            site.web.state.update(done, leading=True)
            if minute == MINUTES - 1:
                metrics.tell_savings(saved_by_pool(ledger, METERING.zone, desk.clock.now(), 60.0, desk.rulebook))
            for name, labels, value in _SAMPLE.findall(metrics.page().body.decode()):
                target = f'cluster="lab",job="gpuwatch-controller",instance="c:9461"{"," if labels else ""}{labels}'
                at = desk.clock.now().timestamp()
                found.history.lines.setdefault(name, []).append((f"{name}{{{target}}}", at, float(value)))
            if minute < MINUTES - 1:
                desk.rest(60.0)
        yield found
    ledger.close()


@pytest.fixture(scope="module")
def ask(played: Played, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """A Prometheus that has scraped the controller; gives the sum of what an expression finds at the end."""
    end = played.site.desk.clock.now().timestamp()
    with prometheus(tmp_path_factory.mktemp("prometheus") / "money", played.history) as url:

        def sum_of(expression: str) -> Fraction:
            query = {"query": substituted(expression, __range=f"{MINUTES}m"), "time": f"{end}"}
            body = urllib.parse.urlencode(query).encode()
            with urllib.request.urlopen(f"{url}/api/v1/query", data=body, timeout=60) as answer:  # noqa: S310  our own
                rows = json.load(answer)["data"]["result"]
            return sum((Fraction(row["value"][1]) for row in rows), Fraction(0))

        yield sum_of


def panel(board: str, title: str) -> str:
    """The query of a panel."""
    [found] = [each for each in panels(load(board)) if each["title"].removesuffix(" ($currency)") == title]
    return str(found["targets"][0]["expr"])


def test_commands_documents_api_and_report_tell_the_same_cents(played: Played) -> None:
    """Cost, proven waste, what nobody knows, what is not ours, and hours without a price, from eight places."""
    by_hand = played.rows()
    day = f"{NOW:%Y-%m-%d}"
    documents = [
        json.loads(played.run("report", "--day", day, "--json"))["total"],
        *(json.loads(played.run("cost", "--day", day, "--by", by, "--json"))["total"] for by in ("pool", "namespace")),
        *(played.site.ask(f"/api/v1/cost?period=today&by={by}").json["total"] for by in ("owner", "node")),
    ]
    for total in documents:
        for key in ("usd", "usd_wasted", "usd_unproven", "usd_foreign"):
            assert Decimal(total[key]) == cents(by_hand[key]), key
        assert total["unpriced_machine_hours"] == pytest.approx(float(by_hand["unpriced"]))
    texts = [played.run(name, "--day", day, *more) for name, *more in (("cost",), ("report",), ("report", "--html"))]
    for text in texts:
        for key in ("usd", "usd_wasted", "usd_unproven", "usd_foreign"):
            assert f"${cents(by_hand[key]):,.2f}" in text, key
    saved = played.site.ask("/api/v1/savings").json["month"]
    assert (saved["stops"], saved["terminations"]) == (2, 1)


def test_in_another_currency_the_same_sums_are_converted_once(played: Played) -> None:
    """Yuan, at 0.138 dollars: of the exact sum, and not of its cents."""
    other = played.config.with_name("yuan.yaml")
    other.write_text(played.config.read_text() + "currency: CNY\nprices: {rates: {CNY: '0.138'}}\n", encoding="utf-8")
    text = replace(played, config=other).run("cost", "--day", f"{NOW:%Y-%m-%d}")

    for key in ("usd", "usd_wasted", "usd_unproven", "usd_foreign"):
        assert f"¥{cents(played.rows()[key] / Fraction(RATE)):,.2f}" in text


def test_what_a_prometheus_has_of_a_moment_is_the_same_to_the_cent(played: Played, ask: Ask) -> None:
    """Counters by use, of other fleets, of pods, of hours without a price; what was saved; what runs now."""
    by_hand = played.rows()
    wasted, unproven = 'use=~"idle|parked|stalled|down"', 'use=~"unknown|silent"'
    groups = json.loads(played.run("cost", "--day", f"{NOW:%Y-%m-%d}", "--by", "namespace", "--json"))["groups"]

    assert cents(ask("gpuwatch_billed_usd_total")) == cents(by_hand["usd"])
    assert cents(ask(f"gpuwatch_billed_usd_total{{{wasted}}}")) == cents(by_hand["usd_wasted"])
    assert cents(ask(f"gpuwatch_billed_usd_total{{{unproven}}}")) == cents(by_hand["usd_unproven"])
    assert cents(ask("gpuwatch_foreign_usd_total")) == cents(by_hand["usd_foreign"])
    assert cents(ask("gpuwatch_billed_unpriced_node_seconds_total") / 36) == cents(by_hand["unpriced"] * 100)
    for each in groups:
        if each["name"] != "(no cluster)":
            told = ask(f'gpuwatch_kube_billed_usd_total{{namespace="{each["name"]}"}}')
            assert abs(cents(told) - Decimal(each["usd"])) <= Decimal("0.01")  # cents of groups add up to the whole's
    saved = played.site.ask("/api/v1/savings").json["month"]["usd"]
    assert cents(ask(panel("cost", "Saved this month"))) == Decimal(saved)
    now = played.site.ask("/api/v1/fleet").json["totals"]
    assert cents(ask(panel("cost", "Cost per hour now"))) == cents(Fraction(now["usd_per_hour"]))


def test_what_a_board_adds_up_over_a_time_range_is_off_by_a_scrape_at_most(played: Played, ask: Ask) -> None:
    """The counters' first minute is before the first scrape, and `increase` fills a range to its ends."""
    by_hand = played.rows()
    stats = {"Spent": "usd", "Wasted": "usd_wasted", "Use not known": "usd_unproven", "Not ours": "usd_foreign"}
    for title, key in stats.items():
        assert float(ask(panel("cost", title))) == pytest.approx(float(by_hand[key]), rel=2 / MINUTES), title
