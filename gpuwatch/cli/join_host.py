"""`gpuwatch agent join`: this host gets a certificate from its controller, and its agent the settings to use it.

The token says which authority is the right one: nothing secret leaves before the controller has proven to be it.
"""

import http.client
import json
import os
import ssl
import stat
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.cli.base import config_option, print_text, zero_or_more
from gpuwatch.cli.join_folder import AgentFolder, open_folder
from gpuwatch.runtime import joined
from gpuwatch.runtime.clock import Clock, SystemClock
from gpuwatch.runtime.json_document import read_json
from gpuwatch.runtime.network_errors import network_text

TOKEN_VARIABLE = "GPUWATCH_JOIN_TOKEN"  # noqa: S105  the name of a variable
FOLDER = Path("/var/lib/gpuwatch-agent/join")
_KEY = "agent.key"
_LONGEST_PAUSE = 30.0
_LATER = frozenset({429, 503})
_DOOR = f"Hosts join at port {joined.PORT} of the controller, where its controller.join.host is set"


class JoinError(Exception):
    """The host has not joined; the words say why, and what helps."""


@click.command(name="join")
@click.argument("controller", metavar="CONTROLLER", callback=lambda _c, _p, value: _controller(value))
@click.option(
    "--token", metavar="TOKEN", help="What `gpuwatch join token` has printed. Other users of this host see it."
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="A file that holds it; -: stdin.",
)
@click.option("--node", metavar="ID", help="The node's id in its cloud; else the one that the agent finds by itself.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=FOLDER,
    show_default=True,
    help="Where certificate, key and authority are kept; the agent must be able to write there.",
)
@click.option(
    "--wait",
    "seconds",
    callback=zero_or_more,
    default="0",
    metavar="DURATION",
    help="Try again for so long while the controller gives no answer, such as 10m.",
)
@config_option
def agent_join(
    *,
    controller: str,
    token: str | None,
    token_file: Path | None,
    node: str | None,
    folder: Path,
    seconds: float,
    path: Path | None,
) -> None:
    """Get a certificate for this host from its controller, and set up the agent to use it.

    The token comes from --token-file, from the variable GPUWATCH_JOIN_TOKEN, or from --token.
    """
    from gpuwatch.cli.join_settings import SettingsFile
    from gpuwatch.config import ConfigError

    variable = os.environ.pop(TOKEN_VARIABLE, None)  # no setting, and no program started from here needs it
    try:
        given = joined.read_token(_token_text(token, token_file, variable))
        file = SettingsFile.read_file(path, os.environ)
        node_id = node or _node_id(file.agent)
        host = Joining(url=controller, token=given, node_id=node_id, folder=folder.absolute(), clock=SystemClock())
        with file.prepare_file(host.settings(node)) as settings:
            until = host.join(seconds)
            settings.put_in_place()
    except ConfigError as error:
        print_text(error, err=True)
        sys.exit(2)
    except (JoinError, ValueError) as error:
        print_text(f"This host has not joined: {error}.", err=True)
        sys.exit(1)
    except OSError as error:
        remedy = "; run this as root, with sudo" if isinstance(error, PermissionError) else ""
        why = f"{error.filename or 'a file'}: {error.strerror or error}{remedy}"
        print_text(f"This host has not joined: {why}.", err=True)
        sys.exit(1)
    print_text(
        f"{node_id} has joined. Its certificate is valid until {until}; the agent renews it in time.\n"
        f"Settings: {file.path}. Start the agent now, or restart it: sudo systemctl enable gpuwatch-agent && "
        "sudo systemctl restart gpuwatch-agent"
    )


