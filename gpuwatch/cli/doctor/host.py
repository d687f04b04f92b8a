"""A host: what the agent's user may read and write, people's terminals, the metadata service, the clock."""

import ctypes
import grp
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from gpuwatch.agent.attribution.process import sees_host_pids
from gpuwatch.agent.blind import LOOKS
from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError
from gpuwatch.agent.local_disks import LocalDiskSignal, in_verdict
from gpuwatch.agent.metadata.base import MetadataService
from gpuwatch.agent.metadata.client import MetadataClient, MetadataError
from gpuwatch.agent.metadata.detect import service_of
from gpuwatch.cli.doctor.context import AgentCase, why_closed
from gpuwatch.cli.doctor.report import Finding, fine, make_finding
from gpuwatch.model.activity import LocalDisks

METADATA_SECONDS = 3.0  # more than the agent allows: a slow answer is another flaw than none
_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronized
_GROUP = "tty"  # to which login(1) and devpts give terminals
_SIGHTS = {
    "cgroups": ("blind.cgroups", "the control groups"),
    "run": ("blind.run", "/run of the host"),
    "process_io": ("blind.process_io", "what others' processes run, read and write"),
    "homes": ("blind.homes", "homes of others"),
    "network": ("blind.network", "the host's network"),
}
_METADATA = {"hop_limit": "metadata.hop_limit", "disabled": "metadata.disabled"}


def kernel_log(case: AgentCase) -> Iterator[Finding]:
    """The kernel log, which has the XIDs."""
    path = case.settings.kernel_log
    if path == "none" or not case.settings.reads_this_host:
        yield fine("kernel_log", "the kernel log", "it is not used")
        return
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        yield make_finding("kernel_log.closed", path, f"it cannot be read: {error.strerror}")
        return
    yield fine("kernel_log", path, "it can be read")


def processes(case: AgentCase) -> Iterator[Finding]:
    """Whether the processes that hold GPUs can be seen: hidepid of /proc, the PID namespace."""
    where = f"processes of others in {case.proc}"
    hidden = _hidepid(case.proc)
    if hidden and not (case.proc / "1/stat").exists():
        yield make_finding(
            "processes.hidden", where, f"it is mounted with hidepid={hidden}, and this user is not exempt"
        )
    elif not sees_host_pids(case.proc):
        yield make_finding("processes.namespace", where, "the first process here is not the host's")
    else:
        yield fine("processes", where, "they can be seen, under the host's own numbers")


def blind(case: AgentCase) -> Iterator[Finding]:
    """What else an agent of this user cannot see; `processes` reports hidden processes."""
    if not case.settings.reads_this_host or not case.settings.evidence.enabled:
        yield fine("blind", "what people and programs do", "it is not looked at")
        return
    for what, (code, where) in _SIGHTS.items():
        sentence = LOOKS[what](case.roots)
        yield fine("blind", where, "it can be seen") if sentence is None else make_finding(code, where, sentence)


def files(case: AgentCase) -> Iterator[Finding]:
    """What the agent keeps: state, snoozes, its control socket."""
    settings = case.settings
    kept = {
        "agent.control_socket": settings.control_socket,
        "agent.health_file": settings.health_file,
        "agent.metadata.state": settings.metadata.state,
        "agent.evidence.snooze.directory": settings.evidence.snooze.directory,
    }
    for key, name in kept.items():
        if name == "none":
            continue
        wrong = why_closed(Path(name))
        looked_at = f"{key}: {name}"
        yield (
            make_finding("files.closed", looked_at, wrong)
            if wrong
            else fine("files", looked_at, "this user may write it")
        )


