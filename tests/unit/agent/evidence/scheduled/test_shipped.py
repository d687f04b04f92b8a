"""agent/evidence/scheduled: what lies where packages put their files, by whose package brought it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuwatch.agent.evidence.scheduled.signal import Scheduled
from gpuwatch.agent.evidence.settings import ScheduledSettings
from gpuwatch.agent.processes import packages
from gpuwatch.agent.processes.package_owners import find_owners
from gpuwatch.agent.processes.packages import PackageOwners
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.package_databases import COMPANY, DEBIAN, ROCKY, APackage, base_files, put_dpkg, put_rpm
from tests.support.fakes.queued_work import QueueHost

BUSY, IDLE, OCCUPIED, UNKNOWN = State.BUSY, State.IDLE, State.OCCUPIED, State.UNKNOWN
NIGHTLY = "0 2 * * * root /srv/train.sh\n"
RUNS = (
    "17 * * * * root cd / && run-parts --report /etc/cron.hourly\n"
    "25 6 * * * root test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )\n"
)
SCRUB = "10 3 * * * root test -e /run/systemd/system || SERVICE_MODE=1 /sbin/e2scrub_all -A -r\n"
UNITS = "usr/lib/systemd/system"


@dataclass(slots=True)
class Host:
    """A host with cron and systemd; `installed` is what each package brought, by its maintainer."""

    made: QueueHost
    installed: list[APackage] = field(default_factory=list)

    def brings(self, path: str, text: str, by: str | None, *, now: str | None = None) -> None:
        """A file that a package of that maintainer brought, or nobody's; `now` is what it holds, if it was edited."""
        self.made.write(path, text if now is None else now).chmod(0o755)
        if by is not None:
            name = f"package{len(self.installed)}"
            self.installed.append(APackage(name=name, by=by, configuration={f"/{path}": text}))

    def unit(self, name: str, lines: str, by: str | None, starts: str = "/usr/bin/x") -> None:
        """An enabled unit in /usr/lib, with its service."""
        section = {"timer": "Timer", "path": "Path", "socket": "Socket"}[name.rpartition(".")[2]]
        self.brings(f"{UNITS}/{name}", f"[Unit]\n[{section}]\n{lines}\n", by)
        service = f"{UNITS}/{name.rpartition('.')[0]}.service"
        self.brings(service, f"[Service]\nExecStart={starts}\n", by)
        wants = self.made.root / "etc/systemd/system/timers.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        (wants / name).symlink_to(f"/lib/systemd/system/{name}")

    def says(self, *, known: bool = True, put: Callable[..., None] = put_dpkg) -> Evidence:
        """What the signal says; not `known`: the databases are those of an image."""
        put(self.made.root, base_files(DEBIAN if put is put_dpkg else ROCKY), *self.installed)
        owners = PackageOwners(self.made.root, lambda: not known)
        signal = Scheduled(ScheduledSettings(), self.made.roots, 5.0, packages=owners)
        return self.made.tells(signal)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """One on which nothing is planned."""
    monkeypatch.setattr(packages, "ask_databases", find_owners)
    made = QueueHost(tmp_path)
    for program in ("atd", "cron"):
        made.write(f"usr/sbin/{program}", "")
    return Host(made)


