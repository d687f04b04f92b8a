"""Alerts to Prometheus Alertmanager, by its API v2: `POST /api/v2/alerts`.

A notice is an alert `GpuwatchNotice` that lasts until the notice is withdrawn or carried out. What was done is a second
alert, `GpuwatchDone`, of one hour, as are `GpuwatchInterruption` and `GpuwatchBudget`. Alertmanager routes, groups,
repeats and silences them like any other alert.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from json import JSONDecodeError, loads
from typing import Annotated, Any, ClassVar
from urllib.parse import quote

from annotated_types import MinLen

from gpuwatch.model.setting import Setting
from gpuwatch.notify.transports.base import Content, Delivery, DeliveryError
from gpuwatch.notify.transports.harmless import harmless_text
from gpuwatch.notify.transports.web import WebTransport
from gpuwatch.runtime.http.address import host_and_port

NOTICE = "GpuwatchNotice"
_NAMES = {"notice": NOTICE, "done": "GpuwatchDone", "interruption": "GpuwatchInterruption"}
_NAMES |= {"left_alone": "GpuwatchLeftAlone", "budget": "GpuwatchBudget", "test": "GpuwatchTest"}
# An alert without an end would resolve after `resolve_timeout`, as if its notice were withdrawn.
_OPEN = timedelta(days=7)  # after the time of the stop
_LASTS = dict.fromkeys(("done", "interruption", "left_alone", "budget"), timedelta(hours=1)) | {
    "test": timedelta(minutes=5)
}

Alert = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertmanagerSettings(WebTransport):
    """An alert for each node or workload to Prometheus Alertmanager, which routes, groups, repeats and silences it."""

    target: ClassVar[str] = "urls"
    resolves: ClassVar[bool] = True

    urls: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting(
            "The Alertmanagers, such as http://alertmanager:9093, with their path prefix. Every alert goes to each of "
            "them; it is delivered when one of them has accepted it."
        ),
    ] = ()

    def addresses(self) -> Sequence[str]:
        """Return the URLs of all Alertmanagers."""
        return self.urls

    def send(self, delivery: Delivery) -> str:
        """Post the alerts to each; the hosts that accepted them, and the others with the reason."""
        accepted, failed = list[str](), list[str]()
        for url in self.urls:
            try:
                self._post(url.rstrip("/"), delivery)
            except DeliveryError as error:
                failed.append(f"{host_and_port(url)}: {error}")
            else:
                accepted.append(host_and_port(url))
        if not accepted:
            raise DeliveryError("; ".join(failed))
        return ", ".join(accepted) + (f"; failed: {'; '.join(failed)}" if failed else "")

    def _post(self, url: str, delivery: Delivery) -> None:
        document = delivery.content.document(delivery.key)
        active: Sequence[Alert] = ()
        if document["event"] in {"withdrawn", "done"}:
            matcher = quote(f'alertname="{NOTICE}"')
            active = _alerts_in(self.request(f"{url}/api/v2/alerts?filter={matcher}"))
        alerts = list(alerts_of(document, delivery.content.parts(), delivery.at, active))
        self.request(f"{url}/api/v2/alerts", alerts)


def _alerts_in(answer: bytes) -> Sequence[Alert]:
    try:
        alerts = loads(answer)
    except (JSONDecodeError, UnicodeDecodeError):
        raise DeliveryError("the answer is not from an Alertmanager") from None
    if not isinstance(alerts, list) or not all(isinstance(alert, dict) for alert in alerts):
        raise DeliveryError("the answer is not from an Alertmanager")
    return alerts


def alerts_of(
    document: Mapping[str, Any], parts: Sequence[Content], now: datetime, active: Sequence[Alert]
) -> Iterator[Alert]:
    """The alerts of a message. `active` are the notices that this Alertmanager has.

    Those that are over end with the labels that they have there: a node's pool or owner may have changed since.
    """
    kind, fleet = document["event"], document["fleet"]
    about = [*document["nodes"], *({**each, "node": each["id"]} for each in document.get("workloads", ()))]
    if not about:
        yield _alert(document, {"node": None, "at": document["made_at"]}, parts[0], now + _LASTS.get(kind, _OPEN))
    for node, part in zip(about, parts, strict=False):
        if kind in {"withdrawn", "done"}:
            for alert in active:
                labels = alert.get("labels", {})
                if (labels.get("node"), labels.get("fleet")) == (node["node"], fleet):
                    yield {**_texts(document, node, part), "labels": labels, "endsAt": now.isoformat()}
        if kind != "withdrawn":
            due = now if node["due"] is None else max(now, datetime.fromisoformat(node["due"]))
            yield _alert(document, node, part, due + _LASTS.get(kind, _OPEN))


def _alert(document: Mapping[str, Any], node: Mapping[str, Any], part: Content, until: datetime) -> Alert:
    kind, budget = document["event"], document.get("budget") or {}
    labels = {
        "alertname": _NAMES[kind],
        "severity": "warning" if budget else "info",
        "kind": kind,
        "fleet": document["fleet"],
        "node": node["node"],
        "pool": node.get("pool"),
        "owner": node.get("owner") or budget.get("owner"),
        "budget": budget.get("name"),
    }
    labels = {name: value for name, value in labels.items() if value}
    return {**_texts(document, node, part), "labels": labels, "startsAt": node["at"], "endsAt": until.isoformat()}


def _texts(document: Mapping[str, Any], node: Mapping[str, Any], part: Content) -> Alert:
    annotations = {
        "summary": part.title,
        "description": harmless_text(part.chat(links=False)),
        "snooze": node.get("snooze_url"),
    }
    texts: Alert = {"annotations": {name: text for name, text in annotations.items() if text}}
    if document["page"]:
        texts["generatorURL"] = document["page"]
    return texts
