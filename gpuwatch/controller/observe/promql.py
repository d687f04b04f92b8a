"""Asks a Prometheus-compatible API about the whole fleet: a handful of queries a round, however many nodes there are.

It observes; it is asked to confirm only where there is no agent of ours that could be, and only if the settings let it.
That is no confirmation of now: the newest sample may be as old as the time between two scrapes.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address

from gpuwatch.controller.observe.exporters import (
    DIALECTS,
    agent_queries,
    exporter_queries,
    measure_query,
    reach_seconds,
)
from gpuwatch.controller.observe.pool_metrics import evaluate_queries, pool_mean
from gpuwatch.controller.observe.prometheus_api import Answer, PromApi
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.observe.settings import RULES_EVERY, ObserveSettings
from gpuwatch.controller.observe.verdicts import Moment, Target, agents_signal, exporters_signal
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Fleet, Node, NodeReport, NodeState
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.runtime.clock import Clock

_AGENT = "gpuwatch"
_LATE_SECONDS = 5.0  # within which a sample that was scraped can be asked for
_STATES = frozenset({"state", "gpus"})  # queries of the dialect gpuwatch whose rows have the label `state`
_PORT = re.compile(r":\d+$")
_OF_A_WINDOW = ("max:", "covered:", "samples:", "gpus:")  # queries that also see samples of hours ago
_REMEMBERED_SECONDS = 3600.0  # for which the address of a machine that is no more is known; its last samples are older


@dataclass(frozen=True, slots=True, kw_only=True)
class PromqlSource:
    """A NodeReportSource over PromQL. `agents` are asked to confirm; `max_age_seconds` is when samples are stale."""

    settings: ObserveSettings
    clock: Clock
    max_age_seconds: float
    api: PromApi
    agents: ScrapeSource
    # The addresses that machines of the fleet have had lately, and when they had them last.
    _listed: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_settings(
        cls,
        settings: ObserveSettings,
        clock: Clock,
        max_age_seconds: float,
        confirm_timeout: float = 5.0,
        answered: Callable[[float, tuple[str, ...]], object] = lambda _seconds, _question: None,
        taker: object = None,
    ) -> "PromqlSource":
        """The source that these settings describe; `answered` counts answers of agents that confirm.

        `taker` of pools are of no use here: agents are asked before a stop alone, and Prometheus hands nothing over.
        """
        del taker
        return cls(
            settings=settings,
            clock=clock,
            max_age_seconds=max_age_seconds,
            api=PromApi(settings=settings.promql, clock=clock),
            agents=ScrapeSource(
                settings=settings,
                clock=clock,
                max_age_seconds=max_age_seconds,
                confirm_timeout=confirm_timeout,
                answered=answered,
            ),
        )

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """All nodes by a handful of queries; one that cannot be answered whole leaves all unknown."""
        at = self.clock.now()  # the moment that the queries are about, or one just before it
        self._remember_addresses(nodes)
        self.agents.at_work.forget_others({node.id for node in nodes})
        signals = [each if each.verdict is None else replace(each, received_at=at) for each in self._signals(nodes)]
        seen = tuple(replace(node, signal=signal) for node, signal in zip(nodes, signals, strict=True))
        return Fleet(observed_at=self.clock.now(), nodes=seen)

    def confirm(self, node: Node) -> NodeReport:
        """Its agent itself; without an agent, a second query if the settings let that do, and else a veto."""
        if self._agents:
            return self.agents.confirm(node)
        if not self.settings.act_without_confirm:
            return NodeReport(failure="no agent of ours is there to ask; see signals.act_without_confirm")
        signal = self._signals([node], self._match(node))[0]
        newest = (
            self.settings.promql.scrape_interval + _LATE_SECONDS + (RULES_EVERY if self.settings.promql.rules else 0.0)
        )
        if signal.verdict is not None and signal.verdict.age_seconds > newest:
            age, limit = format_duration(signal.verdict.age_seconds), format_duration(newest)
            return NodeReport(failure=f"its newest sample is {age} old; a last look may be {limit} old at most")
        return signal

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """Means over a pool's members by one query for each name; expressions one by one."""
        at = self.clock.now()
        asked = {query.name for query in queries if query.expression is None}
        made = {name: measure_query(self.settings.promql, name) for name in asked}
        who = {"who": agent_queries(self.settings.promql)["who"]} if self._agents else {}
        known = {name: expression for name, expression in made.items() if expression is not None}
        answers = self.api.instant(who | known, at) if known else {}
        means = {name: self._means(fleet, answers, name) for name in known}
        found = evaluate_queries(self.api, queries, at, self.max_age_seconds)
        return tuple(
            found[query]
            if query in found
            else pool_mean(
                query,
                fleet,
                at,
                means.get(query.name, f"the metrics of {self.settings.promql.dialect} have no {query.name}"),
            )
            for query in queries
        )

    @property
    def _agents(self) -> bool:
        return self.settings.promql.dialect == _AGENT

    @property
    def _node_label(self) -> str:
        return self.settings.promql.node_label or ("node_id" if self._agents else "instance")

    def _signals(self, nodes: Sequence[Node], match: str = "") -> list[NodeReport]:
        """Return the signal of each node."""
        settings, at = self.settings.promql, self.clock.now()
        dialect = None if self._agents else DIALECTS[settings.dialect]
        queries = (
            agent_queries(settings) if dialect is None else exporter_queries(dialect, settings, at.timestamp(), match)
        )
        answers = self.api.instant(queries, at)
        doubt = next((answer.doubt for answer in answers.values() if answer.doubt is not None), None)
        if doubt is not None:
            return [NodeReport(failure=_running(node) or doubt) for node in nodes]
        owners = _owners(nodes, self._targets(answers).values(), self._listed)
        moment = Moment(at=at, settings=settings, max_age_seconds=self.max_age_seconds)
        signals = []
        for node, owner in zip(nodes, owners, strict=True):
            failure = _running(node) or self._unclear(owner)
            if failure is not None:
                signals.append(NodeReport(failure=failure))
            elif dialect is None:
                signals.append(agents_signal(node, owner.targets[0], moment))
            else:
                signals.append(exporters_signal(node, owner.targets[0], moment, dialect))
        reach, uptime = reach_seconds(settings), self.clock.uptime()
        held = self.agents.at_work.hold  # what agents themselves said when they were asked to confirm counts, too
        return [held(node.id, signal, uptime, reach) for node, signal in zip(nodes, signals, strict=True)]

    def _remember_addresses(self, nodes: Sequence[Node]) -> None:
        """Remember for a while which addresses are the fleet's: samples of a machine outlive it by minutes."""
        now = self.clock.monotonic()
        self._listed.update((node.address, now) for node in nodes if node.address)
        for address in [each for each, at in self._listed.items() if now - at > _REMEMBERED_SECONDS]:
            del self._listed[address]

    def _unclear(self, owner: "_Owner") -> str | None:
        """Why it is not known which target is the node's."""
        if owner.foreign is not None:
            return (
                f"{owner.targets[0].called} has its private address, and {owner.foreign} is a machine outside of the "
                "fleet's list: another network may have the same addresses; see signals.promql.node_label"
            )
        if owner.rival is not None:
            return f"{owner.rival} also is what {owner.targets[0].called} calls itself; see signals.promql.node_label"
        if not owner.targets:
            return f"Prometheus has no target with its id, name or address as {self._node_label}"
        if len(owner.targets) > 1:
            return f"{len(owner.targets)} targets claim to be it: {owner.targets[0].called}, {owner.targets[1].called}"
        return None

    def _targets(self, answers: Mapping[str, Answer]) -> dict[tuple[str, ...], Target]:
        """All rows by the target that they are of."""
        found: dict[tuple[str, ...], Target] = {}
        keys, named = self.settings.promql.target_labels, self._node_label
        for query, answer in answers.items():
            by_state = self._agents and query in _STATES
            for labels, value in answer.rows:
                key = tuple([labels.get(label, "") for label in keys])
                target = found.get(key)
                if target is None:
                    target = found[key] = Target(labels=key, instance=labels.get("instance", ""))
                name = labels.get(named)
                if name is not None and name != (target.name or name):
                    target.twice.add(named)
                target.name = name or target.name
                kept = target.states.setdefault(query, {}) if by_state else target.values
                of = labels.get("state", "") if by_state else query
                if of in kept:
                    target.twice.add(query)
                kept[of] = value
        return found

    def _match(self, node: Node) -> str:
        """A matcher for what the node may be called."""
        names = "|".join(re.escape(name) for name in (node.id, node.name, node.address) if name)
        quoted = f"\\[?({names})\\]?(:[0-9]+)?".replace("\\", "\\\\").replace('"', '\\"')
        return f'{self._node_label}=~"{quoted}"'

    def _means(self, fleet: Fleet, answers: Mapping[str, Answer], name: str) -> dict[str, float] | str:
        """A measure by node id, for the nodes with one target of their own that reports it."""
        asked = {query: answer for query, answer in answers.items() if query in {"who", name}}
        doubt = next((answer.doubt for answer in asked.values() if answer.doubt is not None), None)
        if doubt is not None:
            return doubt
        owners = _owners(fleet.nodes, self._targets(asked).values(), self._listed)
        return {
            node.id: owner.targets[0].values[name]
            for node, owner in zip(fleet.nodes, owners, strict=True)
            if self._unclear(owner) is None and not owner.targets[0].twice and name in owner.targets[0].values
        }


