"""The fleet: what is on, busy, idle, wasted, saved, and at risk."""

from dashboards.source.boards import AGENTS, CLUSTER, CURRENCY, FLEET, JOB, POOL, board, node_link
from dashboards.source.currency import MONEY
from dashboards.source.kubernetes import KUBERNETES
from dashboards.source.parts import (
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Column,
    Json,
    Query,
    Row,
    bars,
    coloured,
    fixed,
    override,
    series,
    stat,
    states,
    steps,
    table,
    timeline,
)
from dashboards.source.queries import (
    AGENTS as OF_AGENTS,
)
from dashboards.source.queries import (
    IN_POOL,
    MACHINES,
    WASTED,
    WHO,
    differs,
    doing_by_node,
    eq,
    led,
    of,
    on_machines,
    with_names,
)

_GPUS = f"sum({led('fleet_running_gpus', IN_POOL)})"


def _gpus(activity: str) -> str:
    """How many GPUs do that; 0 where machines run and none does."""
    return f"sum({led('fleet_running_gpus', IN_POOL, of('activity', activity))}) or {_GPUS} * 0"


def _agents(name: str, *matchers: str) -> str:
    return f"gpuwatch_{name}{{{', '.join([OF_AGENTS, *matchers])}}}"


_HURT = on_machines(
    "max by (cluster, job, instance) ("
    f"{_agents('instance_notice_info')} or {_agents('gpu_down_info', differs('cause', 'released'))}"
    f" or {_agents('gpu_health', of('state', 'degraded|failing'))} == 1)"
)
_NOTICE = f"max by (cluster, job, instance, kind, action) ({_agents('instance_notice_info')})"
_DEADLINE = f"max by (cluster, job, instance, kind, action) ({_agents('instance_notice_deadline_timestamp_seconds')})"
_NOT_WELL = _agents("gpu_health", of("state", "degraded|failing|unknown"))
_ILL = ("degraded", "failing", "unknown")
_LOOKS = 6  # an hour
_PRODUCT = f"max by (cluster, job, instance, uuid, name, driver_version) ({_agents('gpu_info')})"


def _gpu_hours(*matchers: str) -> str:
    """GPU-hours in that health over the time range, by product and driver: of each GPU one state is 1."""
    each = f"{_agents('gpu_health', *matchers)} * on (cluster, job, instance, uuid) group_left (name, driver_version)"
    return f"sum by (name, driver_version) (sum_over_time(({each} {_PRODUCT})[$__range:10m]))"


_XIDS = f"increase({_agents('gpu_xid_errors_total')}[$__rate_interval])"
_WASTED = f"sum({led('fleet_usd_per_hour', IN_POOL, WASTED)})"
_SPENT = f"sum({led('fleet_usd_per_hour', IN_POOL)})"
_RISKS = steps((None, GREEN), (1, RED))

