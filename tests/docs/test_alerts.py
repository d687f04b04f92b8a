"""alerts/: every alert is tried, explained and made of metrics that exist; the example of Alertmanager sends it on."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from gpuwatch.agent.exporter.catalogue import FAMILIES
from gpuwatch.agent.health.causes import DOWN, LEVELS, RECOVERY, xid_finding
from gpuwatch.controller import metrics
from gpuwatch.model.gpu import DownCause
from gpuwatch.model.health import XIDS, Severity
from tests.support.components import require
from tests.support.each import for_each
from tests.support.paths import ROOT
from tests.support.real.alerting import ALERTS
from tools.docs.runbooks import TITLES, render_runbooks_md, with_alerts

Rule = dict[str, Any]
RULES = yaml.load((ALERTS / "gpuwatch.yml").read_text(), yaml.CSafeLoader)["groups"]
ALL: list[Rule] = [rule for group in RULES for rule in group["rules"]]
TOLD = [rule for rule in ALL if "alert" in rule]
NAMES = sorted({rule["alert"] for rule in TOLD})
TRIED = [
    check
    for test in yaml.load((ALERTS / "gpuwatch_test.yml").read_text(), yaml.CSafeLoader)["tests"]
    for check in test["alert_rule_test"]
]
LABELS = {label for family in (*FAMILIES.values(), *metrics.families()) for label in family.labels}


def named(name: str) -> list[Rule]:
    """The rules of that alert: one, or one for each severity or threshold."""
    return [rule for rule in TOLD if rule["alert"] == name]


def ran(program: str, *arguments: str, folder: Path = ALERTS) -> str:
    """What a program says in alerts/; fails with it."""
    done = subprocess.run(
        [require(program), *arguments],
        cwd=folder,
        env={**os.environ, "GOGC": "800"},  # a third of its work is collecting garbage
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def brief(rule: Rule) -> Rule:
    """A rule without its runbook."""
    told = {name: text for name, text in rule.get("annotations", {}).items() if name != "runbook"}
    return {**rule, "annotations": told} if told else rule


def told_in(rule: Rule, asked: set[str]) -> bool:
    """Whether it is one of these alerts, or records what alerts read."""
    return rule.get("alert") in {None, *asked}


@pytest.mark.component("promtool")
def test_promtool_agrees_with_the_rules_and_with_when_they_fire(tmp_path: Path) -> None:
    """Their syntax, and every case of alerts/gpuwatch_test.yml, which leaves out the runbooks.

    Each case has the alerts that it asks for, and the recorded series, or promtool computes all others with them.
    """
    head, _, cases = (ALERTS / "gpuwatch_test.yml").read_text(encoding="utf-8").partition("tests:\n")
    assert "[gpuwatch.yml]" in head
    for number, text in enumerate(re.split(r"^(?=  - )", cases, flags=re.MULTILINE)[1:]):
        (case,) = yaml.load(text, yaml.CSafeLoader)
        asked = {check["alertname"] for check in case["alert_rule_test"]}
        told = [{**group, "rules": [brief(each) for each in group["rules"] if told_in(each, asked)]} for group in RULES]
        rules, trial = tmp_path / f"rules-{number}.yml", tmp_path / f"trial-{number}.yml"
        rules.write_text(yaml.dump({"groups": told}, Dumper=yaml.CSafeDumper), encoding="utf-8")
        trial.write_text(f"{head.replace('gpuwatch.yml', rules.name)}tests:\n{text}", encoding="utf-8")

    assert "SUCCESS" in ran("promtool", "check", "rules", "--lint=all", "--lint-fatal", "gpuwatch.yml")
    ran("promtool", "test", "rules", *(each.name for each in tmp_path.glob("trial-*.yml")), folder=tmp_path)


@for_each(NAMES)
def test_every_alert_is_tried_both_ways(name: str) -> None:
    """At one time at least it is told, in each of its severities and thresholds, and at another it is not."""
    rows = [alert["exp_labels"] for check in TRIED if check["alertname"] == name for alert in check["exp_alerts"]]
    quiet = [check for check in TRIED if check["alertname"] == name and not check["exp_alerts"]]

    assert quiet, f"{name} is never seen to stay quiet"
    for rule in named(name):
        assert any(rule["labels"].items() <= labels.items() for labels in rows), f"{name} {rule['labels']} is not tried"


@for_each(NAMES)
def test_every_alert_says_how_bad_it_is_what_is_wrong_and_where_to_read_on(name: str) -> None:
    """A severity that the routes know, one sentence with a remedy, the facts, and a runbook with its place."""
    for rule in named(name):
        notes = rule["annotations"]

        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(notes) == {"summary", "description", "runbook", "runbook_url"}
        assert notes["summary"].endswith(".")
        assert "\n" not in notes["summary"]
        assert re.search("[;,] ", re.sub(r"{{.*?}}", "", notes["summary"])), "no remedy"
        assert re.fullmatch(rf"docs/runbooks/({'|'.join(TITLES)})\.md#{name.lower()}", notes["runbook_url"])
        assert notes["runbook"] == named(name)[0]["annotations"]["runbook"], "one alert, two runbooks"


def test_no_text_writes_a_large_number_in_powers_of_ten() -> None:
    """Prometheus' humanizePercentage has four digits, as in 4.673e+05%: it is for what never exceeds 1."""
    for rule in TOLD:
        unbounded = "usd" in rule["expr"] and ":ratio" in rule["expr"]

        assert not (unbounded and "humanizePercentage $value" in rule["annotations"]["summary"]), rule["alert"]


