"""What is looked at more rarely of one machine: engines, links, limits, MIG and the agent itself; folded."""

from dashboards.source.parts import (
    GREEN,
    ORANGE,
    RED,
    Column,
    Query,
    Row,
    series,
    stat,
    steps,
    table,
    words,
)
from dashboards.source.queries import HERE, differs, here, of_gpus, quantile, rate

_GPU = "GPU {{gpu}}"

_ENGINES = Row(
    title="Engines",
    folded=True,
    panels=[
        series(
            "Multiprocessors, tensor cores and memory",
            "How much of the GPU is at work while a kernel runs (GPM: Hopper and newer).",
            [
                Query(expr=of_gpus("gpu_sm_activity_ratio"), legend=f"{_GPU} SM"),
                Query(expr=of_gpus("gpu_sm_occupancy_ratio"), legend=f"{_GPU} occupancy"),
                Query(expr=of_gpus("gpu_tensor_activity_ratio"), legend=f"{_GPU} tensor"),
                Query(expr=of_gpus("gpu_dram_activity_ratio"), legend=f"{_GPU} DRAM"),
            ],
            "percentunit",
            most=1,
            width=8,
        ),
        series(
            "Bursts",
            "The highest of the driver's samples in each reading cycle: a burst that no mean shows.",
            [Query(expr=of_gpus("gpu_utilization_max_ratio"), legend=_GPU)],
            "percentunit",
            most=1,
            width=8,
        ),
        series(
            "Memory traffic",
            "Share of time in which device memory was read or written; says nothing of how full it is.",
            [Query(expr=of_gpus("gpu_memory_bandwidth_utilization_ratio"), legend=_GPU)],
            "percentunit",
            most=1,
            width=8,
        ),
    ],
)

_LINKS = Row(
    title="Links, power and fans",
    folded=True,
    panels=[
        series(
            "PCIe",
            "Sent and received.",
            [
                Query(expr=rate(of_gpus("gpu_pcie_tx_bytes_total")), legend=f"{_GPU} sent"),
                Query(expr=rate(of_gpus("gpu_pcie_rx_bytes_total")), legend=f"{_GPU} received"),
            ],
            "Bps",
            width=8,
        ),
        series(
            "NVLink",
            "Over all links, without protocol overhead.",
            [
                Query(expr=rate(of_gpus("gpu_nvlink_tx_bytes_total")), legend=f"{_GPU} sent"),
                Query(expr=rate(of_gpus("gpu_nvlink_rx_bytes_total")), legend=f"{_GPU} received"),
            ],
            "Bps",
            width=8,
        ),
        series(
            "Power and its limit",
            "Drawn, and the limit in force.",
            [
                Query(expr=of_gpus("gpu_power_watts"), legend=_GPU),
                Query(expr=of_gpus("gpu_power_limit_watts"), legend=f"{_GPU} limit"),
            ],
            "watt",
        ),
        series(
            "Fans",
            "Intended speed, as a share of the maximum. Boards without fans have no value.",
            [Query(expr=of_gpus("gpu_fan_speed_ratio"), legend=_GPU)],
            "percentunit",
            most=1,
        ),
    ],
)


def _needs(*groups: str) -> str:
    """The end of a panel's description: the setting that its agent must have."""
    return f" Needs agent.metrics: [default, {', '.join(groups)}]."


_MORE = Row(
    title="More, with further groups of metrics",
    folded=True,
    panels=[
        series(
            "Arithmetic",
            "Share of time in operations of each precision outside of tensor cores, and in any (GPM: Hopper and "
            f"newer).{_needs('profiling_detail')}",
            [
                Query(expr=of_gpus("gpu_graphics_activity_ratio"), legend=f"{_GPU} any engine"),
                *(
                    Query(expr=of_gpus(f"gpu_fp{bits}_activity_ratio"), legend=f"{_GPU} FP{bits}")
                    for bits in (64, 32, 16)
                ),
            ],
            "percentunit",
            most=1,
            width=8,
        ),
        series(
            "Video, JPEG and optical flow",
            f"Share of time in which each of these engines was at work.{_needs('engines')}",
            [
                Query(expr=of_gpus(f"gpu_{engine}_utilization_ratio"), legend=f"{_GPU} {engine}")
                for engine in ("encoder", "decoder", "jpeg", "ofa")
            ],
            "percentunit",
            most=1,
            width=8,
        ),
        series(
            "Other clocks",
            f"Of memory, graphics and video.{_needs('clocks')}",
            [
                Query(expr=of_gpus(f"gpu_{clock}_clock_hertz"), legend=f"{_GPU} {clock}")
                for clock in ("memory", "graphics", "video")
            ],
            "hertz",
            width=8,
        ),
        table(
            "Links in use",
            "PCIe generation and lanes, and the most that GPU and slot could use. An idle link may fall back; fewer "
            f"lanes under load are a fault.{_needs('pcie_detail')}",
            [
                f"max by (uuid, gpu) ({of_gpus('gpu_pcie_link_generation')})",
                f"max by (uuid, gpu) ({of_gpus('gpu_pcie_link_generation_max')})",
                f"max by (uuid, gpu) ({of_gpus('gpu_pcie_link_width')})",
                f"max by (uuid, gpu) ({of_gpus('gpu_pcie_link_width_max')})",
            ],
            [
                Column(source="gpu", title="GPU"),
                Column(source="Value #A", title="Generation"),
                Column(source="Value #B", title="of"),
                Column(source="Value #C", title="Lanes"),
                Column(source="Value #D", title="of "),
            ],
            width=8,
            sort="GPU",
            ascending=True,
        ),
        series(
            "PCIe errors",
            f"By kind, as the driver counts them.{_needs('pcie_detail')}",
            [
                Query(
                    expr=f"sum by (gpu, kind) ({rate(of_gpus('gpu_pcie_errors_total'))}) > 0",
                    legend=f"{_GPU} {{{{kind}}}}",
                )
            ],
            "cps",
            width=8,
        ),
        series(
            "NVLink errors by link",
            f"Replays, recoveries and wrong checksums of each link.{_needs('nvlink_links')}",
            [
                Query(
                    expr=f"{rate(of_gpus(f'gpu_nvlink_{kind}_errors_total'))} > 0",
                    legend=f"{_GPU} link {{{{link}}}} {kind}",
                )
                for kind in ("replay", "recovery", "crc")
            ],
            "cps",
            width=8,
        ),
    ],
)