_AT_A_GLANCE = Row(
    title="At a glance",
    panels=[
        stat(
            "Machines on",
            "Machines that run, by their cloud's word.",
            f"sum({led('fleet_nodes', IN_POOL, eq('state', 'running'))})",
            "none",
            width=2,
        ),
        stat("GPUs on", "GPUs of running machines that count (`cost.scope`).", _GPUS, "none", width=2),
        stat(
            "Busy GPUs",
            "GPUs that compute.",
            _gpus("busy"),
            "none",
            limits=fixed(COLOURS["busy"]),
        ),
        stat(
            "Wasted GPUs",
            "GPUs that are seen and of no use: idle, occupied (somebody's process is alive and does nothing), parked "
            "(memory held, nothing computed), stalled (100 % busy at idle power: a deadlock) or down.",
            f"sum({led('fleet_running_gpus', IN_POOL, WASTED)}) or {_GPUS} * 0",
            "none",
            limits=fixed(COLOURS["idle"]),
        ),
        stat(
            "Unknown GPUs",
            "GPUs of which nobody knows what they do: a silent agent, a GPU that cannot be read. Their machines are "
            "never stopped.",
            _gpus("unknown"),
            "none",
            limits=steps((None, GREEN), (1, GREY)),
            width=2,
        ),
        stat(
            "Wasted per hour",
            "What the wasted GPUs cost now, where their price is known: each has its share of its machine's price.",
            f"{_WASTED} or {_SPENT} * 0",
            MONEY,
            limits=steps((None, GREEN), (0.01, ORANGE)),
            decimals=2,
        ),
        stat(
            "Saved per hour",
            "What the machines would cost that gpuwatch stopped or terminated, as long as they save. People's waits "
            "are taken off in the sum of the month; what stopped machines still cost, such as disks, is not.",
            f"sum({led('fleet_saved_usd_per_hour', IN_POOL)}) or {_SPENT} * 0",
            MONEY,
            limits=fixed(GREEN),
            decimals=2,
        ),
        stat(
            "Machines at risk",
            "Machines about to be taken away by their cloud, with a GPU that is degraded, failing, lost or unreadable: "
            "see below.",
            f"count({_HURT}) or {MACHINES} * 0",
            "none",
            limits=_RISKS,
        ),
        stat(
            "Last round",
            "How old all this is: time since the controller that leads last saw the fleet. Without a leader the "
            "other numbers come from agents, or are old.",
            f"time() - max({led('controller_last_round_timestamp_seconds')})",
            "s",
            limits=steps((None, GREEN), (180, ORANGE), (600, RED)),
            trend=False,
            none="nobody leads",
        ),
    ],
)

_OVER_TIME = Row(
    title="Use and money",
    panels=[
        series(
            "GPUs by activity",
            "GPUs of running machines that count, by what they do. What is blue is of use.",
            [Query(expr=f"sum by (activity) ({led('fleet_running_gpus', IN_POOL)})", legend="{{activity}}")],
            "none",
            stacked=True,
            overrides=coloured(),
            width=10,
            decimals=0,
        ),
        series(
            "Cost per hour by activity",
            "What running machines with a known price cost, by what their GPUs do.",
            [Query(expr=f"sum by (activity) ({led('fleet_usd_per_hour', IN_POOL)})", legend="{{activity}}")],
            MONEY,
            stacked=True,
            overrides=coloured(),
            width=9,
        ),
        bars(
            "Waste by pool",
            "Part of each pool's GPUs that is wasted now: idle, occupied, parked, stalled or down.",
            Query(
                expr=f"(sum by (pool) ({led('fleet_running_gpus', IN_POOL, WASTED)})"
                f" or sum by (pool) ({led('fleet_running_gpus', IN_POOL)}) * 0)"
                f" / sum by (pool) ({led('fleet_running_gpus', IN_POOL)})",
                legend="{{pool}}",
                now=True,
            ),
            "percentunit",
            limits=steps((None, BLUE), (0.3, ORANGE), (0.7, RED)),
            most=1,
            width=5,
        ),
    ],
)

_WHO = Row(
    title="Machines",
    panels=[
        timeline(
            "What each machine did",
            "One line each, twenty at a time; no colour: it did not run.",
            Query(expr=with_names(doing_by_node()), legend="{{name}}"),
            states(),
            height=11,
        ),
        table(
            "Machines",
            "Every machine of the chosen pools, those that cost most first. Click its id for its own dashboard; "
            "`gpuwatch explain` says how the rules judge it.",
            [
                WHO,
                doing_by_node(),
                f"max by (node) ({led('fleet_node_activity_duration_seconds')})",
                f"max by (node) ({led('fleet_node_usd_per_hour')})",
                f"max by (node) ({led('fleet_node_notice_timestamp_seconds')}) * 1000",
            ],
            [
                Column(source="name", title="Name"),
                Column(source="node", title="Machine", properties=node_link()),
                Column(source="pool", title="Pool"),
                Column(source="owner", title="Owner"),
                Column(source="instance_type", title="Type"),
                Column(
                    source="Value #B",
                    title="Activity",
                    properties={
                        "mappings": states(none=("off", "transparent")),
                        "custom__cellOptions": {"mode": "basic", "type": "color-background"},
                        "custom__width": 100,
                    },
                ),
                Column(source="Value #C", title="For", unit="s"),
                Column(source="Value #D", title="Per hour", unit=MONEY),
                Column(source="Value #E", title="Notice given", unit="dateTimeFromNow"),
            ],
            key="node",
            width=24,
            height=11,
            sort="Per hour",
        ),
    ],
)

