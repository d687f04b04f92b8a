"""A GPU host with people on it, for tests: a booted systemd with sshd, at, cron, lingering users, and the real agent.

People log in over SSH, with keys, and leave programs behind. `ask` is the question that the controller asks before a
stop. Nothing of the test runs in the host while it asks: the question goes through the host's network alone.
"""

import ctypes
import shutil
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec

from gpuwatch.model.fleet import NodeVerdict
from tests.support.components import require
from tests.support.fakes.nvml import StubDriver
from tests.support.real.systemd_container import LIBRARIES, PYTHON, UNITS, Booted

AGENT = "gpuwatch-agent"
PEOPLE = ("alice", "bob")
PROGRAMS = ("sshd", "ssh", "tmux", "screen", "at", "atd", "cron", "crontab", "curl", "ip", "cc")
HERE, THERE = "10.99.0.1", "10.99.0.2"
_URL = "http://127.0.0.1:9460"
_NONCE = "0123456789abcdef"
_NEWNET = 0x40000000  # CLONE_NEWNET of <sched.h>

ID = "0123456789ab" * 5 + "cdef"  # of the one container
_GROUP = f"/sys/fs/cgroup/system.slice/docker-{ID}.scope/cgroup.procs"

# What these programs do to a login: as on Debian, but that nobody has a password, and that the kernel's audit is away.
_LOGIN = "auth required pam_permit.so\naccount required pam_permit.so\nsession optional pam_systemd.so\n"
_JOB = "auth required pam_permit.so\naccount required pam_permit.so\nsession required pam_permit.so\n"
_FILES = {
    "etc/pam.d/sshd": _LOGIN,
    "etc/pam.d/systemd-user": _LOGIN,
    "etc/pam.d/cron": _JOB,
    "etc/pam.d/atd": _JOB,
    "etc/pam.d/other": _JOB,
    "etc/at.deny": "",
    "etc/environment": "",
    "etc/login.defs": "",
    "etc/crontab": "",
    "etc/shells": "/bin/sh\n/bin/bash\n",
    "etc/profile": "export PATH=/opt/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin\n",
    # Logins and daemons come and go many times in ten seconds here, which systemd refuses by default.
    "etc/systemd/system.conf.d/often.conf": "[Manager]\nDefaultStartLimitIntervalSec=0\n",
    "etc/systemd/logind.conf.d/over.conf": "[Login]\nUserStopDelaySec=0\n",
    "etc/sysusers.d/daemons.conf": "u sshd - - /run/sshd\nu daemon 1\ng crontab -\n",
    "etc/ssh/sshd_config": "ListenAddress 127.0.0.1\nHostKey /etc/ssh/key\nUsePAM yes\nPrintMotd no\nUseDNS no\n"
    "AuthorizedKeysFile /etc/ssh/people.pub\nSetEnv PATH=/opt/bin:/usr/local/bin:/usr/bin:/bin\n",
    # A Python that the test runs by, under the name that people call it.
    "opt/bin/python": f'#!/bin/sh\nexport LD_LIBRARY_PATH={LIBRARIES}\nexec {PYTHON} "$@"\n',
    "opt/bin/nvidia-smi": "#!/bin/sh\nsleep 0.7\n",  # as slow as the real one
    # As containerd's shim: `runc` (unshare by another name) makes the namespaces, systemd is asked for the scope.
    "opt/bin/containerd-shim": """#!/bin/sh
slice=$1; scope=$2; shift 2
mkfifo -m 600 "/run/$scope"
/opt/bin/runc --mount --pid --net --uts --ipc --fork --kill-child --mount-proc sh -c \
    'read go <"/run/$0"; exec "$@"' "$scope" "$@" &
until child=$(cat /proc/$!/task/$!/children) && [ -n "$child" ]; do :; done
busctl --quiet call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager \
    StartTransientUnit 'ssa(sv)a(sa(sv))' "$scope" replace 2 PIDs au 1 $child Slice s "$slice" 0
until grep -q "/$scope$" "/proc/${child% }/cgroup"; do :; done
echo go >"/run/$scope"
rm "/run/$scope"
wait
""",
    "opt/bin/container-run": """#!/bin/sh
cd /
systemd-run --quiet --collect --unit=containerd /opt/bin/containerd-shim "$@"
case $1 in kubepods-besteffort-*) above=kubepods.slice/kubepods-besteffort.slice/ ;; esac
until grep -qs . "/sys/fs/cgroup/$above$1/$2/cgroup.procs" && [ ! -e "/run/$2" ]; do sleep 0.02; done
""",
    "opt/bin/container-exec": f"""#!/bin/sh
echo $$ >{_GROUP}
exec /opt/exec/runc --target "$(head -1 {_GROUP})" --mount --pid --net --uts --ipc "$@" </dev/null >/dev/null 2>&1
""",
    "opt/model.py": """
import http.server
class Server(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        self.answer(f'vllm:num_requests_running{{model_name="m"}} 0.0\\n# TYPE vllm:request_success_total counter\\n'
                    f'vllm:request_success_total{{finished_reason="stop",model_name="m"}} {Server.asked}.0\\n')
    def do_POST(self):
        Server.asked += 1
        self.answer("{}")
    def answer(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *words):
        pass
http.server.HTTPServer(("127.0.0.1", 8000), Server).serve_forever()
""",
}


