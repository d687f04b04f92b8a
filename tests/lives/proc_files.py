"""The text of one process's files in /proc, as Linux 6 writes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.lives.actors import UPTIME_SECONDS
from tests.lives.world import HOST_NETWORK, HOST_PIDS, Process

TICKS = 100
_PAGE_BYTES = 4096
_KERNEL_THREAD, _RANDOMISED, _FORKED = 0x00208040, 0x00400000, 0x40
_STATES = {"S": "sleeping", "R": "running", "D": "disk sleep", "T": "stopped", "t": "tracing stop", "Z": "zombie",
    "I": "idle"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kin:
    """Its place among the others: parent, session and group leader, and the group in its terminal's foreground."""

    parent: int
    session: int
    group: int
    foreground: int = -1


def tty_number(tty: str | None) -> int:
    """The device number of a terminal in /proc/PID/stat; 0 without one."""
    if tty is None:
        return 0
    if tty.startswith("pts/"):
        return (136 << 8) | int(tty[4:])
    return (4 << 8) | (64 + int(tty[4:]) if tty.startswith("ttyS") else int(tty[3:]))


def state_of(process: Process, moment: float) -> str:
    """The letter of its state: who uses much of a core is mostly found running."""
    actor = process.member.actor
    return "R" if actor.state == "S" and actor.cores.at(moment) / max(1, actor.threads) >= 0.5 else actor.state


def stat(process: Process, kin: Kin, used: Mapping[str, float], reaped_seconds: float, moment: float) -> str:
    """/proc/PID/stat."""
    actor = process.member.actor
    kernel = actor.place == "kernel"
    ticks = round(used["cores"] * TICKS)
    reaped = round(reaped_seconds * TICKS)
    started = round((UPTIME_SECONDS + process.begin) * TICKS)
    memory = 0 if kernel or actor.state == "Z" else 64 << 20
    major = 0
    tty = tty_number(actor.tty)
    words = (
        process.pid, f"({actor.comm})", state_of(process, moment), kin.parent, kin.group, kin.session, tty,
        kin.foreground, (_KERNEL_THREAD if kernel else _RANDOMISED) | (_FORKED if actor.forked else 0),
        round(used["faults"]) + (0 if kernel else 400), 0, major, 0, ticks - ticks // 5, ticks // 5,
        reaped - reaped // 5, reaped // 5, 20, 0, actor.threads, 0, started, memory, memory // _PAGE_BYTES // 2,
        18446744073709551615, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    )  # fmt: skip
    return " ".join(map(str, words)) + "\n"


def status(process: Process, kin: Kin, moment: float) -> str:
    """/proc/PID/status."""
    actor, member = process.member.actor, process.member
    letter = state_of(process, moment)
    inner = f"\t{inner_pid(process)}" if member.contained else ""
    lines = [
        f"Name:\t{actor.comm}",
        "Umask:\t0022",
        f"State:\t{letter} ({_STATES[letter]})",
        f"Tgid:\t{process.pid}",
        "Ngid:\t0",
        f"Pid:\t{process.pid}",
        f"PPid:\t{kin.parent}",
        f"TracerPid:\t{0 if actor.state != 't' else 1}",
        f"Uid:\t{member.uid}\t{member.uid}\t{member.uid}\t{member.uid}",
        f"Gid:\t{member.uid}\t{member.uid}\t{member.uid}\t{member.uid}",
        "FDSize:\t64",
        f"Groups:\t{member.uid} ",
        f"NStgid:\t{process.pid}{inner}",
        f"NSpid:\t{process.pid}{inner}",
        f"NSpgid:\t{process.pid}{inner}",
        f"NSsid:\t{kin.session}{inner}",
    ]
    if actor.place != "kernel" and actor.state != "Z":
        lines += ["VmPeak:\t   65536 kB", "VmSize:\t   65536 kB", "VmRSS:\t   32768 kB"]
    lines += [f"Threads:\t{actor.threads}", "SigQ:\t0/127000", "SigBlk:\t0000000000000000", "Seccomp:\t0"]
    return "\n".join(lines) + "\n"