_RISK = Row(
    title="At risk",
    panels=[
        table(
            "Sick GPUs",
            "Health problems that agents found, and the remedy: drain, reset, reboot or replace_hardware. "
            "docs/health.md explains each cause.",
            [
                on_machines(
                    f"max by (cluster, job, instance, gpu, uuid, code, remedy) ({_agents('gpu_health_cause_info')})"
                )
            ],
            [
                Column(source="node", title="Machine", properties=node_link()),
                Column(source="gpu", title="GPU", properties={"custom__width": 60}),
                Column(source="code", title="Cause"),
                Column(source="remedy", title="Remedy"),
                Column(source="uuid", title="UUID"),
            ],
            width=14,
            sort="Machine",
            ascending=True,
        ),
        table(
            "Machines about to be taken away",
            "Notices of the clouds: spot interruption, rebalance recommendation, maintenance, termination.",
            [on_machines(_NOTICE), on_machines(f"{_DEADLINE} * 1000")],
            [
                Column(source="node", title="Machine", properties=node_link()),
                Column(source="kind", title="Notice"),
                Column(source="action", title="What will be done"),
                Column(source="Value #B", title="When", unit="dateTimeFromNow"),
            ],
            width=10,
        ),
        table(
            "Health by GPU and driver",
            "Share of GPU-hours in each health over the time range, by type and driver: choose a range around an "
            "upgrade to compare before and after. Unknown hours are not healthy ones. Of all pools.",
            [
                f"{_gpu_hours()} / {_LOOKS}",
                *(f"{_gpu_hours(eq('state', state))} / {_gpu_hours()}" for state in ("healthy", *_ILL)),
            ],
            [
                Column(source="name", title="GPU"),
                Column(source="driver_version", title="Driver"),
                Column(source="Value #A", title="GPU-hours", unit="none", properties={"decimals": 1}),
                *(
                    Column(source=f"Value #{letter}", title=title, unit="percentunit", properties={"decimals": 2})
                    for letter, title in zip("BCDE", ("Healthy", *map(str.capitalize, _ILL)), strict=True)
                ),
            ],
            width=24,
            sort="GPU",
            ascending=True,
        ),
        series(
            "GPUs that are not well",
            "GPUs by their agents' verdict on their health, but for healthy ones.",
            [
                Query(
                    expr=f"sum by (state) ({on_machines(f'sum by (cluster, job, instance, state) ({_NOT_WELL})')})",
                    legend="{{state}}",
                )
            ],
            "none",
            overrides=[
                override(name, color={"fixedColor": colour, "mode": "fixed"})
                for name, colour in (("degraded", ORANGE), ("failing", RED), ("unknown", GREY))
            ],
            stacked=True,
            width=8,
            decimals=0,
        ),
        series(
            "XID errors",
            "New errors that the driver reported, by number. NVIDIA's catalogue of XIDs says what each means; "
            "docs/health.md which of them count.",
            [
                Query(
                    expr=f"sum by (xid) ({on_machines(f'sum by (cluster, job, instance, xid) ({_XIDS})')})",
                    legend="XID {{xid}}",
                )
            ],
            "none",
            width=8,
        ),
        series(
            "What the controller can see",
            "Part of each pool's enrolled, running machines of which anything is known. Where it is too low the guard "
            "lets nothing be removed.",
            [Query(expr=f"min by (pool) ({led('fleet_coverage_ratio', IN_POOL)})", legend="{{pool}}")],
            "percentunit",
            most=1,
            width=8,
        ),
    ],
)


def fleet() -> Json:
    """dashboards/fleet.json."""
    return board(
        "fleet",
        "What is on, busy, idle, wasted, saved, and at risk. Needs the controller's metrics and the agents'.",
        [JOB, AGENTS, CLUSTER, FLEET, POOL, CURRENCY],
        [_AT_A_GLANCE, _OVER_TIME, _WHO, KUBERNETES, _RISK],
        since="now-6h",
    )
