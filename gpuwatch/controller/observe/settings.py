"""Settings of how the controller learns of use. `gpuwatch.config.settings` puts them into the configuration file."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from annotated_types import Ge, Gt, Le, MinLen

from gpuwatch.model.duration import Seconds, format_duration
from gpuwatch.model.fleet import Node
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.model.slips import meant_name
from gpuwatch.runtime.http import address
from gpuwatch.runtime.http.access import is_loopback
from gpuwatch.runtime.joined import PER_NODE, server_name_of

RULES_EVERY = 15.0  # seconds: how often alerts/recording.yml is evaluated
_SECRET = re.compile("auth|cookie|token|secret|passw|credential|api.?key", re.IGNORECASE)  # names of such headers
_PAGES = ("/metrics", "/healthz", "/v1/verdict", "/v1/host")  # what people copy from a browser
LABEL = re.compile(r"[a-zA-Z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromqlSettings:
    """A Prometheus-compatible API: Prometheus, Thanos, Mimir, VictoriaMetrics."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    url: Annotated[str | None, Setting("Base URL, to which /api/v1/query is added, such as http://127.0.0.1:9090.")] = (
        None
    )
    dialect: Annotated[
        Literal["gpuwatch", "dcgm", "nvidia_smi", "nvitop"],
        Setting(
            "The exporter of its metrics: our agent, or another, which shows less "
            "(docs/prometheus.md#without-the-gpuwatch-agent)."
        ),
    ] = "gpuwatch"
    timeout: Annotated[Seconds, Gt(0), Le(300), Setting("A query not answered in full by then leaves all unknown.")] = (
        30.0
    )
    scrape_interval: Annotated[
        Seconds, Ge(1), Le(60), Setting("How often the exporters are scraped; fewer samples than that are a gap.")
    ] = 15.0
    max_missed_scrapes: Annotated[
        int,
        Ge(0),
        Le(2),
        Setting("Of another exporter: so many samples may be missing in 5 minutes that count as whole."),
    ] = 0
    lookback: Annotated[
        Seconds,
        Ge(3600),
        Le(86400),
        Setting("Of another exporter: a node is idle only if all of this time shows no work and has no gap."),
    ] = 7200.0
    node_label: Annotated[
        Annotated[str, MinLen(1)] | None,
        Setting(
            "Label that holds a node's id, name or address; a port is cut off. None: node_id of our agent, instance."
        ),
    ] = None
    target_labels: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        MinLen(1),
        Setting("Labels that tell one scraped target from every other."),
    ] = ("job", "instance")
    rules: Annotated[
        bool, Setting("It evaluates alerts/recording.yml: ask for those series, which costs it less in a large fleet.")
    ] = False
    headers: Annotated[
        dict[str, str],
        Setting(
            "Headers to add to each query, such as X-Scope-OrgID for a tenant of Mimir; over plain http no secrets, "
            "which belong in `bearer_file`."
        ),
    ] = field(default_factory=dict)
    tls_ca: Annotated[str | None, Setting("CA certificates in PEM that its certificate must come from.")] = None
    tls_server_name: Annotated[str | None, Setting("The name in its certificate. None: that of the URL.")] = None
    tls_certificate: Annotated[str | None, Setting("Our own certificate in PEM, where it asks for one.")] = None
    tls_key: Annotated[str | None, Setting("Our certificate's private key in PEM, without a passphrase.")] = None
    username: Annotated[str | None, Setting("The user to be; the password goes out over https only.")] = None
    password_file: Annotated[str | None, Setting("The file that holds the password; read again when it changes.")] = (
        None
    )
    bearer_file: Annotated[
        str | None, Setting("The file that holds a bearer token, instead of a user; it goes out over https only.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveSettings:
    """How the agents are reached, or who else is asked about the nodes."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    source: Annotated[
        Literal["scrape", "promql"], Setting("scrape: each agent is asked. promql: a Prometheus-compatible API is.")
    ] = "scrape"
    scheme: Annotated[Literal["http", "https"], Setting("How agents are spoken to.")] = "http"
    port: Annotated[int, Ge(1), Le(65535), Setting("The agents' port, at the address that the cloud reports.")] = 9460
    timeout: Annotated[
        Seconds,
        Gt(0),
        Setting(
            "An agent that has not answered in full by then is unknown; a confirmation is waited for no longer than "
            "limits.max_confirmation_age."
        ),
    ] = 5.0
    concurrency: Annotated[int, Gt(0), Le(2000), Setting("So many agents are asked at the same time.")] = 200
    targets: Annotated[
        dict[str, str],
        Setting("Base URLs by node id or name, where the address of the cloud does not lead to the agent."),
    ] = field(default_factory=dict)
    tls_ca: Annotated[
        str | None, Setting("CA certificates in PEM that agents' certificates must come from. None: the system's.")
    ] = None
    tls_server_name: Annotated[
        str | None,
        Setting(
            "The name in every agent's certificate; {node}: each has that of `gpuwatch agent join`. None: each has the "
            "address or name that is asked."
        ),
    ] = None
    tls_certificate: Annotated[
        str | None, Setting("Our own certificate in PEM, for agents with a tls_client_ca; read again when it changes.")
    ] = None
    tls_key: Annotated[str | None, Setting("Our certificate's private key in PEM, without a passphrase.")] = None
    username: Annotated[
        str | None, Setting("The user to be, for agents with users; the password goes out over https only.")
    ] = None
    password_file: Annotated[
        str | None, Setting("The file that holds the user's password and nothing else; read again when it changes.")
    ] = None
    act_without_confirm: Annotated[
        bool,
        Setting(
            "With another exporter's metrics there is no agent to ask before a stop: let a second query do instead. "
            "Its newest sample may be signals.promql.scrape_interval plus 5 s old."
        ),
    ] = False
    promql: PromqlSettings = field(default_factory=PromqlSettings)

    def of_nobody(self, nodes: Collection[Node]) -> Iterator[tuple[str, str]]:
        """The names in `targets` that no machine has, each with what is wrong."""
        known = {name for node in nodes for name in (node.id, node.name)}
        for name in self.targets:
            if name not in known:
                yield name, f"no GPU machine has this id or name. {meant_name(name, known)}"

    def base_url(self, node: Node) -> str | None:
        """Where the node's agent is."""
        target = self.targets.get(node.id) or self.targets.get(node.name)
        if target is not None:
            return target.rstrip("/")
        if node.address is None:
            return None
        host = f"[{node.address}]" if ":" in node.address else node.address
        return f"{self.scheme}://{host}:{self.port}"

    def server_name(self, node: Node) -> str | None:
        """The name that the certificate of the node's agent must have; None: that of its URL."""
        return server_name_of(node.id) if self.tls_server_name == PER_NODE else self.tls_server_name


def contradictions(settings: ObserveSettings) -> Iterator[Contradiction]:
    """Settings of which one is of no use without the other."""
    yield from _of_credentials(settings, ("signals",))
    promql, of_promql = settings.promql, ("signals", "promql")
    for name, url in settings.targets.items():
        login = "signals.username and signals.password_file"
        place = ("signals", "targets", name)
        yield from address.contradictions(place, url, login=login)
        if (page := next((each for each in _PAGES if url.rstrip("/").endswith(each)), None)) is not None:
            right = f"the agent's base URL, {url.rstrip('/').removesuffix(page)}"
            yield Contradiction(keys=(place,), wrong=f"ends with {page}, a page of the agent", right=right)
    if promql.url is not None:
        login = "signals.promql.username and signals.promql.password_file"
        yield from address.contradictions((*of_promql, "url"), promql.url, login=login)
        yield from _of_headers(promql)
    yield from _of_credentials(promql, of_promql)
    if promql.bearer_file is not None and promql.username is not None:
        yield Contradiction(
            keys=((*of_promql, "bearer_file"), (*of_promql, "username")),
            wrong="signals.promql.bearer_file and signals.promql.username are both set",
            right="one of them",
        )
    if settings.source == "promql" and promql.url is None:
        yield Contradiction(
            keys=(("signals", "source"), (*of_promql, "url")),
            wrong="signals.source is promql, but signals.promql.url is not set",
            right="signals.promql.url: a URL such as http://127.0.0.1:9090",
        )
    for name in filter(None, (promql.node_label, *promql.target_labels)):
        if not LABEL.fullmatch(name):
            key = "node_label" if name == promql.node_label else "target_labels"
            yield Contradiction(
                keys=((*of_promql, key),),
                wrong=f"signals.promql.{key}: {name!r} is no label's name",
                right="letters, digits and underscores, such as instance",
            )


def of_time(
    settings: ObserveSettings, max_verdict_age: float, agent_interval: float, waits: Mapping[tuple[str, ...], float]
) -> Iterator[Contradiction]:
    """Times of the promql source that leave all nodes unknown, or never idle; `waits` are the pools', by their keys."""
    promql = settings.promql
    if settings.source != "promql":
        return
    slowest = promql.scrape_interval + agent_interval + (RULES_EVERY if promql.rules else 0.0)
    if max_verdict_age <= slowest:
        age, most = format_duration(max_verdict_age), format_duration(slowest)
        yield Contradiction(
            keys=(("limits", "max_verdict_age"), ("signals", "promql", "scrape_interval")),
            wrong=f"limits.max_verdict_age ({age}) does not exceed what Prometheus' newest sample may be old ({most}): "
            "good answers would count as stale",
            right=f"a limits.max_verdict_age above {most}, such as {format_duration(2 * slowest)}",
        )
    for key, wait in waits.items():
        if promql.dialect != "gpuwatch" and wait > promql.lookback:
            lookback, most = format_duration(promql.lookback), format_duration(wait)
            yield Contradiction(
                keys=(key, ("signals", "promql", "lookback")),
                wrong=f"{'.'.join(key)} ({most}) exceeds signals.promql.lookback ({lookback}), beyond which nothing is "
                "known: no node would ever be idle for so long",
                right=f"a signals.promql.lookback of {most} or more",
            )


def _of_headers(settings: PromqlSettings) -> Iterator[Contradiction]:
    """Headers that everybody on the way could read, and be gpuwatch with."""
    url = settings.url or ""
    if not address.is_web_address(url) or url.startswith("https://") or is_loopback(urlsplit(url).hostname or ""):
        return
    for name in filter(_SECRET.search, settings.headers):
        yield Contradiction(
            keys=(("signals", "promql", "headers", name), ("signals", "promql", "url")),
            wrong=f"signals.promql.headers.{name} is a secret, and signals.promql.url is not https: "
            "others could read it",
            right="an https:// URL, and signals.promql.bearer_file or password_file for the secret",
        )


def _of_credentials(settings: ObserveSettings | PromqlSettings, section: tuple[str, ...]) -> Iterator[Contradiction]:
    """Pairs that are set together."""
    name = ".".join(section)
    for one, other in (("tls_certificate", "tls_key"), ("username", "password_file")):
        given = [key for key in (one, other) if getattr(settings, key) is not None]
        if len(given) == 1:
            missing = other if given == [one] else one
            yield Contradiction(
                keys=((*section, given[0]), (*section, missing)),
                wrong=f"{name}.{given[0]} is set without {name}.{missing}",
                right="both, or neither",
            )
    if settings.username is not None and ":" in settings.username:
        yield Contradiction(
            keys=((*section, "username"),), wrong=f"{name}.username holds a colon", right="a name without one"
        )
