"""agent/evidence/scheduled: what starts at an event, tables of fcron, and crontabs that only tidy up."""

from pathlib import Path

import pytest

from gpuwatch.agent.evidence.scheduled.housekeeping import tidies
from gpuwatch.model.activity import State
from tests.support.fakes.queued_work import QueueHost


@pytest.fixture
def host(tmp_path: Path) -> QueueHost:
    """A host on which nothing is queued."""
    return QueueHost(tmp_path)


def enable(host: QueueHost, name: str, target: str, *, link: str | None = None) -> None:
    """A unit of the administrator's, or a link to a package's."""
    host.write("run/systemd/system/.keep", "")
    path = host.root / "etc/systemd/system" / name
    if link is None:
        host.write(f"etc/systemd/system/{name}", "[Install]\n")
    wants = host.root / f"etc/systemd/system/{target}.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / name).symlink_to(link or path)


@pytest.mark.parametrize(("name", "target"), [("train.path", "multi-user.target"), ("llm.socket", "sockets.target")])
def test_a_unit_that_waits_for_an_event_occupies(host: QueueHost, name: str, target: str) -> None:
    """Nothing of it is alive, and nobody knows when the event comes."""
    enable(host, name, target)
    found = host.scheduled()

    assert (found.says, found.note) == (State.OCCUPIED, f"unit {name} waits for an event")
    assert host.scheduled(sources=("cron",)).says is State.IDLE


def test_a_users_own_unit_occupies_while_that_users_manager_runs(host: QueueHost) -> None:
    """A login, or lingering."""
    folder = "home/alice/.config/systemd/user"
    host.write(f"{folder}/train.path", "[Path]\n")
    host.write(f"{folder}/default.target.wants/.keep", "")
    (host.root / f"{folder}/default.target.wants/train.path").symlink_to(host.root / f"{folder}/train.path")
    gone = host.scheduled().says
    host.logged_in()
    found = host.scheduled()

    assert (gone, found.says, found.note) == (State.IDLE, State.OCCUPIED, "alice's unit train.path waits for an event")


@pytest.mark.parametrize("name", ["docker.socket", "gpuwatch-agent.path", "snap.lxd.daemon.unix.socket"])
def test_sockets_of_the_machines_own_do_not(host: QueueHost, name: str) -> None:
    """Those of daemons that are the machine's own, and of snaps."""
    enable(host, name, "sockets.target")
    assert host.scheduled().says is State.IDLE


SHIPPED = (
    "/usr/lib/systemd/system/cups.path", "/lib/systemd/system/uuidd.socket", "/usr/lib/systemd/system/dm-event.socket",
    "../../../../usr/lib/systemd/system/pcscd.socket", "/lib/systemd/system/ssh.socket", "/dev/null",
)  # fmt: skip


@pytest.mark.parametrize("link", SHIPPED)
def test_units_of_packages_do_not(host: QueueHost, link: str) -> None:
    """A link in the target's folder leads to the package's file, and no file of the unit lies in /etc."""
    name = "x.socket" if link == "/dev/null" else link.rpartition("/")[2]
    enable(host, name, "multi-user.target", link=link)
    assert host.scheduled().says is State.IDLE


@pytest.mark.parametrize("name", ["rpc-train.socket", "apt-daily-eval.path", "snapd-lab.socket", "ssh.socket"])
def test_a_unit_that_is_called_like_the_machines_occupies(host: QueueHost, name: str) -> None:
    """A file of its own in /etc, or in /usr/local/lib, is an administrator's, whatever its name."""
    enable(host, name, "sockets.target")
    assert host.scheduled().says is State.OCCUPIED


def test_a_unit_below_usr_local_occupies(host: QueueHost) -> None:
    """The link alone lies in /etc."""
    enable(host, "train.path", "multi-user.target", link="/usr/local/lib/systemd/system/train.path")
    assert host.scheduled().says is State.OCCUPIED


@pytest.mark.parametrize(("text", "says"), [("/srv/in IN_CREATE x\n", State.OCCUPIED), ("# none\n\n", State.IDLE)])
def test_a_table_of_incron_occupies(host: QueueHost, text: str, says: State) -> None:
    """With its user, without its command."""
    host.write("var/spool/incron/alice", text)
    found = host.scheduled()

    assert found.says is says
    assert says is State.IDLE or found.note == "alice's incron table waits for an event"


@pytest.mark.parametrize("line", ["0 2 * * * train", "&bootrun(true),mail(no) 0 2 * * * train"])
def test_a_table_of_fcron_is_a_crontab(host: QueueHost, line: str) -> None:
    """Options of a line do not count."""
    host.write("var/spool/fcron/alice.orig", f"!reset\n{line}\n")
    host.write("var/spool/fcron/systab.orig", "0 3 * * * run-parts /etc/cron.daily\n")
    found = host.scheduled()

    assert found.says is State.BUSY
    assert (found.note or "").startswith("alice's cron job")


def test_fcrons_own_kinds_of_times_are_not_read(host: QueueHost) -> None:
    """They would be due at an unknown time."""
    host.write("usr/local/var/spool/fcron/alice.orig", "@ 7h train\n")
    assert host.scheduled().says is State.UNKNOWN