# What is there · what it says with the databases · without them. It is Monday, 18:10.
CASES: dict[str, tuple[Callable[[Host], None], State, State]] = {
    "an administrator's job in cron.d": (lambda host: host.brings("etc/cron.d/train", NIGHTLY, None), BUSY, IDLE),
    "one of a company's deb": (lambda host: host.brings("etc/cron.d/acme", NIGHTLY, COMPANY), BUSY, IDLE),
    "the distribution's": (lambda host: host.brings("etc/cron.d/e2scrub_all", SCRUB, DEBIAN), IDLE, IDLE),
    "the distribution's, edited": (
        lambda host: host.brings("etc/cron.d/e2scrub_all", SCRUB, DEBIAN, now=SCRUB + NIGHTLY),
        BUSY,
        IDLE,
    ),
    "an administrator's that tidies": (
        lambda host: host.brings("etc/cron.d/tidy", "0 2 * * * root find /scratch -mtime +9 -delete\n", None),
        IDLE,
        IDLE,
    ),
    "one that runs often": (
        lambda host: host.brings("etc/cron.d/often", "*/10 * * * * root /srv/inventory.sh\n", None),
        OCCUPIED,
        IDLE,
    ),
    "/etc/crontab as it comes": (lambda host: host.brings("etc/crontab", RUNS, DEBIAN), IDLE, IDLE),
    "/etc/crontab with a line more": (
        lambda host: host.brings("etc/crontab", RUNS, DEBIAN, now=RUNS + NIGHTLY),
        BUSY,
        IDLE,
    ),
    "/etc/crontab with a time changed": (
        lambda host: host.brings("etc/crontab", RUNS, DEBIAN, now=RUNS.replace("25 6", "5 5")),
        IDLE,
        IDLE,
    ),
    "an administrator's script in cron.daily": (
        lambda host: host.brings("etc/cron.daily/retrain", "#!/bin/sh\n/srv/train.sh\n", None),
        BUSY,
        IDLE,
    ),
    "a company's in cron.daily": (
        lambda host: host.brings("etc/cron.daily/acme", "#!/bin/sh\n/opt/acme/score\n", COMPANY),
        BUSY,
        IDLE,
    ),
    "the distribution's in cron.daily": (
        lambda host: host.brings("etc/cron.daily/apt-compat", "#!/bin/sh\nexec /usr/lib/apt/daily\n", DEBIAN),
        IDLE,
        IDLE,
    ),
    "one that tidies in cron.daily": (
        lambda host: host.brings("etc/cron.daily/lr", "#!/bin/sh\nset -e\n/usr/sbin/logrotate /etc/lr\nexit 0\n", None),
        IDLE,
        IDLE,
    ),
    "a timer of a company's deb": (
        lambda host: host.unit("acme.timer", "OnCalendar=*-*-* 02:00", COMPANY),
        BUSY,
        IDLE,
    ),
    "a timer that was copied to /usr/lib": (
        lambda host: host.unit("train.timer", "OnCalendar=*-*-* 02:00", None),
        BUSY,
        IDLE,
    ),
    "the distribution's timer": (
        lambda host: host.unit("apt-daily.timer", "OnCalendar=*-*-* 02:00", DEBIAN),
        IDLE,
        IDLE,
    ),
    "Certbot's, of a company's own deb": (
        lambda host: host.unit("certs.timer", "OnCalendar=*-*-* 02:00", COMPANY, "/usr/bin/certbot -q renew"),
        IDLE,
        IDLE,
    ),
    "a timer of a vendor who is known": (
        lambda host: host.unit("newrelic-x.timer", "OnCalendar=*-*-* 02:00", COMPANY),
        IDLE,
        IDLE,
    ),
    "a socket of a company's deb": (
        lambda host: host.unit("acme.socket", "ListenStream=9000", COMPANY),
        OCCUPIED,
        IDLE,
    ),
    "a socket of the distribution's": (
        lambda host: host.unit("uuidd.socket", "ListenStream=/run/uuidd", DEBIAN),
        IDLE,
        IDLE,
    ),
    "docker.socket, of Docker's deb": (
        lambda host: host.unit("docker.socket", "ListenStream=/run/docker.sock", COMPANY),
        IDLE,
        IDLE,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_whose_package_brought_it_tells_whether_it_keeps_the_node(host: Host, case: str) -> None:
    """What is not the distribution's is somebody's; where no database can be read, it is as it was."""
    arrange, known, not_known = CASES[case]
    arrange(host)

    assert host.says().says is known
    assert host.says(known=False).says is not_known


def test_on_red_hat_rpm_s_database_tells(host: Host) -> None:
    """The distribution's hourly line keeps nothing, an administrator's own file does."""
    host.brings("etc/cron.d/0hourly", "01 * * * * root run-parts /etc/cron.hourly\n", ROCKY)
    as_it_comes = host.says(put=put_rpm).says
    host.brings("etc/cron.d/train", NIGHTLY, None)
    (host.made.root / "var/lib/rpm/rpmdb.sqlite").unlink()

    assert (as_it_comes, host.says(put=put_rpm).says) == (IDLE, BUSY)


def test_a_finding_names_the_script_and_its_time(host: Host) -> None:
    """By the time at which /etc/crontab runs its folder."""
    host.brings("etc/crontab", RUNS, DEBIAN, now=RUNS.replace("25 6", "5 5"))
    host.brings("etc/cron.daily/retrain", "#!/bin/sh\n/srv/train.sh\n", None)

    assert (host.says().note or "").startswith("script retrain in cron.daily is due at 2026-01-06 05:05 UTC")


def test_the_manager_is_believed_on_when_a_company_s_timer_is_due(host: Host) -> None:
    """And the distribution's timers, which it shows as well, are left out."""
    shown = (
        "Id={0}.timer\nUnit={0}.service\nFragmentPath=/usr/lib/systemd/system/{0}.timer\nTransient=no\n"
        "SubState=waiting\nNextElapseUSecRealtime=Tue 2026-01-06 02:00:00 UTC\nNextElapseUSecMonotonic=infinity\n"
        "LastTriggerUSec=n/a\nTimersCalendar={{ OnCalendar=*-*-* 02:00:00 ; next_elapse=n/a }}\n"
    )
    systemctl = host.made.write("systemctl", "")
    systemctl.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(map(shown.format, ("apt-daily", "acme"))) + "END\n")
    systemctl.chmod(0o755)
    host.unit("apt-daily.timer", "OnCalendar=*-*-* 02:00", DEBIAN)
    host.unit("acme.timer", "OnCalendar=*-*-* 02:00", COMPANY)
    put_dpkg(host.made.root, base_files(), *host.installed)
    owners = PackageOwners(host.made.root)
    signal = Scheduled(ScheduledSettings(), host.made.roots, 5.0, str(systemctl), packages=owners)

    found = host.made.tells(signal)
    assert (found.says, "acme.timer" in (found.note or ""), "apt-daily" in (found.note or "")) == (BUSY, True, False)