@dataclass(slots=True)
class _Owner:
    """Which targets a node has, and another node that has one of them, too.

    `foreign` is a target of a network that is not the fleet's, where nothing but a private address names the node.
    """

    targets: list[Target] = field(default_factory=list)
    rival: str | None = None
    foreign: str | None = None


def _owners(nodes: Sequence[Node], targets: Iterable[Target], known: Collection[str]) -> list[_Owner]:
    """For each node the targets that are called as it is: by id, name or address.

    A private address is a machine's own within one network. Where Prometheus has a target at one that is not among the
    fleet's (`known`), it sees another network, which may have each of the fleet's addresses, too.
    """
    foreign: str | None = None
    by_address = set[int]()
    called: dict[str, set[int]] = defaultdict(set)
    for number, node in enumerate(nodes):
        for name in (node.id, node.name, node.address):
            if name:
                called[name].add(number)
    owners = [_Owner() for _ in nodes]
    for target in targets:
        name = target.name or ""
        bare = _bare(name)
        found = called.get(name) or called.get(bare) or set()
        scraped = called.get(_bare(target.instance), found)
        if found and not found & scraped:
            # Prometheus itself writes where it has scraped: no machine is another one by saying so, nor is it itself.
            for number in scraped:
                owners[number].rival = nodes[min(found)].id
            found = scraped
        if not found and bare not in known and _is_private(bare) and _is_live(target):
            foreign = target.called
        for number in found:
            owners[number].targets.append(target)
            if bare not in {nodes[number].id, nodes[number].name} and _is_private(bare):
                by_address.add(number)
            if len(found) > 1:
                owners[number].rival = next(nodes[other].id for other in sorted(found) if other != number)
    for number in by_address if foreign is not None else ():
        owners[number].foreign = foreign
    return owners


def _bare(name: str) -> str:
    """Without a port, and without the brackets of IPv6."""
    return _PORT.sub("", name).strip("[]")


def _is_private(name: str) -> bool:
    """Whether a name is an address that machines of several networks may have."""
    try:
        return not ip_address(name).is_global
    except ValueError:
        return False


def _is_live(target: Target) -> bool:
    """Whether a target still has samples of now: those of a machine that is gone end within minutes."""
    return bool(target.states) or any(not query.startswith(_OF_A_WINDOW) for query in target.values)


def _running(node: Node) -> str | None:
    return None if node.state is NodeState.RUNNING else f"it is {node.state.value}"
