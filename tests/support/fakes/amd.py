"""A host with AMD GPUs for tests: a root with ROCm's binding (a stand-in), the kernel's PCI devices and its KFD.

    host = AmdHost(tmp_path, gpus=2)
    host.gpu(0).answer("amdsmi_get_gpu_activity", gfx_activity=37)
    subprocess.run([..., "probe", "--once", "--root", str(host.root)], env=host.environment)

Every change takes effect at the next call of every process that uses it. Values are of an MI300X at rest.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, Self

import pytest

from gpuwatch.agent.devices.amd import AmdSource
from gpuwatch.runtime.clock import Clock

BUSY, FILE_ERROR, INVAL, NO_PERM, NOT_INIT, NOT_SUPPORTED = 30, 14, 1, 10, 32, 2
DRIVER_NOT_LOADED, UNEXPECTED_DATA, OUT_OF_RESOURCES = 34, 43, 15
NA = "N/A"
MIB = 1024 * 1024

_BINDING = Path(__file__).parent / "amdsmi_stub/amdsmi"


def mi300x(slot: int) -> dict[str, Any]:
    """What one GPU at rest answers, with the keys and the units of ROCm 7.0's binding."""
    return {
        "amdsmi_get_gpu_device_bdf": f"0000:{slot + 5:02x}:00.0",
        "amdsmi_get_gpu_device_uuid": f"a5ff74a1-0000-1000-80{slot:02x}-000000000000",
        "amdsmi_get_gpu_asic_info": {"market_name": "AMD Instinct MI300X", "asic_serial": f"0x{slot:016X}"},
        "amdsmi_get_gpu_board_info": {"product_serial": f"69242300{slot:04d}", "product_name": "AMD Instinct MI300X"},
        "amdsmi_get_gpu_vbios_info": {"part_number": "113-M3000100-102", "version": "022.040.003.042.000001"},
        "amdsmi_get_gpu_driver_info": {"driver_name": "amdgpu", "driver_version": "6.14.14"},
        "amdsmi_get_gpu_activity": {"gfx_activity": 0, "umc_activity": 0, "mm_activity": NA},
        "amdsmi_get_gpu_vram_usage": {"vram_total": 196_592, "vram_used": 283},
        "amdsmi_get_temp_metric": {"HOTSPOT.CURRENT": 41, "HOTSPOT.CRITICAL": 100, "VRAM.CURRENT": 36},
        "amdsmi_get_power_info": {
            "socket_power": 141,
            "current_socket_power": 141,
            "average_socket_power": NA,
            "power_limit": 750_000_000,
        },
        "amdsmi_get_power_cap_info": {
            "power_cap": 750_000_000,
            "default_power_cap": 750_000_000,
            "min_power_cap": 0,
            "max_power_cap": 750_000_000,
        },
        "amdsmi_get_energy_count": {"energy_accumulator": 1_000_000_000, "counter_resolution": 15.25, "timestamp": 1},
        "amdsmi_get_clock_info": {
            "0": {"clk": 132, "min_clk": 132, "max_clk": 2100},
            "4": {"clk": 900, "min_clk": 900, "max_clk": 1300},
            "6": {"clk": 29, "min_clk": 29, "max_clk": NA},
        },
        "amdsmi_get_pcie_info": {
            "pcie_static": {"max_pcie_width": 16, "max_pcie_speed": 32000, "pcie_interface_version": 5},
            "pcie_metric": {"pcie_width": 16, "pcie_speed": 32000, "pcie_replay_count": 0},
        },
        "amdsmi_get_gpu_ecc_enabled": 1,
        "amdsmi_get_gpu_total_ecc_count": {"correctable_count": 0, "uncorrectable_count": 0, "deferred_count": 0},
        "amdsmi_get_gpu_metrics_info": {
            "vcn_activity": [0, 0, 0, 0],
            "jpeg_activity": [0] * 32,
            "xcp_stats.gfx_busy_inst": [[0] * 8] + [[NA] * 8] * 7,
        },
        "amdsmi_get_gpu_process_list": [],
    }


