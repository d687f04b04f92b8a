"""Metrics of the rounds: whether they work, what they decided, refused and did."""

from collections import Counter
from collections.abc import Iterator
from functools import partial

from gpuwatch.controller.metrics.state import ROUND, MetricsState, Value, counter, gauge, histogram, info
from gpuwatch.controller.startup_pause import decided_elsewhere
from gpuwatch.policies.fingerprint import fingerprint
from gpuwatch.runtime.metrics.family import CERTIFICATE, CERTIFICATE_HELP, LOGINS_HELP
from gpuwatch.runtime.program import BUILD, build

_FINGERPRINT_DIGITS = 12


def _build(_: MetricsState) -> Iterator[Value]:
    yield build(), 1.0


def _info(state: MetricsState) -> Iterator[Value]:
    yield (state.mode,), 1.0


def _rules(state: MetricsState) -> Iterator[Value]:
    """Of each pool that the settings have; the same rules have the same fingerprint in every process."""
    if state.rules is not None:
        for pool in state.rules.known:
            yield (pool, fingerprint(state.rules.pool(pool))[:_FINGERPRINT_DIGITS]), 1.0


def _leading(state: MetricsState) -> Iterator[Value]:
    yield (), float(state.leading)


def _ledger_ok(state: MetricsState) -> Iterator[Value]:
    if state.ledger_ok is not None:
        yield (), float(state.ledger_ok)


def _elsewhere(state: MetricsState) -> Iterator[Value]:
    seen = state.observation
    if seen is not None:
        yield (), float(len(decided_elsewhere(seen.fleet, seen.ledger, seen.now)))


def _silent(state: MetricsState) -> Iterator[Value]:
    """The parts of the clouds that did not answer the last round."""
    if state.observation is not None:
        yield from (((each.cloud, each.where), 1.0) for each in state.observation.fleet.silent)


def _timestamp(state: MetricsState) -> Iterator[Value]:
    if state.ended_at is not None:
        yield (), state.ended_at.timestamp()


def _steps(state: MetricsState) -> Iterator[Value]:
    """What the last round decided, whether or not the guard let it."""
    if state.last is not None:
        counts = Counter(
            (decision.pool, step.verb.value, step.reason.code)
            for decision in state.last.decisions
            for step in decision.steps
        )
        yield from ((key, float(count)) for key, count in sorted(counts.items()))


def _refused_values(state: MetricsState) -> Iterator[Value]:
    """What stands against the last round's steps."""
    if state.last is not None:
        counts = Counter(
            (review.pool, answer.rule, review.step.verb.value)
            for review in state.last.reviews
            for answer in review.refusals
        )
        yield from ((key, float(count)) for key, count in sorted(counts.items()))


def _targets(state: MetricsState, unit: str) -> Iterator[Value]:
    for decision in () if state.last is None else state.last.decisions:
        if decision.target is not None and decision.unit == unit:
            yield (decision.pool,), float(decision.target)


def _open_intents(state: MetricsState) -> Iterator[Value]:
    seen = state.observation
    if seen is not None:
        yield (), float(len(seen.ledger.open_intents))


def _oldest(state: MetricsState) -> Iterator[Value]:
    seen = state.observation
    if seen is not None and seen.ledger.open_intents:
        yield (), min(entry.intent.at for entry in seen.ledger.open_intents).timestamp()


def _paused_values(state: MetricsState) -> Iterator[Value]:
    seen = state.observation
    if seen is not None:
        paused = {pause.pool or "" for pause in seen.ledger.pauses}
        yield from (((pool,), float(pool in paused)) for pool in sorted({"", *seen.fleet.pools, *paused}))


def _logins(state: MetricsState) -> Iterator[Value]:
    for result, count in state.logins().items():
        yield (result,), float(count)


def _certificates(state: MetricsState) -> Iterator[Value]:
    for setting, end in state.certificates():
        yield (setting,), end.timestamp()