@pytest.mark.parametrize("page", TITLES)
def test_the_runbooks_are_up_to_date(page: str) -> None:
    """Each page of docs/runbooks/ is what `make docs` writes."""
    assert (ROOT / f"docs/runbooks/{page}.md").read_text(encoding="utf-8") == render_runbooks_md(page), (
        "run `make docs`"
    )


def test_every_alert_has_a_runbook_of_its_own() -> None:
    """It says what the alert means, what to check and what to do, and takes nothing from Prometheus' templates."""
    texts = {name: named(name)[0]["annotations"]["runbook"] for name in NAMES}

    assert {path.stem for path in (ROOT / "docs/runbooks").iterdir()} == set(TITLES)
    assert len(set(texts.values())) == len(NAMES), "inherited by `<<`"
    for name, text in texts.items():
        meaning, _, steps = text.partition("\n\n")
        assert meaning.endswith("."), name
        assert [line.split(":")[0] for line in steps.split("\n")][:2] == ["- Check", "- Do"], name
        assert "{{" not in text, name


def test_the_list_of_alerts_is_whole() -> None:
    """docs/alerts.md has a row for each, with its severities, as `make docs` writes it."""
    text = (ROOT / "docs/alerts.md").read_text()
    assert text == with_alerts(text), "run `make docs`"
    rows = dict(re.findall(r"^\| \[(\w+)\]\(runbooks/\w+\.md#\w+\) \| ([a-z, ]+) \|", text, re.MULTILINE))

    assert sorted(rows) == NAMES
    for name in NAMES:
        assert set(rows[name].split(", ")) == {rule["labels"]["severity"] for rule in named(name)}, name


def test_a_page_that_lost_the_place_of_its_list_is_named() -> None:
    """Or has it twice: the list must not go, or stay old, without a word."""
    place = "<!-- alerts -->\n<!-- end of alerts -->\n"
    for page, times in (("# Alerts\n", 0), (place.replace("end", "the end"), 0), (place * 2, 2)):
        with pytest.raises(ValueError, match=rf"docs/alerts\.md has {times} places from <!-- alerts -->"):
            with_alerts(page)


def metrics_of(text: str) -> Iterator[str]:
    """The metrics that an expression, or the queries of a template, name."""
    yield from re.findall(r"(?<![\w:])(?:gpuwatch_|process_)\w+(?!:)\b(?!:)", text)


def recorded_of(text: str) -> Iterator[str]:
    """The recorded series that it names."""
    yield from re.findall(r"\w+:\w+:\w+", text)


def test_every_metric_that_a_rule_names_exists() -> None:
    """In the catalogue of the agent or of the controller, or recorded by a rule before it."""
    exists = {series for family in (*FAMILIES.values(), *metrics.families()) for series in family.series}
    seen: set[str] = set()
    for rule in ALL:
        texts = [rule["expr"], *rule.get("annotations", {}).values()]
        used = {name for text in texts for name in metrics_of(text)}
        if "record" in rule:
            seen.add(rule["record"])

        assert used <= exists, f"{rule.get('alert', rule.get('record'))}: {sorted(used - exists)}"
        assert {name for text in texts for name in recorded_of(text)} <= seen, rule


def test_every_recorded_series_is_read() -> None:
    """By a rule or its words: each is evaluated every minute in every Prometheus, and no dashboard needs one."""
    texts = [(rule, text) for rule in ALL for text in (rule["expr"], *rule.get("annotations", {}).values())]
    read = {name for rule, text in texts for name in recorded_of(text) if name != rule.get("record")}

    assert {rule["record"] for rule in ALL if "record" in rule} == read


