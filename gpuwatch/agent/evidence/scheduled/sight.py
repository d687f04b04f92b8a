"""What this agent may see of queued work: whether it stands on the host itself, and what would run a closed spool."""

from gpuwatch.agent.devices.pid_namespace import in_host_pids
from gpuwatch.agent.evidence.base import Roots, UnseenError
from gpuwatch.agent.evidence.files import read_small

REMEDY = "let the agent read it (CAP_DAC_READ_SEARCH), or take this source out of agent.evidence.scheduled.sources"
_FIRST_OF_HOSTS = frozenset({"systemd", "init"})


def may_run(roots: Roots, *daemons: str) -> bool:
    """Whether one of these daemons is installed; True in a container, which does not see the host's programs."""
    folders = [roots.usr / "sbin", roots.usr / "bin", roots.usr / "lib/systemd/system-generators"]
    return (
        not any(folder.is_dir() for folder in folders)
        or is_container(roots)
        or any((folder / daemon).exists() for folder in folders for daemon in daemons)
    )


def blind(roots: Roots) -> tuple[str, ...]:
    """What this agent cannot see of queued work, a sentence each; empty where it sees the host's own folders.

    A host without any of these folders is not blind: nothing is queued there.
    """
    if not is_container(roots):
        return ()
    unseen: list[str] = []
    if not (roots.var / "spool/cron").is_dir() and not (roots.var / "spool/at").is_dir():
        unseen.append(f"at jobs and crontabs: it does not see the host's {roots.var}/spool; mount it read-only.")
    if not (roots.run / "systemd/system").is_dir():
        unseen.append(f"systemd timers: it does not see the host's {roots.run}/systemd; mount it read-only.")
    if not (roots.run / "user").is_dir():
        unseen.append(
            f"users' own timers: it does not see the host's {roots.run}/user; mount it and the homes read-only."
        )
    return tuple(unseen)


def is_container(roots: Roots) -> bool:
    """Whether this looks like a container within the host: one with a systemd of its own is a host by itself."""
    try:
        first = read_small(roots.proc / "1/comm").text.strip()
        mounts = [line.split() for line in read_small(roots.proc / "self/mountinfo").text.splitlines()]
    except (OSError, UnseenError):
        first, mounts = "", []
    of_image = any(mount[4:5] == ["/"] and "overlay" in mount for mount in mounts)
    unlike = first == "systemd" and not (roots.run / "systemd/system").is_dir()
    return of_image or unlike or (not in_host_pids(roots.proc) and first not in _FIRST_OF_HOSTS)
