"""agent/compat: the host as nvitop-exporter shows it."""

import os
from pathlib import Path

import pytest

from gpuwatch.agent.exporter.compat import load
from gpuwatch.agent.exporter.compat.host import HostFigures
from tests.support.builders.compat_pages import FULL, MIB, Page

# One with a space in its name, that again elsewhere, one that is gone, what hangs with its server, one out of sight.
MOUNTS = """\
overlay / overlay rw 0 0
proc /proc proc rw 0 0
/dev/nvme0n1 {root}/a\\040disk ext4 rw 0 0
/dev/nvme0n1 {root}/bound xfs rw 0 0
/dev/nvme2n1 {root}/gone ext4 rw 0 0
server:/home {root}/home nfs4 rw 0 0
/dev/nvme1n1 {root}/home/scratch ext4 rw 0 0
/dev/sda1 {root}/covered ext4 rw 0 0
tmpfs {root}/covered tmpfs rw 0 0
"""
A_DISK = "a disk"


def _a_host(root: Path, *, busy: int, idle: int) -> HostFigures:
    """/proc and /sys of a small machine whose CPU spent so many ticks."""
    files = {
        "proc/uptime": "86400.25 170000.00\n",
        "proc/stat": f"cpu  {busy} 0 0 {idle} 0 0 0 0 999 0\ncpu0 1 2 3\n",
        "proc/meminfo": "MemTotal: 4096 kB\nMemFree: 1024 kB\nMemAvailable: 3072 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
        "proc/loadavg": "0.50 1.25 2.00 1/100 4711\n",
        "proc/net/dev": "head\nhead\n"
        " ens5: 1048576 10 0 0 0 0 0 0 2097152 20 0 0 0 0 0 0\n  lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n",
        "proc/diskstats": "259 0 nvme0n1 1 0 2048 0 1 0 4096 0 0 0 0\n259 1 nvme0n1p1 1 0 2048 0 1 0 4096 0 0 0 0\n",
        "proc/self/mounts": MOUNTS.format(root=str(root).replace(" ", "\\040")),
        "sys/class/net/ens5/device": "",
        "sys/class/net/lo/flags": "",
        "sys/block/nvme0n1/device": "",
    }
    for folder in (A_DISK, "bound", "home/scratch", "covered"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return HostFigures(root / "proc", root / "sys")


HOST = {
    "host_uptime_Second": ({}, 86400.25),
    "host_cpu_percent_Percentage": ({}, 75.0),
    "host_virtual_memory_total_MiB": ({}, 4.0),
    "host_virtual_memory_used_MiB": ({}, 1.0),
    "host_virtual_memory_free_MiB": ({}, 1.0),
    "host_virtual_memory_percent_Percentage": ({}, 25.0),
    "host_swap_memory_total_MiB": ({}, 0.0),
    "host_swap_memory_used_MiB": ({}, 0.0),
    "host_swap_memory_free_MiB": ({}, 0.0),
    "host_swap_memory_percent_Percentage": ({}, 0.0),
    "host_load_average_1m_Percentage": ({}, 0.5),
    "host_load_average_5m_Percentage": ({}, 1.25),
    "host_load_average_15m_Percentage": ({}, 2.0),
    "host_net_io_rx_data_MiB": ({"interface": "ens5"}, 1.0),
    "host_net_io_tx_data_MiB": ({"interface": "ens5"}, 2.0),
    "host_net_io_rx_packets_Packet": ({"interface": "ens5"}, 10.0),
    "host_net_io_tx_packets_Packet": ({"interface": "ens5"}, 20.0),
    "host_disk_io_read_data_MiB": ({"partition": "nvme0n1"}, 1.0),
    "host_disk_io_write_data_MiB": ({"partition": "nvme0n1"}, 2.0),
}
DISK_USAGE = (
    "host_disk_usage_total_MiB",
    "host_disk_usage_used_MiB",
    "host_disk_usage_free_MiB",
    "host_disk_usage_percent_Percentage",
)


@pytest.mark.parametrize("name", HOST)
def test_nvitop_shows_the_host(name: str, tmp_path: Path) -> None:
    """Each figure with the host's name; CPU use between two pages; real cards and whole disks only."""
    figures = _a_host(tmp_path, busy=100, idle=100)
    page = Page("nvitop", host=figures).cycle(FULL)
    assert page.samples("host_cpu_percent_Percentage") == []

    _a_host(tmp_path, busy=400, idle=200)

    labels, value = HOST[name]
    assert page.cycle(FULL).samples(name) == [({"hostname": "node-7", **labels}, value)]


def test_nvitop_shows_local_file_systems(tmp_path: Path) -> None:
    """Each once, as df has it; none on a network, beneath one, or under another: a look at them could hang the page."""
    page = Page("nvitop", host=_a_host(tmp_path, busy=1, idle=1)).cycle(FULL)
    truth = os.statvfs(tmp_path)
    found = {name: page.samples(name) for name in DISK_USAGE}
    total, used, free, percent = (samples[0][1] for samples in found.values())

    for name, samples in found.items():
        assert [labels for labels, _ in samples] == [{"hostname": "node-7", "mountpoint": str(tmp_path / A_DISK)}], name
    assert total == truth.f_blocks * truth.f_frsize / MIB
    assert used + free <= total
    assert free == pytest.approx(truth.f_bavail * truth.f_frsize / MIB, rel=0.02)  # others write there meanwhile
    assert percent == pytest.approx(100 * used / (used + free), abs=0.1)


def test_every_host_figure_is_tested() -> None:
    """A new one is a new line above."""
    names = {family.name for family in load("nvitop").families if family.name.startswith("host_")}

    assert names == HOST.keys() | set(DISK_USAGE)


def test_a_host_that_cannot_be_read_costs_its_figures_only(tmp_path: Path) -> None:
    """A missing file and a broken one leave out what they would say; the rest is there."""
    figures = _a_host(tmp_path, busy=1, idle=1)
    (tmp_path / "proc/meminfo").unlink()
    (tmp_path / "proc/net/dev").write_text("head\nhead\n ens5: broken\n", encoding="ascii")
    page = Page("nvitop", host=figures).cycle(FULL)

    assert page.samples("host_virtual_memory_total_MiB") == []
    assert page.samples("host_net_io_rx_data_MiB") == []
    assert len(page.samples("host_uptime_Second")) == 1
    assert len(page.samples("gpu_temperature_C")) == 1


def test_this_host_can_be_read() -> None:
    """The real /proc has what the figures need."""
    figures = HostFigures()
    names = {name for name, _, _ in [*figures(), *figures()]}

    assert {"host_uptime_Second", "host_virtual_memory_total_MiB", "host_load_average_1m_Percentage"} <= names
