"""PURE: every flaw that the doctor can find, as a table. docs/doctor.md is generated from it."""

from gpuwatch.cli.doctor.report import Ailment, Finding, Severity

_P, _W = Severity.PROBLEM, Severity.WARNING

# Code, severity, what it means, what mends it.
_EVERYWHERE = (
    (
        "check.no_answer",
        _P,
        "A check did not end in its time.",
        "Look at what it waits for; then run the doctor again.",
    ),
    ("check.broken", _P, "A check failed by itself.", "Run the doctor again; if it stays, report it with this line."),
    (
        "running.down",
        _P,
        "Nothing answers at its port (`--alive`).",
        "Start it, or look into its log; compare `host` and `port` with what it was started with.",
    ),
    ("running.ill", _P, "It answers that it does no work (`--alive`).", "Restart it; its log says why."),
    (
        "port.taken",
        _P,
        "Another program listens at the port.",
        "Stop that program, or set another `agent.port` or `controller.port`.",
    ),
    (
        "port.address",
        _P,
        "The address to listen on cannot be had on this machine.",
        "Set `agent.host` or `controller.host` to an address of this machine, such as 127.0.0.1.",
    ),
    (
        "port.open",
        _W,
        "It listens beyond loopback without TLS or without authentication.",
        "Set `tls_certificate` and `tls_key`, and `tls_client_ca` or `users_file` (docs/tls-and-auth.md).",
    ),
    (
        "certificate.unusable",
        _P,
        "A certificate, a key or another secret's file cannot be read, or is none.",
        "Put it where the settings name it, readable by the service's user; certificates and keys in PEM.",
    ),
    ("certificate.expired", _P, "A certificate is not valid any more, or not yet.", "Renew it, and check the clock."),
    (
        "certificate.expires",
        _W,
        "A certificate ends within 30 days.",
        "Renew it; it is read again when the file changes, without a restart.",
    ),
    (
        "certificate.long_lived",
        _W,
        "A certificate is valid for more than 90 days, so a stolen key serves for long.",
        "Issue certificates for 90 days at most, and renew them by a timer.",
    ),
    (
        "secret.open",
        _W,
        "A file with a secret can be read by every user of this machine.",
        "`chmod 600` it, and give it to the service's user; or use systemd's LoadCredential.",
    ),
    (
        "passwords.cheap",
        _W,
        "A bcrypt hash of a user has a cost below 10: whoever gets the file tries guesses fast.",
        "Make it again with `htpasswd -nBC 12 NAME`, for all users with the same cost.",
    ),
    (
        "clock.unsynchronized",
        _W,
        "Nothing keeps this machine's clock right.",
        "Run chrony or systemd-timesyncd (`timedatectl set-ntp true`); verdicts of another time are not believed.",
    ),
)
_AGENT = (
    (
        "driver.library_not_found",
        _P,
        "libnvidia-ml.so.1 is not there.",
        "Install the NVIDIA driver; in a container, run it with --gpus all and NVIDIA_DRIVER_CAPABILITIES=utility.",
    ),
    (
        "driver.driver_not_loaded",
        _P,
        "The library is there, the kernel module is not.",
        "`modprobe nvidia`, then `dmesg | grep NVRM`.",
    ),
    (
        "driver.no_permission",
        _P,
        "This user may not open the driver.",
        "Let it read and write /dev/nvidiactl and /dev/nvidia*; a systemd unit needs DeviceAllow for char-nvidia.",
    ),
    (
        "driver.version_mismatch",
        _P,
        "Library and kernel module are of different versions, as after an upgrade.",
        "Reload the module (`gpuwatch agent release` lets go of it first), or reboot.",
    ),
    ("driver.unavailable", _P, "The driver cannot be used.", "`nvidia-smi` and `dmesg | grep NVRM` may say more."),
    (
        "driver.hangs",
        _P,
        "A probe got no answer from the driver in its time.",
        "`dmesg | grep NVRM`; a GPU that hangs is mended by a reset or a reboot (docs/health.md).",
    ),
    (
        "gpus.none",
        _P,
        "The driver works and shows no GPU.",
        "In a container, run it with --gpus all; else see `lspci`.",
    ),
    (
        "gpus.missing",
        _P,
        "The kernel module knows GPUs that the library does not show.",
        "In a container, run it with --gpus all; else see `dmesg | grep NVRM` for a GPU that fell off the bus.",
    ),
    ("gpus.unreadable", _P, "A GPU is there and cannot be read.", "See docs/health.md for its cause, and `dmesg`."),
    ("devices.missing", _P, "There are no device nodes of NVIDIA.", "`nvidia-modprobe -c 0 -u`, or --gpus all."),
    (
        "devices.closed",
        _P,
        "This user may not read and write a device node.",
        "Add it to the nodes' group, or set NVreg_DeviceFileMode=0666; in a unit, add DeviceAllow.",
    ),
    (
        "kernel_log.closed",
        _W,
        "The kernel log cannot be read: XIDs come from NVML alone, and a GPU off the bus may not be seen there.",
        "Give CAP_SYSLOG and /dev/kmsg, or set `agent.kernel_log: none`.",
    ),
    (
        "processes.hidden",
        _W,
        "/proc hides other users' processes: who holds a GPU cannot be told, nor what they do on the CPU.",
        "Mount /proc without hidepid, or put the agent's user into the group that its gid= names.",
    ),
    (
        "processes.namespace",
        _W,
        "This is another PID namespace than the host's: the driver hides others' processes, so it is never idle.",
        "Run the container with --pid=host (Kubernetes: hostPID: true).",
    ),
    (
        "files.closed",
        _W,
        "A file that the agent keeps cannot be made or written here.",
        "Create the folder for the agent's user (systemd: RuntimeDirectory=gpuwatch), or change the setting.",
    ),
    (
        "terminals.closed",
        _W,
        "The agent is to write notices on people's terminals, and this user may not.",
        "Put it into the group `tty` (systemd: SupplementaryGroups=tty), or set `agent.terminals: false`.",
    ),
    (
        "metadata.hop_limit",
        _P,
        "The metadata service takes connections, and its session token never comes: one network hop too many.",
        "aws ec2 modify-instance-metadata-options --http-put-response-hop-limit 2, or the host's network.",
    ),
    (
        "metadata.disabled",
        _W,
        "The metadata service is switched off: no instance id, no notice before an interruption.",
        "aws ec2 modify-instance-metadata-options --http-endpoint enabled, or set `agent.instance.provider: none`.",
    ),
    (
        "metadata.failed",
        _P,
        "The metadata service gives no usable answer.",
        "Let no firewall or network policy keep the agent from 169.254.169.254; see docs/cloud-metadata.md.",
    ),
    (
        "metadata.v1",
        _W,
        "The metadata service also answers without a token (IMDSv1): one forged request reads the role's credentials.",
        "aws ec2 modify-instance-metadata-options --http-tokens required.",
    ),
)
_CONTROLLER = (
    (
        "secret.unread",
        _P,
        "A reference to a secret (such as credential:NAME) leads to no secret.",
        "Hand it over by LoadCredential=, or give the role iam/secrets.json and check its name (docs/security.md).",
    ),
    (
        "cloud.unusable",
        _P,
        "The cloud cannot be asked for the fleet.",
        "Check the credentials, `cloud.regions` and the permissions that docs/clouds/ lists for this cloud.",
    ),
    (
        "cloud.skipped",
        _W,
        "This was not looked at, because the fleet cannot be listed.",
        "Mend what is told of the fleet first.",
    ),
    (
        "permission.denied",
        _P,
        "The cloud does not allow a call that these settings need.",
        "Give the controller the permissions that docs/clouds/ lists for this cloud and fleet.",
    ),
    (
        "permission.untried",
        _W,
        "Whether a call is allowed cannot be tried: the cloud offers no trial of it, or there is nothing to try it on.",
        "Compare the role with iam/*.json; enrol a machine, then run the doctor again.",
    ),
    (
        "clock.cloud",
        _P,
        "This clock and the cloud's differ by more than 5 seconds.",
        "Run chrony or systemd-timesyncd; clouds refuse calls from a clock that is some minutes wrong.",
    ),
    (
        "agents.none",
        _P,
        "No agent of the running machines gives a verdict that counts: all are unknown, and nothing is ever done.",
        "Start agents there; check `signals`, firewalls and certificates (docs/idle-detection.md).",
    ),
    (
        "agents.silent",
        _W,
        "Some running machines give no verdict that counts: they are unknown and left alone.",
        "`gpuwatch status` names each with its reason.",
    ),
    (
        "agents.old",
        _W,
        "Some agents are of an older version than this controller.",
        "Upgrade the agents; one that is too old to answer a last confirmation is never stopped.",
    ),
    (
        "agents.clock",
        _W,
        "An agent's clock and this one differ by more than 5 seconds.",
        "Run chrony or systemd-timesyncd there; beyond `limits.max_verdict_age` its verdicts do not count.",
    ),
    (
        "enrolment.none",
        _W,
        "The mode is enforce, and no machine is enrolled: nothing will ever be done.",
        "Tag machines gpuwatch:fleet with the value of `fleet` (docs/clouds/), or set `mode: observe`.",
    ),
    (
        "pool.unknown",
        _W,
        "Machines or groups name a pool that the settings do not have: they are left alone.",
        "Correct the tag gpuwatch:pool, or add the pool to `pools` (docs/guard.md#unknown_pool).",
    ),
    (
        "tag.misspelt",
        _W,
        "A tag's key is nearly one of gpuwatch's: its machine is protected until the key is corrected.",
        "Give the tag the key that is named, or remove it (docs/clouds/).",
    ),
    (
        "tag.expired",
        _W,
        "The time in a tag gpuwatch:protect is over, but the cloud may refuse every change while the tag is there.",
        "Remove the tag.",
    ),
    (
        "fleet.similar",
        _W,
        "The tag gpuwatch:fleet differs from `fleet` in case, blanks or punctuation only: the machine is not enrolled.",
        "Give the tag the value of `fleet`, letter by letter, if gpuwatch may touch the machine.",
    ),
    (
        "settings.for_tests",
        _P,
        "A setting is in force that is for tests on machines that nobody uses.",
        "Remove it before anybody works on these machines.",
    ),
    (
        "regions.unwatched",
        _W,
        "GPU machines are in a region that the settings do not name: nobody looks at them.",
        "Add the region to `cloud.regions`, or to the account's own `regions`.",
    ),
    (
        "regions.unseen",
        _W,
        "Whether GPU machines are in other regions is not known.",
        "Allow gpuwatch to list regions and machines there (docs/clouds/), or look by hand.",
    ),
    (
        "prices.unknown",
        _W,
        "What some machines cost is not known: they are missing in every sum.",
        "Set `prices.rates`, `prices.file` or `prices.live` (docs/money.md).",
    ),
    (
        "template.no_gpu",
        _P,
        "A pool's launch template makes machines without a GPU of NVIDIA: they are never nodes.",
        "Correct the template, or set `pools.<name>.launch.instance_type`; such launches are refused.",
    ),
    (
        "volumes.unencrypted",
        _W,
        "Volumes of GPU machines are not encrypted.",
        "Switch EBS encryption by default on, and replace them by encrypted copies of their snapshots.",
    ),
    (
        "prometheus.silent",
        _P,
        "Prometheus gives no usable answer.",
        "Check `signals.promql.url`, its credentials and both clocks (docs/idle-detection.md).",
    ),
    (
        "prometheus.series",
        _P,
        "Prometheus has no series of a metric that verdicts rest on: all nodes are unknown.",
        "Let it scrape the exporters, check `signals.promql.dialect`, and load alerts/recording.yml for `rules`.",
    ),
    (
        "prometheus.expression",
        _W,
        "An expression of a pool's scaling gives nothing.",
        "Run it in Prometheus; a pool whose expression gives nothing is never made larger or smaller by it.",
    ),
    (
        "ledger.unusable",
        _P,
        "The ledger cannot be read.",
        "Do what the sentence says; a damaged file is restored from a backup (docs/ledger.md).",
    ),
    (
        "ledger.other",
        _P,
        "The ledger is not the one that was written here last, or has lost records: a controller begins paused.",
        "Put the right ledger back, or look at what is lost and `gpuwatch resume` (docs/ledger.md).",
    ),
    (
        "ledger.foreign",
        _W,
        "Machines bear decisions of less than a day that are not in this ledger: nothing is done to them.",
        "Run one ledger for a fleet; if there is no other controller, see docs/ledger.md.",
    ),
    (
        "ledger.open",
        _W,
        "Every user of this machine may read the ledger: owners, machines and reasons.",
        "chmod o= the file and what lies beside it, or its folder.",
    ),
    (
        "ledger.plain",
        _W,
        "The URL of the ledger asks for less than a verified certificate: others may read the password, or answer.",
        "Take sslmode out of the URL; where the server's authority is your own, name it as sslrootcert=FILE.",
    ),
    (
        "ledger.closed",
        _P,
        "This user may not write the ledger, or make it.",
        "Give the file, its folder and what lies beside it to the controller's user, or set `ledger.path`.",
    ),
    (
        "ledger.full",
        _P,
        "Less than 100 MiB are free where the ledger is: a round that cannot be written down does nothing.",
        "Make room, or move it (`ledger.path`).",
    ),
    (
        "ledger.low",
        _W,
        "Less than 1 GiB is free where the ledger is.",
        "Make room, or shorten `ledger.keep` and `ledger.keep_quiet`.",
    ),
)
SECTIONS = {"Agent and controller": _EVERYWHERE, "Agent": _AGENT, "Controller": _CONTROLLER}
AILMENTS = {
    code: Ailment(code=code, severity=severity, meaning=meaning, remedy=remedy)
    for rows in SECTIONS.values()
    for code, severity, meaning, remedy in rows
}


def found(code: str, looked_at: str, seen: str) -> Finding:
    """That ailment, with what was seen of it."""
    ailment = AILMENTS[code]
    return Finding(severity=ailment.severity, code=code, looked_at=looked_at, seen=seen, remedy=ailment.remedy)
