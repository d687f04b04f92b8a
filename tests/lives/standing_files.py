"""What of a made host hardly changes: users, units, crontabs, disks, cards, mounts, and the fabric's counters."""

import os
from collections.abc import Mapping
from typing import Any

from tests.lives.actors import UPTIME_SECONDS
from tests.lives.folder import BEGIN_UNIX, Folder
from tests.lives.rates import LifeError, duration, rate
from tests.lives.story import Life, connection_of
from tests.lives.world import HOST_NETWORK, HOST_PIDS, World, pod_uid

_PLACES = {"shipped": "/usr/lib/systemd/system", "admin": "/etc/systemd/system", "transient": "/run/systemd/transient"}
_SECTOR = 512
_A_FLOW = "src=10.0.1.5 dst=10.0.0.2 sport=40122 dport=443 src=10.0.0.2 dst=10.0.1.5 sport=443 dport=40122"
_FLOW_SECONDS, _TOLD_SECONDS = 119, 29  # nf_conntrack_udp_timeout_stream, nf_conntrack_udp_timeout
_DISK_BYTES, _LOCAL_BYTES = 200 << 30, 600 << 30
_BOOT_ID = "3d6f0c1e-74a5-4a43-9b1e-1f0a9e6f7d11"
_IB_WORD_BYTES = 4  # port_xmit_data counts words


