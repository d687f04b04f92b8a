"""Packets that the machine forwards for others: a VPN gateway, a router. No process and no connection shows them."""

from pathlib import Path

from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError
from gpuwatch.agent.evidence.files import read_small

LIMIT_PER_SECOND, SPAN_SECONDS = 5.0, 60.0


def forwarded_packets(roots: Roots) -> int | None:
    """Packets that were forwarded since the boot, IPv4 and IPv6; None where the kernel does not say."""
    counted = [_of_ipv4(roots.proc / "net/snmp"), _of_ipv6(roots.proc / "net/snmp6")]
    known = [each for each in counted if each is not None]
    return sum(known) if known else None


def for_others(now: Moment) -> bool:
    """Whether what is forwarded is other machines': a container's traffic is forwarded, too."""
    view = now.processes
    if view is None or view.doubt is not None:
        return False
    return all(
        each.placement.container_id is None and each.placement.pod_uid is None for each in view.processes.values()
    )


def _of_ipv4(path: Path) -> int | None:
    """`Ip:` in two lines, names and values (proc_pid_net(5))."""
    rows = [line.split() for line in _text(path).splitlines() if line.startswith("Ip: ")]
    if len(rows) != 2:  # noqa: PLR2004  names and values
        return None
    values = dict(zip(*rows, strict=False))
    return _number(values.get("ForwDatagrams", ""))


def _of_ipv6(path: Path) -> int | None:
    rows = (line.split() for line in _text(path).splitlines() if line.startswith("Ip6OutForwDatagrams"))
    return next((_number(row[1]) for row in rows if len(row) > 1), None)


def _text(path: Path) -> str:
    try:
        return read_small(path).text
    except (OSError, UnseenError):
        return ""


def _number(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdigit() else None
