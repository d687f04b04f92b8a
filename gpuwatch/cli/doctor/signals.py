"""What the controller learns of use: the agents, or Prometheus and its series."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from gpuwatch import __version__
from gpuwatch.cli.doctor.cloud import SKEW_SECONDS, list_fleet, skipped_finding
from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.cli.doctor.report import Finding, fine, first_names, make_finding
from gpuwatch.cli.parts import SOURCES
from gpuwatch.config.settings import Settings
from gpuwatch.controller.observe.exporters import DIALECTS, agent_queries
from gpuwatch.controller.observe.prometheus_api import PromApi
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Node, NodeState


def agents(case: ControllerCase) -> Iterator[Finding]:
    """How many running machines give a verdict, of which version, and by which clock."""
    settings = case.settings
    where = f"verdicts on the running machines (signals.source: {settings.signals.source})"
    nodes = list_fleet(case)
    if nodes is None:
        yield skipped_finding(where)
        return
    yield from _targets(settings, nodes)
    running = [node for node in nodes if node.state is NodeState.RUNNING]
    if not running:
        yield fine("agents", where, "no machine runs")
        return
    source = SOURCES[settings.signals.source](
        settings=settings.signals, clock=case.clock, max_age_seconds=settings.limits.max_verdict_age
    )
    begun = case.clock.now()
    asked = source.observe(running).nodes
    silent = [f"{node.id} ({node.signal.failure})" for node in asked if node.verdict is None]
    text = f"{len(asked) - len(silent)} of {len(asked)} running machines give one"
    if not silent:
        yield fine("agents", where, text)
    else:
        code = "agents.none" if len(silent) == len(asked) else "agents.silent"
        yield make_finding(code, where, f"{text}; none from {first_names(silent, 3)}")
    if settings.signals.source == "scrape":
        yield from _versions(asked)
        yield from _clocks(asked, begun, case.clock.now())
    yield from undecided_disks(settings, asked)


def _targets(settings: Settings, nodes: Sequence[Node]) -> Iterator[Finding]:
    """Addresses of agents that are of no machine: a slip in its name, or it has ended."""
    for name, words in settings.signals.of_nobody(nodes):
        yield make_finding("targets.unknown", f"signals.targets.{name}", words)


def undecided_disks(settings: Settings, asked: Sequence[Node]) -> Iterator[Finding]:
    """Pools in which local disks may be in use, and nobody has decided about what is on them."""
    pools: dict[str, list[str]] = {}
    for node in asked:
        if node.enrolled and node.local_data and node.verdict is not None:
            pools.setdefault(node.pool, []).append(node.id)
    for pool, names in sorted(pools.items()):
        if settings.rulebook.pool(pool).idle.instance_store == "ask":
            where = f"local disks in the pool {pool!r}"
            key = f"pools.{pool}.idle.instance_store"
            used = f"they are in use, or may be, on {first_names(names, 3)}"
            yield make_finding("disks.undecided", where, f"{used}: no such machine is stopped, and {key} is not set")


def prometheus(case: ControllerCase) -> Iterator[Finding]:
    """Prometheus answers, and has the series that verdicts and scaling rest on."""
    settings = case.settings
    promql = settings.signals.promql
    if promql.url is None:
        return
    where = f"Prometheus at {promql.url}"
    api = PromApi(settings=promql, clock=case.clock)
    at = case.clock.now()
    answer = api.instant({"one": "vector(1)"}, at)["one"]
    if answer.doubt is not None:
        yield make_finding("prometheus.silent", where, answer.doubt)
        return
    yield fine("prometheus", where, "it answers, whole and by the same clock")
    wanted = series(settings)
    answers = api.instant(wanted, at)
    doubt = next((answer.doubt for answer in answers.values() if answer.doubt is not None), None)
    lacking = [expression for name, expression in wanted.items() if not answers[name].rows]
    if doubt is not None:
        yield make_finding("prometheus.silent", where, doubt)
    elif lacking:
        yield make_finding("prometheus.series", where, f"nothing is there of {first_names(lacking)}")
    elif wanted:
        yield fine("prometheus", f"{where}, series of {promql.dialect}", f"all {len(wanted)} are there")
    for pool, expression in expressions(settings):
        answer = api.instant({"it": expression}, at)["it"]
        if answer.doubt is not None or not (answer.rows or answer.scalar is not None):
            about = f"an expression of pools.{pool}.scaling"
            yield make_finding("prometheus.expression", about, answer.doubt or "it gives nothing")


def series(settings: Settings) -> dict[str, str]:
    """One query for each metric without which nothing is known of a node."""
    if settings.signals.source != "promql":
        return {}
    promql = settings.signals.promql
    if promql.dialect == "gpuwatch":
        queries = agent_queries(promql)
        return {name: queries[name] for name in ("who", "state", "cycle_age", "gpus")}
    return {sign.name: f"count({sign.metric})" for sign in DIALECTS[promql.dialect].signs if sign.required}


def expressions(settings: Settings) -> Iterator[tuple[str, str]]:
    """The PromQL that pools scale by."""
    for name, rules in settings.pools.items():
        for metric in rules.scaling.metrics.values():
            if metric.expression is not None:
                yield name, metric.expression


def _versions(asked: Sequence[Node]) -> Iterator[Finding]:
    """Older than this controller's."""
    versions = {node.id: node.verdict.agent_version for node in asked if node.verdict is not None}
    old = [f"{name} {version}" for name, version in versions.items() if _number(version) < _number(__version__)]
    if old:
        text = f"{len(old)} of {len(versions)} are older than {__version__}: {first_names(old)}"
        yield make_finding("agents.old", "versions of the agents", text)
    elif versions:
        yield fine("agents", "versions of the agents", f"none is older than {__version__}")


def _clocks(asked: Sequence[Node], begun: datetime, ended: datetime) -> Iterator[Finding]:
    """An agent's clock is the time of its last cycle and how long ago, by its own count, that was when it answered."""
    off = []
    for node in asked:
        if node.verdict is None:
            continue
        theirs = node.verdict.at + timedelta(seconds=node.verdict.age_seconds)
        ahead, behind = (theirs - ended).total_seconds(), (begun - theirs).total_seconds()
        if max(ahead, behind) > SKEW_SECONDS:
            off.append(f"{node.id} {format_duration(max(ahead, behind))} {'ahead' if ahead > behind else 'behind'}")
    if off:
        yield make_finding("agents.clock", "clocks of the agents", first_names(off))
    elif any(node.verdict is not None for node in asked):
        yield fine("agents", "clocks of the agents", f"none differs by more than {format_duration(SKEW_SECONDS)}")


def _number(version: str) -> tuple[tuple[int, ...], bool, str, int]:
    """What versions are ordered by: 0.9.1.dev2 counts as 0.9.1, and 1.0.0rc1 is older than 1.0.0."""
    release, letters, candidate = re.findall(r"^([\d.]*)(?<=\d)(?:(a|b|rc)(\d+))?|$", version)[0]
    numbers = tuple(int(part) for part in release.split(".") if part)
    return numbers, not letters, letters, int(candidate or 0)
