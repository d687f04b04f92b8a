"""Names that no list has any more, each of which another fact tells: a package, a folder, a namespace, the pool."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.processes import known_programs as known
from gpuwatch.agent.processes import packages
from gpuwatch.agent.processes.kinds import (
    PACKAGED,
    TIMED,
    Facts,
    UnitOrigin,
    classify,
    may_use_gpu_unseen,
    name_in_fleet,
)
from gpuwatch.agent.processes.package_owners import find_owners
from gpuwatch.agent.processes.packages import PackageOwners
from gpuwatch.agent.processes.process import Kind
from gpuwatch.agent.processes.table import ProcessTable
from tests.support.fakes.package_databases import APackage, base_files, put_dpkg
from tests.support.fakes.proc_files import put_process
from tests.support.fakes.shells import MadeShells


def _words(text: str) -> list[str]:
    return text.split()


# Of the distribution's units and programs: its packages tell.
DAEMONS = _words(
    """
    polkit accounts-daemon syslog-ng chrony ntpd ntpsec ntpdate irqbalance udisks2 upower ModemManager
    NetworkManager networkd-dispatcher networking resolvconf dhclient dhcpcd avahi-daemon multipathd iscsid
    lvm2-monitor mdmonitor smartd smartmontools thermald acpid yum-cron zypp-refresh fstrim mlocate
    dpkg-db-backup motd-news needrestart apport whoopsie kdump rngd haveged gssproxy nfs-idmapd sssd oddjobd
    winbind nscd nslcd firewalld ufw nftables iptables exim4 rtkit-daemon colord switcheroo-control
    power-profiles-daemon bluetooth cups cups-browsed kerneloops tuned tuned-ppd ksm ksmtuned openipmi
    ipmievd mcelog rasdaemon edac lldpd atop pmie acct hibagent qemu-guest-agent vmtoolsd open-vm-tools
    hv-kvp-daemon gmond ganglia-monitor virtlogd virtlockd virtqemud virtnetworkd ua-timer esm-cache apt-news
    cachefilesd amazon-efs-mount-watchdog ec2-instance-connect collectd nagios icinga2 openvpn wireguard
    landscape-client rhsmcertd insights-client opensmd kube-proxy etcd fail2ban-server osms-agent fail2ban
    munin-node pmlogger nrpe gridengine-exec
    """
)
# Of pods: their namespace tells.
PODS = _words(
    """
    coredns calico-node cilium-agent cilium-envoy cilium-operator-generic flanneld aws-k8s-agent aws-vpc-cni
    ebs-csi-driver aws-ebs-csi-driver aws-efs-csi-driver csi-node-driver-registrar livenessprobe
    node-driver-registrar nvidia-device-plugin nvidia-operator-validator gpu-feature-discovery nfd-worker
    nfd-master eks-pod-identity-agent eks-node-monitoring-agent gke-metrics-agent gke-metadata-server
    konnectivity-agent gce-pd-csi-driver ip-masq-agent kindnetd azurediskplugin azurefileplugin hubble-relay
    nvidia-toolkit nvidia-validator k8s-driver-manager kube-proxy nvidia-mig-manager
    """
)
# Of vendors that few have: where a whole pool has one, the pool tells, and a single machine's is somebody's.
AGENTS = _words(
    """
    /opt/hosteye/hosteye /opt/bcm-agent/bcm-agent /usr/local/hostguard/bin/hostguard
    /usr/local/uniagent/bin/uniagent /opt/stackdriver/collectd/sbin/stackdriver-collectd
    /opt/google-fluentd/embedded/bin/ruby-daemon /opt/SumoCollector/wrapper
    /usr/share/scalyr-agent-2/bin/scalyr-agent-2 /usr/lib/check_mk_agent/agent /usr/local/ncpa/ncpa
    /usr/lib/signalfx-agent/bin/signalfx-agent /opt/observiq-otel-collector/observiq-otel-collector
    /opt/TrendMicro/agent /opt/landesk/bin/agent /opt/McAfee/agent/bin/macmnsvc
    /opt/isec/ens/threatprevention/bin/isecd /opt/eset/RemoteAdministrator/Agent/ERAAgent
    /opt/f-secure/fsav/bin/fsavd /opt/kaspersky/kesl/libexec/kesl /opt/bitdefender-security-tools/bin/bdsecd
    /opt/cisco/amp/bin/ampdaemon /opt/illumio_ven/bin/venAgentMgr /opt/draios/bin/dragent
    /opt/threatstack/sbin/tsagentd /opt/uptycs/osquery/bin/osqueryd-x /opt/fireeye/bin/xagt
    /opt/amagent/bin/amagent /opt/cylance/desktop/cylancesvc /opt/zscaler/bin/zstunnel
    /opt/netskope/stagent/stAgentSvc /opt/paloaltonetworks/globalprotect/PanGPS
    /opt/grafana-agent/grafana-agent /opt/td-agent/bin/ruby-daemon /usr/share/metricbeat/bin/metricbeat
    /opt/lsf/etc/lim /opt/sge/bin/sge_execd /opt/process-exporter/process-exporters
    /opt/wiz/sensor/bin/wiz-sensor /var/lib/twistlock/defender /opt/microsoft/omsagent/bin/omsagent
    /opt/microsoft/scx/bin/scxcimserver /usr/bin/falco /usr/bin/lacework /usr/sbin/zerotier-one
    /usr/bin/warp-svc /opt/imperva/ragent/bin/ragent
    """
)
# Of what the distribution's own timers run: the timer tells.
TIMED_UNITS = _words(
    """
    man-db mlocate-updatedb plocate-updatedb updatedb e2scrub_all logrotate sysstat-collect sysstat-summary
    update-notifier-download fwupd-refresh clamav-clean
    """
)
# Of desktops: an open one occupies the machine, and a login screen's user tells.
DESKTOP = _words(
    """
    gvfsd gvfsd-fuse gvfs-udisks2-vo goa-daemon goa-identity-se gnome-shell-cal gsd-power evolution-source
    evolution-addre evolution-calen evolution-alarm at-spi-bus-laun dconf-service tracker-extract localsearch-ext
    polkit-gnome-au gnome-keyring-d ibus-daemon xsettingsd xfconfd tumblerd update-notifier vncconfig xdg-dbus-proxy
    gdm-x-session gdm-wayland-ses gnome-session-b mutter-x11-fram kwin_wayland plasmashell xfwm4 xfce4-session
    xfdesktop xfsettingsd sddm-greeter sddm-greeter-qt lightdm-gtk-gre Xvfb
    """
)
# Of rootless containers: these end with somebody's container, which keeps the machine.
BESIDE_CONTAINERS = _words("slirp4netns pasta pasta.avx2 aardvark-dns rootlessport fuse-overlayfs")
MOST_PATTERNS = 299
# Why a name may stand in a list at all; `known_programs.py` says what each of these words means.
REASONS = ("Protects", "By hand", "For nobody", "Unseen", "In logins", "Again")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made host, whose databases are read here and not by a program."""
    monkeypatch.setattr(packages, "ask_databases", find_owners)
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/uptime").write_text("9000.00 0.00\n")
    return tmp_path


