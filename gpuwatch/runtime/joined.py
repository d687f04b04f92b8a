"""What hosts that join and their controller agree on: names in certificates, the form of a token, how one is asked.

A certificate names a node, never an address: it holds behind NAT, with several interfaces, in IPv6, after a move.
"""

import base64
import hashlib
import http.client
import re
import socket
import ssl
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.address import host_and_port
from gpuwatch.runtime.http.deadline import TimedSocket, seconds_left

PORT = 9462
CONTROLLER = "controller.gpuwatch"  # in the certificate of the controller, whatever its address
ANY_AGENT = "gpuwatch-agent"  # in every agent's, for clients that know one name for all: Prometheus
PROMETHEUS = "prometheus.gpuwatch"  # in the certificate by which Prometheus may ask agents
PER_NODE = "{node}"  # as signals.tls_server_name: each agent has the name that is made from its node's id
DOMAINS = ("gpuwatch", ANY_AGENT)  # an authority of ours certifies nothing else
LONGEST_NODE_ID = 256

CA_PATH, JOIN_PATH, RENEW_PATH = "/v1/ca", "/v1/join", "/v1/renew"
_LARGEST_BYTES = 65536
_SECONDS = 20.0
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")
_TOKEN = re.compile(r"(?P<id>[0-9a-f]{8})\.(?P<secret>[A-Za-z0-9_-]{32})\.(?P<pin>[A-Za-z0-9_-]{43})")


def server_name_of(node_id: str) -> str:
    """The name in the certificate of a node's agent: ids may be of any length and script, DNS names may not."""
    return f"{hashlib.sha256(node_id.encode(errors='surrogatepass')).hexdigest()[:40]}.node.gpuwatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What lets a host join. `pin` is the SHA-256 of the authority's certificate; the secret is in no text."""

    id: str
    secret: str = field(repr=False)
    pin: bytes = field(repr=False)

    def text(self) -> str:
        """The token as it is handed over."""
        return f"{self.id}.{self.secret}.{base64.urlsafe_b64encode(self.pin).decode().rstrip('=')}"


def read_token(text: str) -> Token:
    """A token as it was handed over.

    Raises:
        ValueError: it is no token; the words do not repeat it.

    """
    found = _TOKEN.fullmatch(text.strip())
    if found is None:
        raise ValueError("the token is not whole; `gpuwatch join token` prints one, of three parts with dots between")
    pin = base64.urlsafe_b64decode(found["pin"] + "=")
    return Token(id=found["id"], secret=found["secret"], pin=pin)


def read_pinned(shown: str, pin: bytes) -> str | None:
    """The authority's certificate in PEM, if what was shown is the one of that SHA-256.

    Only what this gives may be believed: Python's reader of PEM ends at the padding, so behind the right certificate
    there may be another one, which OpenSSL would read, too.
    """
    try:
        certificate = ssl.PEM_cert_to_DER_cert(shown)
    except ValueError:
        return None
    return ssl.DER_cert_to_PEM_cert(certificate) if hashlib.sha256(certificate).digest() == pin else None


def read_authorities(shown: str, known: str) -> str | None:
    """The authorities to believe, in PEM, where a controller names others over a verified line; None: those known.

    One of those known must be among them. Another program's authority stays: only ours names what it certifies.
    """
    found, before = ([ssl.PEM_cert_to_DER_cert(each) for each in _PEM.findall(text)] for text in (shown, known))
    others = [each for each in before if each not in found and ANY_AGENT.encode() not in each]
    if not set(found) & set(before) or {*found, *others} == set(before):
        return None
    return "".join(map(ssl.DER_cert_to_PEM_cert, [*found, *others]))


def controller_url(text: str) -> str:
    """The URL of a controller's port for hosts that join, of an address, with or without scheme and port.

    Raises:
        ValueError: it is no such address.

    """
    wrong = ValueError(
        f"{text!r} is not the address of a controller, such as 10.0.0.5, [fd00::5]:{PORT} or ctl.internal"
    )
    bare = text if "//" in text else f"//[{text}]" if text.count(":") > 1 and not text.startswith("[") else f"//{text}"
    try:
        parts = urlsplit(bare, scheme="https")
        port = parts.port or PORT
    except ValueError:
        raise wrong from None
    if parts.scheme != "https" or not parts.hostname or parts.username is not None or parts.path.strip("/"):
        raise wrong
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"https://{host}:{port}"


class AnswerError(Exception):
    """The controller answered something else than was asked for; the message has its words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def unverified_context() -> "ssl.SSLContext":
    """For the question after the authority alone, which the pin answers: nothing secret may be sent over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def ask_controller(url: str, path: str, body: bytes | None, context: "ssl.SSLContext", clock: Clock) -> bytes:
    """The controller's answer; no proxy, no redirect, one deadline for all.

    Raises:
        AnswerError: it refuses.
        OSError, http.client.HTTPException: it gives no answer.

    """
    parts, until = urlsplit(url), clock.monotonic() + _SECONDS
    host = parts.hostname or ""
    with (
        socket.create_connection((host, parts.port or PORT), timeout=_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=CONTROLLER) as line,
    ):
        line.settimeout(seconds_left(clock, until))
        asked = http.client.HTTPConnection(host, parts.port or PORT)
        asked.sock = line
        headers = {"Host": host_and_port(url), "Content-Type": "application/json", "Connection": "close"}
        asked.request("GET" if body is None else "POST", path, body=body, headers=headers)
        response = http.client.HTTPResponse(cast("socket.socket", TimedSocket(line, clock, until)))
        response.begin()
        answer = response.read(_LARGEST_BYTES)
        if response.status != 200:  # noqa: PLR2004  HTTP
            words = answer.decode(errors="replace").strip()[:300]
            raise AnswerError(response.status, words or f"HTTP {response.status}")
        return answer
