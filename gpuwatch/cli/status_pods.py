"""`gpuwatch status`: what a Kubernetes cluster shows, its pods without use, and what happens to them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from rich.text import Text

from gpuwatch.model.currency import display_currency
from gpuwatch.model.decision import Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.money import bare_usd
from gpuwatch.model.nodes_page import ClusterRow, NodesPage, PodRow, WorkloadRow
from gpuwatch.model.readable import legible
from gpuwatch.runtime.columns import Column, laid_out
from gpuwatch.runtime.translation import translate_text


def cluster_lines(page: NodesPage) -> Iterator[str]:
    """One line on the cluster, and one for each thing that is wrong with it."""
    row = page.kubernetes
    if row is None:
        return
    yield legible(f"Kubernetes {row.name}: {_gpus(row)}.")
    if row.trouble is not None:
        yield legible(f"None of its nodes is stopped: {row.trouble}")
    yield from map(legible, row.notes)


def pods_table(page: NodesPage, width: int | None) -> list[Text]:
    """The pods, the most expensive first; no line where all use them."""
    rows = page.pods
    if not rows:
        return []
    columns = [
        Column(title="POD", cells=[legible(_pod(row)) for row in rows], spare=9, least=16),
        Column(title="WORKLOAD", cells=[legible(row.workload) for row in rows], spare=6, least=12),
        Column(title="OWNER", cells=[legible(row.owner or "-") for row in rows], spare=4, least=8),
        Column(title="NODE", cells=[legible(row.node) for row in rows], spare=5, least=8),
        *_use_columns(rows),
        Column(
            title=f"{display_currency().head}/H",
            cells=["-" if row.usd_per_hour is None else bare_usd(row.usd_per_hour) for row in rows],
            right=True,
        ),
    ]
    return _titled_table("Pods that hold GPUs without use:", columns, width)


def workloads_table(page: NodesPage, width: int | None) -> list[Text]:
    """The workloads that may lose their pods, the most expensive first; without any, nothing."""
    rows = page.workloads
    if not rows:
        return []
    columns = [
        Column(title="WORKLOAD", cells=[legible(str(row)) for row in rows], spare=6, least=12),
        Column(title="OWNER", cells=[legible(row.owner or "-") for row in rows], spare=4, least=8),
        Column(title="PODS", cells=[str(row.pods) for row in rows], right=True),
        *_use_columns(rows),
        Column(title="NEXT", cells=[translate_text(_next(row, page.at)) for row in rows]),
        Column(title="WHY", cells=[legible(translate_text(row.why)) for row in rows]),
    ]
    return _titled_table("Workloads that may lose their pods:", columns, width)


def _use_columns(rows: Sequence[PodRow | WorkloadRow]) -> tuple[Column, ...]:
    """How many GPUs they hold, what they do with them, and for how long."""
    return (
        Column(title="GPUS", cells=[f"{row.gpus:g}" for row in rows], right=True),
        Column(
            title="USE",
            cells=[translate_text(row.activity.value) for row in rows],
            styles=["state." + row.activity.value for row in rows],
        ),
        Column(title="FOR", cells=[format_duration(row.held_seconds) for row in rows], right=True),
    )


def _titled_table(title: str, columns: Sequence[Column], width: int | None) -> list[Text]:
    """A table below its title, in the reader's language."""
    shown = [replace(each, title=translate_text(each.title)) for each in columns]
    return [Text(translate_text(title)), *laid_out(shown, width, lines=None)]


def _pod(row: PodRow) -> str:
    """Its name, of several clusters with its cluster's."""
    return f"{'' if row.cluster is None else f'{row.cluster}/'}{row.namespace}/{row.name}"


def _next(row: WorkloadRow, now: datetime) -> str:
    """What is to become of it, and when; `-`: nothing."""
    if row.refused_by:
        return f"refused: {row.refused_by[0]}"
    if row.ends_at is None or row.how is None:
        kept = "-" if row.snooze is None else f"kept for {format_duration((row.snooze.until - now).total_seconds())}"
        return row.action.value if row.action is not Verb.HOLD else kept
    left = (row.ends_at - now).total_seconds()
    return f"{row.how} now" if left <= 0 else f"{row.how} in {format_duration(left)}"


def _gpus(row: ClusterRow) -> str:
    words = (
        f"{row.nodes} node{'' if row.nodes == 1 else 's'}, {row.requested_gpus:g} of {row.gpus:g} GPUs are requested"
    )
    return f"{words}, pending pods want {row.pending_gpus:g} more" if row.pending_gpus else words
