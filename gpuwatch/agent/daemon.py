"""The running agent: its parts put together, and what it answers. `agent/launch.py` starts it."""

import logging
import re
import socket
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path

import msgspec

from gpuwatch import __version__
from gpuwatch.agent import before_stop, closed_reader, power, wall
from gpuwatch.agent.attribution.attribution import Attribution
from gpuwatch.agent.before_stop import BeforeStops
from gpuwatch.agent.certificate import certificate_ends
from gpuwatch.agent.confirm import Busy, Confirmations, nonce_in
from gpuwatch.agent.control import ControlServer, device_commands
from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.registry import HostSignals
from gpuwatch.agent.exporter.exporter import Exporter, Page
from gpuwatch.agent.exporter.groups import exported_groups, groups_in
from gpuwatch.agent.health.kernel_log import KernelLog
from gpuwatch.agent.health.watch import HealthFile, HealthWatch
from gpuwatch.agent.metadata import metrics
from gpuwatch.agent.metadata.watcher import InstanceStatus, InstanceWatcher
from gpuwatch.agent.parts import assemble_parts, host_name
from gpuwatch.agent.posted import Answer, posted_app
from gpuwatch.agent.probe.supervisor import ProbeSupervisor
from gpuwatch.agent.processes.pool import Question
from gpuwatch.agent.published import Snapshot
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.agent.slurm_jobs.watch import CGROUPS, SlurmJobs
from gpuwatch.agent.state import AgentCore
from gpuwatch.agent.wall import Terminals
from gpuwatch.model.activity import State
from gpuwatch.model.verdict import NodeVerdict
from gpuwatch.runtime.clock import Clock, SystemClock
from gpuwatch.runtime.http.access import is_loopback, protection_lacking
from gpuwatch.runtime.http.auth import make_auth
from gpuwatch.runtime.http.request import TEXT, Response, probe_routes
from gpuwatch.runtime.http.server import HttpServer, QueryRoute, Route
from gpuwatch.runtime.log_format import LogFormat, log_to_stderr
from gpuwatch.runtime.network_errors import not_listening
from gpuwatch.runtime.systemd import SignalWaiter, Watchdog, notify, notify_reloading

_LOG = logging.getLogger(__name__)

_UNUSABLE = 2  # the exit status: it cannot work as it is configured
_RELEASED = "the GPUs are released, and a restart would take them; run `gpuwatch agent acquire` first"
_JSON = "application/json"
# EC2's Nitro hypervisor writes the instance id there; readable by everybody.
BOARD_ASSET_TAG = Path("/sys/devices/virtual/dmi/id/board_asset_tag")
_EC2_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")


def serve(settings: AgentSettings, reread: Callable[[], AgentSettings], log_format: LogFormat) -> int | None:
    """Run the agent until a signal comes; returns the exit status, or None to restart with new settings.

    `reread` gives the settings as they are now, or raises ValueError with every mistake in them.
    """
    log_to_stderr("%(levelname)s %(message)s", log_format)
    clock = SystemClock()
    try:
        door = make_auth(settings, clock, "agent")
    except (OSError, ValueError, ImportError) as error:
        _LOG.error("%s", error)
        return _UNUSABLE
    closed_reader.allow(settings.evidence.jupyter.runtime_dirs)
    node_id = settings.node_id or discover_node_id()
    health = _health(settings, clock)
    parts = assemble_parts(settings, clock, node_id=node_id, health=health, keeps_days=True)
    core, host, users, supervisor = parts.core, parts.host, parts.users, parts.supervisor
    instance = _instance(settings, core, clock)
    exporter = Exporter(
        core,
        clock,
        node_id=node_id,
        top_processes=settings.top_processes,
        snoozes=host.snoozes,
        users=users.view,
        instance=instance.status,
        certificates=certificate_ends(settings, clock),
        logins=door.failures,
        foreign=_foreign(settings, users),
        blind=host.blind.codes,
        rdma_ports=host.rdma_ports,
        strangers=host.strangers,
        groups=exported_groups(settings),
    )
    terminals = Terminals(clock, Roots(), socket.gethostname(), lambda: core.node_id)
    stops = before_stop.stops_of(settings.before_stop, core, host, clock)
    answers = routes(core, exporter, supervisor, clock, instance.status, parts.page, host)
    try:
        server = HttpServer(
            settings.host,
            settings.port,
            answers,
            clock=clock,
            max_connections=settings.max_connections,
            timeout_seconds=settings.connection_timeout,
            door=door,
            app=posted_app(
                _posted_answers(settings, core, clock, terminals, stops), tuple(answers), settings.notice_users
            ),
            queries=queries(
                Confirmations(core, host.watcher, supervisor.ask, clock, stops.now), exporter, core, host, clock
            ),
        )
    except OSError as error:
        _LOG.error("cannot listen on %s port %d: %s", settings.host, settings.port, not_listening(error, "agent"))
        return _UNUSABLE
    control = _control(settings, supervisor, clock)
    ending = SignalWaiter()
    supervisor.start()
    if settings.reads_this_host and settings.kernel_log != "none":
        health.xids.kernel_log_up = KernelLog(settings.kernel_log, clock, health.xids.hear).start()
    host.start(lambda: core.snapshot(clock.monotonic()).readings)
    _watch_users(settings, core, users, clock)
    instance.start(_namer(settings, core, exporter))
    server.start()
    if settings.controller is not None:
        from gpuwatch.agent.renewal import Renewal  # noqa: PLC0415  loaded by hosts that have joined

        Renewal(settings, clock).start()
    _LOG.info("gpuwatch agent %s of node %s serves %s/metrics", __version__, node_id, server.url)
    lacking = tuple(protection_lacking(settings))
    if lacking and not is_loopback(str(server.server_address[0])):
        _LOG.warning("%s is open to the network without %s", server.url, " and without ".join(lacking))
    watchdog = Watchdog(lambda: supervisor.turns, rests=_longest_rest(settings))
    watchdog.start()
    ends = _ends(ending, supervisor, reread, clock)
    watchdog.stop()
    server.close()
    terminals.stop()
    if control is not None:
        control.close()
    host.stop()
    instance.stop()
    users.stop()
    supervisor.stop()
    return 0 if ends else None