@pytest.mark.parametrize(
    ("command", "tidy"),
    [
        ("/usr/sbin/logrotate /root/rotate.conf", True),
        ("certbot renew --quiet > /dev/null 2>&1", True),
        ("find /tmp -mtime +7 -delete >>/var/log/tidy.log 2>&1", True),
        ("apt-get update -q", True),
        ("docker system prune -af", True),
        ("run-parts --report /etc/cron.daily", True),
        ('"/root/.acme.sh"/acme.sh --cron --home "/root/.acme.sh" > /dev/null', True),
        ("/usr/local/qcloud/monitor/barad/admin/clean.sh > /dev/null 2>&1 &", True),
        ("/usr/local/qcloud/../../home/a/train.sh", False),
        ("/sbin/reboot", True),
        ("dnf -y install x", False),
        ("/usr/local/share/aliyun-assist/work/script/t-1.sh", False),
        ("sleep 5 & /home/a/train.sh", False),
        ("run-parts /home/a/nightly.d", False),
        ("find /data -name x -exec /home/a/train.py {} +", False),
        ("certbot renew --deploy-hook /home/a/train.sh", False),
        ("logrotate x && /home/a/train.sh", False),
        ("rm -rf /tmp/x; python train.py", False),
        ("rm $(/home/a/train.sh)", False),
        ("docker start trainer", False),
        ("apt-get install -y x", False),
        ("/home/a/tidy.sh", False),
        ("find /data -newer x", False),
        ("", False),
    ],
)
def test_a_command_that_only_tidies(command: str, *, tidy: bool) -> None:
    """Nothing else may come with it."""
    assert tidies(command) is tidy


@pytest.mark.parametrize(
    "command",
    [
        "docker run --gpus all trainer prune",
        "docker exec trainer python prune.py prune",
        "podman start -a model-prune prune",
        "docker compose run eval prune",
        "apt-get install -y clean",
        "certbot certonly renew",
        "/home/alice/bin/updatedb",
        "/opt/lab/logrotate --all",
        "~/rm old",
        "./find -delete",
        "bin/run-parts /etc/cron.daily",
        "/srv/tools/docker system prune",
    ],
)
def test_somebodys_own_program_and_another_command_of_a_known_one_are_work(command: str) -> None:
    """`prune` is what people do with models, too, and anybody may call a script like a tool."""
    assert not tidies(command)


@pytest.mark.parametrize(
    "command",
    [
        "docker system prune -af --volumes",
        "/usr/bin/docker --log-level error image prune -f",
        "podman volume prune",
        "docker buildx prune",
        "/usr/sbin/logrotate /etc/x",
        "/snap/bin/certbot -q renew",
        "/usr/local/bin/certbot renew",
        "apt-get -qq -y update",
        "run-parts --report /etc/cron.daily",
    ],
)
def test_the_tools_themselves_only_tidy(command: str) -> None:
    """In the folders of the machine's programs, with options before the command."""
    assert tidies(command)


def test_a_crontab_that_only_tidies_keeps_nothing(host: QueueHost) -> None:
    """Its other lines do."""
    host.crontab("0 3 * * * /usr/sbin/logrotate /root/x\n12 5,17 * * * certbot renew --quiet\n", "root")
    tidy = host.scheduled().says
    host.crontab("0 3 * * * /usr/sbin/logrotate /root/x\n12 5 * * * /root/train.sh\n", "root")

    assert (tidy, host.scheduled().says) == (State.IDLE, State.BUSY)


PRUNES = "ExecStart=/usr/bin/docker system prune --force\n"


@pytest.mark.parametrize(
    ("service", "drop_in", "idle"),
    [
        (PRUNES, "", True),
        ("ExecStart=-/bin/sh -c 'certbot renew --quiet'\n", "", True),
        ("ExecStart=/opt/dynatrace/oneagent/agent/bin/update.sh\n", "", True),
        (f"{PRUNES}ExecStart=/opt/forecast/train.sh\n", "", False),
        (f"{PRUNES}ExecStopPost = /opt/forecast/train.sh\n", "", False),
        ("ExecStart=/bin/sh -c 'certbot renew; /srv/train.sh'\n", "", False),
        ("ExecStart=/usr/bin/env logrotate x \\\n && train\n", "", False),
        (PRUNES, "[Service]\nExecStart=/opt/forecast/train.sh\n", False),
        ("", "", False),
    ],
)
@pytest.mark.parametrize("kind", ["timer", "path"])
def test_what_a_unit_of_the_administrators_starts_decides(
    host: QueueHost, kind: str, service: str, drop_in: str, *, idle: bool
) -> None:
    """Docker that is pruned each night keeps no node; any other command with it does, also in a drop-in."""
    units = "etc/systemd/system"
    if kind == "timer":
        host.timer("OnCalendar=daily", "night.timer")
    else:
        enable(host, "night.path", "multi-user.target")
    host.write(f"{units}/night.service", f"[Service]\n{service}")
    if drop_in:
        host.write(f"{units}/night.service.d/more.conf", drop_in)

    assert (host.scheduled().says is State.IDLE) is idle


def test_a_unit_that_starts_another_service_is_judged_by_that(host: QueueHost) -> None:
    """`Unit=` of a timer names it."""
    host.timer("OnCalendar=daily\nUnit=train.service", "night.timer")
    host.write("etc/systemd/system/night.service", f"[Service]\n{PRUNES}")
    host.write("etc/systemd/system/train.service", "[Service]\nExecStart=/srv/train.sh\n")

    assert host.scheduled().says is State.BUSY