def test_no_rule_reads_half_a_day_of_every_gpu() -> None:
    """At 10,000 GPUs these are 60 million samples, at each evaluation; what a machine did is recorded first.

    A subquery reckons each of its steps anew, at every evaluation.
    """
    for rule in ALL:
        ranges = re.findall(r"gpuwatch_gpu_\w+(?:\{[^}]*\})?\[(\d+[hdw])\]", rule["expr"])

        assert set(ranges) <= {"1h"}, rule
        assert not re.search(r"gpuwatch_gpu_.*\[\w+:\w*\]", rule["expr"], re.DOTALL), rule


def test_recorded_names_say_level_metric_and_operation() -> None:
    """As Prometheus' own rules for naming have it; the metric is one of ours."""
    for rule in (rule for rule in ALL if "record" in rule):
        assert re.fullmatch(r"[a-z_]+:gpuwatch_[a-z_]+:[a-z_]+", rule["record"])


def test_every_label_that_a_rule_asks_for_exists() -> None:
    """A misspelt label compares with nothing and is never told."""
    recorded = {"job", "instance", "node", "name", "pool", "owner", "budget"}
    for rule in ALL:
        asked = set(re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)\s*\"", rule["expr"]))

        assert asked <= LABELS | recorded, (rule, asked - LABELS)


def test_each_cause_of_bad_health_is_told_by_one_alert() -> None:
    """None is forgotten, and none is told of twice."""
    codes = {level.finding.code for level in LEVELS} | {finding.code for finding in RECOVERY.values()}
    codes |= {finding.code for xid in XIDS if (finding := xid_finding(xid))}
    for code in codes:
        tellers = {
            rule["alert"]
            for rule in TOLD
            for operator, pattern in re.findall(
                r"gpuwatch_gpu_health_cause_info{code(=~|!~|=)\"([^\"]+)\"", rule["expr"]
            )
            if "unless on (cluster, fleet, job, instance, uuid) gpuwatch_gpu_health_cause_info" not in rule["expr"]
            if bool(re.fullmatch(pattern, code)) is (operator != "!~")
        }

        assert len(tellers) == 1, (code, tellers)
    lost = {cause for cause in DownCause if re.fullmatch("lost|missing|hang|reset", cause)}
    assert lost == set(DOWN), "GpuLost tells of what health calls failing"


def test_xids_that_are_not_judged_are_those_of_the_catalogue() -> None:
    """A program's faults are told as such, and all that the catalogue knows is no surprise."""
    faults, known = (
        re.search(r'xid[=!]~"([\d|]+)"', named(name)[0]["expr"]) for name in ("GpuProgramFault", "GpuXidUnlisted")
    )

    assert faults is not None
    assert known is not None
    assert set(map(int, faults[1].split("|"))) == {
        number for number, xid in XIDS.items() if xid.severity is Severity.APPLICATION
    }
    assert set(map(int, known[1].split("|"))) == set(XIDS)


# Alertmanager


@pytest.mark.component("amtool")
def test_amtool_reads_the_example_and_its_templates() -> None:
    """Syntax, receivers, and the words."""
    assert "1 templates" in ran("amtool", "check-config", "alertmanager.yml")


@pytest.mark.component("amtool")
@pytest.mark.parametrize("words", ["gpuwatch.text", "gpuwatch.slack", "gpuwatch.html"])
@pytest.mark.parametrize("address", ["docs/runbooks/gpu.md#gpulost", "https://wiki.example.com/gpu.md#gpulost"])
def test_a_runbook_has_one_address(tmp_path: Path, words: str, address: str) -> None:
    """The base stands before a relative address alone; one of `export alerts --runbooks` is whole."""
    text = (ROOT / "alerts/templates/gpuwatch.tmpl").read_text(encoding="utf-8")
    empty = '{{ define "gpuwatch.base" }}{{ end }}'
    assert empty in text
    made, told = tmp_path / "made.tmpl", tmp_path / "told.json"
    made.write_text(text.replace(empty, '{{ define "gpuwatch.base" }}https://wiki.example.com/{{ end }}'))
    alert = {"status": "firing", "labels": {}, "annotations": {"runbook_url": address}}
    told.write_text(json.dumps({"status": "firing", "alerts": [alert], "commonLabels": {}, "externalURL": "http://a"}))
    text = f'{{{{ template "{words}" . }}}}'
    shown = ran(
        "amtool", "template", "render", f"--template.glob={made}", f"--template.text={text}", f"--template.data={told}"
    )

    right = address if address.startswith("https") else f"https://wiki.example.com/{address}"
    assert right in shown
    assert shown.count("https://wiki.example.com/") == 1