class StandingFiles:
    """Writes them once; `show` renews the few that count."""

    def __init__(self, life: Life, folder: Folder) -> None:
        """Nothing is written yet."""
        self._life = life
        self._at = folder
        self._rdma = {name: (rate(value.get("in")), rate(value.get("out"))) for name, value in life.rdma.items()}
        local = "31 30 259:4 / /mnt/scratch rw,relatime shared:2 - ext4 /dev/nvme1n1 rw\n"
        self.mountinfo = (
            "30 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw,discard\n"
            "24 30 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw\n"
            "25 30 0:23 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw\n"
            "26 30 0:5 / /dev rw,nosuid,relatime shared:3 - devtmpfs udev rw,size=16G\n"
            "28 30 0:25 / /run rw,nosuid,nodev,noexec,relatime shared:5 - tmpfs tmpfs rw\n"
            "35 24 0:29 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw\n"
        ) + (local if life.instance_store == "used" else "")

    def write(self) -> None:
        """Everything."""
        self._kernel()
        self._users()
        for name, about in self._life.units.items():
            self._unit(name, about if isinstance(about, Mapping) else {"from": about})
        for name, about in self._life.files.items():
            told = about if isinstance(about, Mapping) else {"text": about}
            owner = self._life.users[told.get("user", "root")]
            self._at.put(name, str(told.get("text", "")), uid=owner)
            if str(told.get("text", "")).startswith("#!"):  # atd and cron run only what may be executed
                (self._at.root / name.lstrip("/")).chmod(0o700 if "/atjobs/" in name else 0o755)
            stamp = BEGIN_UNIX + duration(told.get("written", "-2d"))
            os.utime(self._at.root / name.lstrip("/"), (stamp, stamp))
        for name, target in self._life.links.items():
            self._at.link(name, target)
        for actor in self._life.cast:
            if actor.place.startswith("pod "):
                namespace, pod, _ = actor.place.removeprefix("pod ").split("/")
                self._at.folder(f"/var/log/pods/{namespace}_{pod}_{pod_uid(f'{namespace}/{pod}')}")
        self._devices()
        if self._life.datagrams:
            text = "Local:\n     |-- 10.0.1.5\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n"
            self._at.put("/proc/net/fib_trie", text)
            bound = {
                int(each.split()[1].rpartition(":")[2]) for each in self._life.datagrams if each.startswith("tells ")
            }
            rows = "".join(
                f"  {port}: 00000000:{port:04X} 00000000:0000 07 00000000:00000000 00:00000000\n"
                for port in sorted(bound)
            )
            self._at.put(
                "/proc/net/udp", f"   sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n{rows}"
            )
        self.show(0.0)

    def show(self, moment: float) -> None:
        """The counters of RDMA cards, and of packets that are passed on."""
        passed = round(self._life.forwards.total(-UPTIME_SECONDS, moment))
        came, went, heard = self._life.udp.counts(moment)
        udp = f"Udp: InDatagrams NoPorts InErrors OutDatagrams\nUdp: {came} 12 0 {went}\n"
        self._at.put(
            "/proc/net/snmp", f"Ip: Forwarding DefaultTTL ForwDatagrams\nIp: {2 - bool(passed)} 64 {passed}\n{udp}"
        )
        self._at.put("/proc/net/netstat", f"IpExt: InNoRoutes InMcastPkts InBcastPkts\nIpExt: 0 {heard} 0\n")
        if self._life.datagrams:
            self._at.put("/proc/net/nf_conntrack", self._flows(moment))
        rows = ("Ip6OutForwDatagrams", "Ip6InMcastPkts", "Udp6InDatagrams", "Udp6OutDatagrams")
        self._at.put("/proc/net/snmp6", "".join(f"{name:32}\t0\n" for name in rows))
        for name, (got, sent) in self._rdma.items():
            since = (-UPTIME_SECONDS, moment)
            base = f"/sys/class/infiniband/{name}/ports/1"
            inside, outside = round(got.total(*since)), round(sent.total(*since))
            if name.startswith(("rdmap", "efa")):
                for counter, value in {"rx_bytes": inside, "tx_bytes": outside, "rdma_read_bytes": 0}.items():
                    self._at.put(f"{base}/hw_counters/{counter}", f"{value}\n")
            else:
                self._at.put(f"{base}/counters/port_rcv_data", f"{inside // _IB_WORD_BYTES}\n")
                self._at.put(f"{base}/counters/port_xmit_data", f"{outside // _IB_WORD_BYTES}\n")

    def _flows(self, moment: float) -> str:
        """/proc/net/nf_conntrack: a flow is kept for two minutes after, or half a minute if nobody answered."""
        lines = [f"ipv4     2 tcp      6 431999 ESTABLISHED {_A_FLOW} [ASSURED] mark=0 zone=0 use=2\n"]
        for told in self._life.datagrams:
            kind, _, rest = told.partition("s ") if told[0].isalpha() else ("", "", told)
            answered, each = kind in {"", "ask"}, connection_of(rest)
            if any(each.open_at(moment - back) for back in range(_FLOW_SECONDS if answered else _TOLD_SECONDS)):
                (here, port), (there, sport) = each.local.rsplit(":", 1), str(each.peer).rsplit(":", 1)
                asked = (here, there, port, sport) if kind in {"ask", "say"} else (there, here, sport, port)
                ends = "src={0} dst={1} sport={2} dport={3} {4}src={1} dst={0} sport={3} dport={2}"
                mark = "" if answered else "[UNREPLIED] "
                lines.append(f"ipv4     2 udp      17 29 {ends.format(*asked, mark)} mark=0 zone=0 use=2\n")
        return "".join(lines)

    def link_self(self, world: World) -> None:
        """/proc/self is the agent's own process; in a container of its own it sees nobody else's."""
        found = world.by_name.get("gpuwatch")
        if self._life.agent.get("pids") == "container" or found is None:
            self._at.link("/proc/self/ns/pid", "pid:[4026532999]" if found else HOST_PIDS)
            self._at.put("/proc/1/comm", "gpuwatch\n")
            self._at.put("/proc/1/cgroup", "0::/\n")
            self._at.put(
                "/proc/1/stat", "1 (gpuwatch) S 0 1 1 0 -1 4194560 0 0 0 0 9 2 0 0 20 0 9 0 900 0 0" + " 0" * 28
            )
            self._at.put("/proc/1/status", "Name:\tgpuwatch\nState:\tS (sleeping)\nUid:\t0\t0\t0\t0\nNSpid:\t1\n")
            return
        pid = world.pid(found, found.actor.begin)
        self._at.link("/proc/self", str(pid))
        self._at.link(
            f"/proc/{pid}/ns/{HOST_NETWORK}", "/proc/self/ns/net"
        )  # netlink is this network's, as played here

    def diskstats(self, read: int, written: int) -> str:
        """/proc/diskstats: all traffic is on the root disk; the local disk rests."""
        counts = f"{read // 4096} 0 {read // _SECTOR} 1 {written // 4096} 0 {written // _SECTOR} 1 0 1 2 0 0 0 0 0 0"
        text = f" 259       0 nvme0n1 {counts}\n 259       1 nvme0n1p1 {counts}\n"
        text += "   7       0 loop0 12 0 96 1 0 0 0 0 0 1 1 0 0 0 0 0 0\n"
        if self._life.instance_store != "none":
            used = 40_000_000 if self._life.instance_store == "used" else 0
            text += f" 259       4 nvme1n1 90 0 4210 1 {used // 8} 0 {used} 1 0 1 2 0 0 0 0 0 0\n"
        return text

    def _kernel(self) -> None:
        self._at.put("/proc/sys/kernel/random/boot_id", f"{_BOOT_ID}\n")
        self._at.put("/proc/sys/kernel/pid_max", "4194304\n")
        self._at.put("/proc/sys/kernel/osrelease", "6.5.0-1020-aws\n")
        self._at.put("/proc/version", "Linux version 6.5.0-1020-aws (buildd@lcy02) #20 SMP\n")
        self._at.put("/proc/meminfo", "MemTotal:       65000000 kB\nMemAvailable:   60000000 kB\n")
        self._at.put("/proc/cpuinfo", "".join(f"processor\t: {number}\n\n" for number in range(8)))
        self._at.put("/proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")
        self._at.put("/proc/filesystems", "nodev\tsysfs\n\text4\n\txfs\n")
        mounts = (line.split(" - ") for line in self.mountinfo.splitlines())
        text = "".join(f"{b.split()[1]} {a.split()[4]} {b.split()[0]} rw 0 0\n" for a, b in mounts)
        self._at.put("/proc/mounts", text)
        if self._life.agent.get("pids") != "container":
            self._at.put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc\n")
        self._at.put("/etc/os-release", 'ID=ubuntu\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n')
        self._at.put("/etc/timezone", "Etc/UTC\n")
        self._at.put("/run/systemd/system/.keep", "")

    def _users(self) -> None:
        lines, groups = [], []
        for name, uid in self._life.users.items():
            person = uid == 0 or 1000 <= uid < 65000
            home = "/root" if uid == 0 else f"/home/{name}" if person else "/nonexistent"
            shell = "/bin/bash" if person else "/usr/sbin/nologin"
            lines.append(f"{name}:x:{uid}:{uid}::{home}:{shell}\n")
            groups.append(f"{name}:x:{uid}:\n")
            if person:
                self._at.folder(home, uid=uid)
        self._at.put("/etc/passwd", "".join(lines))
        self._at.put("/etc/group", "".join(groups))
        self._at.put("/etc/login.defs", "UID_MIN\t1000\nUID_MAX\t60000\nSYS_UID_MIN\t100\nSYS_UID_MAX\t999\n")

    def _unit(self, name: str, about: Mapping[str, Any]) -> None:
        """A unit file in its place, and the link that enables it."""
        kind = about.get("from")
        place = about.get("folder") or _PLACES.get(str(kind))
        if place is None:
            raise LifeError(f"unit {name}: from must be one of {', '.join(_PLACES)}, or `folder` names another")
        text = about.get("text")
        if text is None:
            program = about.get("exec") or self._main_program(name) or f"/usr/sbin/{name.partition('.')[0]}"
            user = f"User={about['user']}\n" if "user" in about else ""
            text = f"[Unit]\nDescription={name}\n[Service]\nExecStart={program}\n{user}"
            text += "" if kind == "transient" else "[Install]\nWantedBy=multi-user.target\n"
        self._at.put(f"{place}/{name}", text, uid=self._life.users[about.get("owner", "root")])
        if "WantedBy=" in text and about.get("enabled", True) and not place.startswith("/home"):
            target = text.partition("WantedBy=")[2].split()[0]
            self._at.link(f"/etc/systemd/system/{target}.wants/{name}", f"{place}/{name}")

    def _main_program(self, unit: str) -> str | None:
        """What the first process of a unit was started with, as its file says."""
        words = (actor.cmdline for actor in self._life.cast if actor.place == f"unit {unit}" and actor.parent is None)
        return next((each for each in words if each.startswith("/")), None)

    def _devices(self) -> None:
        local = self._life.instance_store != "none"
        disks = [("nvme0n1", "Amazon Elastic Block Store", "259:0", _DISK_BYTES)]
        disks += [("nvme1n1", "Amazon EC2 NVMe Instance Storage", "259:4", _LOCAL_BYTES)] if local else []
        for name, model, number, size in disks:
            base = f"/sys/block/{name}"
            device = f"/sys/devices/pci0000:00/0000:00:04.0/nvme/{name[:5]}/{name}"
            self._at.put(f"{device}/device/model", f"{model:40}\n")
            for file, text in {
                "size": f"{size // _SECTOR}\n",
                "dev": f"{number}\n",
                "removable": "0\n",
                "ro": "0\n",
            }.items():
                self._at.put(f"{device}/{file}", text)
            self._at.put(f"{device}/queue/rotational", "0\n")
            counts = (
                "90 0 4210 1 0 0 0 1 0 1 2 0 0 0 0 0 0\n"
                if number == "259:4"
                else "1 0 8 1 1 0 8 1 0 1 2 0 0 0 0 0 0\n"
            )
            if number == "259:4" and self._life.instance_store == "used":
                counts = "90 0 4210 1 5000000 0 40000000 1 0 1 2 0 0 0 0 0 0\n"
            self._at.put(f"{device}/stat", counts)
            self._at.folder(f"{device}/holders")
            self._at.folder(f"{device}/slaves")
            if name == "nvme0n1":
                for file, text in {"partition": "1\n", "size": f"{size // _SECTOR - 4096}\n", "dev": "259:1\n"}.items():
                    self._at.put(f"{device}/nvme0n1p1/{file}", text)
                self._at.folder(f"{device}/nvme0n1p1/holders")
            self._at.link(base, ".." + device.removeprefix("/sys"))
            self._at.link(f"/sys/class/block/{name}", "../.." + device.removeprefix("/sys"))
        formatted = "E:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\n"
        self._at.put(
            "/run/udev/data/b259:0", "E:DEVTYPE=disk\nE:ID_MODEL=Amazon Elastic Block Store\nE:ID_PART_TABLE_TYPE=gpt\n"
        )
        self._at.put("/run/udev/data/b259:1", f"E:DEVTYPE=partition\n{formatted}")
        if local:
            holds = formatted if self._life.instance_store == "used" else ""
            self._at.put(
                "/run/udev/data/b259:4", f"E:DEVTYPE=disk\nE:ID_MODEL=Amazon EC2 NVMe Instance Storage\n{holds}"
            )
        for card in ("ens5", "ens6"):
            self._at.folder(f"/sys/class/net/{card}/device")
            self._at.put(f"/sys/class/net/{card}/operstate", "up\n")
        for card in ("lo", "docker0"):
            self._at.folder(f"/sys/class/net/{card}/statistics")
        self._at.folder("/sys/class/infiniband")
        self._at.folder("/var/spool/cron/crontabs")
        self._at.folder("/var/spool/cron/atjobs")
        self._at.folder("/run/user")
