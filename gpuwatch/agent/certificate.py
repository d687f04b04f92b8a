"""The agent's own certificate and key: the log says at the start what is wrong with dates, names and rights."""

import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.datagrams import own_addresses
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.runtime.certificates import NAMES_REMEDY, Ends, by_handshake
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.access import is_loopback
from gpuwatch.runtime.http.auth import files_of
from gpuwatch.runtime.secrets import warn_of_open

_LOG = logging.getLogger(__name__)

_ANY = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  what it is not for


def certificate_ends(settings: AgentSettings, clock: Clock) -> Callable[[], Iterator[tuple[str, datetime]]]:
    """When the certificates of the settings end; the log says what is wrong with them, and who may read the key."""
    warn_of_open({"agent.tls_key": settings.tls_key, "agent.users_file": settings.users_file})
    files = files_of(settings, "agent")
    ends = Ends([files], by_handshake, clock)
    hosts = hosts_of(settings)
    if files.certificate is not None and hosts is not None:
        with contextlib.suppress(OSError, ValueError):
            (shown,) = by_handshake(replace(files, ca=None))["agent.tls_certificate"]
            why = shown.not_of(hosts)
            if why is not None:
                _LOG.warning("agent.tls_certificate: %s: %s; %s", files.certificate, why, NAMES_REMEDY)
    return ends.by_setting


def hosts_of(settings: AgentSettings) -> frozenset[str] | None:
    """The names and addresses by which this host is asked; None: it has joined, and its certificate names its node."""
    if settings.controller is not None:
        return None
    addresses = {each for each in own_addresses(Roots()) if not is_loopback(each)}
    return frozenset(addresses | {socket.gethostname(), settings.host, *settings.allowed_hosts}) - _ANY
