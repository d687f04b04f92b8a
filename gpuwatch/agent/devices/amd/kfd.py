"""Who holds a GPU, as the kernel shows it: each process that has memory or a queue on it.

The library's list alone proves nothing: where reading fails, it is empty, and a process without a queue is not in it.
This list is complete for programs of ROCm, and readable by everybody. Programs that only draw or play video do not use
KFD, and are not in it.

Source: /sys/class/kfd/kfd, written by the kernel's drivers/gpu/drm/amd/amdkfd (kfd_process.c, kfd_topology.c).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

_KFD = "sys/class/kfd/kfd"


def gpu_ids(root: Path, bus: str) -> frozenset[str]:
    """KFD's numbers for the GPU at this address: several where it is partitioned, none where KFD does not know it."""
    domain, number, rest = bus.split(":")
    device = int(rest.partition(".")[0], 16)
    place = (int(domain, 16), int(number, 16), device)
    return frozenset(name for where, name in _topology(root) if where == place)


def holders(root: Path, ids: frozenset[str]) -> Mapping[int, int | None] | None:
    """The device memory in bytes by the pid of each process that holds one of these; None: the kernel does not show it.

    A process with a queue and no memory holds it, too. None as a size: a file of its own could not be read.
    """
    folder = root / _KFD / "proc"
    if not ids:
        return None
    try:
        processes = [entry for entry in folder.iterdir() if entry.name.isdecimal()]
    except OSError:
        return None
    found: dict[int, int | None] = {}
    for process in processes:
        size = _memory(process, ids)
        if size is None or size > 0 or _has_queue(process, ids):
            found[int(process.name)] = size
    return found


def _topology(root: Path) -> Iterator[tuple[tuple[int, int, int], str]]:
    """Domain, bus and device of each GPU that KFD knows, and its number."""
    try:
        nodes = sorted((root / _KFD / "topology/nodes").iterdir())
    except OSError:
        return
    for node in nodes:
        try:
            name = (node / "gpu_id").read_text(encoding="ascii").strip()
            lines = (node / "properties").read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):
            continue
        facts = dict(line.split(maxsplit=1) for line in lines if " " in line)
        location, domain = facts.get("location_id", ""), facts.get("domain", "0")
        if name not in {"", "0"} and location.isdecimal() and domain.isdecimal():  # 0: a processor
            yield (int(domain), int(location) >> 8 & 0xFF, int(location) >> 3 & 0x1F), name


def _memory(process: Path, ids: frozenset[str]) -> int | None:
    """Bytes on these GPUs; None where that cannot be read. A process that has just ended holds none."""
    total = 0
    for name in ids:
        try:
            total += int((process / f"vram_{name}").read_text(encoding="ascii"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            return None
    return total


def _has_queue(process: Path, ids: frozenset[str]) -> bool:
    """Whether it may send work to one of these GPUs; a process with unreadable queues may."""
    try:
        return any((queue / "gpuid").read_text(encoding="ascii").strip() in ids for queue in _list_queues(process))
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def _list_queues(process: Path) -> list[Path]:
    return list((process / "queues").iterdir())