def terminals(case: AgentCase) -> Iterator[Finding]:
    """Whether notices can be written on the terminals that want them; where none is open, by this user's groups."""
    where = f"terminals of others in {case.dev}/pts"
    if not case.settings.wall:
        yield fine("terminals", where, "agent.wall is false: nothing is written there")
        return
    nodes = [node for node in sorted((case.dev / "pts").glob("[0-9]*")) if _wants_messages(node)]
    shut = [node.name for node in nodes if not os.access(node, os.W_OK, effective_ids=True)]
    if shut:
        yield make_finding(
            "terminals.closed", where, f"{len(shut)} of {len(nodes)} cannot be written, such as {shut[0]}"
        )
    elif nodes:
        yield fine("terminals", where, f"all of the {len(nodes)} that want messages can be written")
    elif os.geteuid() == 0 or _GROUP in {_group(gid) for gid in (os.getegid(), *os.getgroups())}:
        yield fine("terminals", where, "none is open; this user may write them")
    else:
        yield make_finding("terminals.closed", where, f"this user is not in the group {_GROUP}")


def local_disks(case: AgentCase) -> Iterator[Finding]:
    """Whether it can be seen if local disks are in use, which decides whether a machine with such disks may go."""
    where = "local disks"
    evidence = case.settings.evidence
    if not case.settings.reads_this_host or not (evidence.enabled and evidence.local_disks.enabled):
        yield fine("local_disks", where, "they are not looked at, and count as used")
        return
    roots = Roots(proc=case.proc, run=case.run, dev=case.dev, sys=case.sys)
    try:
        seen = LocalDiskSignal(roots).find_evidence(
            Moment(at=case.clock.now(), monotonic_seconds=case.clock.monotonic())
        )
    except (OSError, UnseenError) as error:
        yield make_finding("local_disks.unseen", where, f"whether they are in use is not known: {error}")
        return
    use = in_verdict(seen) or LocalDisks.USED
    yield fine("local_disks", where, use.value if not seen else f"{use.value}: {seen[0].note}")


def metadata(case: AgentCase) -> Iterator[Finding]:
    """The cloud's metadata service, with a token and without one."""
    settings = case.settings.metadata
    service = service_of(settings.provider, case.dmi)
    if service is None:
        yield fine("metadata", "the cloud's metadata service", f"none is asked (provider {settings.provider})")
        return
    where = f"the metadata service of {service.provider} at {settings.endpoint or service.endpoint}"
    try:
        _client(service, case).ask(service.facts[0])
    except MetadataError as error:
        yield make_finding(_METADATA.get(error.cause, "metadata.failed"), where, error.detail)
        return
    yield fine("metadata", where, "it answers")
    if service.token is None or service.token.optional:
        return
    try:
        answered = _client(replace(service, token=None), case).ask(service.facts[0]) is not None
    except MetadataError:
        answered = False
    if answered:
        yield make_finding("metadata.v1", where, "it answers without a token")
    else:
        yield fine("metadata", f"{where}, without a token", "it refuses")


def clock(_: object) -> Iterator[Finding]:
    """Whether something keeps the clock right. Source: adjtimex(2), as `timedatectl` has it."""
    where = "the kernel's word on this machine's clock"
    # struct timex is 208 bytes on 64-bit Linux; all zero asks for nothing to be changed.
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
    if state == _TIME_ERROR:
        yield make_finding("clock.unsynchronized", where, "nothing synchronizes it")
    else:
        yield fine("clock", where, "it is synchronized" if state >= 0 else "it cannot be asked here")


def _client(service: MetadataService, case: AgentCase) -> MetadataClient:
    return MetadataClient(
        service, case.clock, timeout_seconds=METADATA_SECONDS, endpoint=case.settings.metadata.endpoint
    )


def _wants_messages(terminal: Path) -> bool:
    """As mesg(1) has it; one that has gone wants none."""
    try:
        return bool(terminal.stat().st_mode & stat.S_IWGRP)
    except OSError:
        return False


def _group(gid: int) -> str:
    """The name of a group; of one without a name its number."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _hidepid(proc: Path) -> str | None:
    """The option of the /proc mount that hides others' processes; None: it hides nothing."""
    try:
        lines = (proc / "mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        _, place, kind, options, *_ = [*line.split(), "", "", "", ""]
        if kind == "proc" and place == "/proc":
            values: Mapping[str, str] = dict(each.partition("=")[::2] for each in options.split(","))
            hidden = values.get("hidepid", "0")
            return None if hidden in {"0", "off"} else hidden
    return None
