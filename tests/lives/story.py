"""A life as its file tells it: the truth, the host, and who does what. README.md and keys.py are its manual."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.lives import keys
from tests.lives.actors import Actor, Socket
from tests.lives.rates import LifeError, Part, Rate, amount, duration, moments, rate
from tests.lives.udp import Udp, udp_of

HERE = Path(__file__).parent
LIVES = HERE / "lives"
TRUTHS = ("busy", "forgotten")
BASE_USERS = {"root": 0, "daemon": 1, "man": 6, "nobody": 65534, "messagebus": 101, "systemd-network": 998,
    "systemd-resolve": 997, "syslog": 103, "_chrony": 110, "nvidia-persistenced": 111, "prometheus": 112,
    "ubuntu": 1000, "alice": 1001, "bob": 1002, "carol": 1003}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Somebody's session by SSH (or at a desktop) and its shell; `typed` are the moments of input."""

    user: str
    id: int
    tty: str | None
    begin: float
    end: float
    typed: tuple[float, ...]
    host: str
    kind: str
    shell: str | None
    utmp: bool
    waits: str | None = None
    closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Everything that is told of one host's day."""

    code: str
    title: str
    truth: str
    who: str
    seconds: float
    days: int
    used: float  # from then on somebody would miss it, and it is judged
    model: str
    gpu_count: int
    cloud_gpus: int
    gpus: Mapping[Any, Any]
    instance_store: str
    agent: Mapping[str, Any]
    users: Mapping[str, int]
    units: Mapping[str, Any]
    files: Mapping[str, Any]
    links: Mapping[str, str]
    commands: Mapping[str, Any]
    logins: tuple[Login, ...]
    terminals: Mapping[str, Mapping[str, Any]]
    cast: tuple[Actor, ...]
    rdma: Mapping[str, Any]
    web: tuple[Mapping[str, Any], ...]
    settings: Mapping[str, Any]
    forwards: Rate
    fleet: Mapping[str, Any]
    packages: Mapping[str, Any]
    datagrams: tuple[str, ...]
    udp: Udp


def load(path: Path) -> Life:
    """The life of a file.

    Raises:
        LifeError: it is not written as the README says.

    """
    told = _parsed(path)
    try:
        return _life(path.stem.partition("-")[0], told)
    except (LifeError, KeyError, TypeError, AttributeError) as error:
        raise LifeError(f"{path.name}: {type(error).__name__}: {error}") from error


def _life(code: str, told: Mapping[str, Any]) -> Life:
    unknown = told.keys() - keys.LIFE.keys()
    if unknown:
        raise LifeError(f"no life has {', '.join(sorted(unknown))}; known are {', '.join(sorted(keys.LIFE))}")
    if told["truth"] not in TRUTHS or not told.get("who"):
        raise LifeError("a life needs its truth (busy or forgotten) and who would miss it, or that nobody would")
    seconds = duration(told.get("ends", "24h"))
    base = {} if told.get("base") == "none" else _parsed(HERE / "base.yaml")
    users = BASE_USERS | {name: int(uid) for name, uid in told.get("users", {}).items()}
    gpus = dict(told.get("gpus") or {})
    count = int(gpus.pop("count", 1))
    logins = tuple(login for entry in told.get("logins", ()) for login in _logins(entry, seconds))
    cast = [actor for entry in base.get("cast", ()) for actor in _actors(entry)]
    cast += [actor for login in logins for actor in login_cast(login)]
    cast += [actor for entry in told.get("tmux", ()) for actor in _multiplexer(entry)]
    cast += _in_each_turn([actor for entry in told.get("cast", ()) for actor in _actors(entry)], told, seconds)
    windows = {entry["tty"]: {"typed": entry.get("from", "-50m"), **entry} for entry in told.get("tmux", ())}
    return Life(
        code=code,
        title=told["title"],
        truth=told["truth"],
        who=told["who"],
        seconds=seconds,
        days=int(told.get("days", 0)),
        used=duration(told.get("used", f"{24 * int(told.get('days', 0))}h")),
        model=gpus.pop("model", "A10G"),
        gpu_count=count,
        cloud_gpus=int(gpus.pop("of", count)),
        gpus=gpus,
        instance_store=told.get("instance_store", "none"),
        agent=told.get("agent") or {},
        users=users,
        units={**base.get("units", {}), **told.get("units", {})},
        files={**base.get("files", {}), **told.get("files", {})},
        links=told.get("links", {}),
        commands=told.get("commands", {}),
        logins=logins,
        terminals={**windows, **{name: dict(about or {}) for name, about in told.get("terminals", {}).items()}},
        cast=with_keepers(cast),
        rdma=told.get("rdma", {}),
        web=tuple(told.get("web", ())),
        settings=told.get("settings", {}),
        forwards=rate(told.get("forwards")),
        fleet=told.get("fleet", {}),
        packages=told.get("packages", {}),
        datagrams=tuple(told.get("datagrams", ())),
        udp=udp_of((base.get("udp", {}), told.get("udp", {})), seconds + 86400.0 * int(told.get("days", 0))),
    )


