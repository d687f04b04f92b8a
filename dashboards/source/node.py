"""One machine: its GPUs with everything that is read of them, what it does and why, who uses it, how well it is."""

from dashboards.source.boards import CLUSTER, CURRENCY, FLEET, board, variable
from dashboards.source.currency import MONEY
from dashboards.source.node_details import DETAILS
from dashboards.source.node_use import HEALTH, PROCESSES
from dashboards.source.parts import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    Column,
    Json,
    Query,
    Row,
    filled,
    fixed,
    series,
    stat,
    states,
    steps,
    table,
    timeline,
    words,
)
from dashboards.source.queries import ANY_GPU, doing, eq, here, led, of_gpus, rate

_GPU = "GPU {{gpu}}"
_SOUND = {0: ("healthy", GREEN), 1: ("unknown", GREY), 2: ("degraded", ORANGE), 3: ("failing", RED)}
_SAYS = {0: ("unknown", GREY), 1: ("idle", ORANGE), 4: ("busy", BLUE)}
_OF_NODE = eq("node", "$node")
_WHO = (
    "max by (node, name, pool, owner, instance_type) "
    f'(label_replace({led("fleet_node_info", _OF_NODE)}, "owner", "nobody", "owner", ""))'
)


def _health(by: str) -> str:
    """The worst verdict among GPUs, numbered as _SOUND."""
    each = (
        f"{of_gpus('gpu_health', eq('state', state))} * {number}" for number, (state, _) in reversed(_SOUND.items())
    )
    return f"max by ({by}) ({' or '.join(each)})" if by else f"max({' or '.join(each)})"


_NOTICE = f"max by (node) ({led('fleet_node_notice_timestamp_seconds', _OF_NODE)} * 1000)"

_VARIABLES = [
    variable("job", "Controllers", "label_values(gpuwatch_controller_info, job)", "Who prices it", hidden=True),
    CLUSTER,
    FLEET,
    CURRENCY,
    variable(
        "node",
        "Machine",
        'label_values(gpuwatch_node_info{cluster=~"$cluster"}, node_id)',
        "The machine, as its cloud or its administrator names it",
        several=False,
    ),
    variable(
        "agent_job",
        "Agents",
        'label_values(gpuwatch_node_info{node_id="$node", cluster=~"$cluster"}, job)',
        "The job that scrapes its agent",
        several=False,
        hidden=True,
    ),
    variable(
        "instance",
        "Agent",
        'label_values(gpuwatch_node_info{node_id="$node", job="$agent_job", cluster=~"$cluster"}, instance)',
        "Where its agent is scraped",
        several=False,
    ),
    variable(
        "gpu",
        "GPU",
        'label_values(gpuwatch_gpu_up{job="$agent_job", cluster=~"$cluster", instance="$instance"}, gpu)',
        "Its GPUs, by index",
    ),
]

_AT_A_GLANCE = Row(
    title="At a glance",
    panels=[
        stat(
            "Activity",
            "What the machine does, by its agent's verdict, which stopping it follows from.",
            doing("node_activity", "instance"),
            "none",
            mappings=states(),
            trend=False,
        ),
        stat(
            "Idle for",
            "For how long without a break; 0 if it is not idle, none while that is unknown.",
            f"max({here('node_idle_seconds')})",
            "s",
            decimals=1,
        ),
        stat(
            "Health",
            "The worst of its GPUs' verdicts.",
            _health(""),
            "none",
            mappings=words(_SOUND),
            trend=False,
        ),
        stat(
            "GPUs unreadable",
            "GPUs that were expected and could not be read in the last cycle.",
            f"count({here('gpu_up')} == 0) or count({here('gpu_up')}) * 0",
            "none",
            limits=steps((None, GREEN), (1, RED)),
        ),
        stat(
            "Power",
            "What its GPUs draw together.",
            f"sum({here('gpu_power_watts')})",
            "watt",
            decimals=0,
        ),
        stat(
            "Thermal margin",
            "How far the hottest GPU is below the temperature at which its driver slows it down; none where the driver "
            "does not tell.",
            f"min({of_gpus('gpu_temperature_margin_celsius')})",
            "celsius",
            limits=steps((None, RED), (3, ORANGE), (10, GREEN)),
        ),
        stat(
            "Cost per hour",
            "What it costs while it runs, as the controller prices it; none where the price is not known.",
            f"max({led('fleet_node_usd_per_hour', _OF_NODE)})",
            MONEY,
            decimals=2,
            trend=False,
        ),
        stat(
            "Last look",
            "Time since the agent's last complete reading cycle. With its default interval of a second, ten are too "
            "many.",
            f"max({here('agent_last_cycle_age_seconds')})",
            "s",
            limits=steps((None, GREEN), (10, ORANGE), (30, RED)),
            trend=False,
        ),
        table(
            "Owner",
            "As its tags tell the controller, and since when its owner has a notice of a stop. `gpuwatch explain` says "
            "how the rules judge it.",
            [f"{_WHO} * on (node) group_left {_NOTICE} or {_WHO} * 0"],
            [
                Column(source="name", title="Name"),
                Column(source="node", title="Machine"),
                Column(source="pool", title="Pool"),
                Column(source="owner", title="Owner"),
                Column(source="instance_type", title="Type"),
                Column(
                    source="Value",
                    title="Notice given",
                    unit="dateTimeFromNow",
                    properties={"mappings": words({0: ("none", "text")})},
                ),
            ],
            width=24,
            height=4,
        ),
    ],
)

