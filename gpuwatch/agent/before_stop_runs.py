"""Runs the commands of `agent.before_stop` on a host, as root's socket unit: `gpuwatch agent before-stop`.

The agent itself has no right to become anybody else. So it asks this program through a socket of systemd, and says
nothing but which machine is to be stopped and how. What runs is in the settings and in people's own homes. All commands
run at the same time, each in a process group that is killed at its end, and the deadline is one for all.
"""

import os
import pwd
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from annotated_types import Ge, Le, MinLen

from gpuwatch.agent.command import CommandError, RunAs, run
from gpuwatch.model.bounds import BoundedFloat, BoundedInt
from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import Setting
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.printable import legible

OWN = ".config/gpuwatch/before-stop"  # below a person's home
ADMINISTRATOR = "the administrator"
_FIRST_PERSON, _NOBODY = 1000, 65534
_MOST_PEOPLE = 256
_LONGEST_WORDS = 200
_BEGINS_SECONDS = 5.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeStopSettings:
    """What is to run on a host before its machine is stopped."""

    command: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting(
            "Program and arguments, run as root without a shell when a machine's grace is over; a status other than 0 "
            "keeps the machine (docs/before-stop.md#before-it-is-stopped). Empty: none."
        ),
    ] = ()
    owners: Annotated[
        bool,
        Setting("Each person's own `~/.config/gpuwatch/before-stop` runs, too, as that person."),
    ] = False
    timeout: Annotated[Seconds, Ge(1), Le(3600), Setting("A command that takes longer is killed, and has failed.")] = (
        300.0
    )

    @property
    def wanted(self) -> bool:
        """Whether anything may have to run."""
        return bool(self.command) or self.owners


class StopRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the agent says: which machine is to be stopped, and how."""

    verb: Literal["stop", "terminate"]
    node_id: Annotated[str, msgspec.Meta(max_length=256)]


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How one command ended. `status` None: it could not be started, or was killed; `says` is its last line, or why."""

    whose: str
    status: BoundedInt | None
    seconds: BoundedFloat
    says: str = ""


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """How all commands of one run ended."""

    ran: tuple[Ran, ...]


Person = pwd.struct_passwd


def people(homes: Path = Path("/home"), known: Callable[[], Sequence[Person]] = pwd.getpwall) -> Iterator[Person]:
    """Yield the people who may have a command of their own: the host's list, and the owners of the homes in `homes`."""
    found = {each.pw_uid: each for each in known()}
    with suppress(OSError), os.scandir(homes) as entries:
        for entry in entries:
            with suppress(OSError, KeyError):
                uid = entry.stat(follow_symlinks=False).st_uid
                found.setdefault(uid, pwd.getpwuid(uid))
    yield from [each for uid, each in sorted(found.items()) if uid >= _FIRST_PERSON and uid != _NOBODY][:_MOST_PEOPLE]


def run_commands(
    settings: BeforeStopSettings, request: StopRequest, clock: Clock, everybody: Callable[[], Iterator[Person]] = people
) -> Runs:
    """Run the administrator's command and, where the settings let them, each person's own; wait for their ends."""
    told = {"GPUWATCH_STOP_ACTION": request.verb, "GPUWATCH_STOP_NODE": request.node_id, "PATH": _PATH}
    ended: dict[str, Ran] = {}

    def run_one(whose: str, argv: Sequence[str], user: RunAs) -> None:
        begun = clock.monotonic()
        ran = _run(whose, argv, user, settings.timeout)
        if ran is not None:
            ended[whose] = msgspec.structs.replace(ran, seconds=clock.monotonic() - begun)

    asked: list[tuple[str, Sequence[str], RunAs]] = []
    if settings.command:
        root = RunAs(uid=os.geteuid(), gid=os.getegid(), groups=os.getgroups(), environment=told)
        asked.append((ADMINISTRATOR, settings.command, root))
    asked += [
        (each.pw_name, (f"{each.pw_dir}/{OWN}",), _as_person(each, told))
        for each in (everybody() if settings.owners else ())
    ]
    threads = [threading.Thread(target=run_one, name=each[0], args=each, daemon=True) for each in asked]
    for thread in threads:
        thread.start()
    until = clock.monotonic() + settings.timeout + _BEGINS_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - clock.monotonic()))
        if thread.is_alive():
            late = "it did not begin in time: a file system may not answer"
            ended.setdefault(thread.name, Ran(whose=thread.name, status=None, seconds=settings.timeout, says=late))
    return Runs(ran=tuple(ended[whose] for whose in sorted(ended)))


def _as_person(person: Person, told: Mapping[str, str]) -> RunAs:
    """Everything that a person's program has of this process."""
    who = {"HOME": person.pw_dir, "USER": person.pw_name, "LOGNAME": person.pw_name, "SHELL": person.pw_shell}
    return RunAs(
        uid=person.pw_uid,
        gid=person.pw_gid,
        groups=os.getgrouplist(person.pw_name, person.pw_gid),
        environment={**told, **who},
    )


def _run(whose: str, argv: Sequence[str], user: RunAs, seconds: float) -> Ran | None:
    """Run one command to its end; None: there is no such command of that person."""
    try:
        found = run(argv, seconds, user=user)
    except CommandError as error:
        # A script without its interpreter is missing to the kernel, too.
        if whose != ADMINISTRATOR and error.missing and not os.path.lexists(argv[0]):
            return None
        return Ran(whose=whose, status=None, seconds=0.0, says=legible(str(error), _LONGEST_WORDS))
    text = (found.output.rstrip() or found.complaints.rstrip()).rpartition(b"\n")[2].decode("utf-8", "replace")
    return Ran(whose=whose, status=found.status, seconds=0.0, says=legible(text.strip(), _LONGEST_WORDS))


def answer(settings: BeforeStopSettings, asked: bytes, clock: Clock) -> bytes:
    """Answer the agent's request.

    Raises:
        ValueError: it is not a request.

    """
    return msgspec.json.encode(run_commands(settings, msgspec.json.decode(asked, type=StopRequest), clock))