def _multiplexer(told: Mapping[str, Any]) -> list[Actor]:
    """A window of tmux or screen: the server, unless another window has it, and the shell in it."""
    program, place, user = told.get("program", "tmux"), told["in"], told["user"]
    server = f"{program} of {user}"
    shell = Actor(
        name=told.get("as", "shell"), comm="bash", exe="/usr/bin/bash", cmdline="-bash", user=user, place=place,
        parent=server, tty=told["tty"], begin=duration(told.get("from", "-50m")),
        end=duration(told["to"]) if "to" in told else float("inf"), waits=told.get("waits"),
    )  # fmt: skip
    if told.get("server") is False:
        return [shell]
    comm = "tmux: server" if program == "tmux" else "screen"
    words = "tmux new -s work" if program == "tmux" else "SCREEN -S work"
    keeper = Actor(
        name=server, comm=comm, exe=f"/usr/bin/{program}", cmdline=words, user=user, place=place, parent="init",
        begin=shell.begin, end=shell.end,
    )  # fmt: skip
    return [keeper, shell]


def _starts(told: Mapping[str, Any], until: float) -> list[float]:
    """When a login begins: once, or each time of those that come again and again."""
    first = duration(told.get("from", "-1h"))
    if "every" not in told:
        return [first]
    every, last = duration(told["every"]), min(until, duration(told["to"]) if "to" in told else until)
    return [first + every * turn for turn in range(int((last - first) / every) + 1)]


def _logins(told: Mapping[str, Any], until: float) -> list[Login]:
    """One that comes again and again has another session each time, as logind counts them."""
    once = _login({name: value for name, value in told.items() if name not in {"every", "for"}}, until)
    if "every" not in told:
        return [once]
    length = duration(told["for"])
    return [
        replace(once, id=once.id + turn, begin=begin, end=begin + length, typed=(begin,))
        for turn, begin in enumerate(_starts(told, until))
    ]


def _in_each_turn(cast: list[Actor], told: Mapping[str, Any], until: float) -> list[Actor]:
    """The cast, with what runs in a login that comes again and again once for each of its sessions."""
    found = cast
    for login in (each for each in told.get("logins", ()) if "every" in each):
        number, length = int(login["id"]), duration(login["for"])
        first, *_ = starts = _starts(login, until)
        here = [each for each in found if each.place == f"session {number}"]
        found = [each for each in found if each.place != f"session {number}"]
        names = {each.name: each.name for each in here} | {f"sshd{number}u": "sshd{}u", f"bash{number}": "bash{}"}
        for turn, begin in enumerate(starts):
            for each in here:
                parent = names.get(each.parent or "", each.parent or "").format(number + turn)
                made = replace(
                    each, name=f"{each.name} {turn}" if turn else each.name, place=f"session {number + turn}",
                    parent=(f"{parent} {turn}" if turn and parent in {one.name for one in here} else parent) or None,
                    begin=each.begin + begin - first, end=min(each.end + begin - first, begin + length),
                )  # fmt: skip
                found.append(replace(made, util=_while_there(made, made.end - made.begin)))
    return found


