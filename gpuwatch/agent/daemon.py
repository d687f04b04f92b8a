"""`gpuwatch agent`: reads the settings, then becomes a process that carries nothing but the agent.

The validator (pydantic, YAML) is needed for a moment and would stay in memory for years; so once the settings are
sound, the process replaces itself and hands them over through a file in memory.
"""

import argparse
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path

import msgspec

from gpuwatch import __version__
from gpuwatch.agent.access import is_loopback, protection_lacking
from gpuwatch.agent.attribution.joiner import Attribution
from gpuwatch.agent.control import ControlServer, device_commands
from gpuwatch.agent.control import order as give_order
from gpuwatch.agent.core import AgentCore, Snapshot
from gpuwatch.agent.exporter import Exporter
from gpuwatch.agent.health_watch import HealthFile, HealthWatch
from gpuwatch.agent.host.signals import HostSignals
from gpuwatch.agent.identity import board_node_id, discover_node_id
from gpuwatch.agent.instance import told
from gpuwatch.agent.instance.watcher import InstanceStatus, InstanceWatcher
from gpuwatch.agent.kmsg import KernelLog
from gpuwatch.agent.knobs import AgentKnobs
from gpuwatch.agent.security import door_of
from gpuwatch.agent.server import AgentServer, Response, Route
from gpuwatch.agent.supervisor import ProbeSupervisor
from gpuwatch.clock import Clock, SystemClock

_LOG = logging.getLogger(__name__)

_FAILED = 1
_BAD_CONFIGURATION = 2
_JSON = "application/json"

# Each flag says what a variable says too, and is judged by the same rules.
_FLAGS = {
    "source": "GPUWATCH_AGENT__SOURCE",
    "script": "GPUWATCH_AGENT__SCRIPT",
    "seed": "GPUWATCH_AGENT__SEED",
    "capture": "GPUWATCH_AGENT__CAPTURE",
    "interval": "GPUWATCH_AGENT__INTERVAL",
}
_ORDERS = {
    "release": "Make the agent of this host let go of its GPUs: for a reset, a MIG change or a driver upgrade.",
    "acquire": "Make the agent of this host read its GPUs again.",
}
_LISTEN = ("GPUWATCH_AGENT__HOST", "GPUWATCH_AGENT__PORT")


def main(argv: Sequence[str]) -> int:
    """Run the agent until SIGTERM or SIGINT, or give a running one an order; the result is the exit status."""
    if argv and argv[0] in _ORDERS:
        return _order(argv)
    arguments = _parser().parse_args(argv)
    if arguments.validated is None:
        return _validate(arguments)
    with os.fdopen(arguments.validated, "rb") as handed:
        knobs = msgspec.json.decode(handed.read(), type=AgentKnobs)
    _log_to_stderr()
    return _serve(knobs, SystemClock())


def _order(argv: Sequence[str]) -> int:
    """Tell the agent of this host to let go of the GPUs or to take them again."""
    from gpuwatch.configuration import ConfigError, load_agent  # noqa: PLC0415  loads the validator

    verb = argv[0]
    parser = argparse.ArgumentParser(prog=f"gpuwatch agent {verb}", description=_ORDERS[verb])
    parser.add_argument("--config", type=Path, metavar="FILE", help="where agent.control_socket is set, as the agent's")
    parser.add_argument("--socket", type=Path, metavar="PATH", help="the agent's control socket; no file is read then")
    parser.add_argument("--reason", default="", metavar="TEXT", help="told by the agent's verdict and health page")
    arguments = parser.parse_args(argv[1:])
    try:
        path = arguments.socket or Path(load_agent(arguments.config, os.environ).control_socket)
        answer = give_order(path, verb, arguments.reason)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return _BAD_CONFIGURATION
    except (OSError, ValueError) as error:
        sys.stderr.write(f"gpuwatch agent {verb}: {error}\n")
        return _FAILED
    (sys.stdout if answer.done else sys.stderr).write(f"{answer.text}\n")
    return 0 if answer.done else _FAILED


