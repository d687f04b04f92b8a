"""The agent's settings where file and environment have no others, and no mistake: the usual case on a GPU host.

It is the same judgement, by pydantic and the same declarations, of a part of the settings: the controller's, its
clouds', policies' and prices' are not loaded, which halves the time. Wherever anything is not so, or not plainly so,
`reader.py` judges the whole, and finds the words for people.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuwatch.agent.settings import AgentHandover, AgentSettings
from gpuwatch.config import keys
from gpuwatch.config.chosen_file import FILE_VARIABLE, PREFIX, default_path
from gpuwatch.config.keys import Kind
from gpuwatch.model.duration import format_duration
from gpuwatch.model.setting import Contradiction
from gpuwatch.runtime.http import access, address
from gpuwatch.runtime.program import VARIABLE as TRACEBACK_VARIABLE
from gpuwatch.runtime.secrets import files_named

_LIKE_OURS = ("GPU", "WATCH", "__")  # in the name of another variable: perhaps one of ours, misspelt


def plainly(path: Path | None, env: Mapping[str, str]) -> AgentHandover | None:
    """What `load_handed` returns for the same file and environment; None: only it can tell."""
    path = path or default_path(env)
    declared = keys.declared_keys(AgentHandover)
    written = {} if path is None else _read_file(path, declared)
    given = _read_variables(env, declared)
    if written is None or given is None or not written.keys() <= {"agent", "log_format"}:
        return None
    for place, value in given.items():
        section = written
        for name in place[:-1]:
            section = section.setdefault(name, {})
            if not isinstance(section, dict):
                return None
        section[place[-1]] = value
    handed = _validate_values(written)
    if handed is None or any(":" in named for _, named in files_named(handed)):
        return None
    return None if any(contradictions(handed.agent)) else handed


def _read_file(path: Path, declared: Mapping[keys.Path, keys.Key]) -> dict[str, Any] | None:
    """What a file holds; None: something is wrong with it."""
    from gpuwatch.config import yaml_file  # noqa: PLC0415  not where there is no file

    origin = yaml_file.Origin(keys=declared, file=str(path))
    try:
        values = yaml_file.read_values(path, origin) if path.is_file() else None
    except OSError:
        return None
    return None if origin.problems else values


def _read_variables(env: Mapping[str, str], declared: Mapping[keys.Path, keys.Key]) -> dict[keys.Path, Any] | None:
    """What variables set; None: one needs a closer look."""
    by_name = {key.variable: key for key in declared.values() if key.kind not in keys.GROUPS}
    given: dict[keys.Path, Any] = {}
    for name, value in env.items():
        key = by_name.get(name)
        if key is None:
            if name not in {FILE_VARIABLE, TRACEBACK_VARIABLE} and (
                name.startswith(PREFIX) or any(part in name.upper() for part in _LIKE_OURS)
            ):
                return None
        elif key.kind is Kind.LIST:
            if value.strip().startswith("["):
                return None
            if value:
                given[key.path] = [text.strip() for text in value.split(",")]
        elif value:
            given[key.path] = value
    return given


def _validate_values(values: Mapping[str, Any]) -> AgentHandover | None:
    """The values, valid; None: they are not."""
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # noqa: PLC0415  for a short life in one process

    section = TypeAdapter(AgentSettings)
    hint = AgentHandover.__annotations__["log_format"]
    log_format = TypeAdapter(hint, config=ConfigDict(strict=True))
    try:
        return AgentHandover(
            agent=section.validate_python(values.get("agent", {})),
            log_format=log_format.validate_python(values.get("log_format", "text")),
        )
    except ValidationError:
        return None


def contradictions(agent: AgentSettings) -> Iterator[Contradiction]:
    """What no single setting's bounds can check, among those of the agent."""
    if agent.activity.max_gap <= agent.interval:
        gap, interval = format_duration(agent.activity.max_gap), format_duration(agent.interval)
        yield Contradiction(
            keys=(("agent", "activity", "max_gap"), ("agent", "interval")),
            wrong=f"agent.activity.max_gap ({gap}) does not exceed agent.interval ({interval}): no time counts",
            right=f"an agent.activity.max_gap of several intervals, such as {format_duration(10 * agent.interval)}",
        )
    if agent.restart_max < agent.restart_min:
        longest, first = format_duration(agent.restart_max), format_duration(agent.restart_min)
        yield Contradiction(
            keys=(("agent", "restart_max"), ("agent", "restart_min")),
            wrong=f"agent.restart_max ({longest}) is shorter than agent.restart_min ({first})",
            right=f"an agent.restart_max of {first} or more",
        )
    if agent.compat_only and not agent.compat:
        yield Contradiction(
            keys=(("agent", "compat_only"), ("agent", "compat")),
            wrong="agent.compat_only is set, but agent.compat names no exporter: the page would be empty",
            right="agent.compat: a list of dcgm, nvidia_smi, nvitop; or no agent.compat_only",
        )
    if agent.source == "replay" and agent.capture is None:
        yield Contradiction(
            keys=(("agent", "source"),),
            wrong="agent.source is replay, but agent.capture names no recording",
            right="agent.capture: the file of a recorded probe stream",
        )
    if agent.evidence.model_servers.endpoints:
        from gpuwatch.agent.evidence import loopback  # noqa: PLC0415  loads an HTTP client

        yield from loopback.contradictions(agent.evidence.model_servers)
    if agent.metadata.endpoint is not None:
        endpoint = ("agent", "metadata", "endpoint")
        yield from address.contradictions(
            endpoint, agent.metadata.endpoint, right="a URL such as http://169.254.169.254"
        )
    yield from access.contradictions(agent, "agent")
    if agent.poweroff and not agent.notice_users:
        yield Contradiction(
            keys=(("agent", "poweroff"), ("agent", "notice_users")),
            wrong="agent.poweroff is set without agent.notice_users: every client could have this host powered off",
            right="also agent.notice_users with the controller's user, such as [gpuwatch-controller]",
        )
    if agent.notice_users and not (agent.basic_auth_users or agent.users_file or agent.tls_client_ca):
        yield Contradiction(
            keys=(("agent", "notice_users"), ("agent", "users_file")),
            wrong="agent.notice_users is set without authentication: the agent would refuse every notice",
            right="agent.users_file or agent.tls_client_ca",
        )
    if agent.controller is not None:
        right = "a URL such as https://10.0.0.5:9462; `gpuwatch agent join` writes it"
        yield from address.contradictions(("agent", "controller"), agent.controller, right=right)
        if not agent.controller.startswith("https://") or agent.tls_certificate is None or agent.tls_client_ca is None:
            yield Contradiction(
                keys=(("agent", "controller"), ("agent", "tls_certificate"), ("agent", "tls_client_ca")),
                wrong="agent.controller renews a certificate over https, and there is no agent.tls_certificate, "
                "agent.tls_client_ca, or https",
                right=f"{right}, with the others",
            )