_WHY = Row(
    title="Activity and its reasons",
    panels=[
        timeline(
            "What each GPU did",
            "By the agent's verdict. Parked: memory held, nothing computed. Stalled: 100 % busy at idle power, a "
            "deadlock.",
            Query(expr=doing("gpu_activity", "uuid, gpu", "state", ANY_GPU), legend=_GPU),
            states(),
            width=8,
            height=6,
        ),
        timeline(
            "What people and programs on the host did",
            "The host's signals (docs/idle-detection.md). Any that is busy makes the machine busy; one that is unknown "
            "makes it unknown, unless another is busy.",
            Query(expr=doing("node_evidence", "signal", "says"), legend="{{signal}}"),
            words(_SAYS),
            width=8,
            height=6,
        ),
        table(
            "Busy last",
            "When each signal was busy last, since its agent started: the newest one began the idle time. `gpuwatch "
            "explain` names the process and the setting.",
            [f"max by (signal) ({here('node_last_busy_timestamp_seconds')}) * 1000"],
            [Column(source="signal", title="Signal"), Column(source="Value", title="Busy", unit="dateTimeFromNow")],
            width=4,
            height=6,
            sort="Busy",
        ),
        table(
            "Snoozes",
            "Taken with `gpuwatch snooze`: the machine is busy until they end.",
            [f"max by (user) ({here('snooze_expiry_timestamp_seconds')}) * 1000"],
            [Column(source="user", title="User"), Column(source="Value", title="Ends", unit="dateTimeFromNow")],
            width=4,
            height=6,
        ),
    ],
)

_GPUS = Row(
    title="GPUs",
    panels=[
        table(
            "GPUs",
            "What is true of each now. A GPU that cannot be read has no values.",
            [
                f"max by (uuid, gpu, name, driver_version, pci_bus_id) ({of_gpus('gpu_info')})",
                doing("gpu_activity", "uuid", "state", ANY_GPU),
                f"max by (uuid) ({of_gpus('gpu_idle_seconds')})",
                _health("uuid"),
                f"max by (uuid) ({of_gpus('gpu_utilization_ratio')})",
                f"max by (uuid) ({of_gpus('gpu_memory_used_bytes')} / {of_gpus('gpu_memory_total_bytes')})",
                f"max by (uuid) ({of_gpus('gpu_power_watts')})",
                f"max by (uuid) ({of_gpus('gpu_temperature_celsius')})",
                f"max by (uuid) ({of_gpus('gpu_processes')})",
            ],
            [
                Column(source="gpu", title="GPU", properties={"custom__width": 55}),
                Column(source="name", title="Name", properties={"custom__width": 160}),
                Column(
                    source="Value #B",
                    title="Activity",
                    properties={
                        "mappings": states(),
                        "custom__cellOptions": {"mode": "basic", "type": "color-background"},
                        "custom__width": 90,
                    },
                ),
                Column(source="Value #C", title="Idle for", unit="s"),
                Column(
                    source="Value #D",
                    title="Health",
                    properties={
                        "mappings": words(_SOUND),
                        "custom__cellOptions": {"type": "color-text"},
                        "custom__width": 90,
                    },
                ),
                Column(
                    source="Value #E",
                    title="Utilization",
                    unit="percentunit",
                    properties=filled(fixed(BLUE)),
                ),
                Column(
                    source="Value #F",
                    title="Memory",
                    unit="percentunit",
                    properties=filled(fixed(PURPLE)),
                ),
                Column(source="Value #G", title="Power", unit="watt"),
                Column(source="Value #H", title="Temperature", unit="celsius"),
                Column(source="Value #I", title="Processes"),
                Column(source="pci_bus_id", title="PCI", properties={"custom__width": 150}),
                Column(source="driver_version", title="Driver"),
                Column(source="uuid", title="UUID"),
            ],
            key="uuid",
            width=24,
            height=8,
            sort="GPU",
            ascending=True,
        ),
        series(
            "Utilization",
            "Share of time in which a kernel ran, exact over each interval; thin GPUs and full ones look alike, see "
            "the engines.",
            [Query(expr=rate(of_gpus("gpu_active_seconds_total")), legend=_GPU)],
            "percentunit",
            most=1,
            width=8,
        ),
        series(
            "Memory held",
            "By processes, without what the driver reserves.",
            [Query(expr=of_gpus("gpu_memory_used_bytes"), legend=_GPU)],
            "bytes",
            width=8,
        ),
        series(
            "Power",
            "From the driver's energy counter, exact over each interval.",
            [Query(expr=rate(of_gpus("gpu_energy_joules_total")), legend=_GPU)],
            "watt",
            width=8,
        ),
        series(
            "Temperature",
            "Core, and memory if the GPU reports it.",
            [
                Query(expr=of_gpus("gpu_temperature_celsius"), legend=_GPU),
                Query(expr=of_gpus("gpu_memory_temperature_celsius"), legend=f"{_GPU} memory"),
            ],
            "celsius",
            width=8,
        ),
        series(
            "Clocks",
            "Of the multiprocessors.",
            [Query(expr=of_gpus("gpu_sm_clock_hertz"), legend=_GPU)],
            "hertz",
            width=8,
        ),
        series(
            "Clocks held down",
            "Share of time by what did it: the power limit (sw_power_cap) is normal under load, heat and power brakes "
            "are not.",
            [Query(expr=rate(of_gpus("gpu_clock_event_seconds_total")), legend=f"{_GPU} {{{{event}}}}")],
            "percentunit",
            most=1,
            width=8,
        ),
    ],
)


def node() -> Json:
    """dashboards/node.json."""
    return board(
        "node",
        "One machine: every GPU, what it does and why, who uses it, how well it is. Needs its agent's metrics; its "
        "price is the controller's.",
        _VARIABLES,
        [_AT_A_GLANCE, _WHY, _GPUS, PROCESSES, HEALTH, *DETAILS],
        since="now-6h",
    )
