"""The controller: its rounds, decisions, refusals by rule, actions, its ledger, and how old its signals are."""

from dashboards.source.boards import CLUSTER, FLEET, JOB, POOL, board, node_link
from dashboards.source.parts import (
    BLUE,
    GREEN,
    GREY,
    OLIVE,
    ORANGE,
    PURPLE,
    RED,
    Column,
    Json,
    Query,
    Row,
    bars,
    matching,
    override,
    series,
    stat,
    steps,
    table,
)
from dashboards.source.queries import IN_POOL, eq, led, mean, quantile, rate, told, with_names

_NONE_IS_GOOD = steps((None, GREEN), (1, ORANGE))
_RESULTS = {"done": GREEN, "trouble": ORANGE, "failed": RED, "waiting": GREY}
_STATES = {
    "running": BLUE,
    "pending": "light-blue",
    "stopping": "light-orange",
    "stopped": "#8E8E8E",
    "terminating": "light-red",
    "terminated": "#5A5A5A",
}
_ENDS = {"settled": GREEN, "cancelled": GREY, "failed": RED}
_STEPS = [
    matching("^notice: ", "light-orange", "shades"),
    matching("^(stop|terminate): ", "dark-orange", "shades"),
    matching("^(start|launch|grow): ", GREEN, "shades"),
    matching("^withdraw: ", "purple", "shades"),
]
# What nothing follows from is grey, but for the states that have a colour of their own; red is for trouble alone.
_DECISIONS = [
    matching("^hold: ", GREY, "shades"),
    matching("^hold: busy", BLUE),
    matching("^hold: parked", PURPLE),
    matching("^hold: occupied", OLIVE),
    *_STEPS,
]
_TRIED = [*_STEPS, matching(": (refused|denied|unavailable|failed)$", RED, "shades")]


def _fixed(table_: dict[str, str]) -> list[Json]:
    return [override(name, color={"fixedColor": colour, "mode": "fixed"}) for name, colour in table_.items()]


_ROUNDS_APART = 900.0  # an interval between rounds may be longer than the window of a rate


def _quantiles(name: str, *by: str) -> list[Query]:
    """The median and the 99th percentile of a histogram."""
    which = "".join(f"{{{{{label}}}}} " for label in by if label != "cloud")
    return [
        Query(expr=quantile(part, told(f"{name}_bucket"), *by), legend=f"{which}{legend}")
        for part, legend in ((0.5, "p50"), (0.99, "p99"))
    ]


_AT_A_GLANCE = Row(
    title="At a glance",
    panels=[
        stat(
            "Mode",
            "What the controller that leads may do: observe (decide and tell) or enforce (act, too).",
            f"max by (mode) ({led('controller_info')})",
            "none",
            text="name",
            legend="{{mode}}",
            trend=False,
        ),
        stat(
            "Leaders",
            "Controllers that lead: one, however many there are. None: nobody decides or acts.",
            f"sum({told('controller_leader')})",
            "none",
            limits=steps((None, RED), (1, GREEN), (2, RED)),
            trend=False,
        ),
        stat(
            "Last round",
            "Time since the last round that saw the fleet.",
            f"time() - max({led('controller_last_round_timestamp_seconds')})",
            "s",
            limits=steps((None, GREEN), (180, ORANGE), (600, RED)),
            trend=False,
        ),
        stat(
            "Round takes",
            'How long rounds take, on average; "Rounds take" below has the slow ones.',
            mean("controller_round_duration_seconds", told),
            "s",
            limits=steps((None, GREEN), (30, ORANGE), (60, RED)),
            decimals=2,
        ),
        stat(
            "Oldest signal",
            "The oldest verdict of an agent that the last round saw. Past limits.max_verdict_age a machine is unknown.",
            f"max({led('fleet_node_verdict_age_seconds')})",
            "s",
            decimals=1,
        ),
        stat(
            "Lowest coverage",
            "Of the chosen pools, the smallest part of machines of which anything is known.",
            f"min({led('fleet_coverage_ratio', IN_POOL)})",
            "percentunit",
            limits=steps((None, RED), (0.8, ORANGE), (0.95, GREEN)),
        ),
        stat(
            "Open intents",
            "Recorded actions without a known result. A few for some minutes are normal.",
            f"max({led('controller_open_intents')})",
            "none",
            limits=steps((None, GREEN), (10, ORANGE)),
        ),
        stat(
            "Pauses",
            "Pools that somebody has paused, or everything (`gpuwatch pause`).",
            f"sum({led('controller_paused')}) or max({led('controller_leader')}) * 0",
            "none",
            limits=_NONE_IS_GOOD,
            trend=False,
        ),
    ],
)

