"""PURE: attributes a process to people, to a login, to the machine or to the kernel.

Its control group, its unit, its program and its user decide. The first rule that fits counts. What no rule names
belongs to people: a machine is stopped only if nobody's program is alive on it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import translate
from functools import cache, lru_cache

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.processes import known_programs as known
from gpuwatch.agent.processes.patterns import Pattern
from gpuwatch.agent.processes.process import Kind

# Users from 1000 on are people, but for nobody (systemd's and Debian's) and those of snaps (snapd, osutil/sys).
_FIRST_PERSON, _NOBODY = 1000, frozenset({65534, 65535, *range(584788, 584793)})
_DYNAMIC = range(61184, 65520)  # DynamicUser= (systemd.io/UIDS-GIDS); a directory of users may have such numbers, too
_NUMBER = re.compile(r"[0-9]+")
_WATCH_WAITS = re.compile(r"-[a-z]*[egq].*|--(?:chg|err|equ)exit.*")  # it ends at a change, an error, or when at rest
PATTERN = "agent."  # how the rules of the administrator's patterns begin
CRON_JOB = "cron job of root"
VIEWER = "viewer"
SHELL = "shell"
PACKAGED = "unit of a package"
HUM = "hum: "  # how the rules begin of what recurs without a GPU, as a week has shown or a package says
TIMED = f"{HUM}is run by a timer of its package"
AGENT = "agent of a cloud or a vendor"
OF_CLUSTER = "pod of the cluster's own"


class UnitOrigin(StrEnum):
    """Who made a unit, by where its file lies."""

    SHIPPED = "shipped"  # a package of the distribution, or one whose owner is not known: /usr/lib/systemd/system
    VENDOR = "another vendor's"  # a package of somebody else: a company's, NVIDIA's
    ADMINISTRATOR = "administrator"  # /etc/systemd/system
    TRANSIENT = "transient"  # systemd-run
    UNKNOWN = "unknown"


_BY_PACKAGES = frozenset({UnitOrigin.SHIPPED, UnitOrigin.VENDOR})


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a process is judged by.

    `script` is whether a shell runs a script or a command and not a person's input, or `watch` does more than look.
    `own_script` is the name of a script that lies in no folder of the system, or that no package brought: people name
    theirs as they like, so it is compared only with names that no program has by chance. `own_file` is whether that is
    so of its program's file: an everyday word says nothing of it then. `of_nobody` is whether a database of packages
    proves that no package brought its program or its script: then the unit's name says nothing of it, either.
    `own_work` is whether either of them, or what another tool interprets, does: no package brought that. `by_hand` is
    whether no distribution's package did: it lies in /opt or /usr/local, for example, or is a command. `of_agent` is
    whether its file or its script lies where only agents of clouds and vendors have theirs. `unproven` is whether at
    most the process itself says what its program is, because the kernel does not show it. `of_cluster` is whether its
    pod is in a namespace of the cluster's own. `timed` is whether the distribution is proved to have brought a timer
    for its unit.
    """

    names: tuple[str, ...]  # short name, base name of its program's file, and of the script that it interprets
    own_script: str | None = None
    own_file: bool = False
    own_work: bool = False
    by_hand: bool = False
    of_agent: bool = False
    of_nobody: bool = False
    unproven: bool = False
    of_cluster: bool = False
    timed: bool = False
    uid: int
    user: str
    placement: Placement
    slice: str  # the first part of its group's path
    kernel: bool = False
    script: bool = False
    tty: bool = False
    origin: UnitOrigin = UnitOrigin.UNKNOWN

    @property
    def system_names(self) -> tuple[str, ...]:
        """Its names without that of somebody's own script, and without everyday words for what may be people's own."""
        own = self.own_file or self.unproven
        if not own and self.own_script is None:  # most
            return self.names
        names = (name for name in self.names if name != self.own_script)
        return tuple(name for name in names if not (own and _matches(name, known.EVERYDAY_NAMES)))

    @property
    def viewer(self) -> bool:
        """Whether it only looks; people install some viewers for themselves."""
        return _one_of(self.system_names, known.VIEWERS) or _one_of(self.names, known.INSTALLED_VIEWERS)

    def names_by(self, by: str) -> tuple[str, ...]:
        """What a pattern of this kind is compared with."""
        looked = {
            "unit": (self.placement.systemd_unit or "",),
            "program": self.names,
            "user": (self.user, str(self.uid)),
            "slice": (self.slice,),
        }
        return looked[by]