def io(used: Mapping[str, float]) -> str:
    """/proc/PID/io: what goes over sockets is read and written, too."""
    read, write = round(used["read"]), round(used["write"])
    chars_in = read + round(used["rchar"] + used["net"])
    chars_out = write + round(used["wchar"] + used["send"])
    return (
        f"rchar: {chars_in}\nwchar: {chars_out}\nsyscr: {chars_in // 4096}\nsyscw: {chars_out // 4096}\n"
        f"read_bytes: {read}\nwrite_bytes: {write}\ncancelled_write_bytes: 0\n"
    )


def inner_pid(process: Process) -> int:
    """Its number in its own container: the first one there is 1."""
    return 1 + process.member.number % 97


def wchan(process: Process, kin: Kin) -> str:
    """/proc/PID/wchan: what a shell waits in at its prompt, for its child, or in a builtin."""
    actor = process.member.actor
    if not actor.asks:
        return "ep_poll"
    if kin.foreground not in {-1, kin.group}:
        return actor.waits or ("sigsuspend.isra.0" if actor.comm == "zsh" else "do_wait")
    return actor.waits or ("poll_schedule_timeout.constprop.0" if actor.exe.endswith("/bash") else "wait_woken")


def namespaces(process: Process) -> dict[str, str]:
    """The links in /proc/PID/ns."""
    member, number = process.member, process.member.namespace
    nested = member.contained
    return {
        "pid": f"pid:[{number}]" if nested else HOST_PIDS,
        "net": f"net:[{number + 40000}]" if member.own_network else HOST_NETWORK,
        "mnt": f"mnt:[{number + 80000}]" if nested else "mnt:[4026531841]",
        "uts": f"uts:[{number + 120000}]" if nested else "uts:[4026531838]",
        "ipc": f"ipc:[{number + 160000}]" if nested else "ipc:[4026531839]",
        "user": f"user:[{number + 200000}]" if member.actor.place.startswith("podman") else "user:[4026531837]",
        "cgroup": f"cgroup:[{number + 240000}]" if nested else "cgroup:[4026531835]",
    }


def cmdline(process: Process) -> bytes:
    """/proc/PID/cmdline; empty for kernel threads and zombies. Programs that rewrite theirs leave one long word."""
    actor = process.member.actor
    if not actor.cmdline or actor.state == "Z":
        return b""
    if ": " in actor.cmdline.partition(" ")[0] + " ":
        return actor.cmdline.encode() + b"\0"
    return actor.cmdline.replace(" ", "\0").encode() + b"\0"


def end(text: str) -> str:
    """ADDRESS:PORT as the kernel writes it in /proc/net/tcp, or tcp6 for an address in brackets."""
    address, _, port = text.rpartition(":")
    if address.startswith("["):
        return f"{'0' * 32}:{int(port):04X}" if address == "[::]" else f"{'0' * 24}01000000:{int(port):04X}"
    raw = bytes(int(each) for each in address.split("."))
    return f"{int.from_bytes(raw, 'little'):08X}:{int(port):04X}"


TCP_HEADER = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
    "                                                     \n"
)


def tcp_row(number: int, local: str, peer: str | None, uid: int, inode: int) -> str:
    """A row of /proc/net/tcp or tcp6: established with a peer, else listening."""
    wide = local.startswith("[")
    nobody = "[::]:0" if wide else "0.0.0.0:0"
    state = "0A" if peer is None else "01"
    return (
        f"{number:4d}: {end(local)} {end(peer or nobody)} {state} 00000000:00000000 00:00000000 00000000 "
        f"{uid:5d}        0 {inode} 1 0000000000000000 20 4 30 10 -1\n"
    )


def cards_text(cards: Sequence[tuple[str, int, int]], loopback: int = 0) -> str:
    """/proc/net/dev: name, bytes in and bytes out of each card; `loopback` packets over that one."""
    lines = ["Inter-|   Receive                                                |  Transmit\n"]
    lines.append(" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop\n")
    for card, got, sent in cards:
        more = loopback if card == "lo" else 0
        lines.append(f"{card:>6}: {got} {got // 900 + more} 0 0 0 0 0 0 {sent} {sent // 900 + more} 0 0 0 0 0 0\n")
    return "".join(lines)