def _validate(arguments: argparse.Namespace) -> int:
    """Judge the settings and become the lean agent; returns only if they are wrong."""
    from gpuwatch.configuration import ConfigError, load_agent  # noqa: PLC0415  loads the validator

    given = {variable: getattr(arguments, flag) for flag, variable in _FLAGS.items()}
    given |= dict(zip(_LISTEN, arguments.listen or (None, None), strict=True))
    given["GPUWATCH_AGENT__COMPAT"] = ",".join(arguments.compat) if arguments.compat else None
    overrides = {variable: value for variable, value in given.items() if value is not None}
    try:
        knobs = load_agent(arguments.config, {**os.environ, **overrides})
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return _BAD_CONFIGURATION
    handed = os.memfd_create("gpuwatch-agent-settings", 0)  # no flags: it survives the exec
    os.write(handed, msgspec.json.encode(knobs))
    os.lseek(handed, 0, os.SEEK_SET)
    sys.stderr.flush()
    # One malloc arena for all threads, here and in the probe: a megabyte less, and nothing here allocates in a hurry.
    os.environ.setdefault("MALLOC_ARENA_MAX", "1")
    command = [sys.executable, "-P", "-m", "gpuwatch", "agent", "--validated", str(handed)]
    return os.execv(sys.executable, command)  # noqa: S606  ourselves


def _serve(knobs: AgentKnobs, clock: Clock) -> int:
    """Put the parts together and wait for the signal to end."""
    node_id = knobs.node_id or discover_node_id()
    host = HostSignals(knobs.evidence, clock, own_processes=knobs.source == "nvml")
    health = _health(knobs, clock)
    core = AgentCore(
        node_id=node_id,
        clock=clock,
        rules=knobs.activity,
        interval_seconds=knobs.interval,
        stale_after_seconds=knobs.stale_after_seconds,
        host=host.evidence,
        health=health,
    )
    users = Attribution(knobs.attribution, clock, lambda: core.snapshot(clock.monotonic()))
    instance = InstanceWatcher(knobs.instance, clock)
    exporter = Exporter(
        core,
        clock,
        node_id=node_id,
        top_processes=knobs.top_processes,
        leases=host.leases,
        users=users.view,
        instance=instance.status,
        foreign=_foreign(knobs, users),
    )
    supervisor = ProbeSupervisor(core, knobs, clock)
    try:
        door = door_of(knobs, clock)
    except (OSError, ValueError) as error:
        _LOG.error("%s", error)
        return _FAILED
    except ImportError as error:
        _LOG.error("agent.users_file and agent.basic_auth_users need bcrypt (%s): pip install 'gpuwatch[auth]'", error)
        return _FAILED
    try:
        server = AgentServer(
            knobs.host,
            knobs.port,
            routes(core, exporter, supervisor, clock, instance.status),
            clock=clock,
            max_connections=knobs.max_connections,
            timeout_seconds=knobs.connection_timeout,
            door=door,
        )
    except OSError as error:
        _LOG.error("cannot listen on %s port %d: %s; choose another agent.port", knobs.host, knobs.port, error)
        return _FAILED
    control = _control(knobs, supervisor, clock)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    supervisor.start()
    if knobs.source == "nvml" and knobs.kernel_log != "none":
        health.xids.kernel_log_up = KernelLog(knobs.kernel_log, clock, health.xids.hear).start()
    host.start(lambda: core.snapshot(clock.monotonic()).readings)
    if knobs.source == "nvml":  # others tell of processes that are not this host's
        users.start()
    instance.start(_namer(knobs, core, exporter))
    server.start()
    _LOG.info("gpuwatch agent %s of node %s serves %s/metrics", __version__, node_id, server.url)
    lacking = tuple(protection_lacking(knobs))
    if lacking and not is_loopback(str(server.server_address[0])):
        _LOG.warning("%s is open to the network without %s", server.url, " and without ".join(lacking))
    _notify("READY=1")
    stop.wait()
    _notify("STOPPING=1")
    _LOG.info("ends")
    server.close()
    if control is not None:
        control.close()
    host.stop()
    instance.stop()
    users.stop()
    supervisor.stop()
    return 0


def _namer(knobs: AgentKnobs, core: AgentCore, exporter: Exporter) -> Callable[[str], None]:
    """What the metadata service tells the instance id to, some time after the start; often it was known before."""

    def name(instance_id: str) -> None:
        if not knobs.node_id and board_node_id() is None:
            core.node_id = exporter.node_id = instance_id
            _LOG.info("this is node %s, says its cloud", instance_id)

    return name


def _health(knobs: AgentKnobs, clock: Clock) -> HealthWatch:
    """What watches over the GPUs' health; it remembers only real ones."""
    remembers = knobs.source == "nvml" and knobs.health_file != "none"
    file = HealthFile(Path(knobs.health_file)) if remembers else None
    return HealthWatch(clock, knobs.health, interval_seconds=knobs.interval, file=file)