def _instance(settings: AgentSettings, core: AgentCore, clock: Clock) -> InstanceWatcher:
    """What the cloud says of this machine; its notices are in the verdict."""
    instance = InstanceWatcher(settings.metadata, clock)
    core.cloud_notices = instance.notices
    return instance


def _posted_answers(
    settings: AgentSettings, core: AgentCore, clock: Clock, terminals: Terminals, stops: BeforeStops
) -> dict[str, Answer | None]:
    """What clients may ask for by POST; None: it is switched off."""

    def node() -> tuple[str, State]:
        return core.node_id, core.verdict(clock.monotonic()).activity.state

    return {
        wall.PATH: wall.notices(terminals) if settings.wall else None,
        before_stop.PATH: before_stop.orders(stops) if settings.before_stop.wanted else None,
        power.PATH: power.power_answers(node, allowed=settings.poweroff),
    }


def _longest_rest(settings: AgentSettings) -> float:
    """Seconds for which the supervisor may be silent without being stuck."""
    return max(settings.start_deadline, settings.restart_max, settings.interval + settings.deadline)


def _ends(ending: SignalWaiter, supervisor: ProbeSupervisor, reread: Callable[[], AgentSettings], clock: Clock) -> bool:
    """Report readiness and wait for SIGTERM, or for SIGHUP; False: restart with the new settings, which are valid.

    Mistakes in new settings are logged, and the agent goes on as it was.
    """
    notify("READY=1")
    while not ending.wait():
        notify_reloading(clock)
        wrong = _wrong(reread, clock) if supervisor.released is None else _RELEASED
        if wrong is None:
            _LOG.info("restarts with the new settings")
            return False
        _LOG.error("the new settings are not used: %s", wrong)
        notify("READY=1")
    notify("STOPPING=1")
    _LOG.info("the agent ends")
    return True


def _wrong(reread: Callable[[], AgentSettings], clock: Clock) -> str | None:
    """Why an agent could not start with the present settings."""
    try:
        make_auth(reread(), clock, "agent")
    except (OSError, ValueError, ImportError) as error:
        return str(error)
    return None


def _namer(settings: AgentSettings, core: AgentCore, exporter: Exporter) -> Callable[[str], None]:
    """Takes the instance id from the metadata service, some time after the start."""

    def name(instance_id: str) -> None:
        if not settings.node_id and board_node_id() is None:
            core.node_id = exporter.node_id = instance_id
            _LOG.info("this is node %s, says its cloud", instance_id)

    return name


def _health(settings: AgentSettings, clock: Clock) -> HealthWatch:
    """The health watch; it stores what it knows of real GPUs only."""
    remembers = settings.reads_this_host and settings.health_file != "none"
    file = HealthFile(Path(settings.health_file)) if remembers else None
    return HealthWatch(clock, settings.health, interval_seconds=settings.interval, file=file)


def _watch_users(settings: AgentSettings, core: AgentCore, users: Attribution, clock: Clock) -> None:
    """Begin to look up the owners of processes; other sources report processes of another host."""
    if settings.reads_this_host:
        follow_slurm_jobs(settings, core, users, clock)
        users.start()


def follow_slurm_jobs(
    settings: AgentSettings, core: AgentCore, users: Attribution, clock: Clock, cgroups: Path = CGROUPS
) -> None:
    """Have a line logged for each Slurm job on this host's GPUs that is over; next to what hears of cycles already."""
    attribution = settings.attribution
    if not (attribution.enabled and attribution.slurm_jobs):
        return
    jobs = SlurmJobs(
        clock,
        lambda: core.snapshot(clock.monotonic()).readings,
        users.view,
        max_gap=settings.activity.max_gap,
        proc=Path(attribution.proc),
        cgroups=cgroups,
    )
    before = core.on_publish

    def publish() -> None:
        before()
        jobs.sample()

    core.on_publish, users.on_view = publish, jobs.look_at_jobs