class LivedHost(Booted):
    """One host. `elsewhere` is the pid of another machine's first process, at the end of a cable."""

    driver: StubDriver
    settings_text: str
    _there: subprocess.Popen[bytes] | None = None  # the first process of the other machine

    def settle(self, service: str) -> None:
        """Bring what people need, and start the daemons and the agent's unit with these lines of its service."""
        for name in PROGRAMS:
            require(name)
        for name, text in _FILES.items():
            path = self.root / name
            path.parent.mkdir(exist_ok=True, mode=0o755)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755 if name.startswith("opt/bin") else 0o644)
        shutil.copy(UNITS / "gpuwatch.sysusers.conf", self.root / "etc/sysusers.d/gpuwatch.conf")
        self.run("systemctl", "daemon-reload")
        self.run("systemctl", "restart", "systemd-logind")  # a session is over with its last process
        self.run("systemd-sysusers")
        self._key = self.root.parent / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._key)], check=True)
        shutil.copy(self._key, self.root / "etc/ssh/key")
        (self.root / "etc/ssh/people.pub").write_text(self._key.with_suffix(".pub").read_text("ascii"), "ascii")
        (self.root / "etc/ssh/people.pub").chmod(0o644)
        self.run("sh", "-c", _SPOOLS)
        for copy, program in {"opt/bin/runc": "unshare", "opt/exec/runc": "nsenter"}.items():
            (self.root / copy).parent.mkdir(exist_ok=True)
            shutil.copy(require(program), self.root / copy)
        for user in PEOPLE:
            self.run("install", "-d", "-o", user, "-g", user, "-m", "700", f"/home/{user}")
        self.run("systemctl", "start", "ssh", "atd", "cron")
        self.install(f"{AGENT}.service", ["agent"], service)
        self._asking = ThreadPoolExecutor(1, initializer=_enter_network, initargs=(self._leader(),))

    def connect(self) -> None:
        """Lay a cable to another machine, from which anything can be loaded at 0.9 MB/s, as from a slow mirror."""
        there = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-c", _MIRROR], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._there = there
        assert there.stdin is not None
        assert there.stdout is not None
        there.stdout.readline()  # it is in its own network
        for pid, script in (
            (self._leader(), f"ip link add v0 type veth peer name v1 netns {there.pid}"),
            (self._leader(), f"ip address add {HERE}/24 dev v0; ip link set v0 up"),
            (there.pid, f"ip address add {THERE}/24 dev v1; ip link set v1 up; ip link set lo up"),
        ):
            subprocess.run(["nsenter", "--target", str(pid), "--net", "sh", "-ec", script], check=True)
        there.stdin.write(b"\n")
        there.stdin.flush()
        there.stdout.readline()  # it serves

    def leave(self) -> None:
        """Ask no more, and pull the cable."""
        self._asking.shutdown()
        if self._there is not None:
            self._there.kill()
            self._there.communicate()

    def restart(self) -> None:
        """A fresh agent, which knows of nothing that was."""
        self.settings(self.settings_text)
        self.restart_fresh(AGENT)

    def ask(self, *, confirm: bool = True) -> NodeVerdict | None:
        """What the agent says of the host; None while nobody answers. A confirmation looks at everything again."""
        url = f"{_URL}/v1/verdict{f'?confirm={_NONCE}' if confirm else ''}"
        page = self._asking.submit(_get, url).result()
        return msgspec.json.decode(page, type=NodeVerdict) if page else None

    def does(self, who: str, command: str, stay: list[subprocess.Popen[bytes]]) -> None:
        """Somebody does something in a shell, and leaves: `alice`, `alice@tty` (a terminal), `alice…` (she stays).

        `root` is what the test arranges, by no login.
        """
        user, _, how = who.removesuffix("…").partition("@")
        if user == "root" and not how:
            self.run("sh", "-c", command)
            return
        options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
        terminal = ["-tt"] if how else ["-T"]
        stays = who.endswith("…")
        ssh = ["ssh", "-F", "none", "-i", str(self._key), *options, *terminal, f"{user}@127.0.0.1"]
        ssh.append(f"echo here; {command}" if stays else command)
        begun = subprocess.Popen(
            ["nsenter", "--target", str(self._leader()), "--net", *ssh],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if stays:
            stay.append(begun)
            assert begun.stdout is not None
            assert b"here" in begun.stdout.readline(), who
            return
        said, _ = begun.communicate(timeout=30)
        assert begun.returncode == 0, f"{who}: {command}: {said.decode()}"

    def tidy(self) -> None:
        """End whatever people have begun."""
        self.run("sh", "-c", _TIDY, check=False)


# at and cron of Debian, whose packages make these folders.
_SPOOLS = """
mkdir -p /var/spool/cron/atjobs /var/spool/cron/atspool /var/spool/cron/crontabs
chown daemon:daemon /var/spool/cron/atjobs /var/spool/cron/atspool
chmod 1770 /var/spool/cron/atjobs /var/spool/cron/atspool
chgrp $(stat -c %g /usr/bin/crontab) /var/spool/cron/crontabs
chmod 1730 /var/spool/cron/crontabs
mkdir -p -m 1777 /run/screen
printf 0 >/var/spool/cron/atjobs/.SEQ
chown daemon:daemon /var/spool/cron/atjobs/.SEQ
"""
_TIDY = f"""
systemctl kill --signal=KILL 'lived*' containerd 'docker-*' 'machine-*' 'cri-containerd-*' 2>/dev/null
systemctl stop 'lived*' containerd 'docker-*' 'machine-*' 'cri-containerd-*' 2>/dev/null
for user in {" ".join(PEOPLE)}; do
    crontab -r -u $user 2>/dev/null
    loginctl disable-linger $user
    pkill -KILL -U $user
    loginctl terminate-user $user 2>/dev/null
done
systemctl kill --signal=KILL 'session-*.scope' 2>/dev/null
atrm $(atq | cut -f1) 2>/dev/null
rm -f /etc/systemd/system/lived* /var/spool/cron/crontabs/root
pkill -KILL --full '^(/bin/sh -c )?sleep 1000'
timeout 5 sh -c 'until [ -z "$(ls -d /run/user/1*)" ]; do sleep 0.02; done' 2>/dev/null
"""


_MIRROR = """
import http.server, sys, time
print(flush=True)
sys.stdin.readline()
class Mirror(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(bytes(90_000))
                time.sleep(0.1)
        except OSError:
            pass
    def log_message(self, *words):
        pass
served = http.server.HTTPServer(("0.0.0.0", 80), Mirror)
print(flush=True)
served.serve_forever()
"""


def _enter_network(pid: int) -> None:
    """Let this thread speak in that process's network."""
    with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def _get(url: str) -> bytes:
    with suppress(OSError), urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310  our own URL
        return bytes(response.read())
    return b""