def classify(facts: Facts, workloads: Iterable[Pattern] = (), services: Iterable[Pattern] = ()) -> tuple[Kind, str]:
    """The kind of a process, and the rule that says so."""
    chosen = by_patterns(facts, workloads, services)
    if chosen is not None:
        return chosen
    if facts.kernel:
        return Kind.KERNEL, "kernel thread"
    placement = facts.placement
    if placement.slurm_job is not None:
        return Kind.PEOPLE, "Slurm job"
    if facts.of_agent and (not _is_person(facts.uid) or _is_in_own_unit(placement)):
        return Kind.SERVICE, AGENT
    if facts.of_cluster and not facts.tty and not _one_of(facts.names, known.WORK_NAMES):
        return Kind.SERVICE, OF_CLUSTER
    if placement.container_id is not None or placement.pod_uid is not None or is_system_container(facts.slice):
        if _one_of(facts.names, known.GUEST_NAMES if placement.pod_uid else known.ANYBODYS_NAMES):
            return Kind.PEOPLE, "container"
        own = _one_of(facts.system_names, known.SERVICE_PROGRAMS) and not is_shell(facts.names)
        return (Kind.SERVICE, "program of the machine's own") if own else (Kind.PEOPLE, "container")
    if placement.own_names or facts.slice == "user.slice":
        return _of_login(facts)
    unit = placement.systemd_unit
    if unit is not None and _matches(unit, known.LOGIN_UNITS):
        return _in_login_unit(facts, unit)
    return _of_system(facts, unit)


def name_in_fleet(facts: Facts, path: str | None) -> str | None:
    """The name of a service, the same on all machines that run it: its unit, and the file of its program or script.

    None: other machines say nothing about it. It is a person's, a job's or a container's, is there for people's work,
    or does not show its file. Numbers in it are left out: releases differ.
    """
    placement, unit = facts.placement, facts.placement.systemd_unit
    if path is None or facts.kernel or facts.tty or _is_person(facts.uid) or placement.slurm_job is not None:
        return None
    if unit is None or not unit.endswith(".service") or not _is_in_own_unit(placement):
        return None
    if facts.slice in {"user.slice", "kubepods.slice"} or is_system_container(facts.slice):
        return None
    of_work = _matches(unit, (*known.WORK_NAMES, *known.JOB_UNITS)) or _one_of(facts.names, known.WORK_NAMES)
    if of_work or facts.origin in {UnitOrigin.TRANSIENT, UnitOrigin.UNKNOWN}:
        return None
    name, at, _ = unit.removesuffix(".service").partition("@")
    return _NUMBER.sub("0", f"{name}{at} {path}")


def _is_in_own_unit(placement: Placement) -> bool:
    """Whether a process runs in a system's unit that has no logins and no containers."""
    unit = placement.systemd_unit
    outside = placement.own_names or placement.container_id is not None or placement.pod_uid is not None
    return unit is not None and not outside and not _matches(unit, known.LOGIN_UNITS)


def is_system_container(name: str) -> bool:
    """Whether a group is that of systemd-nspawn, a virtual machine, LXC, LXD or Incus; units below are the guest's."""
    return name in {"machine.slice", "lxc"} or name.startswith("lxc.payload")


def by_patterns(facts: Facts, workloads: Iterable[Pattern], services: Iterable[Pattern]) -> tuple[Kind, str] | None:
    """What the administrator's patterns say; None: nothing."""
    for kind, key, patterns in ((Kind.PEOPLE, "workloads", workloads), (Kind.SERVICE, "services", services)):
        for pattern in patterns:
            if pattern.matches(facts.names_by(pattern.by)):
                return kind, f"{PATTERN}{key} {pattern.by}:{pattern.glob}"
    return None


def may_use_gpu_unseen(facts: Facts, *, computes: bool) -> bool:
    """Whether a process of the machine's own neither parks a GPU nor makes it busy.

    People name their programs as they like: one that is called like the screen's, and computes, is not the screen.
    What draws for a login screen is known by its user.
    """
    contained = facts.placement.container_id is not None or facts.placement.pod_uid is not None
    if not computes and (_one_of(facts.names, known.SCREEN_PROGRAMS) or (not contained and _is_greeter(facts))):
        return True
    return (contained or not _is_person(facts.uid)) and _one_of(facts.names, known.GPU_SERVICE_PROGRAMS)