def _control(knobs: AgentKnobs, supervisor: ProbeSupervisor, clock: Clock) -> ControlServer | None:
    """The control socket, obeyed from now on; without one the agent does all its other work."""
    if knobs.control_socket == "none":
        return None
    try:
        control = ControlServer(Path(knobs.control_socket), device_commands(supervisor, clock))
    except OSError as error:
        why = error.strerror or error
        remedy = "set agent.control_socket to a path that this user may make, or to none"
        _LOG.warning("no `gpuwatch agent release` here: %s cannot be made (%s); %s", knobs.control_socket, why, remedy)
        return None
    control.start()
    return control


def _foreign(knobs: AgentKnobs, users: Attribution) -> Callable[[Snapshot, bytes], bytes]:
    """What adds other exporters' names to a page; their tables are loaded only where they are asked for."""
    if not knobs.compat:
        return lambda _, page: page
    from gpuwatch.agent.compat import Compatibility  # noqa: PLC0415  loaded by few agents
    from gpuwatch.agent.compat.host import HostFigures  # noqa: PLC0415  likewise

    return Compatibility(
        knobs.compat,
        hostname=os.environ.get("NODE_NAME") or socket.gethostname(),
        top_processes=knobs.top_processes,
        users=users.view,
        host=HostFigures(),
    ).extend


def routes(
    core: AgentCore,
    exporter: Exporter,
    supervisor: ProbeSupervisor,
    clock: Clock,
    instance: Callable[[], InstanceStatus | None] = lambda: None,
) -> dict[str, Route]:
    """What the agent answers, by path."""

    def serve_metrics(accept: str) -> Response:
        page = exporter.page(accept)
        return Response(body=page.body, content_type=page.content_type, packed=page.packed)

    def serve_verdict(_: str) -> Response:
        return Response(body=msgspec.json.encode(core.verdict(clock.monotonic())), content_type=_JSON)

    def serve_health(_: str) -> Response:
        """The process: 200 as long as it does its work, also where there is no driver to read."""
        alive = supervisor.alive
        about = {"supervisor": "running" if alive else "dead", **health(core, clock), **told.health(instance())}
        body = msgspec.json.encode(about)
        status = HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(body=body, content_type=_JSON, status=status)

    return {"/metrics": serve_metrics, "/healthz": serve_health, "/v1/verdict": serve_verdict}


def health(core: AgentCore, clock: Clock) -> dict[str, object]:
    """What /healthz says of the probe and the GPUs, in words that a person can act on."""
    snapshot = core.snapshot(clock.monotonic())
    trouble = snapshot.trouble
    state = "starting" if snapshot.version == 0 else "silent" if snapshot.stale else "up"
    probe = {"state": state} if trouble is None else {"state": "down", **asdict(trouble)}
    return {
        "version": __version__,
        "probe": probe,
        "age_seconds": snapshot.verdict.age_seconds,
        "gpus_up": len(snapshot.readings),
        "gpus_down": [
            {"uuid": down.info.uuid, "gpu": down.info.index, "cause": down.cause, "detail": down.detail}
            for down in snapshot.downs
        ],
    }


def _log_to_stderr() -> None:
    """One line an event; the journal has its own clock."""
    stamp = "" if "JOURNAL_STREAM" in os.environ else "%(asctime)s "
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=f"{stamp}%(levelname)s %(message)s")


def _notify(state: str) -> None:
    """Tell systemd, where it listens (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith(("/", "@")):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to_systemd:
            to_systemd.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuwatch agent",
        description="Read the GPUs of this host; serve metrics and a verdict on their use.",
        epilog="A running agent obeys `gpuwatch agent release` and `gpuwatch agent acquire`; see their --help.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings ($GPUWATCH_CONFIG, /etc/gpuwatch/…)")
    parser.add_argument("--listen", type=_listen, metavar="HOST:PORT", help="where to serve (127.0.0.1:9460)")
    parser.add_argument("--source", metavar="NAME", help="nvml, simulated or replay (nvml)")
    parser.add_argument("--script", metavar="FILE", help="simulated: what the GPUs shall do")
    parser.add_argument("--seed", metavar="N", help="simulated: the same seed gives the same")
    parser.add_argument("--capture", metavar="FILE", help="replay: a recorded output of `gpuwatch probe`")
    parser.add_argument("--interval", metavar="DURATION", help="from cycle to cycle (1s)")
    parser.add_argument("--compat", action="append", metavar="NAME", help="also as dcgm, nvidia_smi or nvitop")
    parser.add_argument("--validated", type=int, help=argparse.SUPPRESS)
    return parser


def _listen(text: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no HOST:PORT, such as 127.0.0.1:9460 or [::1]:9460")
    return host.strip("[]") or "127.0.0.1", port
