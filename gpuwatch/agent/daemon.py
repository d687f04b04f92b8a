"""`gpuwatch agent`: reads the settings, then becomes a process that carries nothing but the agent.

The validator (pydantic, YAML) is needed for a moment and would stay in memory for years; so once the settings are
sound, the process replaces itself and hands them over through a file in memory.
"""

import argparse
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path

import msgspec

from gpuwatch import __version__
from gpuwatch.agent.core import AgentCore
from gpuwatch.agent.exporter import Exporter
from gpuwatch.agent.identity import discover_node_id
from gpuwatch.agent.knobs import AgentKnobs
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
_LISTEN = ("GPUWATCH_AGENT__HOST", "GPUWATCH_AGENT__PORT")


def main(argv: Sequence[str]) -> int:
    """Run the agent until SIGTERM or SIGINT; the result is the exit status."""
    arguments = _parser().parse_args(argv)
    if arguments.validated is None:
        return _validate(arguments)
    with os.fdopen(arguments.validated, "rb") as handed:
        knobs = msgspec.json.decode(handed.read(), type=AgentKnobs)
    _log_to_stderr()
    return _serve(knobs, SystemClock())


def _validate(arguments: argparse.Namespace) -> int:
    """Judge the settings and become the lean agent; returns only if they are wrong."""
    from gpuwatch.configuration import ConfigError, load_agent  # noqa: PLC0415  loads the validator

    given = {variable: getattr(arguments, flag) for flag, variable in _FLAGS.items()}
    given |= dict(zip(_LISTEN, arguments.listen or (None, None), strict=True))
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
    command = [sys.executable, "-P", "-m", "gpuwatch", "agent", "--validated", str(handed)]
    return os.execv(sys.executable, command)  # noqa: S606  ourselves


def _serve(knobs: AgentKnobs, clock: Clock) -> int:
    """Put the parts together and wait for the signal to end."""
    node_id = knobs.node_id or discover_node_id()
    core = AgentCore(
        node_id=node_id,
        clock=clock,
        rules=knobs.activity,
        interval_seconds=knobs.interval,
        stale_after_seconds=knobs.stale_after_seconds,
    )
    exporter = Exporter(core, clock, node_id=node_id, top_processes=knobs.top_processes)
    supervisor = ProbeSupervisor(core, knobs, clock)
    try:
        server = AgentServer(
            knobs.host,
            knobs.port,
            routes(core, exporter, supervisor, clock),
            clock=clock,
            max_connections=knobs.max_connections,
            timeout_seconds=knobs.connection_timeout,
        )
    except OSError as error:
        _LOG.error("cannot listen on %s port %d: %s; choose another agent.port", knobs.host, knobs.port, error)
        return _FAILED
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    supervisor.start()
    server.start()
    _LOG.info("gpuwatch agent %s of node %s serves %s/metrics", __version__, node_id, server.url)
    if not _is_loopback(server.server_address[0]):
        _LOG.warning("%s is open to the network, without authentication or encryption", server.url)
    _notify("READY=1")
    stop.wait()
    _notify("STOPPING=1")
    _LOG.info("ends")
    server.close()
    supervisor.stop()
    return 0


def routes(core: AgentCore, exporter: Exporter, supervisor: ProbeSupervisor, clock: Clock) -> dict[str, Route]:
    """What the agent answers, by path."""

    def serve_metrics(accept: str) -> Response:
        page = exporter.page(accept)
        return Response(body=page.body, content_type=page.content_type, packed=page.packed)

    def serve_verdict(_: str) -> Response:
        return Response(body=msgspec.json.encode(core.verdict(clock.monotonic())), content_type=_JSON)

    def serve_health(_: str) -> Response:
        """The process: 200 as long as it does its work, also where there is no driver to read."""
        alive = supervisor.alive
        body = msgspec.json.encode({"supervisor": "running" if alive else "dead", **health(core, clock)})
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


def _is_loopback(host: object) -> bool:
    """Whether only this machine can reach that address."""
    return ipaddress.ip_address(str(host).split("%", 1)[0]).is_loopback


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
        prog="gpuwatch agent", description="Read the GPUs of this host; serve metrics and a verdict on their use."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings ($GPUWATCH_CONFIG, /etc/gpuwatch/…)")
    parser.add_argument("--listen", type=_listen, metavar="HOST:PORT", help="where to serve (127.0.0.1:9460)")
    parser.add_argument("--source", metavar="NAME", help="nvml, simulated or replay (nvml)")
    parser.add_argument("--script", metavar="FILE", help="simulated: what the GPUs shall do")
    parser.add_argument("--seed", metavar="N", help="simulated: the same seed gives the same")
    parser.add_argument("--capture", metavar="FILE", help="replay: a recorded output of `gpuwatch probe`")
    parser.add_argument("--interval", metavar="DURATION", help="from cycle to cycle (1s)")
    parser.add_argument("--validated", type=int, help=argparse.SUPPRESS)
    return parser


def _listen(text: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no HOST:PORT, such as 127.0.0.1:9460 or [::1]:9460")
    return host.strip("[]") or "127.0.0.1", port