def _control(settings: AgentSettings, supervisor: ProbeSupervisor, clock: Clock) -> ControlServer | None:
    """Start the control socket; without one the agent does all its other work."""
    if settings.control_socket == "none":
        return None
    try:
        control = ControlServer(Path(settings.control_socket), device_commands(supervisor, clock))
    except OSError as error:
        why = error.strerror or error
        remedy = "set agent.control_socket to a path that this user may make, or to none"
        _LOG.warning(
            "`gpuwatch agent release` will not work: %s cannot be made (%s); %s", settings.control_socket, why, remedy
        )
        return None
    control.start()
    return control


def _foreign(settings: AgentSettings, users: Attribution) -> Callable[[Snapshot, bytes], bytes]:
    """What adds other exporters' names to a page; their tables are loaded only where they are asked for."""
    if not settings.compat:
        return lambda _, page: page
    from gpuwatch.agent.exporter.compat import Compatibility  # noqa: PLC0415  loaded by few agents
    from gpuwatch.agent.exporter.compat.host import HostFigures  # noqa: PLC0415  as above
    from gpuwatch.agent.exporter.compat.processes import ProcessFigures  # noqa: PLC0415  as above

    return Compatibility(
        settings.compat,
        hostname=host_name(),
        top_processes=settings.top_processes,
        users=users.view,
        host=HostFigures(),
        processes=ProcessFigures(Path(settings.attribution.proc)),
    ).extend


def routes(
    core: AgentCore,
    exporter: Exporter,
    supervisor: ProbeSupervisor,
    clock: Clock,
    instance: Callable[[], InstanceStatus | None] = lambda: None,
    page: Callable[[], object] | None = None,
    host: HostSignals | None = None,
) -> dict[str, Route]:
    """The agent's routes by path; with `page`, the host's as well."""

    def serve_metrics(accept: str) -> Response:
        return _response(exporter.page(accept))

    def serve_verdict(_: str) -> Response:
        verdict = core.verdict(clock.monotonic())
        return _verdict(verdict if host is None else host.answer(verdict, None))

    def serve_health(_: str) -> Response:
        """The process: 200 as long as it does its work, also where there is no driver to read."""
        alive = supervisor.alive
        about = {"supervisor": "running" if alive else "dead", **health(core, clock), **metrics.health(instance())}
        body = msgspec.json.encode(about)
        status = HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(body=body, content_type=_JSON, status=status)

    found: dict[str, Route] = {"/metrics": serve_metrics, "/healthz": serve_health, "/v1/verdict": serve_verdict}
    found |= probe_routes(  # ready: the probe has read the GPUs, or has said why it cannot
        lambda: supervisor.alive,
        lambda: supervisor.alive and health(core, clock)["probe"] != {"state": "starting"},
    )
    if page is not None:
        found["/v1/host"] = lambda _: Response(body=msgspec.json.encode(page()), content_type=_JSON)
    return found


def _response(page: Page) -> Response:
    return Response(body=page.body, content_type=page.content_type, packed=page.packed)


def _bad(why: ValueError) -> Response:
    return Response(body=f"400 {why}\n".encode(), content_type=TEXT, status=HTTPStatus.BAD_REQUEST)


def _verdict(verdict: NodeVerdict) -> Response:
    return Response(body=msgspec.json.encode(verdict), content_type=_JSON)


def queries(
    confirmations: Confirmations, exporter: Exporter, core: AgentCore, host: HostSignals, clock: Clock
) -> dict[str, QueryRoute]:
    """The routes with a query.

    /v1/verdict?confirm=NONCE looks at everything again first, ?fleet=SALT&census=ID says what the machine's pool runs;
    /metrics?collect[]=GROUP has those groups of metrics.
    """

    def serve_metrics(query: str, accept: str) -> Response:
        try:
            return _response(exporter.page(accept, groups_in(query, exporter.groups)))
        except ValueError as error:
            return _bad(error)

    def serve(query: str, _: str) -> Response:
        try:
            nonce, question = nonce_in(query), Question.in_query(query)
            if question is not None:
                host.pool.hear(question, clock.monotonic())
            verdict = core.verdict(clock.monotonic()) if nonce is None else confirmations.answer(nonce)
            return _verdict(host.answer(verdict, question))
        except ValueError as error:
            return _bad(error)
        except Busy:
            body = b"503 too many confirmations wait already; ask again in a second\n"
            status, later = HTTPStatus.SERVICE_UNAVAILABLE, (("Retry-After", "1"),)
            return Response(body=body, content_type=TEXT, status=status, headers=later)

    return {"/v1/verdict": serve, "/metrics": serve_metrics}


def health(core: AgentCore, clock: Clock) -> dict[str, object]:
    """What /healthz says about the probe and the GPUs."""
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


def discover_node_id(board_asset_tag: Path = BOARD_ASSET_TAG) -> str:
    """The EC2 instance id where the board carries one, else the host name."""
    return board_node_id(board_asset_tag) or socket.gethostname()


def board_node_id(board_asset_tag: Path = BOARD_ASSET_TAG) -> str | None:
    """The EC2 instance id that the board carries, if any."""
    try:
        tag = board_asset_tag.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    return tag if _EC2_INSTANCE.fullmatch(tag) else None
