"""Every setting of how the controller reaches agents. `gpuwatch.settings` puts them into the configuration file."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from gpuwatch.model.knobs import STRICT, Contradiction, Knob, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeKnobs:
    """How the agents are reached."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    scheme: Annotated[Literal["http", "https"], Knob("How agents are spoken to.")] = "http"
    port: Annotated[int, Ge(1), Le(65535), Knob("The agents' port, at the address that the cloud tells.")] = 9460
    timeout: Annotated[Seconds, Gt(0), Knob("An agent that has not answered in full by then is unknown.")] = 5.0
    concurrency: Annotated[int, Gt(0), Le(2000), Knob("So many agents are asked at the same time.")] = 100
    targets: Annotated[
        dict[str, str], Knob("Base URLs by node id or name, where the address of the cloud does not lead to the agent.")
    ] = field(default_factory=dict)
    tls_ca: Annotated[
        str | None, Knob("CA certificates in PEM that agents' certificates must come from. None: the system's.")
    ] = None
    tls_server_name: Annotated[
        str | None, Knob("The name in every agent's certificate. None: each has the address or name that is asked.")
    ] = None
    tls_certificate: Annotated[
        str | None, Knob("Our own certificate in PEM, for agents with a tls_client_ca; read again when it changes.")
    ] = None
    tls_key: Annotated[str | None, Knob("Our certificate's private key in PEM, without a passphrase.")] = None
    username: Annotated[
        str | None, Knob("The user to be, for agents with users; the password goes out over https only.")
    ] = None
    password_file: Annotated[
        str | None, Knob("The file that holds the user's password and nothing else; read again when it changes.")
    ] = None


def contradictions(knobs: ScrapeKnobs) -> Iterator[Contradiction]:
    """Settings of which one is of no use without the other."""
    for one, other in (("tls_certificate", "tls_key"), ("username", "password_file")):
        given = [name for name in (one, other) if getattr(knobs, name) is not None]
        if len(given) == 1:
            missing = other if given == [one] else one
            yield Contradiction(
                keys=(("signals", given[0]), ("signals", missing)),
                wrong=f"signals.{given[0]} is set without signals.{missing}",
                right="both, or neither",
            )
    if knobs.username is not None and ":" in knobs.username:
        yield Contradiction(
            keys=(("signals", "username"),), wrong="signals.username holds a colon", right="a name without one"
        )