def _of_login(facts: Facts) -> tuple[Kind, str]:
    """A process below user.slice."""
    if facts.viewer and not facts.script:
        return Kind.SESSION, VIEWER
    if facts.uid == 0 and _one_of(facts.system_names, known.CRON_STARTERS):
        return Kind.SERVICE, "cron's own"
    if _is_greeter(facts):
        return Kind.SESSION, "login screen"
    if is_shell(facts.names):
        return (Kind.PEOPLE, "script") if facts.script or not facts.tty else (Kind.SESSION, SHELL)
    if _one_of(facts.system_names, known.SESSION_PROGRAMS):
        return Kind.SESSION, "session"
    return Kind.PEOPLE, "user's program"


def _is_greeter(facts: Facts) -> bool:
    """Whether it is of a login screen: a system's user of that name, and a program that a package brought."""
    return not _is_person(facts.uid) and _matches(facts.user, known.GREETERS) and not facts.own_work


def _in_login_unit(facts: Facts, unit: str) -> tuple[Kind, str]:
    """A process of a unit in which people's programs run, too."""
    if not _is_person(facts.uid) and not is_shell(facts.names) and _one_of(facts.system_names, known.SERVICE_PROGRAMS):
        return Kind.SERVICE, "program of the machine's own"
    if _matches(unit, known.CRON_UNITS):
        return (Kind.PEOPLE, "cron job") if _is_person(facts.uid) else (Kind.PEOPLE, CRON_JOB)
    return _of_login(facts)


def _of_system(facts: Facts, unit: str | None) -> tuple[Kind, str]:
    """A process of a system service, or of no unit at all."""
    if (unit is not None and _matches(unit, known.WORK_NAMES)) or _named_work(facts):
        return Kind.PEOPLE, "model server or tool"
    if unit is not None and _matches(unit, known.JOB_UNITS):
        own = facts.uid == 0 or _one_of(facts.system_names, known.SERVICE_PROGRAMS)
        return (Kind.SERVICE, "batch system") if own else (Kind.PEOPLE, "batch job")
    if unit is not None and (_is_of_the_machine(unit, facts) or _exports(unit, facts)):
        return Kind.SERVICE, "unit of the machine's own"
    dynamic = facts.uid in _DYNAMIC and facts.origin in _BY_PACKAGES
    if _is_person(facts.uid) and not dynamic:
        return _of_login(facts) if unit is None else (Kind.PEOPLE, "user's program")
    if _one_of(facts.system_names, known.SERVICE_PROGRAMS):
        return Kind.SERVICE, "program of the machine's own"
    if _one_of(facts.system_names, known.SCREEN_PROGRAMS):
        return Kind.SESSION, "session"
    if unit is not None and facts.origin is UnitOrigin.SHIPPED:
        if facts.own_work:
            return Kind.PEOPLE, "own program in a package's unit"
        return Kind.SERVICE, TIMED if facts.timed else PACKAGED
    if unit is None and facts.tty:
        return _of_login(facts)
    return Kind.PEOPLE, "not attributed" if unit is None else f"{facts.origin.value} unit"


def _is_of_the_machine(unit: str, facts: Facts) -> bool:
    """Whether a unit's name says so. An administrator may call a unit `rpc-server`: its program decides then."""
    if _matches(unit, known.GPU_MONITORING_UNITS):
        return True
    system = _matches(unit, known.SYSTEM_UNITS)
    if not system and not _matches(unit, known.VENDOR_UNITS):
        return False
    shipped = facts.origin is UnitOrigin.SHIPPED and not facts.of_nobody
    if shipped or not (facts.by_hand if system else facts.own_work):
        return True
    telling = tuple(name for name in facts.names if not _matches(name, known.EVERYDAY_NAMES))
    return _one_of(telling, known.SERVICE_PROGRAMS)


def _exports(unit: str, facts: Facts) -> bool:
    """Whether it is a Prometheus exporter; one in an interpreter is one only where a package made its unit."""
    shipped = facts.origin is UnitOrigin.SHIPPED
    return _matches(unit, known.EXPORTER_UNITS) and (shipped or not _one_of(facts.names, known.TOOLS))


def _named_work(facts: Facts) -> bool:
    """Whether it is a program for people's work; a tool is one only where no package made the unit."""
    if _one_of(facts.names, known.WORK_NAMES):
        return True
    unit = facts.placement.systemd_unit
    shipped = facts.origin is UnitOrigin.SHIPPED or (unit is not None and _is_of_the_machine(unit, facts))
    return not shipped and _one_of(facts.names, known.TOOLS)


