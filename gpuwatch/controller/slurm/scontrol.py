"""Slurm by its own program scontrol(1), started with a list of arguments and never by a shell.

`scontrol show node` is read as text: its JSON came with Slurm 23.02, and changes with each release. One node is a block
of lines; of each field that matters the block must have exactly one.
"""

import os
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError, NotFoundError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.slurm import Queue, squeue
from gpuwatch.controller.slurm.settings import SlurmSettings
from gpuwatch.model.duration import format_duration
from gpuwatch.model.slurm import SlurmJob, SlurmNode, reason_of
from gpuwatch.model.slurm_listing import (
    ALL,
    FORMAT,
    STATES,
    TOTALS,
    known_kinds,
    parse_queue,
    parse_reservations,
    with_totals,
)
from gpuwatch.runtime.printable import legible

# One node by its own name: no list or range of them (`a[1-9]`, `a,b`), no word of scontrol's own.
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
_ALL = "ALL"
_BLOCK = re.compile(r"\n\s*\n")
_FIELDS = {
    "name": re.compile(r"^NodeName=(\S+)", re.MULTILINE),
    "state": re.compile(r"^ +State=(\S+)", re.MULTILINE),
}
_ADDRESS = re.compile(r"^ +NodeAddr=(\S+)(?: NodeHostName=(\S+))?", re.MULTILINE)
_REASON = re.compile(r"^ +Reason=(.*?)(?: \[[^\s@\[\]]+@[^\s\[\]]+\])?$", re.MULTILINE)
_GRES = re.compile(r"^ +Gres=(\S+)", re.MULTILINE)
_PARTITIONS = re.compile(r"^ +Partitions=(\S+)", re.MULTILINE)
_FEATURES = re.compile(r"^ +AvailableFeatures=(\S+)", re.MULTILINE)
_MEMORY = re.compile(r"^ +RealMemory=(\d{1,12}) ", re.MULTILINE)  # 1: nobody has said it
_CPUS = re.compile(r"^ +CPUAlloc=.* CPUTot=(\d{1,6}) ", re.MULTILINE)  # 1: the same
_SLURMD = re.compile(r"^ +BootTime=\S+ SlurmdStartTime=(\d{4}-\S+)", re.MULTILINE)
_STATES = re.compile(r"[A-Z_]+(?:\+[A-Z_]+)*")
# slurm.conf, as `scontrol show config` prints it; what is not set is (null).
_POWER = ("SuspendProgram", "ResumeProgram")
_NOT_SET = "(null)"
_NO_NODE = re.compile(r"node \S+ not found|invalid node name", re.IGNORECASE)
_DENIED = re.compile(r"invalid user id|access/permission denied|access denied", re.IGNORECASE)
_THEIRS = ("SLURM_", "SCONTROL_", "SQUEUE_")  # variables that change what is asked, or what is printed
_NO_SUCH = "gpuwatch-asks-whether-it-may"
_LONGEST_WORDS = 300  # characters of an error


def parse_nodes(text: str) -> tuple[SlurmNode, ...]:
    """The nodes that `scontrol show node` lists.

    Raises:
        CloudUnavailableError: it is not such a list.

    """
    return tuple(_parse_nodes(text))


def _parse_nodes(text: str) -> Iterator[SlurmNode]:
    for block in _blocks(text):
        found = {field: pattern.findall(block) for field, pattern in _FIELDS.items()}
        addresses, reasons, gres = _ADDRESS.findall(block), _REASON.findall(block), _GRES.findall(block)
        once = all(len(each) == 1 for each in found.values()) and max(len(addresses), len(reasons)) <= 1
        if not once or _STATES.fullmatch(found["state"][0]) is None:
            name = found["name"][0]
            yield SlurmNode(name=name, doubt=f"What scontrol says of the node {legible(name)} cannot be read.")
            continue
        address, host = addresses[0] if addresses else ("", "")
        yield SlurmNode(
            name=found["name"][0],
            host=host,
            address=address,
            states=tuple(found["state"][0].split("+")),
            reason=reasons[0].strip() if reasons else None,
            gpus=squeue.gpus_of(gres[0])[0] if len(gres) == 1 else None,
            partitions=_words_in(_PARTITIONS.findall(block)),
            features=_words_in(_FEATURES.findall(block)),
            gpu_kinds=known_kinds(gres[0]) if len(gres) == 1 else None,
            megabytes=_amount(_MEMORY.findall(block)),
            cpus=_amount(_CPUS.findall(block)),
            slurmd_since=_time(_SLURMD.findall(block)),
        )