FAMILIES = (
    info("controller_build_info", BUILD, "Which build of the controller runs, on which Python.", "the build", _build),
    info(
        "controller_info",
        ("mode",),
        "What this controller may do: observe or enforce.",
        "settings",
        _info,
    ),
    info(
        "controller_pool_rules_info",
        ("pool", "fingerprint"),
        "A pool's rules for removals (`idle`, `warm_up`, waits of its windows): others have another fingerprint.",
        "settings",
        _rules,
    ),
    gauge(
        "controller_leader", (), "1 while this controller leads; of several on one ledger one does.", "ledger", _leading
    ),
    gauge(
        "controller_ledger_ok",
        (),
        "1 while the ledger answers and is the one that this controller has written; at 0 nothing is done.",
        "ledger",
        _ledger_ok,
    ),
    gauge(
        "controller_foreign_decisions",
        (),
        "Machines that another ledger has decided about within a day: a second controller, or lost records.",
        ROUND,
        _elsewhere,
    ),
    counter(
        "controller_rounds_total",
        ("result",),
        "Rounds: done; trouble (the cloud gave no whole picture); failed; waiting (another controller leads).",
        "rounds",
    ),
    gauge(
        "cloud_silent",
        ("cloud", "place"),
        "1 for each region or cloud that did not answer the last round. What it showed last counts.",
        ROUND,
        _silent,
    ),
    gauge(
        "controller_last_round_timestamp_seconds",
        (),
        "When the last round that saw the fleet ended.",
        ROUND,
        _timestamp,
    ),
    histogram(
        "controller_round_duration_seconds",
        (),
        "How long rounds of the leader took, also those that failed or were in trouble.",
        "rounds",
        lambda timings: timings.rounds,
    ),
    histogram(
        "controller_cloud_call_duration_seconds",
        ("cloud", "operation"),
        "How long the cloud took to answer, all its accounts and regions, pages and retries, also with an error.",
        "rounds",
        lambda timings: timings.cloud_calls,
    ),
    histogram(
        "controller_agent_answer_duration_seconds",
        ("question",),
        "How long agents took to answer, or were waited for in vain: for a verdict, or the confirmation before a stop.",
        "rounds",
        lambda timings: timings.agent_answers,
    ),
    histogram(
        "controller_scrape_duration_seconds",
        (),
        "How long a page of these metrics took to make.",
        "the controller's port",
        lambda timings: timings.scrapes,
    ),
    gauge(
        "controller_steps",
        ("pool", "verb", "reason"),
        "What was decided for nodes and groups, allowed or not, by the reason's code.",
        ROUND,
        _steps,
    ),
    gauge(
        "controller_blocked_actions",
        ("pool", "rule", "verb"),
        "Objections of the guard that stand, by rule.",
        ROUND,
        _refused_values,
    ),
    counter(
        "controller_refusals_total",
        ("pool", "rule", "verb"),
        "Objections of the guard, one a step, rule and round.",
        "rounds",
    ),
    counter(
        "controller_actions_total",
        ("pool", "verb", "status"),
        "Steps that were carried out or tried, by what came of the call.",
        "rounds",
    ),
    counter("controller_intents_settled_total", ("status",), "Intents that were seen to end in the cloud.", "rounds"),
    counter(
        "controller_notifications_total",
        ("destination", "event", "result"),
        "Nodes in messages to people (notify), and messages about budgets, by outcome: reached, failed (it is "
        "tried again), nobody (no address), superseded (over before it was delivered), given_up (older than "
        "notify.max_age).",
        "ledger",
    ),
    gauge(
        "controller_open_intents", (), "Intents on record that are not known to have ended.", "ledger", _open_intents
    ),
    gauge(
        "controller_oldest_open_intent_timestamp_seconds",
        (),
        "When the oldest of them was written down.",
        "ledger",
        _oldest,
    ),
    gauge(
        "controller_paused",
        ("pool",),
        "1 while this pool is paused, 0 while not; without a pool: all are.",
        "ledger",
        _paused_values,
    ),
    gauge(
        "controller_pool_target_nodes",
        ("pool",),
        "How many nodes the policies want, where one wants a number.",
        ROUND,
        partial(_targets, unit="nodes"),
    ),
    gauge(
        "controller_pool_target_gpus",
        ("pool",),
        "How many GPUs the policies want of a pool with `unit: gpus`, where one wants a number.",
        ROUND,
        partial(_targets, unit="gpus"),
    ),
    counter(
        "controller_login_failures_total",
        ("result",),
        LOGINS_HELP,
        "the controller's port; absent without users",
        _logins,
    ),
    gauge(
        CERTIFICATE.removeprefix("gpuwatch_"),
        ("setting",),
        CERTIFICATE_HELP,
        "tls_certificate, tls_client_ca and tls_ca of controller, signals, signals.promql and notify; the login of "
        "Kubernetes; sslrootcert and sslcert of the ledger's URL",
        _certificates,
    ),
)
