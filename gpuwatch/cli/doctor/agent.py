"""What is looked at on a GPU host."""

from collections.abc import Iterator

from gpuwatch.agent.certificate import hosts_of
from gpuwatch.cli.doctor import amd, certificates, devices, host, ports
from gpuwatch.cli.doctor.context import AgentCase
from gpuwatch.cli.doctor.report import Finding
from gpuwatch.cli.doctor.runner import Check
from gpuwatch.runtime.certificates import by_handshake
from gpuwatch.runtime.http.auth import files_of


def port(case: AgentCase) -> Iterator[Finding]:
    """Return findings about the agent's own port."""
    return ports.port(case.settings, "agent")


def identity(case: AgentCase) -> Iterator[Finding]:
    """What it shows of itself, and what it keeps to itself."""
    settings = case.settings
    yield from certificates.certificates(files_of(settings, "agent"), case.clock, by_handshake, hosts_of(settings))
    yield from certificates.secrets({"agent.tls_key": settings.tls_key, "agent.users_file": settings.users_file})
    yield from ports.passwords(settings, "agent")


CHECKS: tuple[Check[AgentCase], ...] = (
    Check(name="driver", look=devices.driver, seconds=devices.PROBE_SECONDS + 5),
    Check(name="devices", look=devices.nodes),
    Check(name="amd_driver", look=amd.driver, seconds=devices.PROBE_SECONDS + 5),
    Check(name="amd_devices", look=amd.nodes),
    Check(name="kernel_log", look=host.kernel_log),
    Check(name="processes", look=host.processes),
    Check(name="blind", look=host.blind),
    Check(name="files", look=host.files),
    Check(name="terminals", look=host.terminals),
    Check(name="local_disks", look=host.local_disks),
    Check(name="metadata", look=host.metadata, seconds=6 * host.METADATA_SECONDS),
    Check(name="clock", look=host.clock),
    Check(name="port", look=port),
    Check(name="identity", look=identity),
)