def _login(told: Mapping[str, Any], until: float) -> Login:
    tty = told.get("tty", "pts/0")
    end = duration(told["to"]) if "to" in told else float("inf")
    begin = duration(told.get("from", "-1h"))
    return Login(
        user=told["user"],
        id=int(told["id"]),
        tty=None if tty in {"none", None} else tty,
        begin=begin,
        end=end,
        typed=tuple(each for each in moments(told.get("typed", told.get("from", "-1h")), until) if each < end),
        host=told.get("host", "203.0.113.9"),
        kind=told.get("type", "tty"),
        shell=None if told.get("shell") == "none" else told.get("shell", "bash"),
        utmp=tty not in {"none", None} and told.get("utmp", True),
        waits=told.get("waits"),
        closed=bool(told.get("closed", False)),
    )


def login_cast(login: Login) -> list[Actor]:
    """The processes that sshd makes of a login: its own two and the shell."""
    if login.kind not in {"tty", "unspecified"}:
        return []
    place, number = f"session {login.id}", login.id
    peer = Socket(local="10.0.1.5:22", peer=f"{login.host}:{51000 + number}", begin=login.begin, end=login.end)
    window: dict[str, Any] = {"begin": login.begin, "end": login.end, "place": place}
    at = login.tty or "notty"
    guard = Actor(
        name=f"sshd{number}", comm="sshd", exe="/usr/sbin/sshd", cmdline=f"sshd: {login.user} [priv]",
        sockets=(peer,), parent="sshd", **{**window, "place": f"session {number} of {login.user}"},
    )  # fmt: skip
    mine = Actor(
        name=f"sshd{number}u", comm="sshd", exe="/usr/sbin/sshd", cmdline=f"sshd: {login.user}@{at}",
        user=login.user, sockets=(peer,), parent=guard.name, **window,
    )  # fmt: skip
    if login.shell is None:
        return [guard, mine]
    shell = Actor(
        name=f"{login.shell}{number}", comm=login.shell, exe=f"/usr/bin/{login.shell}", cmdline=f"-{login.shell}",
        user=login.user, tty=login.tty, parent=mine.name, waits=login.waits, **window,
    )  # fmt: skip
    return [guard, mine, shell]


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ACTOR_RATES = ("cores", "read", "write", "rchar", "wchar", "faults", "net", "send", "util")


def _actors(told: Mapping[str, Any]) -> list[Actor]:
    unknown = told.keys() - keys.PROCESS.keys()
    if unknown:
        raise LifeError(f"{told.get('comm')}: no process has {', '.join(sorted(unknown))}")
    comm = str(told["comm"])
    exe = told.get("exe", f"/usr/bin/{comm}")
    gpu = told.get("gpu", ())
    periodic = "every" in told
    rates: dict[str, Any] = {name: rate(told.get(name)) for name in _ACTOR_RATES}
    made = Actor(
        name=told.get("as", comm),
        comm=comm[:15],
        exe="" if told.get("in") == "kernel" else exe,
        cmdline="" if told.get("in") == "kernel" else told.get("cmdline", exe),
        cwd=told.get("cwd", "/"),
        user=told.get("user", "root"),
        place=told["in"],
        parent=told.get("parent"),
        tty=told.get("tty"),
        state=told.get("state", "S"),
        threads=int(told.get("threads", 1)),
        pid=told.get("pid"),
        begin=duration(told.get("start", "0s" if periodic else "-1h")),
        end=duration(told["end"]) if "end" in told else float("inf"),
        every=duration(told["every"]) if periodic else None,
        length=duration(told["for"]) if periodic else None,
        card=told.get("card", "ens5"),
        gpus=tuple(gpu) if isinstance(gpu, list | tuple) else (int(gpu),),
        gpu_memory=amount(told.get("gpu_memory", 0)),
        gpu_kind=told.get("gpu_kind", "compute"),
        listed=bool(told.get("listed", True)),
        sockets=(
            *map(connection_of, (*told.get("listens", ()), *told.get("connected", ()))),
            *(replace(connection_of(each), udp=True) for each in told.get("udp", ())),
        ),
        own_network=told.get("own_network"),
        waits=told.get("waits"),
        forked=bool(told.get("forked", False)),
        **rates,
    )
    made = replace(made, util=_while_there(made))
    copies = int(told.get("copies", 1))
    return [made] + [replace(made, name=f"{made.name}#{number}", sockets=()) for number in range(2, copies + 1)]


