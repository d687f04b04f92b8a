"""Settings of an HTTP server: address, TLS, users and limits. Agent and controller have the same ones."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MinLen

from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings of one server."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    port: Annotated[int, Ge(0), Le(65535), Setting("TCP port to listen on; 0 takes any free one.")] = 0
    host: Annotated[
        str,
        MinLen(1),
        Setting("Address to listen on. Beyond loopback it needs TLS and authentication (docs/tls-and-auth.md)."),
    ] = "127.0.0.1"
    max_connections: Annotated[int, Ge(1), Le(10_000), Setting("Connections served at once; those beyond get 503.")] = (
        64
    )
    max_connections_per_client: Annotated[
        int, Ge(1), Le(10_000), Setting("Connections of one address (in IPv6 one /64) at once; those beyond get 429.")
    ] = 16
    connection_timeout: Annotated[
        Seconds, Gt(0), Le(300), Setting("A connection that completes no request within this time is closed.")
    ] = 20.0
    tls_certificate: Annotated[
        str | None, Setting("Certificate in PEM, intermediates after it; read again when it changes. None: no TLS.")
    ] = None
    tls_key: Annotated[str | None, Setting("The certificate's private key in PEM, without a passphrase.")] = None
    tls_client_ca: Annotated[
        str | None, Setting("CA certificates in PEM; only clients with a certificate of theirs are served.")
    ] = None
    tls_min: Annotated[
        Literal["1.2", "1.3"],
        Setting("The oldest version of TLS that is served; 1.3 refuses older clients."),
    ] = "1.2"
    tls_client_names: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting(
            "A client's certificate must have one of these as a subjectAltName. Without any: any of the CA will do."
        ),
    ] = ()
    users_file: Annotated[
        str | None, Setting("Lines of USER:HASH as `htpasswd -B` writes them; only these users are served.")
    ] = None
    basic_auth_users: Annotated[
        dict[str, str],
        Setting("Further users and their bcrypt hashes; a user of the file goes before one of the same name."),
    ] = field(default_factory=dict, repr=False)
    allowed_hosts: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting(
            "Names for requests over plain http on loopback without users, besides localhost and addresses: "
            "other sites' names may be made to lead there."
        ),
    ] = ()
    insecure: Annotated[
        bool,
        Setting(
            "Listen beyond loopback also without TLS or without authentication: everybody who can reach it may ask."
        ),
    ] = False