_ROUNDS = Row(
    title="Rounds and signals",
    panels=[
        series(
            "Rounds a minute",
            "Done; in trouble: the cloud gave no whole picture; failed: the log says why; waiting: another controller "
            "leads.",
            [Query(expr=f"sum by (result) ({rate(told('controller_rounds_total'))}) * 60", legend="{{result}}")],
            "none",
            stacked=True,
            overrides=_fixed(_RESULTS),
            width=8,
            decimals=1,
        ),
        series(
            "Age of the agents' verdicts",
            "When they were asked for: the oldest of each pool, and the median of all.",
            [
                Query(
                    expr="max by (pool) ("
                    + with_names(f"max by (node) ({led('fleet_node_verdict_age_seconds')})")
                    + ")",
                    legend="{{pool}}, oldest",
                ),
                Query(expr=f"quantile(0.5, {led('fleet_node_verdict_age_seconds')})", legend="median"),
            ],
            "s",
            width=8,
            overrides=_fixed({"median": "text"}),
        ),
        series(
            "Rounds take",
            "From the first call to the last record: the median, and what 99 of 100 rounds stay below. A round longer "
            "than the interval delays the next one.",
            _quantiles("controller_round_duration_seconds"),
            "s",
            width=8,
            joined_seconds=_ROUNDS_APART,
        ),
        series(
            "Cloud calls take",
            "By operation, over all accounts and regions, with pages, retries and waits for rate limits: the median, "
            "and what 99 of 100 stay below.",
            _quantiles("controller_cloud_call_duration_seconds", "cloud", "operation"),
            "s",
            width=8,
            joined_seconds=_ROUNDS_APART,
        ),
        series(
            "Agents take to answer",
            "Asked for a verdict, or for the confirmation before a stop, for which an agent looks again: the median, "
            "and what 99 of 100 stay below. One that does not answer counts with the time it was waited for.",
            _quantiles("controller_agent_answer_duration_seconds", "question"),
            "s",
            width=8,
            joined_seconds=_ROUNDS_APART,
        ),
        series(
            "Machines by state",
            "What the cloud says of the machines of the chosen pools.",
            [Query(expr=f"sum by (state) ({led('fleet_nodes', IN_POOL)})", legend="{{state}}")],
            "none",
            stacked=True,
            overrides=_fixed(_STATES),
            width=8,
            decimals=0,
        ),
    ],
)