def _while_there(actor: Actor, once: float | None = None) -> Rate:
    """The use of the GPU by one that comes again and again, or `once` for so long: a constant one only then."""
    every, length = (actor.every, actor.length) if once is None else (float("inf"), once)
    if every is None or length is None:
        return actor.util
    turns, parts = [actor.begin, actor.end, every, length], actor.util.parts
    constant = (-float("inf"), float("inf"), float("inf"))
    return Rate(
        tuple(Part(each.rate, *turns) if (each.begin, each.end, each.period) == constant else each for each in parts)
    )


def connection_of(told: object) -> Socket:
    """`LOCAL PEER [from D] [to D] [every D for D]`; `LOCAL` alone listens. `chance` for `every`: one turn in five."""
    local, *words = str(told).split()
    peer = words.pop(0) if words else None
    terms = dict(zip(words[::2], map(duration, words[1::2]), strict=True))
    every, seldom = terms.get("every", terms.get("chance")), "chance" in terms
    socket = Socket(local=local, peer=peer, every=every, length=terms.get("for"), seldom=seldom)
    return replace(socket, begin=terms.get("from", socket.begin), end=terms.get("to", socket.end))


def with_keepers(cast: list[Actor]) -> tuple[Actor, ...]:
    """The cast with what a runtime starts beside each container, and the manager of each user who has one."""
    made = list(cast)
    seen = {actor.name for actor in cast if actor.name.startswith("user@ ")}
    for actor in sorted(cast, key=lambda each: each.begin):
        kind, _, name = actor.place.partition(" ")
        if kind in {"docker", "pod"} and actor.place not in seen:
            seen.add(actor.place)
            made.append(
                Actor(
                    name=f"shim {name}",
                    comm="containerd-shim",
                    exe="/usr/bin/containerd-shim-runc-v2",
                    threads=11,
                    cmdline=f"/usr/bin/containerd-shim-runc-v2 -namespace moby -id {name}",
                    place="unit containerd.service",
                    begin=actor.begin - 1,
                )
            )
        manager = f"user@ {actor.user}"
        needs = kind in {"session", "user", "podman"} and actor.user != "root"
        if needs and manager not in seen:
            seen.add(manager)
            made.append(
                Actor(
                    name=manager,
                    comm="systemd",
                    exe="/usr/lib/systemd/systemd",
                    user=actor.user,
                    cmdline="/usr/lib/systemd/systemd --user",
                    place="user init.scope",
                    begin=actor.begin - 2,
                )
            )
            made.append(
                Actor(
                    name=f"(sd-pam) {actor.user}",
                    comm="(sd-pam)",
                    exe="/usr/lib/systemd/systemd",
                    user=actor.user,
                    cmdline="(sd-pam)",
                    place="user init.scope",
                    parent=manager,
                    begin=actor.begin - 2,
                )
            )
    return tuple(made)


@cache
def _parsed(path: Path) -> dict[str, Any]:
    """A file's YAML; the base is read once for all lives."""
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506  it is the safe one
    except yaml.YAMLError as error:
        raise LifeError(f"{path.name} is no YAML: {error}") from error
    if not isinstance(found, dict):
        raise LifeError(f"{path.name}: expected a mapping")
    return found


def all_paths() -> list[Path]:
    """Every life, by its code."""
    return sorted(LIVES.glob("*.yaml"))


assert {each.name for each in fields(Actor)} >= set(_ACTOR_RATES)
