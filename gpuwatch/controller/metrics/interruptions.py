"""Metrics of what clouds take: notices, losses, and how much work was lost with them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta

from gpuwatch.controller.interruptions import FIRST
from gpuwatch.controller.metrics.state import ROUND, MetricsState, Value, counter, gauge
from gpuwatch.model.cloud_notice import KIND, LOST_GPU_SECONDS, SINCE
from gpuwatch.model.decision import Intent, Status, Verb
from gpuwatch.policies.spot.records import OFFER

_HOUR = timedelta(hours=1)


def count(state: MetricsState, records: Iterable[Intent]) -> None:
    """A round has written these down."""
    for each in records:
        offer = each.arguments.get(OFFER, "")
        if each.verb is Verb.INTERRUPTION and each.reason.code == FIRST:
            state.count("interruptions", (each.pool, offer, each.arguments.get(KIND, "")))
        if each.verb is Verb.LOST:
            known = LOST_GPU_SECONDS in each.arguments
            state.count("interruption_losses", (each.pool, offer, "known" if known else "unknown"))
            if known:
                state.count(
                    "interruption_lost_gpu_seconds", (each.pool, offer), float(each.arguments[LOST_GPU_SECONDS])
                )


def _standing(state: MetricsState) -> Iterator[Value]:
    """Nodes that their cloud is about to take, as the last round saw them."""
    if state.observation is not None:
        fleet = state.observation.fleet
        going = Counter(node.pool for node in fleet.nodes if node.cloud_notice is not None and node.enrolled)
        yield from (((pool,), float(going[pool])) for pool in fleet.pools)


def _lately(state: MetricsState) -> Iterator[Value]:
    """Notices within the hour, by the ledger: a restart of the controller changes nothing."""
    seen = state.observation
    if seen is None:
        return
    found = {
        (done.node_id, done.arguments.get(SINCE, "")): (done.pool, done.arguments.get(OFFER, ""))
        for done in seen.ledger.recent
        if done.verb is Verb.INTERRUPTION and done.status is Status.SETTLED and done.at > seen.now - _HOUR
    }
    yield from ((labels, float(number)) for labels, number in sorted(Counter(found.values()).items()))


FAMILIES = (
    counter(
        "interruptions_total",
        ("pool", "offer", "kind"),
        "Nodes that their cloud announced to take: spot_interruption, termination, maintenance. No offer: empty.",
        "rounds",
    ),
    counter(
        "interruption_losses_total",
        ("pool", "offer", "work"),
        "Nodes that their cloud took after a notice; work: whether it is known how much of it was lost.",
        "rounds",
    ),
    counter(
        "interruption_lost_gpu_seconds_total",
        ("pool", "offer"),
        "GPU-seconds of work since the last checkpoint of nodes that their cloud took, where that is known.",
        "rounds; what agent.metadata.on_interruption says",
    ),
    gauge(
        "interruption_notices",
        ("pool",),
        "Nodes that their cloud is about to take: they do not count as capacity.",
        ROUND,
        _standing,
    ),
    gauge(
        "interruptions_recent",
        ("pool", "offer"),
        "Nodes that their cloud announced to take within the hour; absent without any.",
        "ledger",
        _lately,
    ),
)