def kinds_of(root: Path, owners: PackageOwners | None) -> dict[int, tuple[Kind, str]]:
    """Each process of the made host: its kind, and the rule."""
    table = ProcessTable(
        root / "proc", root / "etc", root / "usr", root / "run", root / "pods", packages=owners, shells=MadeShells()
    )
    return {pid: (each.kind, each.rule) for pid, each in table.read_processes(1.0).processes.items()}


@pytest.mark.parametrize("by_database", [True, False])
@pytest.mark.parametrize("uid", [0, 121])
def test_a_distributions_daemon_is_the_machines_own_without_its_name(
    root: Path, uid: int, *, by_database: bool
) -> None:
    """Of root and of a system's user, by the database of packages and, where there is none, by its folder."""
    units = [f"/usr/lib/systemd/system/{name}.service" for name in DAEMONS]
    programs = [f"/usr/sbin/{name}" for name in DAEMONS]
    if by_database:
        put_dpkg(root, base_files(), APackage(name="distribution", files=(*units, *programs)))
    (root / "usr/lib/systemd/system").mkdir(parents=True)
    for pid, (name, unit, program) in enumerate(zip(DAEMONS, units, programs, strict=True), start=100):
        (root / unit[1:]).write_text(f"[Service]\nExecStart={program}\n")
        group = f"/system.slice/{name}.service"
        put_process(root / "proc", pid, name[:15], cgroup=group, uid=uid, executable=program, arguments=(program,))

    found = kinds_of(root, PackageOwners(root))

    assert {kind for kind, _ in found.values()} == {Kind.SERVICE}
    assert sum(rule == PACKAGED for _, rule in found.values()) > len(DAEMONS) * 0.9


