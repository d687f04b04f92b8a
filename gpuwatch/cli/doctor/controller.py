"""What is looked at where a controller runs."""

import socket
from collections.abc import Iterator

from gpuwatch.cli.doctor import certificates, cloud, host, keys, kubernetes, ledger, ports, signals, slurm, tags
from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.cli.doctor.report import Finding
from gpuwatch.cli.doctor.runner import Check
from gpuwatch.controller.join.settings import SECRETS
from gpuwatch.controller.observe.credentials import files_of
from gpuwatch.runtime.http.auth import files_of as door_files
from gpuwatch.runtime.secrets import secrets_named
from gpuwatch.runtime.tls import TlsFiles
from gpuwatch.runtime.x509 import by_x509

_CLOUD_SECONDS = 90.0  # a large fleet is listed page by page, and every check but the first waits for it


def port(case: ControllerCase) -> Iterator[Finding]:
    """The controller's own, where it serves anything."""
    settings = case.settings.controller
    return ports.port(settings, "controller")


def identity(case: ControllerCase) -> Iterator[Finding]:
    """What it shows of itself to others, and what it keeps to itself."""
    door, agents, promql = case.settings.controller, case.settings.signals, case.settings.signals.promql
    hosts = {socket.gethostname(), door.host, *door.allowed_hosts}
    yield from certificates.certificates(door_files(door, "controller"), case.clock, by_x509, hosts)
    for files in (files_of(agents), files_of(promql), *certificates.certificates_elsewhere(case.settings)):
        if isinstance(files, TlsFiles):
            yield from certificates.certificates(files, case.clock, by_x509)
        else:
            yield from certificates.judge_watched(files, case.clock)
    keys = secrets_named(case.settings)
    if door.join.host is not None:
        keys |= {f"controller.join.folder, {name}": str(door.join.file(name)) for name in SECRETS}
    yield from certificates.secrets(keys)
    yield from ports.passwords(door, "controller")


CHECKS: tuple[Check[ControllerCase], ...] = (
    Check(name="fleet", look=cloud.fleet, seconds=_CLOUD_SECONDS),
    Check(name="tags", look=tags.tags, seconds=_CLOUD_SECONDS),
    Check(name="regions", look=cloud.regions, seconds=_CLOUD_SECONDS),
    Check(name="settings", look=tags.cautions),
    Check(name="permissions", look=cloud.permissions, seconds=_CLOUD_SECONDS),
    Check(name="unseen", look=cloud.unseen),
    Check(name="reach", look=cloud.reach, seconds=_CLOUD_SECONDS),
    Check(name="templates", look=cloud.templates, seconds=_CLOUD_SECONDS),
    Check(name="cloud clock", look=cloud.clock, seconds=_CLOUD_SECONDS),
    Check(name="clock", look=host.clock),
    Check(name="agents", look=signals.agents, seconds=_CLOUD_SECONDS),
    Check(name="prometheus", look=signals.prometheus, seconds=_CLOUD_SECONDS),
    Check(name="kubernetes", look=kubernetes.cluster, seconds=_CLOUD_SECONDS),
    Check(name="slurm", look=slurm.cluster, seconds=_CLOUD_SECONDS),
    Check(name="prices", look=cloud.prices, seconds=_CLOUD_SECONDS),
    Check(name="volumes", look=cloud.volumes, seconds=_CLOUD_SECONDS),
    Check(name="access keys", look=keys.access_keys, seconds=_CLOUD_SECONDS),
    Check(name="disk keys", look=keys.disk_keys, seconds=_CLOUD_SECONDS),
    Check(name="disk starts", look=keys.disk_starts, seconds=_CLOUD_SECONDS),
    Check(name="ledger", look=ledger.ledger, seconds=30.0),
    Check(name="other ledgers", look=ledger.others, seconds=_CLOUD_SECONDS),
    Check(name="port", look=port),
    Check(name="identity", look=identity, seconds=30.0),
)