def _words_in(found: list[str]) -> tuple[str, ...] | None:
    """The words of a field, where there is one; None: nobody knows."""
    return tuple(found[0].split(",")) if len(found) == 1 else None


def _amount(found: list[str]) -> int | None:
    """The number of a field; None: nobody knows."""
    return int(found[0]) if len(found) == 1 and int(found[0]) > 1 else None


def _time(found: list[str]) -> datetime | None:
    """A time as Slurm prints it in UTC; None: it says none, or more than one."""
    with suppress(ValueError):
        return datetime.fromisoformat(found[0]).replace(tzinfo=UTC) if len(found) == 1 else None
    return None


def _blocks(text: str) -> list[str]:
    """Each node's lines. A paragraph that names no node belongs to the node before it: a reason may have several."""
    found: list[str] = []
    for block in filter(None, map(str.strip, _BLOCK.split(text))):
        if block.startswith("NodeName="):
            found.append(block)
        elif found:
            found[-1] += f"\n{block}"
        elif not block.startswith("No nodes in the system"):
            raise CloudUnavailableError(f"scontrol's answer is no list of nodes: {_words(block)}")
    return found


@dataclass(frozen=True, slots=True)
class Scontrol:
    """The cluster that scontrol reaches."""

    settings: SlurmSettings

    @property
    def pools(self) -> Collection[str]:
        """Return the partitions that the settings name as pools."""
        return self.settings.pools

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All its nodes, by one call."""
        return parse_nodes(self._scontrol("show", "node"))

    def power(self) -> str | None:
        """The programs of slurm.conf: one of them is enough for nobody else to touch the nodes' power."""
        text = self._scontrol("show", "config")
        found = {each: re.findall(rf"^{each} *= (.*)$", text, re.MULTILINE) for each in _POWER}
        if any(len(values) != 1 for values in found.values()):
            raise CloudUnavailableError(f"scontrol show config does not say what {' and '.join(_POWER)} are")
        return next((f"{each}={legible(value)}" for each, (value,) in found.items() if value != _NOT_SET), None)

    def returns(self) -> tuple[str, str]:
        """Return ReturnToService, what becomes of a node that was silent, and SlurmdTimeout, after how long."""
        text = self._scontrol("show", "config")
        found = [re.findall(rf"^{each} *= (.*)$", text, re.MULTILINE) for each in ("ReturnToService", "SlurmdTimeout")]
        service, timeout = (legible(each[0].strip(), _LONGEST_WORDS) if len(each) == 1 else "?" for each in found)
        return service, timeout

    def may_drain(self) -> str | None:
        """Say why Slurm does not let this user drain or resume nodes; None: it does.

        Slurm looks at the user first, and then for the node: one of that name is nowhere.
        """
        try:
            self._scontrol("update", f"NodeName={_NO_SUCH}", "State=RESUME")
        except NotFoundError:
            return None
        except AuthFailedError as error:
            return str(error)
        return None

    def jobs(self) -> Mapping[str, tuple[SlurmJob, ...]] | None:
        """As squeue lists them."""
        program = self.settings.squeue
        return None if program is None else squeue.parse_jobs(self._run(program, *squeue.ARGUMENTS))

    def queue(self) -> Queue:
        """As squeue, which stands next to scontrol where the settings name none, and scontrol list them.

        GPUs of whole jobs are in a list of their own: squeue has two ways to say what it lists.
        """
        program = self.settings.squeue or str(PurePath(self.settings.scontrol or "").with_name("squeue"))
        about = ("--noheader", "--local", ALL, f"--states={STATES}")
        listed = self._run(program, *about, f"--format={FORMAT}")
        totals = self._run(program, *about[:-1], "--states=PD", f"--Format={TOTALS}") if listed else ""
        reserved = self._scontrol("show", "reservation", "--oneliner")
        try:
            jobs = tuple(with_totals(parse_queue(listed), totals))
            return Queue(jobs=jobs, reservations={each.name: each for each in parse_reservations(reserved)})
        except ValueError as error:
            raise CloudUnavailableError(str(error)) from error

    def node(self, name: str) -> SlurmNode | None:
        """Asked for by its name."""
        try:
            found = parse_nodes(self._scontrol("show", "node", _one(name)))
        except NotFoundError:
            return None
        if len(found) != 1 or found[0].name != name:
            raise CloudUnavailableError(f"scontrol shows {len(found)} nodes for the name {name}")
        return found[0]

    def drain(self, name: str, cause: str, key: str, *, permit: Permit) -> None:
        """After a look at what it is now; Slurm itself knows no condition for an update."""
        known = self._show_node(name)
        if known.drained_by == key:
            return
        if known.drained or not known.sound:
            reason = f" ({known.reason})" if known.reason else ""
            raise NotFoundError(f"Slurm shows {name} {known.state}{reason}: it is somebody else's")
        permit.check()
        self._scontrol("update", f"NodeName={_one(name)}", "State=DRAIN", f"Reason={reason_of(cause, key)}")

    def resume(self, name: str, undoes: str, *, permit: Permit) -> None:
        """After a look at the drain that Slurm shows now."""
        known = self._show_node(name)
        if known.drained_by != undoes or not known.resumable:
            raise NotFoundError(f"Slurm shows {name} {known.state}, and not under that drain")
        permit.check()
        self._scontrol("update", f"NodeName={_one(name)}", "State=RESUME")

    def _show_node(self, name: str) -> SlurmNode:
        known = self.node(name)
        if known is None:
            raise NotFoundError(f"Slurm has no node {name}")
        if known.doubt is not None:
            raise CloudError(known.doubt)
        return known

    def _scontrol(self, *arguments: str) -> str:
        return self._run(self.settings.scontrol or "", *arguments)

    def _run(self, program: str, *arguments: str) -> str:
        """The output of one of Slurm's programs.

        Raises:
            CloudUnavailableError: no usable answer; an update may have been carried out.
            AuthFailedError: Slurm does not let this user do it.
            NotFoundError: there is no such node.

        """
        argv, what = (program, *arguments), f"{PurePath(program).name} {arguments[0]}"
        variables = {name: value for name, value in os.environ.items() if not name.startswith(_THEIRS)}
        variables |= {"LC_ALL": "C", "TZ": "UTC"} | (
            {} if self.settings.conf is None else {"SLURM_CONF": self.settings.conf}
        )
        try:
            ended = subprocess.run(  # noqa: S603  the administrator's own program, and a list of arguments
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self.settings.timeout,
                env=variables,
                check=False,
            )
        except subprocess.TimeoutExpired:
            seconds = format_duration(self.settings.timeout)
            raise CloudUnavailableError(f"{what} did not end within {seconds}") from None
        except OSError as error:
            raise CloudUnavailableError(f"{argv[0]} cannot be started: {error.strerror or error}") from error
        output, words = (stream.decode("utf-8", "replace") for stream in (ended.stdout, ended.stderr))
        # scontrol tells of a node that it does not know in its output.
        told = _words(words or output)
        if ended.returncode == 0 and not (words.strip() and not output.strip()):
            return output
        if _NO_NODE.search(f"{output}\n{words}"):
            raise NotFoundError(f"{what}: {told}")
        if _DENIED.search(words):
            raise AuthFailedError(f"{what}: {told}; its user must be an operator of Slurm")
        raise CloudUnavailableError(f"{what} failed with status {ended.returncode}: {told}")


def _one(name: str) -> str:
    """The name, where it can only be that of one node.

    Raises:
        NotFoundError: it may be a list, or a word of scontrol's own.

    """
    if _NAME.fullmatch(name) is None or name.upper() == _ALL:
        raise NotFoundError(f"{legible(name)!r} is not the name of one node in Slurm")
    return name


def _words(text: str) -> str:
    """An error in one line."""
    return legible(" ".join(text.split()), _LONGEST_WORDS)