def test_what_only_is_called_so_is_somebodys(root: Path) -> None:
    """The same units by an administrator, with a program of nobody's package."""
    put_dpkg(root, base_files())
    (root / "etc/systemd/system").mkdir(parents=True)
    for pid, name in enumerate(DAEMONS, start=100):
        (root / f"etc/systemd/system/{name}-x.service").write_text(f"[Service]\nExecStart=/usr/bin/{name}-x\n")
        group = f"/system.slice/{name}-x.service"
        put_process(root / "proc", pid, "serve", cgroup=group, uid=0, executable="/usr/bin/serve")

    assert {kind for kind, _ in kinds_of(root, PackageOwners(root)).values()} == {Kind.PEOPLE}


@pytest.mark.parametrize("namespace", ["kube-system", "gpu-operator", "nvidia-device-plugin"])
def test_a_pod_of_the_clusters_own_needs_no_name(root: Path, namespace: str) -> None:
    """The kubelet's folders of logs name its namespace; in a namespace of people the same programs are people's."""
    own, other = "0a1b2c3d-0001-0002-0003-0a1b2c3d4e5f", "0a1b2c3d-0001-0002-0003-0a1b2c3d4e60"
    (root / f"pods/{namespace}_x-4f_{own}").mkdir(parents=True)
    (root / f"pods/team-a_x-4f_{other}").mkdir()
    for place, uid in enumerate((own, other)):
        group = f"/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{'cd' * 32}.scope"
        for pid, name in enumerate(PODS, start=100 + 200 * place):
            put_process(root / "proc", pid, name[:15], cgroup=group, uid=0, executable=f"/bin/{name}")

    found = kinds_of(root, None)

    assert {kind for pid, (kind, _) in found.items() if pid < 300} == {Kind.SERVICE}
    assert {kind for pid, (kind, _) in found.items() if pid >= 300} == {Kind.PEOPLE}


@pytest.mark.parametrize("path", AGENTS)
def test_an_agent_that_the_whole_pool_runs_is_handed_over_and_one_alone_is_somebodys(path: str) -> None:
    """What it is called says nothing; what the pool says is asked by its unit and its file."""
    name = path.rpartition("/")[2]
    unit = f"{name}.service"
    for origin in (UnitOrigin.ADMINISTRATOR, UnitOrigin.VENDOR):
        facts = Facts(
            names=(name[:15], name), uid=0, user="root", placement=Placement(systemd_unit=unit), slice="system.slice",
            origin=origin, by_hand=True,
        )  # fmt: skip
        assert classify(facts)[0] is Kind.PEOPLE
        assert name_in_fleet(facts, path) is not None


@pytest.mark.parametrize("name", TIMED_UNITS)
@pytest.mark.parametrize(
    ("timer", "program", "rule"), [(True, True, TIMED), (False, True, PACKAGED), (True, False, None)]
)
def test_what_a_timer_of_the_distributions_runs_is_the_machines_own(
    root: Path, name: str, rule: str | None, *, timer: bool, program: bool
) -> None:
    """Its timer and its program must be the distribution's: an administrator's or a company's say nothing."""
    folder = "/usr/lib/systemd/system"
    brought = (f"{folder}/{name}.service", *([f"{folder}/{name}.timer"] if timer else []))
    put_dpkg(root, base_files(), APackage(name="own", files=(*brought, *(["/usr/bin/own"] if program else []))))
    (root / folder[1:]).mkdir(parents=True)
    for suffix in ("service", "timer"):
        (root / folder[1:] / f"{name}.{suffix}").write_text("[Service]\nExecStart=/usr/bin/own\n")
    put_process(root / "proc", 77, "own", cgroup=f"/system.slice/{name}.service", uid=0, executable="/usr/bin/own")

    kind, found = kinds_of(root, PackageOwners(root))[77]

    assert (kind, found == rule) == ((Kind.PEOPLE, False) if rule is None else (Kind.SERVICE, True))