_DECIDED = Row(
    title="Decided and refused",
    panels=[
        series(
            "What policies decided",
            "Steps in each round, whether or not the guard let them, by the reason's code; a hold does nothing and "
            "says why.",
            [
                Query(
                    expr=f"sum by (verb, reason) ({led('controller_steps', IN_POOL)})",
                    legend="{{verb}}: {{reason}}",
                )
            ],
            "none",
            stacked=True,
            overrides=_DECISIONS,
            decimals=0,
        ),
        series(
            "Objections by rule",
            "In each round, by the guard's rule; docs/guard.md explains each. All rules are asked, so a step may "
            "meet several.",
            [
                Query(
                    expr=f"sum by (rule) ({led('controller_blocked_actions', IN_POOL)})",
                    legend="{{rule}}",
                )
            ],
            "none",
            stacked=True,
            decimals=0,
        ),
        bars(
            "Refusals by rule over the time range",
            "One for each step, rule and round: which rules hold machines most.",
            Query(
                expr=f"sort_desc(sum by (rule) (increase({told('controller_refusals_total', IN_POOL)}[$__range])) > 0)",
                legend="{{rule}}",
                now=True,
            ),
            "none",
            width=8,
            decimals=0,
            limits=steps((None, ORANGE)),
        ),
        table(
            "Stands against steps now",
            "By pool. `gpuwatch explain` has the sentences.",
            [f"sum by (pool, verb, rule) ({led('controller_blocked_actions', IN_POOL)})"],
            [
                Column(source="pool", title="Pool"),
                Column(source="verb", title="Step"),
                Column(source="rule", title="Rule"),
                Column(source="Value", title="Machines"),
            ],
            width=8,
            sort="Machines",
        ),
        series(
            "Wanted size",
            "How many machines the policies want for each pool, where one wants a number, and how many there are. "
            "Pools with unit: gpus have GPUs.",
            [
                Query(
                    expr=f"max by (pool) ({led('controller_pool_target_nodes', IN_POOL)})"
                    f" or max by (pool) ({led('controller_pool_target_gpus', IN_POOL)})",
                    legend="{{pool}} wanted",
                ),
                Query(
                    expr=f"(sum by (pool) ({led('fleet_nodes', IN_POOL, eq('state', 'running'))})"
                    f" and on (pool) {led('controller_pool_target_nodes', IN_POOL)})"
                    f" or (sum by (pool) ({led('fleet_running_gpus', IN_POOL)})"
                    f" and on (pool) {led('controller_pool_target_gpus', IN_POOL)})",
                    legend="{{pool}} running",
                ),
            ],
            "none",
            width=8,
            decimals=0,
        ),
    ],
)

_DONE = Row(
    title="Done",
    panels=[
        series(
            "Actions an hour",
            "Steps carried out or tried, by what came of the call.",
            [
                Query(
                    expr=f"sum by (verb, status) ({rate(told('controller_actions_total', IN_POOL))}) * 3600",
                    legend="{{verb}}: {{status}}",
                )
            ],
            "none",
            width=8,
            stacked=True,
            overrides=_TRIED,
        ),
        table(
            "Actions since the controllers started",
            "Counted from each controller's start.",
            [f"sum by (pool, verb, status) ({told('controller_actions_total', IN_POOL)})"],
            [
                Column(source="pool", title="Pool"),
                Column(source="verb", title="Step"),
                Column(source="status", title="Came of it"),
                Column(source="Value", title="Count"),
            ],
            width=8,
            sort="Count",
        ),
        table(
            "Notices in force",
            "Machines about to be stopped, and since when their owners know.",
            [
                with_names(f"max by (node) ({led('fleet_node_notice_timestamp_seconds')})") + " * 1000",
            ],
            [
                Column(source="name", title="Name"),
                Column(source="node", title="Machine", properties=node_link()),
                Column(source="pool", title="Pool"),
                Column(source="owner", title="Owner"),
                Column(source="Value", title="Given", unit="dateTimeFromNow"),
            ],
            width=8,
        ),
        series(
            "Open intents",
            "Recorded actions without a known result.",
            [Query(expr=f"max({led('controller_open_intents')})", legend="open")],
            "none",
            width=8,
            decimals=0,
        ),
        series(
            "Age of the oldest open intent",
            "No value if no intent is open. After some minutes the cloud has not done what it accepted.",
            [
                Query(
                    expr=f"time() - min({led('controller_oldest_open_intent_timestamp_seconds')})",
                    legend="oldest",
                )
            ],
            "s",
            width=8,
            limits=steps((None, "transparent"), (900, RED)),
        ),
        series(
            "Settled an hour",
            "Actions with a result that was seen in the cloud, by result.",
            [
                Query(
                    expr=f"sum by (status) ({rate(told('controller_intents_settled_total'))}) * 3600",
                    legend="{{status}}",
                )
            ],
            "none",
            width=8,
            stacked=True,
            overrides=_fixed(_ENDS),
        ),
    ],
)


def controller() -> Json:
    """dashboards/controller.json."""
    return board(
        "controller",
        "Rounds, decisions, refusals by rule, actions, the ledger and the age of signals. Needs the controller's "
        "metrics.",
        [JOB, CLUSTER, FLEET, POOL],
        [_AT_A_GLANCE, _ROUNDS, _DECIDED, _DONE],
        since="now-6h",
    )