@pytest.mark.component("amtool")
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("alertname=GpuLost severity=critical node=i-1", "pager"),
        ("alertname=GpuNodeInterruption severity=warning node=i-1", "team"),
        ("alertname=GpuNodeIdle severity=warning node=i-1", "team"),
        ("alertname=GpuPoolWasteHigh severity=info pool=research", "digest"),
        ("alertname=GpuBudgetSpent severity=warning budget=research threshold=100", "money"),
        ("alertname=GpuBudgetForecast severity=info budget=research threshold=80", "money"),
        ("alertname=SomethingElse", "team"),
    ],
)
def test_alerts_go_where_they_belong(labels: str, receiver: str) -> None:
    """What wakes somebody, what waits for the morning, and what is about money."""
    ran(
        "amtool",
        "config",
        "routes",
        "test",
        "--config.file=alertmanager.yml",
        f"--verify.receivers={receiver}",
        *labels.split(),
    )


def test_what_inhibits_and_what_is_inhibited_exists() -> None:
    """Each pattern of a rule matches an alert, and each label of `equal` must be there: two that lack it are equal."""
    example = yaml.safe_load((ALERTS / "alertmanager.yml").read_text())
    for rule in example["inhibit_rules"]:
        matchers = [*rule["source_matchers"], *rule["target_matchers"]]
        for pattern in (found[1] for text in matchers if (found := re.fullmatch(r'alertname=~?"(.+)"', text))):
            assert any(re.fullmatch(pattern, name) for name in NAMES), pattern
            for name in re.findall(r"^\w+$", pattern.replace("|", "\n"), re.MULTILINE):
                assert name in NAMES, name
        for label in set(rule.get("equal", ())) - {"alertname", "cluster", "fleet"}:
            always = all(f"GpuBudget{kind}" in rule["target_matchers"][0] for kind in ("Spent", "Forecast"))
            assert always or f'{label}=~".+"' in rule["target_matchers"], rule


def test_the_example_holds_no_secret() -> None:
    """Each is in a file of its own."""
    text = (ALERTS / "alertmanager.yml").read_text()

    assert re.findall(r"\b(?:password|credentials|api_url|routing_key|token):", text) == []
    assert len(re.findall(r"_file: /etc/alertmanager/secrets/\w+", text)) == 3


def test_no_rule_or_word_names_a_host_that_is_not_an_example() -> None:
    """Whoever copies them sends nothing to strangers."""
    for path in (path for path in ALERTS.rglob("*") if path.is_file()):
        hosts = re.findall(r"https?://([\w.-]+)", path.read_text())

        assert {host for host in hosts if not host.endswith("example.com")} == set(), path


# Several fleets in one Prometheus


def parts_of(expression: promql_parser.Expr) -> Iterator[Any]:
    """The expression and all that it is made of."""
    yield expression
    for name in ("lhs", "rhs", "expr", "param"):
        part = getattr(expression, name, None)
        if part is not None:
            yield from parts_of(part)
    for part in getattr(expression, "args", ()):
        yield from parts_of(part)


def keeps_fleets(part: Any) -> bool:  # noqa: ANN401  promql_parser's classes have no common one
    """Whether what it adds up or compares is of one cluster and one fleet."""
    if isinstance(part, promql_parser.BinaryExpr):
        labels: Any = None if part.modifier is None else part.modifier.matching
        everything = True  # without a word, series are compared by all labels
    elif isinstance(part, promql_parser.AggregateExpr):
        labels, everything = part.modifier, False
    else:
        return True
    if labels is None:
        return everything
    kept = str(labels.type).rpartition(".")[2] in {"Include", "By"}
    # A machine and a target are one, also where they have no label `fleet`.
    wanted = {"cluster"} if {"node", "instance"} & set(labels.labels) else {"cluster", "fleet"}
    return wanted <= set(labels.labels) if kept else not wanted & set(labels.labels)


@for_each(ALL, lambda rule: rule.get("alert", rule.get("record")))
def test_every_rule_keeps_cluster_and_fleet(rule: dict[str, Any]) -> None:
    """In one Prometheus two fleets may have pools, budgets and machines of the same names: no rule mixes them."""
    if rule.get("alert") == "GpuwatchAgentsAbsent":
        return  # targets may have no fleet; gpuwatch_test.yml tries it with several
    assert [str(part) for part in parts_of(promql_parser.parse(rule["expr"])) if not keeps_fleets(part)] == []