@pytest.mark.parametrize("name", [*DESKTOP, *BESIDE_CONTAINERS])
def test_a_login_screens_programs_are_nobodys_and_a_persons_desktop_is_somebodys(name: str) -> None:
    """Whatever they are called: its user tells, and that a package brought them; an open desktop is people's."""
    for pid, uid, user, file in (
        (77, 120, "gdm", f"/usr/libexec/{name}"),
        (78, 120, "gdm", f"/var/lib/gdm3/{name}"),
        (79, 1000, "alice", f"/usr/libexec/{name}"),
        (80, 1000, "gdm", f"/usr/libexec/{name}"),
    ):
        facts = Facts(
            names=(name,), uid=uid, user=user, placement=Placement(systemd_unit="session-c1.scope", own_names=True),
            slice="user.slice", own_file=file.startswith("/var"), own_work=file.startswith("/var"),
        )  # fmt: skip
        assert classify(facts)[0] is (Kind.SESSION if pid == 77 else Kind.PEOPLE), (pid, name)


def test_what_draws_for_a_login_screen_holds_no_gpu_and_what_computes_or_is_contained_does() -> None:
    """By its user: nobody logs in as one. A container's user of that number is somebody else."""
    held = {
        (user, place, computes): may_use_gpu_unseen(
            Facts(
                names=("sddm-greeter",), uid=uid, user=user, placement=Placement(container_id=place), slice="user.slice"
            ),
            computes=computes,
        )
        for user, uid in (("sddm", 120), ("gdm-greeter-1", 61000), ("alice", 1000))
        for place in (None, "cd" * 32)
        for computes in (False, True)
    }
    assert [key for key, unseen in held.items() if unseen] == [("sddm", None, False)]


@pytest.mark.parametrize(
    "name",
    ["getty-images", "cri-eval", "dcvseg", "atdnn", "k2s", "fluentd-eval", "mpi-train", "netdata-train", "csh.py"],
)
def test_what_only_begins_like_a_name_of_a_list_is_somebodys(name: str) -> None:
    """In an administrator's unit, as root, and as a person's program in a session."""
    for uid, unit, own in ((0, "train.service", False), (1000, "session-c1.scope", True)):
        facts = Facts(
            names=(name,), uid=uid, user="u", placement=Placement(systemd_unit=unit, own_names=own),
            slice="user.slice" if own else "system.slice", origin=UnitOrigin.ADMINISTRATOR,
        )  # fmt: skip
        assert classify(facts)[0] is Kind.PEOPLE


LISTS = {name: value for name, value in vars(known).items() if name.isupper() and isinstance(value, tuple)}


def test_the_lists_stay_small() -> None:
    """A name that a package, the pool, who asks or days tell does not come back."""
    assert len({pattern for each in LISTS.values() for pattern in each}) <= MOST_PATTERNS


def reasons_of_names(text: str) -> dict[str, str | None]:
    """Each line of names, and the word with which the comment above it, in the same list, begins."""
    reason, before, found = None, "", dict[str, str | None]()
    for line in text.partition("return tuple(text.split())\n")[2].splitlines():
        is_comment = line.lstrip().startswith("# ")
        if is_comment and not before.lstrip().startswith("# "):
            said = re.match(r"# ([A-Z][a-z ]+): ", line.lstrip())
            reason = said and said[1]
        elif not is_comment and re.match(r"[A-Z_]+: tuple", line) and not before.startswith("# "):
            reason = None
        names = re.sub(r"^[A-Z_]+: tuple\[str, \.\.\.\] = |_words|\*[A-Z_]{2,}|[^a-zA-Z]", "", line)
        if names and not is_comment:
            found[line] = reason
        before = line
    return found


def test_each_group_of_names_says_why_it_stands_there() -> None:
    """The comment above it begins with the word for one of the reasons, which the module explains."""
    text, explained = Path(known.__file__).read_text(encoding="utf-8"), known.__doc__ or ""
    found = reasons_of_names(text)
    listed = " ".join(found)

    assert [line for line, reason in found.items() if reason not in REASONS] == []
    assert [pattern for each in LISTS.values() for pattern in each if pattern not in listed] == []
    assert all(f"- {reason}: " in explained for reason in REASONS)
    assert None in reasons_of_names(text.replace("# By hand: many plug-ins", "# Many plug-ins")).values()
    assert None in reasons_of_names(text.replace("# Protects: what they interpret decides.\n", "")).values()


@pytest.mark.parametrize("name", LISTS)
def test_no_pattern_says_what_another_of_its_list_says(name: str) -> None:
    """Each one names something that the others do not."""
    patterns = LISTS[name]
    doubled = [(each, other) for each in patterns for other in patterns if each != other and fnmatchcase(each, other)]
    assert doubled == []
    assert len(set(patterns)) == len(patterns)