def _controller(value: str) -> str:
    try:
        return joined.controller_url(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _token_text(token: str | None, file: Path | None, variable: str | None) -> str:
    """The token from the one place that was given."""
    given = [each for each in (token, file, variable) if each]
    if len(given) != 1:
        words = "once" if given else f"by --token-file, {TOKEN_VARIABLE} or --token"
        raise click.UsageError(f"give the token {words}")
    if file is None:
        return token or variable or ""
    if file.is_file() and file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        print_text(f"Warning: other users of this host may read {file}; remove it.", err=True)
    with click.open_file(str(file), encoding="ascii", errors="replace") as opened:
        return str(opened.read(4096))


def _node_id(settings: AgentSettings) -> str:
    """The id that the agent gives for itself."""
    from gpuwatch.agent.daemon import discover_node_id
    from gpuwatch.agent.metadata.watcher import instance_id

    return settings.node_id or instance_id(settings.metadata, SystemClock()) or discover_node_id()


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """One host on its way in."""

    url: str
    token: joined.Token
    node_id: str
    folder: Path
    clock: Clock

    def settings(self, node: str | None) -> dict[str, object]:
        """What the section `agent` must have."""
        anywhere = "::" if self.url.startswith("https://[") else "0.0.0.0"  # noqa: S104  with TLS and client certificates
        named: dict[str, object] = {} if node is None else {"node_id": node}
        return named | {
            "host": anywhere,
            "tls_certificate": str(self.folder / "agent.pem"),
            "tls_key": str(self.folder / "agent.key"),
            "tls_client_ca": str(self.folder / "ca.pem"),
            "tls_client_names": [joined.CONTROLLER, joined.PROMETHEUS],
            "notice_users": ["gpuwatch-controller"],
            "controller": self.url,
        }

    def join(self, seconds: float) -> str:
        """Have the certificate in its file; gives its end in words."""
        with open_folder(self.folder) as folder:
            request = _request(folder)
            authority, certificate = self._patiently(request, seconds)
            return _keep_certificate(folder, authority, certificate, self.clock.now())

    def _patiently(self, request: str, seconds: float) -> tuple[str, str]:
        until, pause = self.clock.monotonic() + seconds, 1.0
        while True:
            try:
                return self._ask(request)
            except joined.AnswerError as error:
                why, again = str(error), error.status in _LATER
            except ssl.SSLCertVerificationError as error:
                why = f"{self.url} is not believed ({error.verify_message}); compare the clocks of both machines"
                raise JoinError(why) from error
            except (OSError, http.client.HTTPException) as error:
                words = network_text(error, self.url) or getattr(error, "strerror", None) or error
                why, again = f"{self.url} gives no answer: {words or type(error).__name__}. {_DOOR}", True
            if not again or self.clock.monotonic() + pause > until:
                raise JoinError(why)
            print_text(f"{why}; trying again.", err=True)
            self.clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _ask(self, request: str) -> tuple[str, str]:
        """The authority's certificate and ours."""
        anybody = joined.unverified_context()
        shown = joined.ask_controller(self.url, joined.CA_PATH, None, anybody, self.clock).decode(errors="replace")
        authority = joined.read_pinned(shown, self.token.pin)
        if authority is None:
            raise JoinError(
                f"{self.url} has another authority than the token names: it is another controller, or somebody between "
                "it and this host; the token was not sent"
            )
        body = json.dumps(
            {"token": self.token.id, "secret": self.token.secret, "node_id": self.node_id, "request": request}
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=authority)
        given = read_json(joined.ask_controller(self.url, joined.JOIN_PATH, body.encode(), context, self.clock))
        believed = joined.read_authorities(str(given.get("authority")), authority)  # also its successor
        return believed or authority, str(given.get("certificate"))


def _keep_certificate(folder: AgentFolder, authority: str, certificate: str, now: datetime) -> str:
    """Write both, once they fit the key."""
    from gpuwatch.runtime.certificates import by_handshake
    from gpuwatch.runtime.tls import TlsFiles

    with folder.prepare_file("agent.pem", certificate) as fresh:
        files = TlsFiles(section="agent", certificate=fresh, key=folder.path / _KEY)
        (validity,) = by_handshake(files)["agent.tls_certificate"]
        validity.check_time(now)
        folder.write("ca.pem", authority)
        folder.put_in_place(fresh, "agent.pem")
    return f"{validity.end:%Y-%m-%d}"


def _request(folder: AgentFolder) -> str:
    """A request for a certificate, signed with the key in the folder; a missing key is made."""
    try:
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        from gpuwatch.runtime.installed import MissingExtraError, install_command

        raise MissingExtraError(f"to make a key takes the package cryptography: {install_command('join')}") from error
    there = folder.read(_KEY)
    if there is None:
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        there = ec.generate_private_key(ec.SECP256R1()).private_bytes(*form)
        folder.write(_KEY, there.decode())
    try:
        key = serialization.load_pem_private_key(there, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise JoinError(f"{folder.path / _KEY} is no key that gpuwatch has made; move it away")
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()