@lru_cache(maxsize=512)
def is_interpreter(names: tuple[str, ...]) -> bool:
    """Whether a program of this name runs scripts."""
    return _one_of(names, known.INTERPRETERS)


@lru_cache(maxsize=512)
def protects(names: tuple[str, ...]) -> bool:
    """Whether a program of this name may be people's work, and is never the machine's own for its name."""
    work = (*known.INTERPRETERS, *known.SHELLS, *known.TOOLS, *known.WORK_NAMES)
    return _one_of(names, work) and not _one_of(names, (*known.SERVICE_PROGRAMS, *known.SESSION_PROGRAMS))


@lru_cache(maxsize=512)
def is_agents_file(path: str) -> bool:
    """Whether a file lies where only agents of clouds and vendors have theirs."""
    return ".." not in path and _matches(path, known.AGENT_FILES)


def is_clusters(namespace: str | None) -> bool:
    """Whether a cluster keeps its own pods in that namespace; people have others."""
    return namespace is not None and _matches(namespace, known.CLUSTER_NAMESPACES)


def is_vendors_unit(unit: str) -> bool:
    """Whether a unit of this name comes from a vendor's installer, or monitors GPUs, wherever its file lies."""
    return any(
        _matches(name, (*known.VENDOR_UNITS, *known.GPU_MONITORING_UNITS))
        for name in (unit, f"{unit.rpartition('.')[0]}.service")
    )


def is_model_server(names: tuple[str, ...]) -> bool:
    """Whether a program of this name serves a model and counts its requests on a page."""
    return _one_of(names, known.MODEL_SERVERS)


def is_there_to_be_read(names: tuple[str, ...], unit: str | None) -> bool:
    """Whether monitoring reads pages of such a program on every machine: an exporter, a kubelet."""
    units = (*known.EXPORTER_UNITS, *known.GPU_MONITORING_UNITS)
    return _one_of(names, known.PAGES) or (unit is not None and _matches(unit, units))


def lets_people_in(names: tuple[str, ...]) -> bool:
    """Whether a program of this name lets people log in: its connections are theirs, and counted as theirs."""
    return _one_of(names, known.DOORS)


@lru_cache(maxsize=512)
def is_tool(names: tuple[str, ...]) -> bool:
    """Whether a program of this name does what its arguments say."""
    return _one_of(names, known.TOOLS)


def pulls_images(names: tuple[str, ...]) -> bool:
    """Whether a program of the machine's own works for people when it works much."""
    return _one_of(names, known.RUNTIME_PROGRAMS)


def only_looks(names: tuple[str, ...]) -> bool:
    """Whether a program of this name, run by `watch` for a moment, shows something and does nothing."""
    return is_viewer(names) or is_shell(names) or _one_of(names, known.LOOKED_WITH)


def watch_works(words: list[str]) -> bool:
    """Whether these arguments make `watch` more than a look: it waits for a change, or runs what works."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            program = re.split(r"[\s;|&]", word.strip(), maxsplit=1)[0].rpartition("/")[2]
            return bool(program) and not only_looks((program,))
        if _WATCH_WAITS.fullmatch(word):
            return True
        if word in {"-n", "--interval"}:
            next(rest, None)
    return False


def installs(names: tuple[str, ...]) -> bool:
    """Whether a program of this name changes the software of the machine."""
    return _one_of(names, known.PACKAGE_PROGRAMS)


def is_viewer(names: tuple[str, ...]) -> bool:
    """Whether a program of this name only looks at what others do."""
    return _one_of(names, known.VIEWERS)


@lru_cache(maxsize=512)
def is_shell(names: tuple[str, ...]) -> bool:
    """Whether a program of this name is a shell."""
    return _one_of(tuple(name.removeprefix("-") for name in names), known.SHELLS)


def _is_person(uid: int) -> bool:
    return uid >= _FIRST_PERSON and uid not in _NOBODY


def _one_of(names: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    for name in names:  # noqa: SIM110  thousands of times: `any` makes a generator for each
        if _matches(name, patterns):
            return True
    return False


@lru_cache(maxsize=2048)
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return bool(patterns) and _expression(patterns).match(name) is not None


@cache
def _expression(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One for all of them: `fnmatch` would keep one for each, which takes ten times the memory."""
    return re.compile("|".join(map(translate, patterns)))