class AmdGpu:
    """One slot of the host; its methods return it, so that they chain."""

    def __init__(self, host: "AmdHost", slot: int) -> None:
        """`slot` counts in the library's order."""
        self._host, self._entry = host, host.state["gpus"][slot]
        self._kfd_id = str(1000 + slot)

    def answer(self, function: str, value: object = None, **keys: object) -> Self:
        """Let a function answer this, or these keys beside the others that it has."""
        answers = self._entry["answers"]
        answers[function] = {**answers.get(function, {}), **keys} if keys else value
        return self._saved()

    def lacks(self, *functions: str) -> Self:
        """Let functions be unsupported."""
        for function in functions:
            self._entry["answers"].pop(function, None)
        return self._saved()

    def error(self, code: int, *functions: str) -> Self:
        """Let functions fail; without names all of them, but for who and where the GPU is."""
        every = [name for name in self._entry["answers"] if not name.endswith(("_bdf", "_uuid"))]
        self._entry["errors"] = dict.fromkeys(functions or every, code)
        return self._saved()

    def heal(self) -> Self:
        """No error any more."""
        self._entry["errors"] = {}
        return self._saved()

    def hang(self, *functions: str) -> Self:
        """Let functions never return."""
        self._entry["blocks"] = list(functions)
        return self._saved()

    def process(self, pid: int, memory_bytes: int, *, listed: bool = True, kernel: bool = True) -> Self:
        """A process with memory and a queue: in the library's list, in the kernel's, or in one of the two."""
        if listed:
            usage = {"gtt_mem": 0, "cpu_mem": 2 * MIB, "vram_mem": memory_bytes}
            row = {"name": "python3", "pid": pid, "mem": memory_bytes + 2 * MIB, "memory_usage": usage}
            self._entry["answers"]["amdsmi_get_gpu_process_list"].append(row)
        if kernel:
            self._host.in_kfd(pid, self._kfd_id, memory_bytes)
        return self._saved()

    def in_use(self, memory_bytes: int) -> Self:
        """Device memory in use, the driver's own included."""
        return self.answer("amdsmi_get_gpu_vram_usage", vram_used=memory_bytes // MIB)

    def kernel_busy(self, text: str) -> Self:
        """What the kernel's own gpu_busy_percent says."""
        address = self._entry["answers"]["amdsmi_get_gpu_device_bdf"]
        file = self._host.root / "sys/bus/pci/devices" / address / "gpu_busy_percent"
        file.write_text(text, encoding="ascii")
        return self

    def _saved(self) -> Self:
        self._host.save()
        return self


class AmdHost:
    """A root directory as the agent sees it, and what ROCm's binding answers there."""

    def __init__(self, folder: Path, gpus: int = 1, *, binding: bool = True) -> None:
        """GPUs at rest at 0000:05:00.0 and after; without `binding` ROCm is not installed."""
        self.root = folder / "root"
        self.state_file = folder / "amdsmi.json"
        self.state: dict[str, Any] = {"gpus": [{"answers": mi300x(slot)} for slot in range(gpus)]}
        if binding:
            place = self.root / "opt/rocm/share/amd_smi"
            place.mkdir(parents=True)
            (place / "amdsmi").symlink_to(_BINDING)
        (self.root / "sys/class/kfd/kfd/proc").mkdir(parents=True)
        for slot in range(gpus):
            self.pci(f"0000:{slot + 5:02x}:00.0")
            self.kfd_node(slot, f"{1000 + slot}", location=slot + 5 << 8)
        self.save()

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that shall use it; it finds nobody else's ROCm."""
        others = {name: value for name, value in os.environ.items() if name not in {"ROCM_HOME", "ROCM_PATH"}}
        return {**others, "AMDSMI_STUB": str(self.state_file)}

    def gpu(self, slot: int = 0) -> AmdGpu:
        """One GPU, to be changed."""
        return AmdGpu(self, slot)

    def set(self, **facts: object) -> None:
        """Set facts of the library: library, init_error, init_blocks, noise."""
        self.state.update(facts)
        self.save()

    def unplug(self, slot: int) -> None:
        """Take a GPU away from the library and from the bus."""
        gone = self.state["gpus"].pop(slot)
        self.off_the_bus(gone["answers"]["amdsmi_get_gpu_device_bdf"])
        self.save()

    def off_the_bus(self, address: str) -> None:
        """Let the kernel lose a PCI device."""
        folder = self.root / "sys/bus/pci/devices" / address
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    def pci(
        self, address: str, vendor: str = "0x1002", kind: str = "0x120000", driver: str | None = "amdgpu", vram: int = 0
    ) -> None:
        """A PCI device."""
        folder = self.root / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n", encoding="ascii")
        (folder / "class").write_text(f"{kind}\n", encoding="ascii")
        if vram:
            (folder / "mem_info_vram_total").write_text(f"{vram}\n", encoding="ascii")
        if driver is not None:
            (folder / "driver").symlink_to(Path("../../../bus/pci/drivers") / driver)

    def kfd_node(self, node: int, gpu_id: str, *, location: int, domain: int = 0) -> None:
        """A node of KFD's topology."""
        folder = self.root / f"sys/class/kfd/kfd/topology/nodes/{node}"
        folder.mkdir(parents=True)
        (folder / "gpu_id").write_text(f"{gpu_id}\n", encoding="ascii")
        lines = ("cpu_cores_count 0", "simd_count 1216", f"location_id {location}", f"domain {domain}")
        (folder / "properties").write_text("\n".join(lines) + "\n", encoding="ascii")

    def in_kfd(self, pid: int, gpu_id: str, memory_bytes: int, *, queue: bool = True) -> None:
        """A process in the kernel's list, as kfd_process.c shows it."""
        folder = self.root / f"sys/class/kfd/kfd/proc/{pid}"
        (folder / "queues").mkdir(parents=True, exist_ok=True)
        (folder / f"vram_{gpu_id}").write_text(f"{memory_bytes}\n", encoding="ascii")
        if queue:
            (folder / "queues/0").mkdir(exist_ok=True)
            (folder / "queues/0/gpuid").write_text(f"{gpu_id}\n", encoding="ascii")

    def save(self) -> None:
        """Let every process see it, in one step."""
        fresh = self.state_file.with_suffix(".new")
        fresh.write_text(json.dumps(self.state), encoding="utf-8")
        fresh.replace(self.state_file)


def amd_source(host: AmdHost, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> AmdSource:
    """The real source on that host, in this process, which then is in the host's PID namespace."""
    for name in ("ROCM_HOME", "ROCM_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AMDSMI_STUB", str(host.state_file))
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    monkeypatch.setattr("gpuwatch.agent.devices.amd.processes.in_host_pids", lambda: True)
    return AmdSource(clock, root=host.root)