_INSTANCE = "on (cluster, job, instance, uuid, gpu_instance) group_left (profile)"
_PROFILE = f"max by (cluster, job, instance, uuid, gpu_instance, profile) ({of_gpus('mig_info')})"
_MIG = Row(
    title="MIG instances",
    folded=True,
    panels=[
        series(
            "Activity",
            "Share of the multiprocessors of each GPU instance at work (GPM: Hopper and newer).",
            [
                Query(
                    expr=f"{of_gpus('mig_sm_activity_ratio')} * {_INSTANCE} {_PROFILE}",
                    legend=f"{_GPU}/{{{{gpu_instance}}}} {{{{profile}}}}",
                )
            ],
            "percentunit",
            most=1,
        ),
        series(
            "Memory in use",
            "Of each GPU instance.",
            [
                Query(
                    expr=f"{of_gpus('mig_memory_used_bytes')} * {_INSTANCE} {_PROFILE}",
                    legend=f"{_GPU}/{{{{gpu_instance}}}} {{{{profile}}}}",
                )
            ],
            "bytes",
        ),
    ],
)

_WHETHER = words({0: ("no", RED), 1: ("yes", GREEN)})
_AGENT = Row(
    title="The agent and its cloud",
    folded=True,
    panels=[
        stat(
            "Probe reads",
            "Whether the probe reads the GPUs; if not, /healthz says why.",
            f"min({here('probe_up')})",
            "none",
            mappings=_WHETHER,
            trend=False,
            width=4,
        ),
        stat(
            "Kernel log is read",
            "If not, XIDs come from NVML alone.",
            f"min({here('agent_kernel_log_up')})",
            "none",
            mappings=_WHETHER,
            trend=False,
            width=4,
        ),
        stat(
            "Cloud's metadata answer",
            "If not, a notice may stand unknown.",
            f"min({here('instance_metadata_up')})",
            "none",
            mappings=_WHETHER,
            trend=False,
            width=4,
        ),
        stat(
            "Probes replaced",
            "Since the agent started, for hangs, exits and garbage; those replaced on purpose are not counted.",
            f"sum({here('probe_restarts_total', differs('cause', 'renew'))})",
            "none",
            limits=steps((None, GREEN), (1, ORANGE)),
            width=4,
        ),
        stat(
            "Agent's memory",
            "Resident, without its probe.",
            f"max(process_resident_memory_bytes{{{HERE}}})",
            "bytes",
            width=4,
        ),
        stat(
            "Agent's processor time",
            "Part of one core, without its probe.",
            f"max(rate(process_cpu_seconds_total{{{HERE}}}[$__rate_interval]))",
            "percentunit",
            width=4,
        ),
        series(
            "Reading cycle",
            "What complete cycles take, and pages for scrapes to make: what 50 and 99 of 100 stay below.",
            [
                *(
                    Query(expr=quantile(part, here("agent_cycle_duration_seconds_bucket")), legend=f"cycle {legend}")
                    for part, legend in ((0.5, "p50"), (0.99, "p99"))
                ),
                Query(expr=quantile(0.99, here("agent_scrape_duration_seconds_bucket")), legend="page p99"),
            ],
            "s",
            width=6,
        ),
        table(
            "The agent cannot see",
            "Each thing that it does not see of its host; `gpuwatch doctor agent` has the remedies.",
            [f"max by (what) ({here('agent_blind_info')})"],
            [Column(source="what", title="What")],
            width=4,
        ),
        table(
            "The machine to its cloud",
            "As the cloud's metadata service says it.",
            [f"max by (provider, instance_id, instance_type, region, zone, lifecycle) ({here('instance_info')})"],
            [
                Column(source="provider", title="Cloud"),
                Column(source="instance_id", title="Id", properties={"custom__width": 175}),
                Column(source="instance_type", title="Type"),
                Column(source="zone", title="Zone"),
                Column(source="lifecycle", title="Bought as"),
            ],
            width=8,
        ),
        table(
            "Notices of the cloud",
            "What it is about to do to the machine, and when.",
            [
                f"max by (kind, action) ({here('instance_notice_info')})",
                f"max by (kind, action) ({here('instance_notice_deadline_timestamp_seconds')}) * 1000",
            ],
            [
                Column(source="kind", title="Notice"),
                Column(source="action", title="What will be done"),
                Column(source="Value #B", title="When", unit="dateTimeFromNow"),
            ],
            width=6,
        ),
    ],
)

DETAILS = (_ENGINES, _LINKS, _MIG, _AGENT, _MORE)
