"""How the dashboards ask: which series count, and how an agent's series get the name of their machine.

Of several controllers on one ledger only the one that leads is believed: the others show old pictures. Nothing here
needs recording rules.
"""

from collections.abc import Callable

CONTROLLERS = 'job=~"$job", cluster=~"$cluster", fleet=~"$fleet"'
AGENTS = 'job=~"$agents", cluster=~"$cluster"'
HERE = 'job="$agent_job", cluster=~"$cluster", instance="$instance"'
IN_POOL = 'pool=~"$pool"'
LEADS = f"and on (cluster, fleet, job, instance) gpuwatch_controller_leader{{{CONTROLLERS}}} == 1"
WASTED = 'activity=~"idle|occupied|parked|stalled|down"'
ANY_GPU = 'gpu=~"$gpu|"'


def eq(label: str, value: str) -> str:
    """A matcher."""
    return f'{label}="{value}"'


def differs(label: str, value: str) -> str:
    """The same, of whatever else."""
    return f'{label}!="{value}"'


def of(label: str, values: str) -> str:
    """The same, of one of several, as `a|b` or a variable."""
    return f'{label}=~"{values}"'


def told(name: str, *matchers: str) -> str:
    """A controller's series, of whichever leads or does not: for counters, of which those that wait add nothing."""
    return f"gpuwatch_{name}{{{', '.join([CONTROLLERS, *matchers])}}}"


def led(name: str, *matchers: str) -> str:
    """The series of the leading controller."""
    return f"({told(name, *matchers)} {LEADS})"


def here(name: str, *matchers: str) -> str:
    """The series of the chosen machine's agent."""
    return f"gpuwatch_{name}{{{', '.join([HERE, *matchers])}}}"


def of_gpus(name: str, *matchers: str) -> str:
    """The series of the chosen GPUs. One that the driver no longer lists may have lost its index, and is shown."""
    return here(name, ANY_GPU, *matchers)


# One row for a machine, also where two fleets see it.
WHO = (
    "topk by (node) (1, max by (node, name, pool, owner, instance_type) "
    f'(label_replace({led("fleet_node_info", IN_POOL)}, "owner", "nobody", "owner", "")))'
)


def with_names(by_node: str) -> str:
    """What is known by machine, with its name, pool, owner and type; of the chosen pools."""
    return f"{by_node} * on (node) group_left (name, pool, owner, instance_type) {WHO}"


_NAMED = f'label_replace(gpuwatch_node_info{{{AGENTS}}}, "node", "$1", "node_id", "(.+)")'
_MACHINE = f"max by (cluster, job, instance, node) ({_NAMED})"


def on_machines(expression: str) -> str:
    """Agents' series with their machine's id, but of machines known to be in another pool or enrolled elsewhere."""
    others = led("fleet_node_info", 'pool!~"$pool"')
    elsewhere = 'gpuwatch_fleet_node_info{job=~"$job", cluster=~"$cluster", fleet!~"$fleet", enrolled="true"}'
    of_machines = f"({expression}) * on (cluster, job, instance) group_left (node) {_MACHINE}"
    return f"{of_machines} unless on (node) {others} unless on (node) {elsewhere}"


MACHINES = f"count({on_machines(_MACHINE)})"

# What a machine or a GPU does, as a number for timelines and tables; parts.DOING has the words.
_NUMBERS = {
    "busy": " * 5",
    "stalled": " * 4",
    "parked": " * 3",
    "occupied": " * 2",
    "idle": "",
    "unknown": " * 0",
}


def doing_by_node() -> str:
    """The controller's series for each machine."""
    each = (
        told("fleet_node_activity_info", IN_POOL, eq("activity", state)) + number for state, number in _NUMBERS.items()
    )
    return f"max by (node) (({' or '.join(each)}) {LEADS})"


def doing(name: str, by: str, label: str = "state", *matchers: str) -> str:
    """The chosen machine's agent's word: of its series one is 1."""
    each = (here(name, *matchers, eq(label, state)) + number for state, number in _NUMBERS.items())
    return f"sum by ({by}) ({' or '.join(each)})"


def wasted_by_node() -> str:
    """Dollars an hour of GPUs that are seen and of no use, by machine, with its name, pool and owner."""
    return with_names(f"max by (node) ({led('fleet_node_wasted_usd_per_hour')})")


def rate(series: str) -> str:
    """By the second."""
    return f"rate({series}[$__rate_interval])"


def quantile(part: float, buckets: str, *by: str) -> str:
    """What that part of a histogram's observations stayed below; nothing, and not NaN, where it had no new ones."""
    return f"histogram_quantile({part}, sum by ({', '.join((*by, 'le'))}) ({rate(buckets)})) >= 0"


def mean(name: str, series: Callable[[str], str]) -> str:
    """The mean of a histogram's observations; `series` makes a selector of a name."""
    return f"sum({rate(series(f'{name}_sum'))}) / (sum({rate(series(f'{name}_count'))}) > 0)"
