"""Who uses one machine's GPUs, and what is wrong with them."""

from dashboards.source.parts import (
    DARK,
    GREEN,
    ORANGE,
    RED,
    Column,
    Query,
    Row,
    bars,
    series,
    stat,
    steps,
    table,
    words,
)
from dashboards.source.queries import of_gpus, rate

_GPU = "GPU {{gpu}}"

_WHOSE = "user, systemd_unit, slurm_job, namespace, pod, container"
_INFO, _HELD = of_gpus("process_info"), of_gpus("process_memory_bytes")
_NAMED = f"{_HELD} * on (cluster, job, instance, uuid, pid) group_left ({_WHOSE}) {_INFO}"
_NAMELESS = f"{_HELD} unless on (cluster, job, instance, uuid, pid) {_INFO}"
_SICK = f"max by (gpu, uuid, code, remedy) ({of_gpus('gpu_health_cause_info')})"
_DOWN = f"""max by (gpu, uuid, code) (label_replace({of_gpus("gpu_down_info")}, "code", "$1", "cause", "(.+)"))"""
_REPLACED = f"{of_gpus('gpu_remapped_rows_total')} or {of_gpus('gpu_retired_pages_total')}"
# Memory of dead processes is part of what the others hold: a line, and not one more layer.
_APART = {
    "matcher": {"id": "byFrameRefID", "options": "C"},
    "properties": [
        {"id": "custom.stacking", "value": {"group": "A", "mode": "none"}},
        {"id": "custom.fillOpacity", "value": 0},
        {"id": "custom.lineWidth", "value": 2},
    ],
}

PROCESSES = Row(
    title="Processes",
    panels=[
        table(
            "Processes",
            "The largest processes of each GPU and their owners. No command lines: they often hold secrets.",
            [f"max by (gpu, pid, {_WHOSE}) ({_NAMED} or {_NAMELESS})"],
            [
                Column(source="gpu", title="GPU", properties={"custom__width": 55}),
                Column(source="pid", title="PID"),
                Column(source="user", title="User"),
                Column(source="systemd_unit", title="Unit"),
                Column(source="slurm_job", title="Slurm job"),
                Column(source="namespace", title="Namespace"),
                Column(source="pod", title="Pod"),
                Column(source="container", title="Container"),
                Column(source="Value", title="Memory", unit="bytes"),
            ],
            width=14,
            sort="Memory",
        ),
        series(
            "Memory by process",
            "The largest processes; the rest of each GPU together.",
            [
                Query(expr=of_gpus("process_memory_bytes"), legend=f"{_GPU} PID {{{{pid}}}}"),
                Query(expr=f"{of_gpus('process_memory_other_bytes')} > 0", legend=f"{_GPU} others"),
                Query(expr=f"{of_gpus('gpu_dead_process_memory_bytes')} > 0", legend=f"{_GPU} dead processes"),
            ],
            "bytes",
            width=10,
            stacked=True,
            overrides=[_APART],
        ),
    ],
)

HEALTH = Row(
    title="Health",
    panels=[
        table(
            "What is wrong",
            "Each cause and its remedy (docs/health.md), and why a GPU cannot be read.",
            [f"{_SICK} or {_DOWN}"],
            [
                Column(source="gpu", title="GPU", properties={"custom__width": 55}),
                Column(source="code", title="Cause"),
                Column(source="remedy", title="Remedy"),
                Column(source="uuid", title="UUID"),
            ],
            width=9,
            sort="GPU",
            ascending=True,
        ),
        table(
            "XID errors",
            "What the driver reported, as far back as the kernel's log reaches.",
            [
                f"max by (gpu, xid) ({of_gpus('gpu_xid_errors_total')})",
                f"max by (gpu, xid) ({of_gpus('gpu_xid_last_seen_timestamp_seconds')}) * 1000",
            ],
            [
                Column(source="gpu", title="GPU", properties={"custom__width": 55}),
                Column(source="xid", title="XID"),
                Column(source="Value #A", title="How often"),
                Column(source="Value #B", title="Last", unit="dateTimeFromNow"),
            ],
            width=6,
            sort="Last",
        ),
        series(
            "Memory errors",
            "New errors: corrected ones are normal in small numbers, uncorrectable ones end programs.",
            [
                Query(
                    expr=f"increase({of_gpus('gpu_ecc_corrected_volatile_errors_total')}[$__rate_interval])",
                    legend=f"{_GPU} corrected",
                ),
                Query(
                    expr=f"increase({of_gpus('gpu_ecc_uncorrected_volatile_errors_total')}[$__rate_interval])",
                    legend=f"{_GPU} uncorrectable",
                ),
            ],
            "none",
            width=9,
        ),
        bars(
            "Memory replaced",
            "Rows remapped and pages retired over the board's life, by cause; with a reset still to come, or with none "
            "left (failure) the health says so.",
            Query(
                expr=f"sum by (gpu, cause) ({_REPLACED})",
                legend=f"{_GPU} {{{{cause}}}}",
                now=True,
            ),
            "none",
            limits=steps((None, GREEN), (1, ORANGE)),
            width=8,
        ),
        series(
            "Link errors",
            "PCIe packets sent again; NVLink errors over all links.",
            [
                Query(expr=rate(of_gpus("gpu_pcie_replays_total")), legend=f"{_GPU} PCIe replays"),
                Query(
                    expr=f"sum by (gpu, kind) ({rate(of_gpus('gpu_nvlink_errors_total'))})",
                    legend=f"{_GPU} NVLink {{{{kind}}}}",
                ),
            ],
            "cps",
            width=8,
        ),
        stat(
            "Driver asks for",
            "The recovery action that the driver asks for, of the GPU that asks for most.",
            f"max({of_gpus('gpu_recovery_action')})",
            "none",
            mappings=words(
                {
                    0: ("nothing", GREEN),
                    1: ("reset", ORANGE),
                    2: ("reboot", RED),
                    3: ("drain_p2p", ORANGE),
                    4: ("drain_and_reset", ORANGE),
                    5: ("recover_imex_domain", ORANGE),
                    6: ("bus_reset", RED),
                    7: ("system_reboot", DARK),
                }
            ),
            trend=False,
            width=4,
            height=8,
        ),
        stat(
            "Rows to be replaced",
            "GPUs of which memory rows or pages wait for a reset.",
            f"sum({of_gpus('gpu_remapped_rows_pending')} or {of_gpus('gpu_retired_pages_pending')})",
            "none",
            limits=steps((None, GREEN), (1, ORANGE)),
            trend=False,
            width=4,
            height=8,
        ),
    ],
)
